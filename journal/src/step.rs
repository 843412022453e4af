//! Steps: the journaled actions of a run.
//!
//! A step is a list of events, each inserted once and never changed. The shape of their keys makes duplicates
//! impossible: there is one place for the intent of (run, seq, attempt), and one for the outcome of (run, seq).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::{Change, Changes, Published};
use crate::effect::EffectClass;
use crate::id::{Digest, RunId};
use crate::marks::MarkPlace;
use crate::record::Key;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Prepares the run.
    Setup,
    /// Takes the policy in force for what follows.
    Policy,
    /// Asks the model what to do next.
    ModelCall,
    /// Reads the clock.
    Now,
    /// Asks the owner, and waits.
    Wait,
    /// Calls a tool.
    ToolCall,
}

impl StepKind {
    /// The kind as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Policy => "policy",
            Self::ModelCall => "model_call",
            Self::Now => "now",
            Self::Wait => "wait",
            Self::ToolCall => "tool_call",
        }
    }
}

/// Receipts of one attempt. Each is one sync and one record that every later look at the step reads; a tool that marks
/// its way in percent has room to spare.
pub const RECEIPTS: u32 = 256;

/// Where a step stands. Derived from its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Has its number and its arguments.
    Planned,
    /// About to execute, or executing.
    Intent,
    /// Has a result.
    Completed,
    /// Has an error, and its effect is known.
    Failed,
    /// May have happened or not; the owner is asked.
    NeedsReconcile,
    /// Given up by the owner; whether it happened stays unknown.
    Abandoned,
}

impl StepStatus {
    /// The status as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Intent => "intent",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::NeedsReconcile => "needs_reconcile",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether nothing more can come of the step.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Abandoned)
    }
}

/// A step has its number; everything that decides how it will run is fixed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// What it does.
    pub kind: StepKind,
    /// The tool's name, or what else names the action.
    pub name: String,
    /// The effective class.
    pub effect: EffectClass,
    /// Whether all its effects are held in a stage until its outcome commits.
    #[serde(default)]
    pub contained: bool,
    /// The component that every attempt and probe uses; none for the host's own actions.
    pub component: Option<Digest>,
    /// Digest of the arguments, whatever their key order.
    pub args_digest: Digest,
    /// The arguments.
    pub args: Value,
    /// The id of the model's tool call that it answers.
    pub call: Option<String>,
    /// Decided already, without executing: an unknown tool, arguments that do not fit, a denial.
    pub refused: Option<StepError>,
    /// When it was planned, milliseconds since the epoch: what a pure attempt's clock starts at.
    pub planned_ms: u64,
}

impl Planned {
    /// A plan of a step that has no component, is not contained, answers no call and is not refused.
    pub fn new(
        kind: StepKind,
        name: impl Into<String>,
        effect: EffectClass,
        args: Value,
        planned_ms: u64,
    ) -> Self {
        Self {
            kind,
            name: name.into(),
            effect,
            contained: false,
            component: None,
            args_digest: Digest::of_json(&args),
            args,
            call: None,
            refused: None,
            planned_ms,
        }
    }
}

/// A step is about to execute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// 1 for the first execution.
    pub attempt: u32,
    /// What the attempt's wall clock starts at, milliseconds since the epoch.
    pub clock_ms: u64,
    /// Where the attempt's start mark would be; none where there can be no proof of not having started.
    pub marks: Option<MarkPlace>,
}

/// Bytes that a tool saved in the middle of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The attempt that saved it.
    pub attempt: u32,
    /// Counts from 0 within the attempt; the highest one counts.
    pub number: u32,
    /// The bytes.
    #[serde(with = "crate::base64_bytes")]
    pub bytes: Vec<u8>,
}

/// Nobody but the owner can tell what came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettled {
    /// The attempt in question.
    pub attempt: u32,
    /// Why it cannot be told.
    pub reason: String,
}

/// What a tool's probe found out about an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum ProbeVerdict {
    /// The effect is there. The outcome that commits with this holds the result.
    Landed,
    /// The effect is not there and cannot come any more: the intent of the next attempt commits with this.
    NotLanded,
    /// Some of it is there.
    Partial {
        /// What.
        what: String,
    },
    /// It cannot be told.
    Undecidable {
        /// Why.
        why: String,
    },
    /// The probe itself failed, trapped or ran out of time.
    Failed {
        /// How.
        why: String,
    },
}

/// A probe was asked about an attempt, once. Its evidence stays with the step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The attempt in question.
    pub attempt: u32,
    /// What it found out.
    #[serde(flatten)]
    pub verdict: ProbeVerdict,
    /// When, milliseconds since the epoch.
    pub probed_ms: u64,
}

/// What is known of a failed call's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectState {
    /// Nothing changed.
    NotApplied,
    /// The effect is there all the same.
    Applied,
    /// It cannot be told.
    Unknown,
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepError {
    /// A word for programs, such as `not-found`.
    pub kind: String,
    /// For people and models: what failed, the value, the next step.
    pub message: String,
    /// What is known of its effect.
    pub effect: EffectState,
}

/// How an outcome came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettledBy {
    /// By the execution itself.
    Execution,
    /// By the tool's probe.
    Probe,
    /// By the owner.
    Owner,
    /// By the host, without executing.
    Refusal,
}

impl SettledBy {
    /// As it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Execution => "execution",
            Self::Probe => "probe",
            Self::Owner => "owner",
            Self::Refusal => "refusal",
        }
    }
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum StepResult {
    /// It has a value.
    Completed {
        /// The result.
        value: Value,
    },
    /// It failed.
    Failed {
        /// Why.
        error: StepError,
    },
    /// The owner gave it up.
    Abandoned {
        /// Why.
        reason: String,
    },
}

/// What came of a step, and how that is known. Never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The attempt it is of.
    pub attempt: u32,
    /// The result.
    pub result: StepResult,
    /// How it is known.
    pub settled_by: SettledBy,
    /// An earlier attempt had done it: the effect was there already when this one looked.
    pub landed_before: bool,
    /// When it was settled, milliseconds since the epoch.
    pub settled_ms: u64,
}

/// Something that happened to a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum StepEvent {
    /// Its number and arguments are fixed.
    Planned(Planned),
    /// An attempt is about to execute.
    Intent(Intent),
    /// An attempt saved bytes for the next one.
    Receipt(Receipt),
    /// A probe was asked about an attempt.
    Probed(Probed),
    /// An attempt's outcome is unknown.
    Unsettled(Unsettled),
    /// What a contained attempt changed. Commits with its outcome.
    Changes(Changes),
    /// It is settled.
    Outcome(Outcome),
    /// What the settled step changed is in the workspace.
    Published(Published),
}

impl StepEvent {
    /// The one place where this event can be.
    pub(crate) fn key(&self, run: RunId, seq: u64) -> Key {
        // The outcome's place does not depend on the attempt: a step has one outcome.
        let (attempt, order, number) = match self {
            Self::Planned(_) => (0, 0, 0),
            Self::Intent(intent) => (intent.attempt, 1, 0),
            Self::Receipt(receipt) => (receipt.attempt, 2, receipt.number),
            Self::Probed(probed) => (probed.attempt, 3, 0),
            Self::Unsettled(unsettled) => (unsettled.attempt, 4, 0),
            Self::Changes(changes) => (changes.attempt, 5, changes.number),
            Self::Outcome(_) => (u32::MAX, 9, 0),
            Self::Published(published) => (u32::MAX, 10, u32::from(!published.asks)),
        };
        Key::step_event(run, seq, attempt, order, number)
    }

    /// The event in a few words, for errors.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Planned(_) => "plan".to_owned(),
            Self::Intent(intent) => format!("intent of attempt {}", intent.attempt),
            Self::Receipt(receipt) => format!("receipt {} of attempt {}", receipt.number, receipt.attempt),
            Self::Probed(probed) => format!("probe of attempt {}", probed.attempt),
            Self::Unsettled(unsettled) => format!("question about attempt {}", unsettled.attempt),
            Self::Changes(changes) => format!("changes of attempt {}", changes.attempt),
            Self::Outcome(_) => "outcome".to_owned(),
            Self::Published(_) => "publication".to_owned(),
        }
    }
}

/// One execution of a step, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What was recorded before it.
    pub intent: Intent,
    /// Receipts saved in it.
    pub receipts: u32,
    /// What its tool's probe found out, if it was asked.
    pub probed: Option<Probed>,
    /// Why its outcome is unknown, once that is recorded.
    pub unsettled: Option<Unsettled>,
}

/// A step: the sum of its events.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its number within the run, from 1.
    pub seq: u64,
    /// What it is to do.
    pub planned: Planned,
    /// Its attempts, oldest first. A pure step runs without recording them.
    pub attempts: Vec<Attempt>,
    /// The newest receipt of any attempt; of a contained step, of the last one: what others did was dropped with them.
    pub receipt: Option<Vec<u8>>,
    /// What a contained step changed, in the order of its publication.
    pub changes: Vec<Change>,
    /// How its texts changed, as far as it was kept.
    pub diff: String,
    /// What came of it.
    pub outcome: Option<Outcome>,
    /// Its changes are in the workspace.
    pub published: Option<Published>,
    /// Records of changes so far.
    change_parts: u32,
}

impl Step {
    /// A step that was just planned.
    pub fn new(seq: u64, planned: Planned) -> Self {
        Self {
            seq,
            planned,
            attempts: Vec::new(),
            receipt: None,
            changes: Vec::new(),
            diff: String::new(),
            outcome: None,
            published: None,
            change_parts: 0,
        }
    }

    /// Where it stands.
    pub fn status(&self) -> StepStatus {
        match (&self.outcome, self.attempts.last()) {
            (Some(outcome), _) => match outcome.result {
                StepResult::Completed { .. } => StepStatus::Completed,
                StepResult::Failed { .. } => StepStatus::Failed,
                StepResult::Abandoned { .. } => StepStatus::Abandoned,
            },
            (None, Some(attempt)) if attempt.unsettled.is_some() => StepStatus::NeedsReconcile,
            (None, Some(_)) => StepStatus::Intent,
            (None, None) => StepStatus::Planned,
        }
    }

    /// The newest attempt: that of the outcome, else the last intent's; 0 when none was made.
    pub fn attempt(&self) -> u32 {
        let recorded = self.attempts.last().map(|attempt| attempt.intent.attempt);
        self.outcome.as_ref().map(|outcome| outcome.attempt).or(recorded).unwrap_or(0)
    }

    /// Whether it is settled and what it changed is not known to be in the workspace.
    pub fn is_pending(&self) -> bool {
        let is_over = self.published.as_ref().is_some_and(|published| !published.asks);
        self.outcome.is_some() && !self.changes.is_empty() && !is_over
    }

    /// Take in one more event.
    ///
    /// # Errors
    /// Says why the event does not follow from those before it; then nothing changed.
    pub fn apply(&mut self, event: &StepEvent) -> Result<(), &'static str> {
        if let StepEvent::Published(published) = event {
            if !self.is_pending() || published.attempt != self.attempt() {
                return Err("there is nothing of this attempt to publish");
            }
            if published.asks && self.published.is_some() {
                return Err("the owner is asked once");
            }
            self.published = Some(published.clone());
            return Ok(());
        }
        if self.outcome.is_some() {
            return Err("the step is settled");
        }
        if self.change_parts > 0 && !matches!(event, StepEvent::Changes(_) | StepEvent::Outcome(_)) {
            return Err("changes are recorded with the outcome");
        }
        let last = self.attempts.last();
        match event {
            StepEvent::Planned(_) => return Err("the step is planned already"),
            StepEvent::Intent(intent) => {
                if intent.attempt != last.map_or(1, |attempt| attempt.intent.attempt + 1) {
                    return Err("attempts are numbered without gaps");
                }
                let intent = intent.clone();
                if self.planned.contained {
                    self.receipt = None;
                }
                self.attempts.push(Attempt { intent, receipts: 0, probed: None, unsettled: None });
            }
            StepEvent::Receipt(receipt) => {
                let attempt = self.attempts.last_mut().ok_or("no attempt is under way")?;
                if (attempt.intent.attempt, attempt.receipts) != (receipt.attempt, receipt.number) {
                    return Err("receipts belong to the last attempt and are numbered without gaps");
                }
                if attempt.probed.is_some() || attempt.unsettled.is_some() {
                    return Err("the attempt has ended");
                }
                if attempt.receipts >= RECEIPTS {
                    return Err("it has saved as many receipts as an attempt may");
                }
                attempt.receipts += 1;
                self.receipt = Some(receipt.bytes.clone());
            }
            StepEvent::Probed(probed) => {
                let attempt = self.attempts.last_mut().ok_or("no attempt is under way")?;
                let asked = attempt.probed.is_some() || attempt.unsettled.is_some();
                if attempt.intent.attempt != probed.attempt || asked {
                    return Err("a probe is asked once, about the last attempt, and before the owner is");
                }
                attempt.probed = Some(probed.clone());
            }
            StepEvent::Unsettled(unsettled) => {
                let attempt = self.attempts.last_mut().ok_or("no attempt is under way")?;
                if attempt.intent.attempt != unsettled.attempt || attempt.unsettled.is_some() {
                    return Err("a question is asked once, about the last attempt");
                }
                attempt.unsettled = Some(unsettled.clone());
            }
            StepEvent::Changes(changes) => {
                if !self.planned.contained {
                    return Err("only a contained step records its changes");
                }
                if last.is_none_or(|attempt| attempt.intent.attempt != changes.attempt)
                    || self.change_parts != changes.number
                {
                    return Err("changes are of the last attempt, in parts numbered without gaps");
                }
                self.change_parts += 1;
                self.changes.extend_from_slice(&changes.changes);
                self.diff.push_str(&changes.diff);
            }
            StepEvent::Published(_) => return Err("the step is not settled"),
            StepEvent::Outcome(outcome) => {
                if last.is_some_and(|attempt| attempt.intent.attempt != outcome.attempt) {
                    return Err("an outcome is of the last attempt");
                }
                self.outcome = Some(outcome.clone());
            }
        }
        Ok(())
    }

    /// The step that `events`, in key order, add up to.
    pub(crate) fn fold(seq: u64, events: impl IntoIterator<Item = StepEvent>) -> Result<Self, &'static str> {
        let mut events = events.into_iter();
        let Some(StepEvent::Planned(planned)) = events.next() else {
            return Err("the plan of the step is missing");
        };
        let mut step = Self::new(seq, planned);
        events.try_for_each(|event| step.apply(&event))?;
        Ok(step)
    }
}
