//! What to do about a step, by the last durable thing known of it. The class decides.

use crate::effect::EffectClass;
use crate::marks::Started;
use crate::step::{ProbeVerdict, Step, StepKind, StepStatus};

/// What becomes of a step that is found in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Its outcome is committed: return it. Nothing runs.
    Return,
    /// Its outcome is committed, and what it changed may not be in the workspace yet: publish that.
    Publish {
        /// The attempt whose changes they are.
        attempt: u32,
    },
    /// Record the intent of this attempt, and run it.
    Run {
        /// The attempt to make.
        attempt: u32,
    },
    /// The intent of this attempt is recorded and it provably never started: run it under that intent.
    Start {
        /// The attempt to make.
        attempt: u32,
    },
    /// The outcome of this attempt is unknown and it must not run again blindly: probe, else ask the owner.
    Reconcile {
        /// The attempt in question.
        attempt: u32,
    },
    /// The owner was asked about this attempt: the answer, once there, decides.
    Answer {
        /// The attempt in question.
        attempt: u32,
    },
}

impl Recovery {
    /// Decide for `step`; `started` is what the start marks tell of its last attempt.
    pub fn of(step: &Step, started: Started) -> Self {
        let attempt = step.attempt();
        match step.status() {
            _ if step.is_pending() => Self::Publish { attempt },
            StepStatus::Completed | StepStatus::Failed | StepStatus::Abandoned => Self::Return,
            StepStatus::Planned => Self::Run { attempt: 1 },
            StepStatus::NeedsReconcile => Self::Answer { attempt },
            StepStatus::Intent if started == Started::No => Self::Start { attempt },
            StepStatus::Intent if was_not_landed(step) => Self::Run { attempt: attempt + 1 },
            StepStatus::Intent => match step.planned.effect {
                // Asking the owner is what a wait step does; it stays open, whoever opened it.
                _ if step.planned.kind == StepKind::Wait => Self::Answer { attempt },
                EffectClass::Pure | EffectClass::Idempotent => Self::Run { attempt: attempt + 1 },
                EffectClass::NonIdempotent if step.planned.contained => Self::Run { attempt: attempt + 1 },
                EffectClass::NonIdempotent => Self::Reconcile { attempt },
            },
        }
    }
}

/// Whether the probe said of the last attempt that it did not land.
fn was_not_landed(step: &Step) -> bool {
    let probed = step.attempts.last().and_then(|attempt| attempt.probed.as_ref());
    probed.is_some_and(|probed| probed.verdict == ProbeVerdict::NotLanded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Change, Changes, PathBytes, Published, Version};
    use crate::step::{Intent, Outcome, Planned, Probed, SettledBy, StepEvent, StepResult, Unsettled};

    fn step(effect: EffectClass, contained: bool, events: &[StepEvent]) -> Step {
        let planned = Planned {
            contained,
            ..Planned::new(StepKind::ToolCall, "tool", effect, serde_json::json!({}), 0)
        };
        let mut step = Step::new(1, planned);
        for event in events {
            step.apply(event).unwrap();
        }
        step
    }

    /// The table of section "recovery of one step": every class by every last durable state.
    #[test]
    fn the_recovery_table() {
        let intent = StepEvent::Intent(Intent { attempt: 1, clock_ms: 0, marks: None });
        let unsettled = StepEvent::Unsettled(Unsettled { attempt: 1, reason: "lost".into() });
        let outcome = StepEvent::Outcome(Outcome {
            attempt: 1,
            result: StepResult::Completed { value: serde_json::json!(1) },
            settled_by: SettledBy::Execution,
            landed_before: false,
            settled_ms: 0,
        });
        let classes = [
            (EffectClass::Pure, false, Recovery::Run { attempt: 2 }),
            (EffectClass::Idempotent, false, Recovery::Run { attempt: 2 }),
            (EffectClass::NonIdempotent, true, Recovery::Run { attempt: 2 }),
            (EffectClass::NonIdempotent, false, Recovery::Reconcile { attempt: 1 }),
        ];
        for (effect, contained, in_doubt) in classes {
            let of = |events: &[&StepEvent], started| {
                let events: Vec<_> = events.iter().copied().cloned().collect();
                Recovery::of(&step(effect, contained, &events), started)
            };
            assert_eq!(of(&[], Started::Unknown), Recovery::Run { attempt: 1 });
            assert_eq!(of(&[&intent], Started::No), Recovery::Start { attempt: 1 });
            assert_eq!(of(&[&intent], Started::Yes), in_doubt);
            assert_eq!(of(&[&intent], Started::Unknown), in_doubt);
            // A verdict settles one attempt: not-landed alone lets it run again, whatever else a probe says is for the owner.
            let probed = |verdict| StepEvent::Probed(Probed { attempt: 1, verdict, probed_ms: 0 });
            let not_landed = probed(ProbeVerdict::NotLanded);
            assert_eq!(of(&[&intent, &not_landed], Started::Yes), Recovery::Run { attempt: 2 });
            let undecidable = probed(ProbeVerdict::Undecidable { why: "?".into() });
            assert_eq!(of(&[&intent, &undecidable], Started::Yes), in_doubt);
            assert_eq!(
                of(&[&intent, &undecidable, &unsettled], Started::Yes),
                Recovery::Answer { attempt: 1 }
            );
            assert_eq!(of(&[&intent, &unsettled], Started::Yes), Recovery::Answer { attempt: 1 });
            assert_eq!(of(&[&intent, &outcome], Started::Yes), Recovery::Return);
            assert_eq!(of(&[&intent, &unsettled, &outcome], Started::Yes), Recovery::Return);
            if contained {
                let changes = StepEvent::Changes(Changes {
                    attempt: 1,
                    number: 0,
                    changes: vec![Change {
                        path: PathBytes::new("log"),
                        base: Version::Absent,
                        staged: Version::Directory { mode: 0o755 },
                    }],
                    diff: String::new(),
                });
                let published = StepEvent::Published(Published {
                    attempt: 1,
                    published_ms: 0,
                    kept: Vec::new(),
                    asks: false,
                });
                let settled = [&intent, &changes, &outcome];
                assert_eq!(of(&settled, Started::Yes), Recovery::Publish { attempt: 1 });
                let events = [&intent, &changes, &outcome, &published];
                assert_eq!(of(&events, Started::Yes), Recovery::Return);
            }
        }
    }
}
