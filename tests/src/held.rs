//! A process in the middle of a call, for as long as a test likes.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
    sync::mpsc,
    thread,
};

use serde_json::json;

use crate::{CallReply, Running, Sandbox, process::PATIENCE};

/// A process whose command waits for the test. Dropped, it is killed.
pub struct Held {
    /// The process.
    pub process: Running,
    /// Its command.
    pub command: Waiting,
}

/// A command that waits for the test.
pub struct Waiting {
    /// Where the command reads the word that lets it end.
    go: File,
    /// Kept open, so that a command that is run again can say once more that it runs.
    _started: File,
}

impl Held {
    /// Call a command in the workspace of `sandbox`, with the journal at `journal`, and wait until it runs. There is room
    /// for one such command in a sandbox, in which nothing is contained: what a contained one sees of the pipes is its own.
    #[track_caller]
    pub fn in_call(sandbox: &Sandbox, journal: &Path) -> Self {
        sandbox.contain_nothing();
        let (started_path, started) = sandbox.fifo("started");
        let (go_path, go) = sandbox.fifo("go");
        let (started_path, go_path) = (started_path.display(), go_path.display());
        let command = format!("echo started > '{started_path}'; read word < '{go_path}'; echo \"$word\"");
        let input = json!({ "command": command }).to_string();
        let workspace = sandbox.workspace();
        let call = sandbox.deed_on(journal, ["call", "shell", &input]);
        let process = call.args(["--workspace".as_ref(), workspace.as_os_str()]).start();
        // The command says when it runs; from then on its process holds the journal until it is told to go on.
        let listening = started.try_clone().expect("a handle can be copied");
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            if BufReader::new(listening).read_line(&mut line).is_ok() {
                tell.send(line).ok();
            }
        });
        assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("started\n"), "the command runs");
        Self { process, command: Waiting { go, _started: started } }
    }

    /// Let the command end, and its process with it.
    #[track_caller]
    pub fn release(mut self) -> CallReply {
        self.command.end();
        let reply: CallReply = self.process.wait().expect_code(0).json();
        assert!(reply.text().contains("released"), "{reply:?}");
        reply
    }
}

impl Waiting {
    /// Let it end, or the next one that runs in its place.
    pub fn end(&mut self) {
        self.go.write_all(b"released\n").expect("both ends of the pipe are open");
    }
}
