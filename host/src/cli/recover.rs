//! `deed recover`: settle the turns that a crash cut short and nobody takes on.

use anyhow::Result;
use clap::{Args, ValueEnum};
use deed_journal::{OpenError, RecoveryAction, RecoveryItem, TailPolicy};
use serde_json::{Value, json};

use super::exit::Exit;
use super::output::{Format, out};
use super::{Global, hosting, journal_path, output};

#[derive(Debug, Args)]
pub(super) struct RecoverArgs {
    /// Only say what would be done.
    #[arg(long)]
    plan: bool,
    /// What becomes of the messages that such a turn had written.
    #[arg(long, value_enum, default_value_t = Tail::Warn)]
    tail: Tail,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Tail {
    /// They stay.
    Keep,
    /// They stay, and it is pointed out.
    Warn,
    /// They are cut off main, and stay reachable.
    Strip,
}

impl From<Tail> for TailPolicy {
    fn from(tail: Tail) -> Self {
        match tail {
            Tail::Keep => Self::Keep,
            Tail::Warn => Self::KeepAndWarn,
            Tail::Strip => Self::Strip,
        }
    }
}

pub(super) fn run(global: &Global, args: &RecoverArgs) -> Result<Exit> {
    let path = journal_path::of(global, None)?;
    if !path.exists() {
        return Err(OpenError::Missing(path).into());
    }
    let items = if args.plan {
        journal_path::read_existing(global)?.reader().recovery_plan(args.tail.into())?
    } else {
        let journal = journal_path::open(global, &path)?;
        journal.recover(args.tail.into(), hosting::clock(global).now_ms())?
    };
    if global.format == Format::Json {
        output::json(&items.iter().map(item_json).collect::<Vec<_>>())?;
    } else if items.is_empty() {
        out!("nothing to recover");
    } else {
        for item in &items {
            out!("{}", item_line(item));
        }
    }
    if args.plan && !items.is_empty() {
        eprintln!("this is the plan; `deed recover` does it");
    }
    Ok(Exit::Done)
}

fn item_json(item: &RecoveryItem) -> Value {
    let (action, messages) = match item.action {
        RecoveryAction::LeaveToRun(_) => ("leave", None),
        RecoveryAction::Keep { messages, .. } => ("keep", Some(messages)),
        RecoveryAction::Strip { messages } => ("strip", Some(messages)),
    };
    json!({
        "session": item.session,
        "turn": item.turn,
        "action": action,
        "messages": messages,
        "warn": matches!(item.action, RecoveryAction::Keep { warn: true, .. }),
        "run": match item.action { RecoveryAction::LeaveToRun(run) => Some(run), _ => None },
    })
}

fn item_line(item: &RecoveryItem) -> String {
    let session = &item.session.to_string()[..8];
    let what = match item.action {
        RecoveryAction::LeaveToRun(run) => format!("left to run {}, which takes it on", run.short()),
        RecoveryAction::Keep { messages: 0, .. } => "ended, it had written nothing".to_owned(),
        RecoveryAction::Keep { messages, warn: false } => format!("ended, {messages} of its messages stay"),
        RecoveryAction::Keep { messages, warn: true } => format!(
            "ended, {messages} of its messages stay: warning, it was cut short; `deed session show {session}` shows them"
        ),
        RecoveryAction::Strip { messages } => format!(
            "ended, {messages} of its messages are cut off; they stay reachable, `deed session heads {session}` names them"
        ),
    };
    format!("session {session}, turn `{}`: {what}", item.turn)
}
