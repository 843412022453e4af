//! The command line: one file per subcommand, over the library.

#![expect(clippy::print_stderr, reason = "this is where deed speaks")]

mod answer;
mod backup;
mod call;
mod compact;
mod crash_test;
mod credentials;
mod exit;
mod failure;
mod find;
mod hosting;
mod journal_path;
mod output;
mod plugin;
mod power_cut;
mod prune;
mod recover;
mod resume;
mod run;
mod runs;
mod session;
mod show;
mod signals;
mod steps;
mod terminal;
mod tools;
mod trace;
mod transcript;
mod verify;
mod waits;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, Parser, Subcommand};

use self::journal_path::reading;
use self::output::Format;

/// A host for tools that are WebAssembly components: records every step, and recovers after a crash at any instant.
#[derive(Debug, Parser)]
#[command(name = "deed", version, arg_required_else_help = true, args_override_self = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  usage: nothing was tried, nothing was written
  3  a run ended with something missing
  4  a run waits for an answer
  5  the journal is in use by another process
  6  the journal is damaged, or of a newer version

Without `--journal` the workspace decides which journal is used: by default the current directory's.";

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// The journal; by default one per workspace in the user's state directory.
    #[arg(long, global = true, env = "DEED_JOURNAL", value_name = "PATH")]
    journal: Option<PathBuf>,
    /// The workspace; by default what the mission says, else the current directory.
    #[arg(long, global = true, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// A directory of further plugins: every `*.wasm` in it.
    #[arg(long, global = true, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// How results are printed: `text` or `json`.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, hide_possible_values = true)]
    format: Format,
    /// Say more on standard error: steps, and what tools log.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Fixed clock, ids from this seed: for tests that compare bytes.
    #[arg(long, global = true, hide = true, value_name = "SEED")]
    deterministic: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a mission or a batch.
    Run(run::RunArgs),
    /// Take an interrupted or waiting run on.
    Resume(resume::ResumeArgs),
    /// Call one tool.
    Call(call::CallArgs),
    /// Answer a question.
    Answer(answer::AnswerArgs),
    /// List the open questions.
    Waits,
    /// List the runs.
    Runs,
    /// List the steps of a run.
    Steps(steps::StepsArgs),
    /// Show everything about one step.
    Show(show::ShowArgs),
    /// Print the transcript of a session or a run.
    Transcript(transcript::TranscriptArgs),
    /// Show, branch, rewind, export and import sessions.
    Session(session::SessionArgs),
    /// Settle the turns of sessions that a crash cut short and nobody takes on.
    Recover(recover::RecoverArgs),
    /// Check every record of the journal.
    Verify(verify::VerifyArgs),
    /// Copy the journal to a new file, also while a process has it.
    Backup(backup::BackupArgs),
    /// Remove runs that have ended.
    Prune(prune::PruneArgs),
    /// Give the journal's free room back to the system. Nobody else may have it open.
    Compact,
    /// Kill a mission or a batch everywhere, on copies, and say what each tool really does.
    CrashTest(crash_test::CrashTestArgs),
    /// List the tools at hand.
    Tools,
    /// Make, build, check, inspect and install plugins.
    Plugin(plugin::PluginArgs),
}

/// Run the command line.
pub(crate) fn main() -> ExitCode {
    let Cli { global, command } = Cli::parse();
    let result = match command {
        Command::Run(args) => run::run(&global, &args),
        Command::Resume(args) => resume::run(&global, &args),
        Command::Call(args) => call::run(&global, &args),
        Command::Answer(args) => reading(|| answer::run(&global, &args)),
        Command::Waits => reading(|| waits::run(&global)),
        Command::Runs => reading(|| runs::run(&global)),
        Command::Steps(args) => reading(|| steps::run(&global, &args)),
        Command::Show(args) => reading(|| show::run(&global, &args)),
        Command::Transcript(args) => reading(|| transcript::run(&global, &args)),
        Command::Session(args) => reading(|| session::run(&global, &args)),
        Command::Recover(args) => recover::run(&global, &args),
        Command::Verify(args) => reading(|| verify::run(&global, &args)),
        Command::Backup(args) => reading(|| backup::run(&global, &args)),
        Command::Prune(args) => prune::run(&global, &args),
        Command::Compact => compact::run(&global),
        Command::CrashTest(args) => crash_test::run(&global, &args),
        Command::Tools => tools::run(&global),
        Command::Plugin(args) => plugin::run(&global, &args),
    };
    result.unwrap_or_else(|error| failure::report(&error)).into()
}
