//! Every act × how the call is made: what the guest sees, what the host remembers, and what became of the world.
//!
//! The calls are granted nothing beyond the workspace, which is what a tool has without any grant.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;

use deed::engine::Grants;

use super::engine::{As, World, attempt, forbidden};

/// What a cell says.
#[derive(Clone, Copy, Debug)]
enum Cell {
    /// Allowed, with this text.
    Done(&'static str),
    /// Allowed, with a text that the step's seed decides.
    Seeded,
    /// Refused, since nothing of this class may change anything.
    Class,
    /// The same, where the host calls the act otherwise.
    ClassFor(&'static str),
    /// Refused for another reason.
    Refused(&'static str),
    /// Refused, since this path leads out of the workspace.
    Leaves(&'static str),
    /// Failed with an error that is no refusal: there is no such thing where the call looks.
    Fails(&'static str),
}
use Cell::{Class, ClassFor, Done, Fails, Leaves, Refused, Seeded};

/// What the guest sees of a refusal.
#[derive(Clone, Copy, Debug)]
enum Sees {
    /// An ordinary error of the library.
    Error(&'static str),
    /// The host's own words.
    Words,
}
use Sees::Words;

const PERM: Sees = Sees::Error("Operation not permitted (os error 63)");
const ACCESS: Sees = Sees::Error("Permission denied (os error 2)");

const PURE: &str = "may change nothing; a tool that does declares `idempotent` or `non-idempotent`";
const RAISED: &str = r#"; this rule, first under `policy`, would raise its class and ask: {"decision":"ask","effect":"non-idempotent","tool":"try_pure"}"#;
const PROBE: &str = "may change nothing: a probe only looks";
const OUT: &str = "may not leave the workspace, whatever it is granted";
const SOCKET: Cell =
    Refused("gets no sockets, whatever it is granted: servers are reached by HTTP, through the host");
const DEED: Cell = Refused("may not touch the operator's `deed.toml`, whatever it is granted");
const ALIAS: Cell =
    Refused("may not touch the operator's `deed.toml`, whatever it is granted; this is another name of it");
const THROUGH: Cell = Refused("may create no file through a symbolic link: name the file that it leads to");
const OK: Cell = Done("");
const NO_FILE: Cell = Fails("No such file or directory (os error 44)");
const SPECIAL: Cell = Fails("Not supported (os error 58)");

/// An act with its two arguments, what the host calls it, what the guest sees when it is refused, and a cell for each way
/// of making the call: pure, idempotent, non-idempotent, probe.
type Row = ((&'static str, &'static str, &'static str), &'static str, Sees, [Cell; 4]);

/// `TCP` and `UDP` stand for the addresses of those who listen.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    // Files of the workspace.
    (("create", "new", ""), "files: to write `new`", PERM, [Class, OK, OK, Class]),
    (("overwrite", "a.txt", ""), "files: to write `a.txt`", PERM, [Class, OK, OK, Class]),
    (("overwrite", "inside", ""), "files: to write `inside`", PERM, [Class, OK, OK, Class]),
    (("append", "a.txt", ""), "files: to write `a.txt`", PERM, [Class, OK, OK, Class]),
    (("truncate", "a.txt", ""), "files: to write `a.txt`", PERM, [Class, OK, OK, Class]),
    (("set-length", "a.txt", ""), "files: to write `a.txt`", PERM, [Class, OK, OK, Class]),
    (("rename", "a.txt", "new"), "files: to write `a.txt`", PERM, [Class, OK, OK, Class]),
    (("rename", "full", "new"), "files: to write `full`", PERM, [Class, OK, OK, Class]),
    (("remove", "a.txt", ""), "files: to write `a.txt`", PERM, [Class, OK, OK, Class]),
    (("make-directory", "new", ""), "files: to write `new`", PERM, [Class, OK, OK, Class]),
    (("remove-directory", "empty", ""), "files: to write `empty`", PERM, [Class, OK, OK, Class]),
    (("symbolic-link", "new", "a.txt"), "files: to write `new`", PERM, [Class, OK, OK, Class]),
    (("hard-link", "a.txt", "new"), "files: to write `a.txt`", PERM, [Class, OK, OK, Class]),
    (("set-times", "a.txt", ""), "files: to write an open file", PERM, [Class, OK, OK, Class]),
    (("replace", "a.txt", ""), "files: to replace `a.txt`", Words, [Class, OK, OK, Class]),
    (("replace", "full/new", ""), "files: to replace `full/new`", Words, [Class, OK, OK, Class]),
    (("read", "a.txt", ""), "", PERM, [Done("alpha\n"); 4]),
    (("read", "/a.txt", ""), "", PERM, [Done("alpha\n"); 4]),
    (("read", "full/../inside", ""), "", PERM, [Done("alpha\n"); 4]),
    (("list", "full", ""), "", PERM, [Done("b.txt"); 4]),
    (("stat", "a.txt", ""), "", PERM, [Done("6 bytes"); 4]),
    (("digest", "a.txt", ""), "", Words, [Done("ac678d92b3d739773d18cd952cfcea443fa4a5a98ffc9554b66795bb22d5532d"); 4]),
    (("nothing", "", ""), "", PERM, [OK; 4]),

    // What is no file: opening it could wait for ever.
    (("read", "fifo", ""), "", PERM, [SPECIAL, SPECIAL, SPECIAL, SPECIAL]),
    (("append", "fifo", ""), "files: to write `fifo`", PERM, [Class, SPECIAL, SPECIAL, Class]),
    (("read", "device", ""), "", PERM, [Leaves("device"), Leaves("device"), Leaves("device"), Leaves("device")]),
    (("append", "device", ""), "files: to write `device`", PERM, [Class, Leaves("device"), Leaves("device"), Class]),

    // Out of the workspace, to look. An absolute path begins at the workspace, so it leads nowhere else.
    (("read", "/etc/passwd", ""), "", PERM, [NO_FILE, NO_FILE, NO_FILE, NO_FILE]),
    (("read", "/outside/secret", ""), "", PERM, [NO_FILE, NO_FILE, NO_FILE, NO_FILE]),
    (("read", "../outside/secret", ""), "", PERM, [Leaves("../outside/secret"); 4]),
    (("read", "full/../../outside/secret", ""), "", PERM, [Leaves("full/../../outside/secret"); 4]),
    (("read", "relative", ""), "", PERM, [Leaves("relative"); 4]),
    (("read", "absolute", ""), "", PERM, [Leaves("absolute"); 4]),
    (("read", "relative-directory/secret", ""), "", PERM, [Leaves("relative-directory/secret"); 4]),
    (("read", "absolute-directory/secret", ""), "", PERM, [Leaves("absolute-directory/secret"); 4]),
    (("list", "..", ""), "", PERM, [Leaves(".."); 4]),
    (("list", "relative-directory", ""), "", PERM, [Leaves("relative-directory"); 4]),
    (("stat", "../outside/secret", ""), "", PERM, [Leaves("../outside/secret"); 4]),
    (("stat", "absolute", ""), "", PERM, [Leaves("absolute"); 4]),
    (("read-link", "relative", ""), "", PERM, [Done("../outside/secret"); 4]),
    (("read-link", "absolute", ""), "", PERM, [Leaves("absolute"); 4]),
    (("digest", "../outside/secret", ""), "", Words, [Leaves("../outside/secret"); 4]),
    (("digest", "absolute", ""), "", Words, [Leaves("absolute"); 4]),

    // Out of the workspace, to write. A link that leads out by a relative path can be made, and leads no call anywhere.
    (("create", "../outside/new", ""), "files: to write `../outside/new`", PERM, [Class, Leaves("../outside/new"), Leaves("../outside/new"), Class]),
    (("create", "relative-directory/new", ""), "files: to write `relative-directory/new`", PERM, [Class, Leaves("relative-directory/new"), Leaves("relative-directory/new"), Class]),
    (("create", "absolute-directory/new", ""), "files: to write `absolute-directory/new`", PERM, [Class, Leaves("absolute-directory/new"), Leaves("absolute-directory/new"), Class]),
    (("overwrite", "relative", ""), "files: to write `relative`", PERM, [Class, Leaves("relative"), Leaves("relative"), Class]),
    (("overwrite", "absolute", ""), "files: to write `absolute`", PERM, [Class, Leaves("absolute"), Leaves("absolute"), Class]),
    (("append", "relative", ""), "files: to write `relative`", PERM, [Class, Leaves("relative"), Leaves("relative"), Class]),
    (("truncate", "absolute", ""), "files: to write `absolute`", PERM, [Class, Leaves("absolute"), Leaves("absolute"), Class]),
    (("rename", "a.txt", "../outside/new"), "files: to write `a.txt`", PERM, [Class, Leaves("../outside/new"), Leaves("../outside/new"), Class]),
    (("rename", "../outside/secret", "new"), "files: to write `../outside/secret`", PERM, [Class, Leaves("../outside/secret"), Leaves("../outside/secret"), Class]),
    (("remove", "../outside/secret", ""), "files: to write `../outside/secret`", PERM, [Class, Leaves("../outside/secret"), Leaves("../outside/secret"), Class]),
    (("remove", "relative-directory/secret", ""), "files: to write `relative-directory/secret`", PERM, [Class, Leaves("relative-directory/secret"), Leaves("relative-directory/secret"), Class]),
    (("make-directory", "../outside/new", ""), "files: to write `../outside/new`", PERM, [Class, Leaves("../outside/new"), Leaves("../outside/new"), Class]),
    (("remove-directory", "../outside", ""), "files: to write `../outside`", PERM, [Class, Leaves("../outside"), Leaves("../outside"), Class]),
    (("hard-link", "../outside/secret", "new"), "files: to write `../outside/secret`", PERM, [Class, Leaves("../outside/secret"), Leaves("../outside/secret"), Class]),
    (("symbolic-link", "new", "/etc/passwd"), "files: to write `new`", PERM, [Class, Leaves("/etc/passwd"), Leaves("/etc/passwd"), Class]),
    (("symbolic-link", "new", "../outside/secret"), "files: to write `new`", PERM, [Class, OK, OK, Class]),
    (("set-times", "relative", ""), "", PERM, [Leaves("relative"); 4]),
    (("replace", "../outside/secret", ""), "files: to replace `../outside/secret`", Words, [Class, Leaves("../outside/secret"), Leaves("../outside/secret"), Class]),
    (("replace", "absolute-directory/new", ""), "files: to replace `absolute-directory/new`", Words, [Class, Leaves("absolute-directory/new"), Leaves("absolute-directory/new"), Class]),
    (("replace", "relative", ""), "files: to replace `relative`", Words, [Class, Fails("Error::NotAFile(\"`relative` is a symbolic link, not a regular file\")"), Fails("Error::NotAFile(\"`relative` is a symbolic link, not a regular file\")"), Class]),

    // The operator's file, by its name and by others. `hard` is a hard link to it, `soft` a symbolic one, and `dangling`
    // leads to a file that is not there, as one that leads to a missing `deed.toml` would.
    (("read", "deed.toml", ""), "", PERM, [Done("# the operator's\n"); 4]),
    (("overwrite", "deed.toml", ""), "files: to write `deed.toml`", PERM, [Class, DEED, DEED, Class]),
    (("overwrite", "/deed.toml", ""), "files: to write `deed.toml`", PERM, [Class, DEED, DEED, Class]),
    (("append", "full/../deed.toml", ""), "files: to write `full/../deed.toml`", PERM, [Class, DEED, DEED, Class]),
    (("truncate", "deed.toml", ""), "files: to write `deed.toml`", PERM, [Class, DEED, DEED, Class]),
    (("create", "full/deed.toml", ""), "files: to write `full/deed.toml`", PERM, [Class, DEED, DEED, Class]),
    (("create", "full/Deed.TOML", ""), "files: to write `full/Deed.TOML`", PERM, [Class, DEED, DEED, Class]),
    (("make-directory", "full/deed.toml", ""), "files: to write `full/deed.toml`", PERM, [Class, DEED, DEED, Class]),
    (("remove", "deed.toml", ""), "files: to write `deed.toml`", PERM, [Class, DEED, DEED, Class]),
    (("rename", "deed.toml", "new"), "files: to write `deed.toml`", PERM, [Class, DEED, DEED, Class]),
    (("rename", "a.txt", "deed.toml"), "files: to write `deed.toml`", PERM, [ClassFor("files: to write `a.txt`"), DEED, DEED, ClassFor("files: to write `a.txt`")]),
    (("hard-link", "deed.toml", "new"), "files: to write `deed.toml`", PERM, [Class, DEED, DEED, Class]),
    (("hard-link", "a.txt", "full/deed.toml"), "files: to write `full/deed.toml`", PERM, [ClassFor("files: to write `a.txt`"), DEED, DEED, ClassFor("files: to write `a.txt`")]),
    (("symbolic-link", "new", "deed.toml"), "files: to write `new`", PERM, [Class, ALIAS, ALIAS, Class]),
    (("symbolic-link", "full/new", "../deed.toml"), "files: to write `full/new`", PERM, [Class, ALIAS, ALIAS, Class]),
    (("replace", "deed.toml", ""), "files: to replace `deed.toml`", Words, [Class, DEED, DEED, Class]),
    (("replace", "full/deed.toml", ""), "files: to replace `full/deed.toml`", Words, [Class, DEED, DEED, Class]),
    (("overwrite", "hard", ""), "files: to write `hard`", PERM, [Class, ALIAS, ALIAS, Class]),
    (("append", "hard", ""), "files: to write `hard`", PERM, [Class, ALIAS, ALIAS, Class]),
    (("set-length", "hard", ""), "files: to write `hard`", PERM, [Class, ALIAS, ALIAS, Class]),
    (("overwrite", "soft", ""), "files: to write `soft`", PERM, [Class, ALIAS, ALIAS, Class]),
    (("append", "soft", ""), "files: to write `soft`", PERM, [Class, ALIAS, ALIAS, Class]),
    (("truncate", "soft", ""), "files: to write `soft`", PERM, [Class, ALIAS, ALIAS, Class]),
    (("replace", "hard", ""), "files: to replace `hard`", Words, [Class, OK, OK, Class]),
    (("replace", "soft", ""), "files: to replace `soft`", Words, [Class, Fails("Error::NotAFile(\"`soft` is a symbolic link, not a regular file\")"), Fails("Error::NotAFile(\"`soft` is a symbolic link, not a regular file\")"), Class]),
    (("overwrite", "dangling", ""), "files: to create a file through `dangling`", PERM, [ClassFor("files: to write `dangling`"), THROUGH, THROUGH, ClassFor("files: to write `dangling`")]),
    (("append", "dangling", ""), "files: to write `dangling`", PERM, [Class, NO_FILE, NO_FILE, Class]),

    // The network.
    (("connect", "TCP", ""), "network: to open a socket", ACCESS, [SOCKET, SOCKET, SOCKET, SOCKET]),
    (("listen", "127.0.0.1:0", ""), "network: to open a socket", ACCESS, [SOCKET, SOCKET, SOCKET, SOCKET]),
    (("send-datagram", "UDP", ""), "network: to open a socket", ACCESS, [SOCKET, SOCKET, SOCKET, SOCKET]),
    (("look-up", "localhost", ""), "network: to reach `localhost`", ACCESS, [SOCKET, SOCKET, SOCKET, SOCKET]),

    // Programs and git.
    (("run", "true", ""), "process: to run `true`", Words, [Class, Done("exit code 0"), Done("exit code 0"), Class]),
    (("run", "/bin/true", ""), "process: to run `/bin/true`", Words, [Class, Done("exit code 0"), Done("exit code 0"), Class]),
    (("commit", "", ""), "git: to commit", Words, [Class, OK, OK, Class]),
    (("status", "", ""), "", Words, [Done("1 differ"); 4]),

    // What differs from one machine, or one moment, to the next: there is no environment, and the rest is recorded.
    (("environment", "", ""), "", PERM, [Done("[] []"); 4]),
    (("time", "", ""), "", PERM, [Done("1767323045 Instant { tv_sec: 0, tv_nsec: 1000 }"); 4]),
    (("random", "", ""), "", PERM, [Seeded, Seeded, Seeded, Seeded]),
];

/// Cells of the table. Whoever adds a row changes this; a row that is lost is noticed.
const CELLS: usize = 404;

/// The acts that change something when they are allowed.
const CHANGING: [&str; 14] = [
    "create",
    "overwrite",
    "append",
    "truncate",
    "set-length",
    "rename",
    "remove",
    "make-directory",
    "remove-directory",
    "symbolic-link",
    "hard-link",
    "set-times",
    "replace",
    "commit",
];

/// What the cell expects: the guest's text, and the refusals in the host's words.
fn expected(row: &Row, who: As, cell: Cell) -> (String, Vec<String>) {
    let (_, action, sees, _) = row;
    let no_change = if who == As::Probe { PROBE } else { PURE };
    let (action, reason) = match cell {
        Done(text) => return (format!("done: {text}"), Vec::new()),
        Fails(error) => return (format!("refused: {error}"), Vec::new()),
        Seeded => unreachable!("told by another call"),
        Class => (action.to_string(), no_change),
        ClassFor(action) => (action.to_owned(), no_change),
        Refused(reason) => (action.to_string(), reason),
        Leaves(path) => (format!("files: to follow `{path}`"), OUT),
    };
    let mut refusal = format!("{action} was refused: {}, {reason}", who.named());
    // What another class would allow, a rule can. The operator's file none can.
    if reason == PURE && !action.to_lowercase().contains("deed.toml") {
        refusal += RAISED;
    }
    let told = match sees {
        Sees::Error(error) => (*error).to_owned(),
        Words => format!("Error::Denied({refusal:?})"),
    };
    (format!("refused: {told}"), vec![refusal])
}

fn check(row: &Row, who: As, cell: Cell) -> Result<(), String> {
    let ((act, path, other), ..) = *row;
    let world = World::new();
    if matches!(act, "commit" | "status") {
        world.with_repository();
    }
    let address = match path {
        "TCP" => world.tcp.local_addr().unwrap().to_string(),
        "UDP" => world.udp.local_addr().unwrap().to_string(),
        path => path.to_owned(),
    };
    let grants = Grants::workspace(who.class(), world.workspace());
    let attempt = |seed| attempt(who, (act, &address, other), &grants, seed);
    let before = world.look();
    let tried = attempt(7);
    let after = world.look();

    let (said, refused) = match cell {
        Seeded if attempt(8) == tried => return Err("another seed changes nothing".to_owned()),
        Seeded => (attempt(7).said, Vec::new()),
        cell => expected(row, who, cell),
    };
    if (&tried.said, &tried.refused) != (&said, &refused) {
        return Err(format!(
            "expected {said:?} {refused:?}\n     found {:?} {:?}",
            tried.said, tried.refused
        ));
    }
    let changes = matches!(cell, Done(_)) && CHANGING.contains(&act);
    if (before != after) != changes {
        return Err(format!("the world changed: {}", before != after));
    }
    if before.outside(&world.workspace()) != after.outside(&world.workspace()) {
        return Err("something outside of the workspace changed".to_owned());
    }
    if fs::read_to_string(world.workspace().join("deed.toml")).unwrap() != "# the operator's\n" {
        return Err("the operator's file changed".to_owned());
    }
    let nobody = |came: std::io::Result<()>| came.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    let nobody_came =
        nobody(world.tcp.accept().map(|_| ())) && nobody(world.udp.recv(&mut [0; 8]).map(|_| ()));
    if nobody_came { Ok(()) } else { Err("somebody was reached".to_owned()) }
}

#[test]
fn every_act_under_every_class_is_allowed_or_refused_as_the_table_says() {
    let mut cells = 0;
    let mut faults = Vec::new();
    for row in TABLE {
        for (who, cell) in As::ALL.into_iter().zip(row.3) {
            cells += 1;
            if let Err(fault) = check(row, who, cell) {
                faults.push(format!("{:?} as {who:?}: {fault}", row.0));
            }
        }
    }
    assert!(faults.is_empty(), "{} of {cells} cells:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(cells, CELLS);
}

#[test]
fn the_table_has_every_act_of_the_guest_and_none_twice() {
    let plugin = forbidden();
    let schema = &plugin.tool("try_pure").unwrap().input_schema;
    let named = schema["$defs"]["Act"]["enum"].as_array().unwrap();
    let named: BTreeSet<&str> = named.iter().map(|act| act.as_str().unwrap()).collect();
    let listed: BTreeSet<&str> = TABLE.iter().map(|((act, ..), ..)| *act).collect();
    assert_eq!(listed, named);
    let rows: BTreeSet<_> = TABLE.iter().map(|(act, ..)| act).collect();
    assert_eq!(rows.len(), TABLE.len());
    assert!(CHANGING.iter().all(|act| named.contains(act)));
}
