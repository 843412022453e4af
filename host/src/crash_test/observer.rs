//! The user's own observers: commands whose output shows an effect that is in no file.
//!
//! Each is a process of its own, started when no process of the tested call is left. Its program lies outside the workspace,
//! so the tools cannot change what it says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::CrashTestError;
use super::place::Place;
use super::process::{self, Ending};
use crate::mission::Observer;

/// The variable that names the workspace to look at.
const WORKSPACE: &str = "DEED_WORKSPACE";

/// What a run's file names.
#[derive(Debug, Clone)]
pub(super) struct Observers {
    observers: Vec<Observer>,
    /// The directory of the file: commands start there.
    directory: PathBuf,
}

impl Observers {
    /// Refuses a program that lies in `workspace`.
    pub(super) fn new(
        observers: &[Observer],
        directory: &Path,
        workspace: &Path,
    ) -> Result<Self, CrashTestError> {
        for observer in observers {
            let Some(program) = observer.command.first() else {
                let reason = "its command is empty".to_owned();
                return Err(CrashTestError::ObserverFailed { name: observer.name.clone(), reason });
            };
            // A name without a slash is looked up in the directories of `PATH`.
            let place = program.contains('/').then(|| directory.join(program).canonicalize().ok()).flatten();
            if let Some(program) = place.filter(|place| place.starts_with(workspace)) {
                return Err(CrashTestError::Observer { name: observer.name.clone(), program });
            }
        }
        Ok(Self { observers: observers.to_vec(), directory: directory.to_owned() })
    }

    /// What each says: its output, and its exit code when that is not 0.
    pub(super) fn look(
        &self,
        place: &Place,
        stop: &AtomicBool,
    ) -> Result<Vec<(String, String)>, CrashTestError> {
        self.observers
            .iter()
            .map(|observer| Ok((observer.name.clone(), self.ask(observer, place, stop)?)))
            .collect()
    }

    fn ask(&self, observer: &Observer, place: &Place, stop: &AtomicBool) -> Result<String, CrashTestError> {
        let failed = |reason: String| CrashTestError::ObserverFailed { name: observer.name.clone(), reason };
        let program = &observer.command[0];
        let program =
            if program.contains('/') { self.directory.join(program) } else { PathBuf::from(program) };
        let mut command = Command::new(program);
        command.args(&observer.command[1..]).current_dir(&self.directory).env(WORKSPACE, place.workspace());
        let ended =
            process::run(command, &place.output(), stop).map_err(|error| failed(error.to_string()))?;
        match ended.ending {
            Ending::Exit(0) => Ok(ended.stdout),
            Ending::Exit(code) => {
                Ok(format!("{}(it ended with code {code}: {})\n", ended.stdout, ended.stderr.trim()))
            }
            Ending::Stopped => Err(CrashTestError::Stopped),
            _ => Err(failed(ended.describe())),
        }
    }
}
