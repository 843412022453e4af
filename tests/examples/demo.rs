//! A mission that is killed twice and comes back: what `make demo` shows.
//!
//! Real processes of the real binary in a fresh git repository, which is gone afterwards. The places of the two kills are
//! the ones that hurt most: a file is edited, or a commit made, and the process dies before it has recorded that.

use std::io::{self, ErrorKind, Write};
use std::time::Instant;

use comfy_table::{Table, presets::NOTHING};
use deed_tests::{Ending, Envelope, Kill, Message, Point, Sandbox, StepRow};

/// Where the processes die, one after the other.
const KILLS: [(u64, Point, &str); 2] = [
    (11, Point::AfterExec, "step 11: the file is edited, which is not recorded"),
    (17, Point::AfterExec, "step 17: the commit is made, which is not recorded"),
];

/// Columns that everything fits in.
const WIDTH: usize = 100;

/// Columns before what a message says.
const SPEAKER: usize = 22;

/// Lines of a message; a longer one is cut.
const MESSAGE_LINES: usize = 3;

fn main() -> io::Result<()> {
    match show(&mut io::stdout().lock()) {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        end => end,
    }
}

fn show(out: &mut impl Write) -> io::Result<()> {
    let started = Instant::now();
    let sandbox = Sandbox::of("fix-add");

    writeln!(out, "A mission is killed twice, and comes back.\n")?;
    writeln!(
        out,
        "The mission is to fix a function in a small git repository, in seven turns of a model (here a"
    )?;
    writeln!(
        out,
        "script). Its tools are WebAssembly components. The process is killed by SIGKILL twice, each time"
    )?;
    writeln!(
        out,
        "at the worst moment: an effect is there, and its record is not. Fresh processes go on. (A hidden"
    )?;
    writeln!(
        out,
        "option makes a process send itself the signal at a given step, so that this is the same each time.)"
    )?;

    heading(out, "What was typed")?;
    for (number, (seq, point, meaning)) in KILLS.into_iter().enumerate() {
        let kill = Kill::new(seq, point);
        let (deed, line) = match number {
            0 => (sandbox.run(Some(kill)), "deed run mission.json"),
            _ => (sandbox.resume(Some(kill)), "deed resume"),
        };
        let outcome = deed.run();
        assert_eq!(outcome.ending, Ending::KILLED, "{outcome}");
        command(out, line, &format!("KILLED at {meaning}"))?;
    }
    let waiting: Envelope = sandbox.resume(None).run().expect_code(4).json();
    for wait in &waiting.waits {
        command(out, "deed resume", &format!("asks: {} [{}]", wait.question, wait.options.join("/")))?;
        sandbox.answer(&wait.wait, "yes").unwrap_or_else(|error| panic!("{error}"));
        command(out, &format!("deed answer {} yes", wait.wait), "the answer is recorded")?;
    }
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    let result = done.result.as_deref().unwrap_or("nothing");
    command(out, "deed resume", &format!("{}: {result}", done.status))?;
    for row in &done.criteria {
        command(out, "", &format!("[{}] {}", if row.met { "x" } else { " " }, row.criterion))?;
    }

    heading(out, "deed steps: one run, each step once, whichever process took it")?;
    writeln!(out, "{}", steps(&sandbox.steps(&done.run)))?;
    writeln!(
        out,
        "\n  Found done: the second attempt saw that the effect was there, and did not make it again."
    )?;

    heading(out, "deed transcript: what the model saw. It knows of no crash")?;
    let messages: Vec<Message> = sandbox.deed(["transcript", &done.session]).run().expect_code(0).json();
    for message in &messages {
        message_lines(out, message)?;
    }

    heading(out, "git log: one commit, not two")?;
    let commits = sandbox.repository().history().expect("the workspace is a repository");
    for commit in &commits {
        writeln!(out, "  {:.7} {}", commit.id.to_string(), commit.subject())?;
    }

    heading(out, "The files")?;
    let files = sandbox.files();
    for path in files.paths() {
        let text = files.text(path);
        for (number, line) in text.lines().enumerate() {
            writeln!(out, "  {:<width$}{line}", if number == 0 { path } else { "" }, width = SPEAKER - 2)?;
        }
    }

    // What is claimed last is checked here as well.
    let made = commits.iter().filter(|commit| commit.subject() == "Fix add()").count();
    assert_eq!((made, files.text("counter.log")), (1, "tick\n"), "an effect was lost or repeated");
    assert!(files.text("src/calc.js").contains("a + b"), "the edit was lost");
    let seconds = started.elapsed().as_secs_f64();
    writeln!(out, "\nTwo kills, one edit, one tick, one commit; {seconds:.1} s. The directory is gone again.")
}

fn heading(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "\n== {text}\n")
}

fn command(out: &mut impl Write, line: &str, outcome: &str) -> io::Result<()> {
    let prompt = if line.is_empty() { ' ' } else { '$' };
    writeln!(out, "{}", cut(&format!("  {prompt} {line:<28} {outcome}")))
}

fn steps(steps: &[StepRow]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["step", "kind", "name", "effect", "status", "attempt", ""]);
    for step in steps {
        let killed = KILLS.iter().any(|(seq, ..)| *seq == step.seq);
        let mark = match (killed, step.landed_before) {
            (true, true) => "<- KILLED; found done",
            (true, false) => "<- KILLED",
            (false, _) => "",
        };
        table.add_row([
            step.seq.to_string(),
            step.kind.clone(),
            step.name.clone(),
            step.effect.clone().unwrap_or_default(),
            step.status.clone(),
            step.attempt.to_string(),
            mark.to_owned(),
        ]);
    }
    table.lines().map(|line| format!(" {}", line.trim_end())).collect::<Vec<_>>().join("\n")
}

/// One message: who speaks, and the first lines of what is said.
fn message_lines(out: &mut impl Write, message: &Message) -> io::Result<()> {
    let (who, text) = match &message.result {
        Some(result) => {
            (format!("{} {}", result.tool, if result.ok { "ok" } else { "failed" }), &result.text)
        }
        None => (message.role.clone(), &message.text),
    };
    let count = text.lines().count();
    for (number, line) in text.lines().take(MESSAGE_LINES).enumerate() {
        let who = if number == 0 { who.as_str() } else { "" };
        let more = if number + 1 == MESSAGE_LINES && count > MESSAGE_LINES { " …" } else { "" };
        writeln!(out, "{}", cut(&format!("  {who:<width$}{line}{more}", width = SPEAKER - 2)))?;
    }
    Ok(())
}

/// A line that fits.
fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}
