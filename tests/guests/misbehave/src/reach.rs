//! Tools that reach for servers as their class does not let them, or make too little of what came of it.

use deed_sdk::http::{Method, Request};
use deed_sdk::prelude::*;

/// Claims to be pure, and asks a server.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct FetchPure {
    url: String,
}

impl Tool for FetchPure {
    const NAME: &str = "fetch_pure";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        let response = Request::new(Method::Get, &self.url)?.send()?;
        Ok(Output::text(response.status().to_string()))
    }
}

/// Claims to be idempotent, and sends two things to a server with a key of its own making. Its probe looks, or sends as
/// well, by `probe_sends`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct PostTwice {
    url: String,
    #[serde(default)]
    probe_sends: bool,
}

impl PostTwice {
    fn post(&self) -> Result<u16> {
        let request = Request::new(Method::Post, &self.url)?.header("idempotency-key", "mine");
        Ok(request.body("once more").send()?.status())
    }
}

impl Tool for PostTwice {
    const NAME: &str = "post_twice";
    const EFFECT: Effect = Effect::Idempotent;
    const OPEN_WORLD: bool = true;

    fn run(self, _: &Call) -> Result<Output> {
        Ok(Output::text(format!("{} {}", self.post()?, self.post()?)))
    }
}

impl Probe for PostTwice {
    fn probe(&self, _: &Call) -> Result<Verdict> {
        let status = if self.probe_sends {
            self.post()?
        } else {
            Request::new(Method::Get, &self.url)?.send()?.status()
        };
        Ok(Verdict::Undecidable(format!("status {status}")))
    }
}

/// Sends something, and says that nothing came of it whenever there is no answer.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Shrug {
    url: String,
}

impl Tool for Shrug {
    const NAME: &str = "shrug";
    const EFFECT: Effect = Effect::NonIdempotent;
    const OPEN_WORLD: bool = true;

    fn run(self, _: &Call) -> Result<Output> {
        let response = Request::new(Method::Post, &self.url)?.send();
        let response =
            response.map_err(|error| Error::unavailable(format!("nothing happened: {error:?}")))?;
        Ok(Output::text(response.status().to_string()))
    }
}
