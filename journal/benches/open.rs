//! What it takes to open a journal after `kill -9`, idle before, and to find out what comes next: the same whether the
//! run has 5,000 steps behind it or 50,000. The aim is at most 1.2 times as long.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion};
use deed_journal::{
    Durability, EffectClass, Entropy, Idle, Journal, MessageBody, Op, Options, Outcome, Planned, Position,
    Role, Run, RunId, RunStatus, SessionId, SettledBy, StepEvent, StepKind, StepResult,
};
use serde_json::json;

const RUN: RunId = RunId::from_bytes([1; 16]);

/// Steps that are recorded in one commit.
const TOGETHER: u64 = 500;

/// The batch under way: what a resume reads besides the heads of run and session.
const BATCH: u64 = 10;

struct Fixed;

impl Entropy for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

fn open(path: &Path) -> Journal {
    let options = Options { entropy: Arc::new(Fixed), boot: None, idle: Idle::Never };
    Journal::open(path, options).expect("the journal opens")
}

fn step(seq: u64) -> [Op; 2] {
    let args = json!({ "path": format!("file-{seq}.txt") });
    let planned = Planned::new(StepKind::ToolCall, "read_file", EffectClass::Pure, args, 0);
    let outcome = Outcome {
        attempt: 1,
        result: StepResult::Completed { value: json!({ "text": "x".repeat(100) }) },
        settled_by: SettledBy::Execution,
        landed_before: false,
        settled_ms: 0,
    };
    [StepEvent::Planned(planned), StepEvent::Outcome(outcome)].map(|event| Op::Step { run: RUN, seq, event })
}

/// A journal at `path` with a run that is `steps` long.
fn build(path: &Path, steps: u64) {
    let journal = open(path);
    let commit = |ops, durability| journal.commit(ops, durability).expect("the commit is taken");
    let mut run = Run::new(RUN, SessionId::from_bytes([2; 16]), [3; 16], "bench", 0);
    let create = Op::CreateRun { run: Box::new(run.clone()), source: json!({ "calls": [] }) };
    commit(vec![create], Durability::Durable);
    for first in (1..=steps).step_by(usize::try_from(TOGETHER).expect("it is small")) {
        let mut ops: Vec<Op> = (first..first + TOGETHER).flat_map(step).collect();
        let base = journal.read().session(run.session).expect("it reads").expect("it is there").base();
        let messages = (0..TOGETHER).map(|_| MessageBody::text(Role::Tool, "x".repeat(100))).collect();
        ops.push(Op::Append { session: run.session, base, messages });
        commit(ops, Durability::Riding);
    }
    run.status = RunStatus::Running;
    run.position = Position::Batch { first: steps - BATCH + 1, last: steps, untold: steps };
    commit(vec![Op::UpdateRun(Box::new(run))], Durability::Durable);
}

/// Tells this program to be an owner that dies.
const DIE: &str = "--die-idle";

/// Own the journal at `path`, change something, make the next opening quick as the idle writer does, and wait for the end.
fn be_owner(path: &Path) {
    let journal = open(path);
    let mut run = journal.read().run(RUN).expect("it reads").expect("it is there");
    run.usage.turns += 1;
    let update = vec![Op::UpdateRun(Box::new(run))];
    journal.commit(update, Durability::DurableForQuickOpen).expect("the commit is taken");
    writeln!(std::io::stdout(), "idle").expect("standard output takes a line");
    std::io::stdin().lock().read_line(&mut String::new()).expect("standard input can be read");
}

/// Have a process own the journal, and kill it once it is idle.
fn kill_an_owner(path: &Path) {
    let program = std::env::current_exe().expect("the system names this program");
    let mut owner = Command::new(program)
        .args([OsStr::new(DIE), path.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts once more");
    let mut said = String::new();
    let mut output = BufReader::new(owner.stdout.take().expect("it was asked for"));
    output.read_line(&mut said).expect("its output can be read");
    assert_eq!(said, "idle\n");
    owner.kill().and_then(|()| owner.wait()).expect("one's own child can be killed");
}

/// Open, and read what says what comes next. The journal is handed out, so that closing it is not measured.
fn resume(path: &Path) -> Journal {
    let journal = open(path);
    let run = journal.read().open_runs().expect("it reads").items.remove(0);
    let Position::Batch { first, last, .. } = run.position else { panic!("a batch is under way") };
    assert!(journal.read().session(run.session).expect("it reads").is_some());
    for seq in first..=last {
        assert!(journal.read().step(run.id, seq).expect("it reads").is_some());
    }
    journal
}

fn opening(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let mut group = criterion.benchmark_group("open_after_kill");
    group.sample_size(30);
    for steps in [5_000, 50_000] {
        let path = dir.path().join(format!("{steps}.redb"));
        build(&path, steps);
        group.bench_function(BenchmarkId::from_parameter(steps), |bencher| {
            bencher.iter_batched(|| kill_an_owner(&path), |()| resume(&path), BatchSize::PerIteration);
        });
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args_os().collect();
    match &arguments[..] {
        [_, how, path] if how == DIE => be_owner(Path::new(path)),
        _ => {
            let mut criterion = Criterion::default().configure_from_args();
            opening(&mut criterion);
            criterion.final_summary();
        }
    }
}
