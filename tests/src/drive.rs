//! A run from its first process to its last.

use crate::{Ending, Envelope, Kill, Outcome, Sandbox, Wait};

/// Processes one run may take: the longest way here is run, kill, resume to a question about a step, resume to the
/// mission's own question, resume to the end; twice that is a loop.
const MAX_PROCESSES: usize = 10;

/// How the owner answers: by the option's name.
pub type Owner<'a> = &'a (dyn Fn(&Wait) -> Result<&'static str, String> + Sync);

/// The owner of the reference mission: agrees to the mission's question, and is asked nothing else.
///
/// # Errors
/// When the question is about an unknown outcome, which no run without such a step may ask.
pub fn says_yes(wait: &Wait) -> Result<&'static str, String> {
    match wait.kind.as_str() {
        "question" => Ok("yes"),
        other => Err(format!("a wait of kind `{other}` was not expected: {wait:?}")),
    }
}

/// An owner who must not be asked.
///
/// # Errors
/// Always.
pub fn never_asked(wait: &Wait) -> Result<&'static str, String> {
    Err(format!("nothing was to be asked: {wait:?}"))
}

/// A question that was asked, and the answer to it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The question.
    pub wait: Wait,
    /// The owner's answer.
    pub answer: &'static str,
}

/// What happened on the way.
#[derive(Debug)]
pub struct Passage {
    /// Every process that worked on the run, in order; those that asked and answered are not among them.
    pub processes: Vec<Outcome>,
    /// How many of them died by SIGKILL.
    pub kills: usize,
    /// Every question, once for each time it had to be answered.
    pub asked: Vec<Asked>,
    /// The result that the last one gave.
    pub envelope: Envelope,
}

impl Passage {
    /// How each process ended.
    pub fn endings(&self) -> Vec<Ending> {
        self.processes.iter().map(|process| process.ending).collect()
    }
}

impl Sandbox {
    /// Run the mission, resume it until it has ended, answer what is asked. With `kill`, processes are told to die there
    /// until one has.
    ///
    /// # Errors
    /// Says, with all that was printed, what did not go as documented. That no process died is no error here: see
    /// [`Passage::kills`].
    pub fn run_to_end(&self, kill: Option<Kill>, owner: Owner<'_>) -> Result<Passage, String> {
        let mut processes: Vec<Outcome> = Vec::new();
        let mut asked = Vec::new();
        let mut kills = 0;
        while processes.len() < MAX_PROCESSES {
            let pending = kill.filter(|_| kills == 0);
            let deed = if processes.is_empty() { self.run(pending) } else { self.resume(pending) };
            let outcome = deed.run();
            processes.push(outcome.clone());
            match outcome.ending {
                Ending::KILLED if pending.is_some() => kills += 1,
                Ending::Exit(0 | 1 | 3) => {
                    let envelope = outcome.try_json()?;
                    return Ok(Passage { processes, kills, asked, envelope });
                }
                Ending::Exit(4) => {
                    let envelope: Envelope = outcome.try_json()?;
                    if envelope.waits.is_empty() {
                        return Err(format!("it waits, and does not say for what: {outcome}"));
                    }
                    for wait in envelope.waits {
                        let answer = owner(&wait)?;
                        self.answer(&wait.wait, answer)?;
                        asked.push(Asked { wait, answer });
                    }
                }
                Ending::Exit(_) | Ending::Signal(_) => return Err(format!("an undocumented end: {outcome}")),
            }
        }
        let last = &processes[processes.len() - 1];
        Err(format!("the run has not ended after {MAX_PROCESSES} processes; the last one: {last}"))
    }

    /// Answer a wait.
    ///
    /// # Errors
    /// When the answer was refused.
    pub fn answer(&self, wait: &str, option: &str) -> Result<(), String> {
        let outcome = self.deed(["answer", wait, option]).run();
        match outcome.ending {
            Ending::Exit(0) => Ok(()),
            _ => Err(format!("the answer was refused: {outcome}")),
        }
    }
}
