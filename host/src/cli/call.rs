//! `deed call`: one journaled call.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use deed::engine::Output;
use deed::mission::{Call, Network};
use deed::runner::CallOptions;
use deed_journal::{EffectState, StepError, StepKind, StepResult, StepStatus};
use serde::Deserialize;
use serde_json::{Value, json};

use super::exit::Exit;
use super::failure::Usage;
use super::hosting::{self, TestArgs, UnattendedArgs};
use super::output::{Format, out};
use super::{Global, journal_path, output};

#[derive(Debug, Args)]
pub(super) struct CallArgs {
    /// The tool.
    tool: String,
    /// Its arguments, a JSON object.
    #[arg(default_value = "{}")]
    input: String,
    /// A key of your own: a second call with it joins the first, or returns its outcome.
    #[arg(long)]
    key: Option<String>,
    /// Whether a command that the tool runs reaches the network.
    #[arg(long, value_enum, default_value_t = NetworkArg::Closed)]
    network: NetworkArg,
    #[command(flatten)]
    unattended: UnattendedArgs,
    #[command(flatten)]
    test: TestArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum NetworkArg {
    Closed,
    Open,
}

pub(super) fn run(global: &Global, args: &CallArgs) -> Result<Exit> {
    let input: Value = serde_json::from_str(&args.input)
        .with_context(|| Usage(format!("the arguments `{}` of `{}` are no JSON", args.input, args.tool)))?;
    let options = CallOptions {
        call: Call { tool: args.tool.clone(), input },
        workspace: global.workspace.clone().unwrap_or_else(|| PathBuf::from(".")),
        key: args.key.clone(),
        network: match args.network {
            NetworkArg::Closed => Network::Closed,
            NetworkArg::Open => Network::Open,
        },
    };
    let toolbox = hosting::toolbox(global, vec![options.workspace.clone()])?;
    let workspace = options.check(&toolbox)?;
    hosting::check_operator(&workspace)?;
    let path = journal_path::of(global, Some(&workspace))?;
    journal_path::refuse_inside(&path, &workspace)?;

    let journal = journal_path::open_shared(global, &path)?;
    let host = hosting::host(global, &args.test, &args.unattended, toolbox, (&path, journal));
    let created = host.create_call(&options)?;
    let envelope = hosting::drive(&host, &args.test, created.run)?;
    let steps = host.journal.read().steps(created.run)?;
    let step = steps
        .iter()
        .rfind(|step| step.planned.kind == StepKind::ToolCall)
        .context("the call was not planned")?;
    let (output, error) = match step.outcome.as_ref().map(|outcome| &outcome.result) {
        Some(StepResult::Completed { value }) => (Some(Output::deserialize(value)?), None),
        Some(StepResult::Failed { error }) => (None, Some(error.clone())),
        Some(StepResult::Abandoned { reason }) => {
            let kind = step.status().as_str().to_owned();
            (None, Some(StepError { kind, message: reason.clone(), effect: EffectState::Unknown }))
        }
        None => (None, None),
    };
    drop(host);
    let exit = match step.status() {
        StepStatus::Completed => Exit::Done,
        StepStatus::NeedsReconcile => Exit::Waiting,
        _ => Exit::of(envelope.status),
    };
    if global.format == Format::Json {
        output::json(&json!({
            "run": created.run,
            "seq": step.seq,
            "status": step.status(),
            "output": output,
            "error": error,
            "joined": created.joined,
            "waits": envelope.waits.iter().map(output::wait_json).collect::<Vec<_>>(),
        }))?;
        return Ok(exit);
    }
    match (&output, &error) {
        (Some(output), _) => {
            let text = output.to_text();
            out!("{}", text.strip_suffix('\n').unwrap_or(&text));
        }
        (None, Some(error)) => eprintln!("error: {}", error.message),
        (None, None) => output::envelope(global, &envelope)?,
    }
    Ok(exit)
}
