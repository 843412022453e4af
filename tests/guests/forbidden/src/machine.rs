//! What can be done to the rest of the machine, and what can be seen of it.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::BuildHasher;
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use deed_sdk::git;
use deed_sdk::process::{Command, Status};

pub(crate) fn connect(address: &str) -> Result<String, String> {
    TcpStream::connect(address).map(|_| String::new()).map_err(|error| error.to_string())
}

pub(crate) fn listen(address: &str) -> Result<String, String> {
    TcpListener::bind(address).map(|_| String::new()).map_err(|error| error.to_string())
}

pub(crate) fn send_datagram(address: &str) -> Result<String, String> {
    let sent = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"x", address));
    sent.map(|_| String::new()).map_err(|error| error.to_string())
}

pub(crate) fn look_up(name: &str) -> Result<String, String> {
    (name, 80).to_socket_addrs().map(|_| String::new()).map_err(|error| error.to_string())
}

/// Run a program with one argument, or none.
pub(crate) fn run(program: &str, argument: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    if !argument.is_empty() {
        command = command.arg(argument);
    }
    let ended = command.run().map_err(|error| format!("{error:?}"))?;
    match ended.status {
        Status::Exited(code) => Ok(format!("exit code {code}")),
        Status::Signalled(signal) => Ok(format!("signal {signal}")),
    }
}

pub(crate) fn commit() -> Result<String, String> {
    git::commit("Try to commit", &[]).map(|_| String::new()).map_err(|error| format!("{error:?}"))
}

pub(crate) fn status() -> Result<String, String> {
    let summary = git::status().map_err(|error| format!("{error:?}"))?;
    Ok(format!("{} differ", summary.entries.len()))
}

/// Variables and arguments.
pub(crate) fn environment() -> String {
    let variables: Vec<_> = env::vars_os().collect();
    let arguments: Vec<_> = env::args_os().collect();
    format!("{variables:?} {arguments:?}")
}

/// Seconds of the wall clock, and the monotonic clock as the library prints it.
pub(crate) fn time() -> String {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("{wall} {:?}", Instant::now())
}

/// A number that the library drew from the system's entropy.
pub(crate) fn random() -> String {
    RandomState::new().hash_one(0_u8).to_string()
}
