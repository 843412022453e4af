//! Tools that look where they should see nothing, or nothing real.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use deed_sdk::prelude::*;

/// Tries to read a file. Returns its text, or the error's.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Escape {
    path: String,
}

impl Tool for Escape {
    const NAME: &str = "escape";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        Ok(Output::text(match fs::read_to_string(&self.path) {
            Ok(text) => format!("read: {text}"),
            Err(error) => format!("refused: {error}"),
        }))
    }
}

/// Reads the wall clock twice, and a random number.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Clock {}

/// What it read.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Reading {
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    first_ns: u128,
    /// The same, read right after.
    second_ns: u128,
    random: u64,
}

impl Tool for Clock {
    const NAME: &str = "clock";
    const EFFECT: Effect = Effect::Pure;
    const RESULT: Option<ResultType> = Some(ResultType::of::<Reading>());

    fn run(self, _: &Call) -> Result<Output> {
        let now_ns = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Output::json(&Reading {
            first_ns: now_ns(),
            second_ns: now_ns(),
            random: RandomState::new().hash_one(0_u8),
        })
    }
}

/// Returns the environment variables and the arguments it sees.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Environment {}

/// What it saw.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Surroundings {
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
}

impl Tool for Environment {
    const NAME: &str = "environment";
    const EFFECT: Effect = Effect::Pure;
    const RESULT: Option<ResultType> = Some(ResultType::of::<Surroundings>());

    fn run(self, _: &Call) -> Result<Output> {
        Output::json(&Surroundings {
            variables: std::env::vars().collect(),
            arguments: std::env::args().collect(),
        })
    }
}

/// Tries to connect by TCP. Returns `connected`, or the error's text.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Connect {
    /// Host and port.
    address: String,
}

impl Tool for Connect {
    const NAME: &str = "connect";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        Ok(Output::text(match TcpStream::connect(&self.address) {
            Ok(_) => "connected".into(),
            Err(error) => error.to_string(),
        }))
    }
}
