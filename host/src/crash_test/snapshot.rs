//! Everything that must come out the same whether or not a process was killed on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use deed_journal::{Message, OpenError, ProbeVerdict, Reader, Run, Step, StepKind, StepResult};
use serde_json::json;

use super::CrashTestError;
use super::mask::Masks;
use super::place::Place;
use super::world::{Parts, World};

/// What a run left: its record and the world.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    /// The run's result.
    pub(super) envelope: String,
    /// `seq:kind/name:status class` of every step.
    pub(super) shape: BTreeMap<u64, String>,
    /// The messages, each with the tool call that it answers.
    pub(super) transcript: Vec<(Option<String>, String)>,
    /// The steps as they are recorded.
    pub(super) steps: Vec<Step>,
    /// The world.
    pub(super) world: World,
}

/// The one run of a journal, and the values in it that mean nothing.
pub(super) struct Recorded {
    pub(super) reader: Reader,
    pub(super) run: Run,
    pub(super) steps: Vec<Step>,
    pub(super) masks: Masks,
}

impl Recorded {
    /// Read a journal that no process has open. None while it holds no run.
    pub(super) fn read(place: &Place) -> Result<Option<Self>, CrashTestError> {
        let failed = |error: &dyn std::fmt::Display| CrashTestError::Read(error.to_string());
        let reader = match Reader::open(&place.journal()) {
            Err(OpenError::Missing(_)) => return Ok(None),
            reader => reader.map_err(|error| failed(&error))?,
        };
        let runs = reader.runs().map_err(|error| failed(&error))?;
        if let Some(error) = runs.unreadable.first() {
            return Err(failed(error));
        }
        let Some(run) = runs.items.into_iter().next() else { return Ok(None) };
        let steps = reader.steps(run.id).map_err(|error| failed(&error))?;
        let mut masks = Masks::new(place.directory.display().to_string());
        masks.add(run.id, "<run>");
        masks.add(run.session, "<session>");
        for step in &steps {
            let key = reader.key(&run, step.seq).map_err(|error| failed(&error))?;
            masks.add(key, format!("<key of step {}>", step.seq));
        }
        Ok(Some(Self { reader, run, steps, masks }))
    }

    /// With the world, everything.
    pub(super) fn with(self, world: World) -> Result<Snapshot, CrashTestError> {
        let Self { reader, run, steps, masks } = self;
        let messages = reader.transcript(run.session);
        let messages = messages.map_err(|error| CrashTestError::Read(error.to_string()))?;
        let envelope = json!({
            "status": run.status,
            "result": run.result,
            "criteria": run.criteria,
            "turns": run.usage.turns,
            "calls": run.usage.calls,
        });
        let shape = steps.iter().map(|step| {
            let kind = step.planned.kind.as_str();
            let (name, status, class) = (&step.planned.name, step.status().as_str(), step.planned.effect);
            (step.seq, format!("{}:{kind}/{name}:{status} {class}", step.seq))
        });
        Ok(Snapshot {
            envelope: masks.apply(&pretty(&envelope)),
            shape: shape.collect(),
            transcript: messages.iter().map(|message| told(message, &masks)).collect(),
            steps,
            world,
        })
    }
}

fn told(message: &Message, masks: &Masks) -> (Option<String>, String) {
    let body = serde_json::to_value(&message.body).expect("a message has text keys only");
    let call = message.body.result.as_ref().map(|result| result.call.clone());
    (call, masks.apply(&pretty(&body)))
}

fn pretty(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).expect("a JSON value can be printed") + "\n"
}

/// What is left out of a comparison.
#[derive(Debug, Clone, Default)]
pub(super) struct Except {
    /// Steps whose result the owner told, or is another one every time.
    pub(super) steps: BTreeSet<u64>,
    /// Steps that the owner gave up: their status is another.
    pub(super) given_up: BTreeSet<u64>,
    /// Parts of the world that differ between two undisturbed runs.
    pub(super) parts: BTreeSet<String>,
}

impl Snapshot {
    /// All parts to compare, by name: `envelope`, `transcript`, `journal`, and those of the world.
    pub(super) fn parts(&self, except: &Except) -> Parts {
        let calls: BTreeMap<&str, u64> = self
            .steps
            .iter()
            .filter(|step| except.steps.contains(&step.seq) || except.given_up.contains(&step.seq))
            .filter_map(|step| Some((step.planned.call.as_deref()?, step.seq)))
            .collect();
        let mut parts: Parts = self
            .world
            .parts
            .iter()
            .filter(|(name, _)| !except.parts.contains(*name))
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect();
        let transcript = self.transcript.iter().fold(String::new(), |mut text, (call, message)| {
            match call.as_deref().and_then(|call| calls.get(call)) {
                Some(seq) => {
                    let _ = writeln!(text, "(the result of step {seq} is not compared)");
                }
                None => text.push_str(message),
            }
            text
        });
        let shape = self.shape.iter().filter(|(seq, _)| !except.given_up.contains(seq));
        let shape = shape.fold(String::new(), |text, (_, line)| text + line + "\n");
        parts.insert(ENVELOPE.into(), self.envelope.clone());
        parts.insert(TRANSCRIPT.into(), transcript);
        parts.insert(JOURNAL.into(), shape);
        parts
    }

    /// The message that holds the result of a step.
    pub(super) fn result(&self, seq: u64) -> Option<&str> {
        let call = self.step(seq)?.planned.call.as_deref()?;
        let told = self.transcript.iter().find(|(of, _)| of.as_deref() == Some(call));
        told.map(|(_, text)| text.as_str())
    }

    pub(super) fn step(&self, seq: u64) -> Option<&Step> {
        self.steps.iter().find(|step| step.seq == seq)
    }
}

/// The parts that are no part of the world.
pub(super) const ENVELOPE: &str = "(envelope)";
pub(super) const TRANSCRIPT: &str = "(transcript)";
pub(super) const JOURNAL: &str = "(journal)";

/// Whether a part is of the world, or of the record.
pub(super) fn is_of_world(part: &str) -> bool {
    ![ENVELOPE, TRANSCRIPT, JOURNAL].contains(&part)
}

/// Whether a step is a call of a plugin's tool.
pub(super) fn is_tool(step: &Step) -> bool {
    step.planned.kind == StepKind::ToolCall && step.planned.component.is_some()
}

/// The text of a step's error, if it failed.
pub(super) fn error_of(step: &Step) -> Option<&str> {
    match &step.outcome.as_ref()?.result {
        StepResult::Failed { error } => Some(&error.message),
        _ => None,
    }
}

/// What the probe said of each attempt, oldest first.
pub(super) fn verdicts(step: &Step) -> impl Iterator<Item = (u32, &ProbeVerdict)> {
    step.attempts
        .iter()
        .filter_map(|attempt| attempt.probed.as_ref())
        .map(|probed| (probed.attempt, &probed.verdict))
}
