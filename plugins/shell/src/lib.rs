//! `shell`: run a shell command in the workspace.

use deed_sdk::prelude::*;
use deed_sdk::process::{Capture, Command, Ended, Status};

/// Run a shell command (`sh -c`) in the workspace and read its output. The command starts from nothing each time: no
/// directory or variable of an earlier one is kept. An exit code other than 0 is reported, not an error.
#[derive(Deserialize, JsonSchema)]
struct Shell {
    /// The command line.
    command: String,
    /// Where to run it, relative to the workspace; the workspace's root if left out.
    directory: Option<String>,
    /// Milliseconds after which it is killed, with everything it started; the call's own limit if left out.
    timeout_ms: Option<u64>,
}

/// What a model can still take in; the same for each of the two streams. Longer output belongs into a file.
const OUTPUT_LIMIT_BYTES: u64 = 64 * 1024;

/// How the command ended.
#[derive(Serialize, JsonSchema)]
struct Outcome {
    /// None when a signal ended it.
    exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    signal: Option<i32>,
    stdout: String,
    stderr: String,
    /// Bytes of `stdout` that were dropped.
    stdout_cut_bytes: u64,
    /// Bytes of `stderr` that were dropped.
    stderr_cut_bytes: u64,
}

impl Tool for Shell {
    const NAME: &str = "shell";
    const EFFECT: Effect = Effect::NonIdempotent;
    const DESTRUCTIVE: bool = true;
    const OPEN_WORLD: bool = true;
    const RESULT: Option<ResultType> = Some(ResultType::of::<Outcome>());

    fn run(self, _: &Call) -> Result<Output> {
        let failed = format!("failed to run `{}`", self.command);
        let mut sh = Command::new("sh").arg("-c").arg(self.command);
        sh.directory = self.directory;
        sh.timeout_ms = self.timeout_ms;
        sh.output_limit_bytes = Some(OUTPUT_LIMIT_BYTES);
        let ended = sh.run().map_err(|error| Error::from(error).context(failed))?;
        let outcome = Outcome::from(ended);
        Output::text(outcome.to_text()).with_json(&outcome)
    }
}

impl From<Ended> for Outcome {
    fn from(ended: Ended) -> Self {
        let (exit_code, signal) = match ended.status {
            Status::Exited(code) => (Some(code), None),
            Status::Signalled(signal) => (None, Some(signal)),
        };
        let text = |capture: &Capture| String::from_utf8_lossy(&capture.data).into_owned();
        Self {
            exit_code,
            signal,
            stdout: text(&ended.stdout),
            stderr: text(&ended.stderr),
            stdout_cut_bytes: ended.stdout.cut_bytes,
            stderr_cut_bytes: ended.stderr.cut_bytes,
        }
    }
}

impl Outcome {
    fn to_text(&self) -> String {
        let mut text = match (self.exit_code, self.signal) {
            (Some(code), _) => format!("exit code {code}\n"),
            (None, Some(signal)) => format!("ended by signal {signal}\n"),
            (None, None) => unreachable!("a command ends by an exit or by a signal"),
        };
        let mut stream = |heading: &str, data: &str, cut_bytes: u64| {
            if data.is_empty() && cut_bytes == 0 {
                return;
            }
            text.push_str(heading);
            text.push_str(data);
            if !data.is_empty() && !data.ends_with('\n') {
                text.push('\n');
            }
            if cut_bytes > 0 {
                text.push_str(&format!("[cut: {cut_bytes} more bytes; write long output to a file]\n"));
            }
        };
        stream("", &self.stdout, self.stdout_cut_bytes);
        stream("stderr:\n", &self.stderr, self.stderr_cut_bytes);
        text
    }
}

deed_sdk::export!(Shell);

#[cfg(test)]
mod tests {
    use super::*;

    fn text(status: Status, stdout: (&str, u64), stderr: (&str, u64)) -> String {
        let capture = |(data, cut_bytes): (&str, u64)| Capture { data: data.into(), cut_bytes };
        Outcome::from(Ended { status, stdout: capture(stdout), stderr: capture(stderr) }).to_text()
    }

    #[test]
    fn the_exit_code_comes_first_then_the_output() {
        assert_eq!(text(Status::Exited(0), ("1\n", 0), ("", 0)), "exit code 0\n1\n");
        assert_eq!(text(Status::Exited(2), ("a", 0), ("b", 0)), "exit code 2\na\nstderr:\nb\n");
        assert_eq!(text(Status::Signalled(9), ("", 0), ("", 0)), "ended by signal 9\n");
    }

    #[test]
    fn cut_output_says_so() {
        assert_eq!(
            text(Status::Exited(0), ("a", 7), ("", 0)),
            "exit code 0\na\n[cut: 7 more bytes; write long output to a file]\n"
        );
    }
}
