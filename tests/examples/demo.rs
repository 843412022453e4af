//! A mission that is killed twice and comes back: what `make demo` shows.
//!
//! Real processes of the real binary in a fresh git repository, which is gone afterwards. The places of the two kills are
//! the ones that hurt most: a file is edited, or a commit made, and the process dies before it has recorded that.

#![expect(clippy::print_stdout, reason = "it is there to be looked at")]

use std::time::Instant;

use comfy_table::{Table, presets::NOTHING};
use deed_tests::{Ending, Envelope, Kill, Message, Point, Sandbox, StepRow};

/// Where the processes die, one after the other.
const KILLS: [(u64, Point, &str); 2] = [
    (11, Point::AfterExec, "the file is edited, and nobody has noted it down"),
    (17, Point::AfterExec, "the commit is made, and nobody has noted it down"),
];

fn main() {
    let started = Instant::now();
    let sandbox = Sandbox::of("fix-add");

    heading("A mission of seven turns, in a git repository of its own");
    println!(
        "  It reads, edits, runs a command, commits, asks its owner and finishes. Its tools are WebAssembly components."
    );
    println!("  Two of its processes will be killed by SIGKILL, each at a bad moment.\n");

    for (number, (seq, point, meaning)) in KILLS.into_iter().enumerate() {
        let kill = Kill::new(seq, point);
        let (deed, name) = match number {
            0 => (sandbox.run(Some(kill)), "deed run mission.json"),
            _ => (sandbox.resume(Some(kill)), "deed resume"),
        };
        let outcome = deed.run();
        assert_eq!(outcome.ending, Ending::KILLED, "{outcome}");
        command(name, &format!("killed at step {seq}, {point}: {meaning}"));
    }

    let waiting: Envelope = sandbox.resume(None).run().expect_code(4).json();
    command("deed resume", "goes on, and ends with a question (exit code 4)");
    for wait in &waiting.waits {
        println!("    ? {} [{}]", wait.question, wait.options.join("/"));
        sandbox.answer(&wait.wait, "yes").unwrap_or_else(|error| panic!("{error}"));
        command(&format!("deed answer {} yes", wait.wait), "is durable before it is acknowledged");
    }
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    command("deed resume", &format!("ends as `{}` (exit code 0)", done.status));

    heading("deed steps: what was done, and where it was interrupted");
    println!("{}", steps(&sandbox.steps(&done.run)));

    heading("deed transcript: what the model saw, which knows of no crash");
    let messages: Vec<Message> = sandbox.deed(["transcript", &done.session]).run().expect_code(0).json();
    for message in &messages {
        println!("{}", spoken(message));
    }

    heading("git log: one commit, not two");
    for commit in sandbox.repository().history().expect("the workspace is a repository") {
        println!("  {:.7} {}", commit.id.to_string(), commit.subject());
    }

    heading("The files");
    for line in sandbox.files().to_string().lines() {
        println!("  {line}");
    }

    heading("The result");
    println!("  {}: {}", done.status, done.result.as_deref().unwrap_or("nothing"));
    for row in &done.criteria {
        println!("  [{}] {}", if row.met { "x" } else { " " }, row.criterion);
    }
    println!("\n  Two kills, no effect lost, none repeated, in {:.1} s.", started.elapsed().as_secs_f64());
}

fn heading(text: &str) {
    println!("\n== {text}\n");
}

fn command(line: &str, outcome: &str) {
    println!("  $ {line:<28} {outcome}");
}

fn steps(steps: &[StepRow]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["step", "kind", "name", "effect", "status", "attempt", ""]);
    for step in steps {
        let killed = KILLS.iter().find(|(seq, ..)| *seq == step.seq);
        let mark = match (killed, step.landed_before) {
            (Some((_, point, _)), true) => format!("<- killed {point}; its effect was found in place"),
            (Some((_, point, _)), false) => format!("<- killed {point}"),
            (None, _) => String::new(),
        };
        table.add_row([
            step.seq.to_string(),
            step.kind.clone(),
            step.name.clone(),
            step.effect.clone().unwrap_or_default(),
            step.status.clone(),
            step.attempt.to_string(),
            mark,
        ]);
    }
    table
}

/// One message, a long text cut after its first lines.
fn spoken(message: &Message) -> String {
    const SHOWN_LINES: usize = 3;
    let (who, text) = match &message.result {
        Some(result) => {
            (format!("{} {}", result.tool, if result.ok { "ok" } else { "failed" }), &result.text)
        }
        None => (message.role.clone(), &message.text),
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut shown = lines[..lines.len().min(SHOWN_LINES)].join("\n                       ");
    if lines.len() > SHOWN_LINES {
        shown += " …";
    }
    format!("  {who:<20} {shown}")
}
