//! Whether a call is contained: decided when it is planned, and recorded.

use std::path::Path;

use deed_journal::{EffectClass, EffectState, Planned, StepError};

use super::{Host, Runner};
use crate::capability::containment_is_possible;
use crate::engine::{LogLevel, Plugin};
use crate::grants::{Files, Granted};
use crate::mission::Network;
use crate::policy::Contain;
use crate::stage;

impl Runner<'_> {
    /// Whether the call that is planned as step `seq` is contained.
    ///
    /// # Errors
    /// A rule says that it must be, and it cannot.
    pub(super) fn contained(&self, seq: u64, planned: &Planned, plugin: &Plugin) -> Result<bool, StepError> {
        let contain = self.policy.contain(&planned.name, &planned.args);
        let is_meant = match contain {
            Contain::Never => false,
            Contain::Auto => planned.effect == EffectClass::NonIdempotent,
            Contain::Always => planned.effect.is_effectful(),
        };
        let granted = self.policy.granted(&planned.name);
        if !is_meant || granted.files != Files::Write {
            return Ok(false);
        }
        let refused = |why: &str| StepError {
            kind: "denied".to_owned(),
            message: format!(
                "`{}` was not called: a rule says that it is always contained (`contain`), and it cannot be, since {why}",
                planned.name
            ),
            effect: EffectState::NotApplied,
        };
        if let Some(reach) = reach(plugin, &granted) {
            return if contain == Contain::Always { Err(refused(reach)) } else { Ok(false) };
        }
        let Some(workspace) = &self.run.workspace else { return Ok(false) };
        match self.host.can_contain(Path::new(workspace), plugin.runs_commands()) {
            Ok(()) => Ok(true),
            Err(why) if contain == Contain::Always => Err(refused(&why.reason)),
            Err(why) => {
                if why.is_new {
                    let message = format!(
                        "calls are not contained here, since {}: after a crash it may take a question to tell what came of one",
                        why.reason
                    );
                    self.host.watcher.log(seq, LogLevel::Warn, &message);
                }
                Ok(false)
            }
        }
    }
}

/// What a tool reaches beyond the workspace, in words.
fn reach(plugin: &Plugin, granted: &Granted) -> Option<&'static str> {
    if plugin.uses_git() {
        return Some("it uses git by the host's hands");
    }
    if plugin.sends_requests() && !granted.hosts.is_empty() {
        return Some("it is granted servers to reach");
    }
    (plugin.runs_commands() && granted.network == Network::Open).then_some("its commands reach the network")
}

/// Why calls cannot be contained.
pub(super) struct NotContained {
    reason: String,
    /// Nobody was told yet.
    is_new: bool,
}

impl Host {
    /// Whether calls in `workspace` can be contained, with commands or without. Tried once, and remembered.
    fn can_contain(&self, workspace: &Path, commands: bool) -> Result<(), NotContained> {
        let told = |reason: &str, is_new| NotContained { reason: reason.to_owned(), is_new };
        let Some(beside) = &self.beside else {
            return Err(told("deed keeps nothing beside this journal", false));
        };
        let home = self.toolbox.engine().command_home();
        let mut is_new = false;
        let known = beside.can_stage((workspace, commands), || {
            is_new = true;
            if let Some(reason) = stage::refusal(workspace) {
                return Err(reason.to_string());
            }
            if commands {
                containment_is_possible().map_err(str::to_owned)?;
            }
            let stage = beside.trial_stage(workspace);
            let tried = stage.mount(home, commands).map(drop);
            // A directory that cannot be removed now is removed with those that were left behind.
            let _ = stage.remove();
            tried.map_err(|error| format!("the machine refuses to {error}"))
        });
        known.map_err(|reason| told(&reason, is_new))
    }
}
