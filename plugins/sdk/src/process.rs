//! Running a command of the host's machine: `deed:process`. Refused to pure calls.

pub use crate::bindings::deed::process::exec::{Capture, Command, Ended, Error, Status, run};

impl Command {
    /// `program` without arguments, in the workspace's root, with the host's environment and limits, and no input.
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            directory: None,
            env: Vec::new(),
            stdin: Vec::new(),
            timeout_ms: None,
            output_limit_bytes: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Runs it to its end. A status that is not zero is no error.
    pub fn run(&self) -> Result<Ended, Error> {
        run(self)
    }
}
