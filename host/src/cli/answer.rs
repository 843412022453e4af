//! `deed answer`: answer a question.

use anyhow::Result;
use clap::Args;
use deed::sources::{FixedClock, SystemClock};
use deed_journal::{Answer, Clock, Durability, Op, OpenError};
use serde_json::json;

use super::exit::Exit;
use super::output::{Format, out};
use super::{Global, find, journal_path, output};

#[derive(Debug, Args)]
pub(super) struct AnswerArgs {
    /// The question, as `deed waits` names it.
    wait: String,
    /// One of its options.
    option: String,
    /// What you want to add: a reason, or the result of a call that happened.
    #[arg(long)]
    text: Option<String>,
}

pub(super) fn run(global: &Global, args: &AnswerArgs) -> Result<Exit> {
    let path = journal_path::of(global, None)?;
    if !path.exists() {
        return Err(OpenError::Missing(path).into());
    }
    let journal = journal_path::open(global, &path)?;
    let id = find::wait(journal.read(), &args.wait)?;
    let already = journal.read().wait(id)?.is_some_and(|wait| wait.answer.is_some());
    let answered_ms = match global.deterministic {
        Some(_) => FixedClock.now_ms(),
        None => SystemClock.now_ms(),
    };
    let answer = Answer { option: args.option.clone(), text: args.text.clone(), answered_ms };
    journal.commit(vec![Op::Answer { id, answer }], Durability::Durable)?;
    drop(journal);
    if global.format == Format::Json {
        output::json(&json!({
            "wait": id.to_string(),
            "run": id.run,
            "option": args.option,
            "text": args.text,
            "already": already,
        }))?;
    } else {
        let before = if already { ", as it was answered before" } else { "" };
        out!("{id}: {}{before}", args.option);
        out!("then: deed resume {}{}", id.run.short(), output::same_journal(global));
    }
    Ok(Exit::Done)
}
