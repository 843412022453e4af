//! Everything that must come out the same whether or not a process was killed on the way.

use std::{fmt::Write as _, fs};

use serde::Deserialize;
use serde_json::Value;
use similar::TextDiff;

use crate::{Commit, Envelope, Message, Passage, Repository, Sandbox, StepRow, Tree, read_tree, shape};

/// The state of the world and of the journal after a run. Nothing is masked: ids, keys and times are fixed by the seed.
#[derive(Debug)]
pub struct Snapshot {
    /// The result.
    pub envelope: Envelope,
    /// The steps.
    pub steps: Vec<StepRow>,
    /// The transcript, message by message, whole.
    pub messages: Vec<Value>,
    /// The workspace's files.
    pub files: Tree,
    /// The commits, newest first.
    pub history: Vec<Commit>,
    /// Every branch and what it points at.
    pub references: Vec<String>,
    /// What git calls changed.
    pub status: Vec<String>,
    /// The transcript of every request that any process made to the model, in order.
    pub requests: Vec<Vec<Value>>,
}

/// A part of a [`Snapshot`] that is compared for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The result, all but the count of repeated model calls.
    Envelope,
    /// The transcript.
    Transcript,
    /// `seq:kind/name:status` and the effect class of every step.
    Shape,
    /// Paths and contents.
    Files,
    /// Commits with their ids, and the branches.
    History,
    /// What git calls changed.
    Status,
}

impl Section {
    /// Every section.
    pub const ALL: [Self; 6] =
        [Self::Envelope, Self::Transcript, Self::Shape, Self::Files, Self::History, Self::Status];
}

/// A line of the model log.
#[derive(Deserialize)]
struct Request {
    messages: Vec<Value>,
}

impl Snapshot {
    /// Look at everything, after `passage` in `sandbox`.
    ///
    /// # Errors
    /// Says what could not be read.
    pub fn take(sandbox: &Sandbox, passage: &Passage) -> Result<Self, String> {
        let envelope = passage.envelope.clone();
        let messages: Vec<Value> = sandbox.deed(["transcript", &envelope.session]).run().try_json()?;
        let steps = sandbox.deed(["steps", &envelope.run]).run().try_json()?;
        let files = read_tree(&sandbox.workspace())
            .map_err(|error| format!("failed to read the workspace: {error}"))?;
        let git = |error: git2::Error| format!("failed to read the repository: {error}");
        let repository = Repository::open(&sandbox.workspace()).map_err(git)?;
        let references = repository.references().map_err(git)?;
        Ok(Self {
            envelope,
            steps,
            messages,
            files,
            history: repository.history().map_err(git)?,
            references: references.into_iter().map(|(name, id)| format!("{name} {id}")).collect(),
            status: repository.status().map_err(git)?,
            requests: requests(sandbox)?,
        })
    }

    /// The messages, as far as tests look into them.
    #[track_caller]
    pub fn typed_messages(&self) -> Vec<Message> {
        serde_json::from_value(Value::Array(self.messages.clone())).expect("a transcript is as documented")
    }

    /// The number of the `nth` step (from 1) with this `kind/name`.
    #[track_caller]
    pub fn seq(&self, title: &str, nth: usize) -> u64 {
        self.step(title, nth).seq
    }

    /// The `nth` step (from 1) with this `kind/name`.
    #[track_caller]
    pub fn step(&self, title: &str, nth: usize) -> &StepRow {
        let mut fitting = self.steps.iter().filter(|step| step.title() == title);
        fitting
            .nth(nth - 1)
            .unwrap_or_else(|| panic!("there are not {nth} steps `{title}` in\n{}", shape(&self.steps)))
    }

    /// A section as text.
    pub fn section(&self, section: Section) -> String {
        match section {
            Section::Envelope => {
                let mut envelope = self.envelope.clone();
                envelope.usage.repeated_model_calls = 0;
                pretty(&envelope)
            }
            Section::Transcript => {
                self.messages.iter().fold(String::new(), |text, message| text + &pretty(message))
            }
            Section::Shape => {
                let effect = |step: &StepRow| step.effect.clone().unwrap_or_default();
                let classes = self.steps.iter().fold(String::new(), |mut text, step| {
                    writeln!(text, "{} {}", step.seq, effect(step)).expect("a string takes any text");
                    text
                });
                shape(&self.steps) + &classes
            }
            Section::Files => self.files.to_string(),
            Section::History => {
                let history =
                    self.history.iter().fold(String::new(), |text, commit| text + &commit.to_string());
                history + &lines(&self.references)
            }
            Section::Status => lines(&self.status),
        }
    }

    /// Compare one section.
    ///
    /// # Errors
    /// The difference, in unified form.
    pub fn compare_section(&self, reference: &Self, section: Section) -> Result<(), String> {
        let (expected, found) = (reference.section(section), self.section(section));
        if expected == found {
            return Ok(());
        }
        let diff = TextDiff::from_lines(&expected, &found);
        let diff = diff.unified_diff().header("uninterrupted", "found").to_string();
        Err(format!("{section:?} differs:\n{diff}"))
    }

    /// Compare everything.
    ///
    /// # Errors
    /// Every difference.
    pub fn compare(&self, reference: &Self) -> Result<(), String> {
        let differences: Vec<String> = Section::ALL
            .iter()
            .filter_map(|section| self.compare_section(reference, *section).err())
            .collect();
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    }

    /// Every transcript that any process sent to the model is a prefix of the final one.
    ///
    /// # Errors
    /// Names the first request that is not, and the message at which it differs.
    pub fn requests_are_prefixes(&self) -> Result<(), String> {
        for (number, request) in self.requests.iter().enumerate() {
            let differing =
                request.iter().enumerate().find(|(at, message)| self.messages.get(*at) != Some(*message));
            if let Some((at, message)) = differing {
                let kept = self.messages.get(at).map_or("nothing".into(), pretty);
                return Err(format!(
                    "request {} to the model is no prefix of the transcript. Its message {} is\n{}in the transcript there is\n{kept}",
                    number + 1,
                    at + 1,
                    pretty(message),
                ));
            }
        }
        Ok(())
    }
}

fn requests(sandbox: &Sandbox) -> Result<Vec<Vec<Value>>, String> {
    let path = sandbox.model_log();
    if !path.exists() {
        return Ok(Vec::new());
    }
    let log = fs::read_to_string(path).map_err(|error| format!("failed to read the model log: {error}"))?;
    log.lines()
        .map(|line| match serde_json::from_str::<Request>(line) {
            Ok(request) => Ok(request.messages),
            Err(error) => Err(format!("a line of the model log is not as documented: {error}\n{line}")),
        })
        .collect()
}

fn pretty<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).expect("what came from JSON can be printed") + "\n"
}

fn lines(all: &[String]) -> String {
    all.iter().fold(String::new(), |text, line| text + line + "\n")
}
