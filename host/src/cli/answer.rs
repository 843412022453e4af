//! `deed answer`: answer a question.

use anyhow::Result;
use clap::Args;
use deed_journal::Answer;
use serde_json::json;

use super::exit::Exit;
use super::journal_path::{self, AnswerHandle};
use super::output::{Format, out};
use super::{Global, find, hosting, output};

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
    let handle = journal_path::answering(global)?;
    let id = find::wait(handle.reader(), &args.wait)?;
    let answered_ms = hosting::clock(global).now_ms();
    let answer = Answer { option: args.option.clone(), text: args.text.clone(), answered_ms };
    let already = !handle.answer(id, answer)?;
    let goes_on = matches!(handle, AnswerHandle::Live(_));
    drop(handle);
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
        if goes_on {
            eprintln!(
                "the process that has the journal has the answer; if it does not go on by itself, resume after its end"
            );
        }
        out!("then: deed resume {}{}", id.run.short(), output::same_journal(global));
    }
    Ok(Exit::Done)
}
