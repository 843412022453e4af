//! `plugins/GUIDE.md` is what happens to who follows it: its files are written, its commands typed, one after the other, and
//! what they print is compared.
//!
//! "Killed" is SIGKILL of a real process. The payroll server is a real one on a loopback port, which is put in the place of
//! the one that the guide shows.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use deed::engine::limits;
use deed_tests::page::{Block, blocks, read_page, section};
use deed_tests::receiver::{Answer, Reaction, Received, Receiver};
use deed_tests::{Ending, Sandbox};

const GUIDE: &str = "plugins/GUIDE.md";

/// Where the guide has its server, and its reader.
const SERVER: &str = "127.0.0.1:8080";
const HOME: &str = "/home/you";

/// What a command may take that compiles an SDK, or kills a mission at every point, on a machine busy with other things.
const PATIENCE: Duration = Duration::from_mins(10);

/// Takes claims at `/claims?key=KEY`, two for two, and says whether it has one with this key.
fn payroll() -> Receiver {
    let keys = Mutex::new(BTreeSet::new());
    Receiver::scripted(false, move |request: &Received, _| {
        let mut keys = keys.lock().unwrap();
        Reaction::Answer(match &*request.method {
            "POST" => {
                keys.insert(request.path.clone());
                Answer::text(201, "")
            }
            _ if keys.contains(&request.path) => Answer::text(200, ""),
            _ => Answer::text(404, ""),
        })
    })
}

/// Who follows the guide.
struct Reader {
    sandbox: Sandbox,
    server: Receiver,
    /// Where their shell is.
    directory: PathBuf,
}

impl Reader {
    fn new() -> Self {
        let sandbox = Sandbox::bare();
        let directory = fs::canonicalize(sandbox.home()).unwrap();
        Self { sandbox, server: payroll(), directory }
    }

    fn home(&self) -> PathBuf {
        fs::canonicalize(self.sandbox.home()).unwrap()
    }

    /// What the guide says, with this machine's names.
    fn here(&self, text: &str) -> String {
        text.replace(SERVER, self.server.origin().trim_start_matches("http://"))
    }

    /// What this machine says, with the guide's names.
    fn there(&self, text: &str) -> String {
        let server = self.server.origin();
        text.replace(self.home().to_str().unwrap(), HOME)
            .replace(server.trim_start_matches("http://"), SERVER)
    }

    /// Do what a block says; the commands that print something else.
    fn follow(&mut self, block: &Block) -> Vec<String> {
        if let Some(file) = &block.file {
            // A file of the project that the shell is in, or one that is named from the home.
            let base = if file.starts_with("src/") { &self.directory } else { &self.home() };
            fs::write(base.join(file), self.here(&block.text) + "\n").unwrap();
            return Vec::new();
        }
        assert_eq!(
            block.language, "",
            "a block of code that is no file, and so is not tried:\n{}",
            block.text
        );
        let mut faults = Vec::new();
        for shown in block.commands() {
            let printed = self.type_in(&shown.command);
            if !shown.fits(&printed) {
                faults.push(format!(
                    "$ {}\n--- the guide shows\n{}\n--- it prints\n{printed}",
                    shown.command, shown.output
                ));
            }
        }
        faults
    }

    /// What a command prints, and what the shell says of its end.
    fn type_in(&mut self, command: &str) -> String {
        if let Some(directory) = command.strip_prefix("cd ") {
            self.directory = fs::canonicalize(self.directory.join(directory)).unwrap();
            return String::new();
        }
        let typed = self.sandbox.typed(&self.directory, &self.here(command)).with_rust();
        let outcome = typed.start().wait_within(PATIENCE);
        let end = if outcome.ending == Ending::KILLED { "Killed\n" } else { "" };
        self.there(&outcome.stdout) + end
    }
}

#[test]
fn who_follows_the_guide_sees_what_it_shows() {
    let page = read_page(GUIDE);
    let mut reader = Reader::new();
    let faults: Vec<_> = blocks(&page).iter().flat_map(|block| reader.follow(block)).collect();
    assert!(faults.is_empty(), "{} commands print something else:\n\n{}", faults.len(), faults.join("\n\n"));

    // What was claimed: once by the call that its probe settled, and once by the one that the owner had run again.
    let bodies: Vec<_> = reader.server.effects().iter().map(Received::text).collect();
    assert_eq!(bodies, ["1650", "1650"]);
    let keys: BTreeSet<_> = reader.server.effects().into_iter().map(|request| request.path).collect();
    assert_eq!(keys.len(), 2, "two calls, and no attempt repeated");
}

#[test]
fn the_limits_of_the_guide_are_those_of_the_host() {
    let page = read_page(GUIDE);
    let section = section(&page, "Limits");
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    for (what, limit) in [
        ("memory", mib(limits::MEMORY_BYTES)),
        ("result", mib(limits::OUTPUT_BYTES)),
        ("receipt", format!("{} KiB", limits::RECEIPT_BYTES >> 10)),
        ("error's message", format!("{} KiB", limits::MESSAGE_BYTES >> 10)),
        ("standard output and error", mib(usize::try_from(limits::STDIO_BYTES).unwrap())),
        ("one host call", mib(limits::HOSTCALL_BYTES)),
        ("open files and streams", limits::HANDLES.to_string()),
    ] {
        let rows: Vec<_> = section.lines().filter(|line| line.contains(what)).collect();
        let [row] = rows.try_into().unwrap_or_else(|rows| panic!("one row about `{what}`, not {rows:?}"));
        assert!(row.ends_with(&format!("| {limit} |")), "`{limit}` in `{row}`");
    }
}
