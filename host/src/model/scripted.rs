//! A model that follows a script.

use deed_journal::Role;

use super::{Model, ModelAnswer, ModelError, ModelRequest};
use crate::mission::ScriptedTurn;

/// Says the turns of a script, one a request, whatever comes back. Which turn it is at follows from the transcript, so
/// it says the same to a process that resumes. After its last turn it has nothing more to do.
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    script: Vec<ScriptedTurn>,
}

impl ScriptedModel {
    /// A model that says `script`.
    pub fn new(script: Vec<ScriptedTurn>) -> Self {
        Self { script }
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn respond(&self, request: &ModelRequest<'_>) -> Result<ModelAnswer, ModelError> {
        let said = request.messages.iter().filter(|message| message.body.role == Role::Assistant).count();
        let turn = self.script.get(said);
        Ok(ModelAnswer {
            text: turn.map_or_else(String::new, |turn| turn.say.clone()),
            calls: turn.map_or_else(Vec::new, |turn| turn.calls.clone()),
        })
    }
}
