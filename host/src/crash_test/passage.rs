//! A run from its first process to its last: killed where it is to be killed, its questions answered.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::case::Case;
use super::place::Place;
use super::process::{self, Ended, Ending};
use super::tester::Tester;
use super::world::World;
use super::{CrashTestError, owner};
use crate::boundary::{Boundary, KillPoint};

/// Processes that one run may take, beside one for each question: a run, two kills, and as many again for what a power
/// cut undoes. More is a loop.
const MAX_PROCESSES: usize = 12;

/// Questions that one run may ask.
const MAX_QUESTIONS: usize = 200;

/// A question, as `deed` prints it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Question {
    pub(super) wait: String,
    pub(super) seq: u64,
    pub(super) kind: String,
    pub(super) name: String,
    #[serde(rename = "question")]
    pub(super) text: String,
    pub(super) options: Vec<String>,
}

/// A question that was put, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// The step it was about.
    pub seq: u64,
    /// `approval`, `question`, `reconcile` or `conflict`.
    pub kind: String,
    /// The tool it was about.
    pub tool: String,
    /// The question.
    pub question: String,
    /// The answer.
    pub answer: String,
}

/// What happened on the way.
#[derive(Debug)]
pub(super) struct Passage {
    /// The ends of the processes that worked on the run, in order.
    pub(super) processes: Vec<Ended>,
    /// How many of them were killed where they were to be.
    pub(super) kills: usize,
    pub(super) asked: Vec<Asked>,
    /// The world right after the first kill, where that was asked for.
    pub(super) at_kill: Option<World>,
    /// Why it did not come to a documented end.
    pub(super) broken: Option<String>,
}

/// What the processes of a run are told beyond their run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Orders {
    pub(super) case: Option<Case>,
    /// Write down every point that is crossed.
    pub(super) watch: bool,
    /// Look at the world right after the first kill.
    pub(super) look: bool,
    /// Leave the run as it is after the first kill.
    pub(super) leave: bool,
}

impl Tester<'_> {
    /// Run the mission in `place`, and resume it until it has ended.
    pub(super) fn pass(&self, place: &Place, orders: Orders) -> Result<Passage, CrashTestError> {
        let mut passage =
            Passage { processes: Vec::new(), kills: 0, asked: Vec::new(), at_kill: None, broken: None };
        let mut begin = true;
        for _ in 0..MAX_PROCESSES + MAX_QUESTIONS {
            if passage.processes.len() > MAX_PROCESSES + passage.asked.len() {
                break;
            }
            let ended = self.process(place, orders, passage.kills, begin)?;
            let ending = ended.ending;
            passage.processes.push(ended);
            begin = false;
            match ending {
                Ending::KILLED if passage.kills < expected_kills(orders.case) => {
                    passage.kills += 1;
                    if !process::await_gone(&place.locks())
                        .map_err(CrashTestError::io("read", &place.locks()))?
                    {
                        passage.broken = Some("processes of a killed call live on".to_owned());
                        return Ok(passage);
                    }
                    if passage.kills == 1 && orders.look {
                        passage.at_kill = Some(self.look(place)?);
                    }
                    if orders.leave {
                        return Ok(passage);
                    }
                    // The power may have gone before there was a run.
                    begin = matches!(orders.case, Some(Case::PowerCut { .. })) && !self.has_run(place)?;
                }
                Ending::Exit(0 | 1 | 3) => {
                    // What did not run at all says why on its standard error alone. The run may have ended just before the
                    // power went.
                    let ran = serde_json::from_str::<Value>(&passage.last().stdout).is_ok();
                    let had_ended = ending == Ending::Exit(0) && passage.kills > 0;
                    if !(ran || had_ended && self.has_run(place)?) {
                        passage.broken = Some(passage.last().describe());
                    }
                    return Ok(passage);
                }
                Ending::Exit(4) => {
                    let questions = waits(&passage.last().stdout)?;
                    if questions.is_empty() {
                        passage.broken = Some("it waits, and does not say for what".to_owned());
                        return Ok(passage);
                    }
                    for question in questions {
                        let (option, text) = self.decide(place, orders.case, &question, &passage)?;
                        self.answer(place, &question.wait, &option, text.as_deref())?;
                        passage.asked.push(Asked {
                            seq: question.seq,
                            kind: question.kind,
                            tool: question.name,
                            question: question.text,
                            answer: option,
                        });
                    }
                }
                Ending::Stopped => return Err(CrashTestError::Stopped),
                Ending::Exit(_) | Ending::Signal(_) | Ending::Hung => {
                    passage.broken = Some(passage.last().describe());
                    return Ok(passage);
                }
            }
        }
        let (processes, asked) = (passage.processes.len(), passage.asked.len());
        passage.broken =
            Some(format!("the run has not ended after {processes} processes and {asked} answers"));
        Ok(passage)
    }

    /// One process that works on the run.
    fn process(
        &self,
        place: &Place,
        orders: Orders,
        kills: usize,
        begin: bool,
    ) -> Result<Ended, CrashTestError> {
        let mut args: Vec<String> = if begin {
            let workspace = shown(&place.workspace());
            vec!["run".into(), shown(&place.mission()), "--workspace".into(), workspace]
        } else {
            vec!["resume".into()]
        };
        args.extend(["--trace".into(), shown(&place.trace())]);
        let kill = match kills {
            0 => orders.case.and_then(Case::first),
            1 => orders.case.and_then(Case::second),
            _ => None,
        };
        if let Some(point) = kill {
            args.extend(["--kill-at".into(), point.to_string()]);
        }
        if let (0, Some(Case::PowerCut { operation, seed })) = (kills, orders.case) {
            args.extend(["--power-cut".into(), format!("{operation}:{seed}")]);
        }
        if orders.watch {
            args.push("--trace-points".into());
        }
        self.deed(place, &args)
    }

    fn answer(
        &self,
        place: &Place,
        wait: &str,
        option: &str,
        text: Option<&str>,
    ) -> Result<(), CrashTestError> {
        let mut args: Vec<String> = ["answer", wait, option].map(str::to_owned).into();
        if let Some(text) = text {
            args.extend(["--text".into(), text.into()]);
        }
        let ended = self.deed(place, &args)?;
        match ended.ending {
            Ending::Exit(0) => Ok(()),
            Ending::Stopped => Err(CrashTestError::Stopped),
            _ => Err(CrashTestError::Reference(format!(
                "the answer `{option}` to `{wait}` was refused; see `answers` in the file: {}",
                ended.describe()
            ))),
        }
    }

    /// What the owner answers: as the file says, else by the settled rule.
    fn decide(
        &self,
        place: &Place,
        case: Option<Case>,
        question: &Question,
        passage: &Passage,
    ) -> Result<(String, Option<String>), CrashTestError> {
        if let Some(answer) = owner::by_rule(self.answers(), question) {
            return Ok(answer);
        }
        let landed = match (question.kind.as_str(), case) {
            ("reconcile", Some(Case::Kill(KillPoint { seq, boundary }))) if seq == question.seq => {
                match boundary {
                    // The first call of the host was not carried out, so nothing was done.
                    Boundary::BeforeIntent | Boundary::AfterIntent | Boundary::MidExec => Some(false),
                    Boundary::AfterExec => Some(true),
                    _ => None,
                }
            }
            _ => None,
        };
        let landed = match landed {
            Some(landed) => landed,
            None if question.kind == "reconcile" => self.look(place)? != *self.before(question.seq)?,
            None => false,
        };
        let again = passage.asked.iter().filter(|asked| asked.seq == question.seq).count();
        Ok((owner::by_default(question, landed, again), None))
    }
}

impl Passage {
    fn last(&self) -> &Ended {
        self.processes.last().expect("a process was just added")
    }

    /// Whether the owner had to say what became of a call.
    pub(super) fn reconciled(&self) -> impl Iterator<Item = &Asked> {
        self.asked.iter().filter(|asked| asked.kind == "reconcile")
    }
}

/// How often a case kills. The second point of a double kill is often not crossed: the step is settled by then.
fn expected_kills(case: Option<Case>) -> usize {
    match case {
        None => 0,
        Some(Case::Kill(_) | Case::PowerCut { .. }) => 1,
        Some(Case::Double(..)) => 2,
    }
}

fn waits(stdout: &str) -> Result<Vec<Question>, CrashTestError> {
    let failed = |error: serde_json::Error| CrashTestError::Read(format!("what `deed` printed: {error}"));
    let mut envelope: Value = serde_json::from_str(stdout).map_err(failed)?;
    serde_json::from_value(envelope["waits"].take()).map_err(failed)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
