//! Planning a batch: every call gets its number, its class and its decision before the first one executes.

use deed_journal::{
    Digest, EffectClass, EffectState, Planned, Step, StepError, StepEvent, StepKind, WaitKind,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{RunError, Runner};
use crate::arguments::shown_args;
use crate::engine::{Limit, Plugin, ToolDescriptor};
use crate::grants::HostGrant;
use crate::host_tools::{self, HostTool};
use crate::mission::{Call, Network};
use crate::origin::Origin;
use crate::policy::{Decision, Rule, SourcedRule};
use crate::toolbox::Tool;

/// The arguments of a wait step: the question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Question {
    pub(super) kind: WaitKind,
    pub(super) text: String,
    pub(super) options: Vec<String>,
    /// The one call that an approval is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<Bound>,
}

/// What an approval is bound to, besides the run and the step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    args_digest: Digest,
    component: Option<Digest>,
    effect: EffectClass,
}

impl Bound {
    pub(super) fn of(planned: &Planned) -> Self {
        Self { args_digest: planned.args_digest, component: planned.component, effect: planned.effect }
    }
}

/// The options of an approval.
pub(super) const APPROVE: &str = "approve";
/// See [`APPROVE`].
pub(super) const DENY: &str = "deny";

impl Runner<'_> {
    /// Plan the steps of `calls`, from `first` on, in call order: a question that a call needs first and the clock
    /// reading that goes with its answer are numbered too, so that a crash cannot change any number. Returns the calls'
    /// ids.
    pub(super) fn plan_calls(&mut self, first: u64, calls: &[Call]) -> Result<Vec<String>, RunError> {
        self.batch.clear();
        let mut ids = Vec::with_capacity(calls.len());
        for call in calls {
            let (mut planned, question) = self.plan_call(first + self.batch.len() as u64, call);
            if let Some(component) = planned.component {
                self.host.keep(component)?;
            }
            if let Some(question) = question {
                let args = serde_json::to_value(question).expect("a question has text keys only");
                self.plan_step(first, own(StepKind::Wait, &call.tool, args, planned.planned_ms));
                self.plan_step(first, own(StepKind::Now, "answered_at", json!({}), planned.planned_ms));
            }
            let seq = first + self.batch.len() as u64;
            let id = format!("{}-{seq}", self.run.id.short());
            planned.call = Some(id.clone());
            ids.push(id);
            self.plan_step(first, planned);
        }
        Ok(ids)
    }

    fn plan_step(&mut self, first: u64, planned: Planned) {
        let seq = first + self.batch.len() as u64;
        self.push_event(seq, StepEvent::Planned(planned.clone()));
        self.batch.push(Step::new(seq, planned));
    }

    /// One call, planned from step `next` on, and the question that it needs answered first.
    fn plan_call(&self, next: u64, call: &Call) -> (Planned, Option<Question>) {
        let planned_ms = self.host.clock.now_ms();
        let mut planned = own(StepKind::ToolCall, &call.tool, call.input.clone(), planned_ms);
        let toolbox = &self.host.toolbox;
        let tool = match toolbox.check(&self.scope, &call.tool, &call.input) {
            Ok(tool) => tool,
            Err(error) => {
                planned.refused = Some(error);
                return (planned, None);
            }
        };
        if let Err(error) = self.input_fits(call) {
            planned.refused = Some(error);
            return (planned, None);
        }
        planned.component = toolbox.component(tool);
        let rule = self.policy.decide(&call.tool, &call.input);
        planned.effect = self.effective_class(tool, call, rule.as_ref());
        if let Some(plugin) = toolbox.plugin(tool) {
            match self.contained(next, &planned, plugin) {
                Ok(contained) => planned.contained = contained,
                Err(error) => {
                    planned.refused = Some(error);
                    return (planned, None);
                }
            }
        }
        let question = match rule {
            // To ask whether one may ask would be one question too many.
            Some(SourcedRule { rule: Rule { decision: Decision::Ask, .. }, .. })
                if tool.host_tool() == Some(HostTool::AskOwner) =>
            {
                None
            }
            Some(SourcedRule { rule: Rule { decision: Decision::Ask, .. }, .. }) => Some(approval(&planned)),
            Some(denial @ SourcedRule { rule: Rule { decision: Decision::Deny, .. }, .. }) => {
                planned.refused = Some(denied(&planned, &denial));
                None
            }
            _ => None,
        };
        if tool.host_tool() == Some(HostTool::AskOwner) && planned.refused.is_none() {
            return match host_tools::question(&call.input) {
                Ok((text, options)) => {
                    (planned, Some(Question { kind: WaitKind::Question, text, options, bound: None }))
                }
                Err(error) => {
                    planned.refused = Some(error);
                    (planned, None)
                }
            };
        }
        (planned, question)
    }

    /// Whether the arguments are within what the tool was granted.
    fn input_fits(&self, Call { tool, input }: &Call) -> Result<(), StepError> {
        let Some(allowed) = self.policy.granted(tool).limits.get(Limit::Input) else { return Ok(()) };
        let bytes = input.to_string().len() as u64;
        if bytes <= allowed {
            return Ok(());
        }
        let kind = "invalid-arguments".to_owned();
        let message = format!(
            "the arguments of `{tool}` are {bytes} bytes; at most {allowed} are taken ({}): pass less at a time",
            Limit::Input
        );
        Err(StepError { kind, message, effect: EffectState::NotApplied })
    }

    /// The class of a call: what the tool declares, narrowed by its `refine` as far as the grants can hold it to that, raised
    /// where a grant reaches further or a rule says so.
    fn effective_class(&self, tool: &Tool, call: &Call, rule: Option<&SourcedRule>) -> EffectClass {
        let toolbox = &self.host.toolbox;
        let ToolDescriptor { effect: declared, traits, .. } = &tool.descriptor;
        let granted = self.policy.granted(&call.tool);
        let mut class = *declared;
        if let Some(plugin) = toolbox.plugin(tool).filter(|_| traits.refines)
            && let Some(plan) = toolbox.engine().refine(plugin, &call.tool, &call.input.to_string())
        {
            // Whether a server repeats a request is the operator's to say, not the tool's.
            let server = plan.target.as_deref().and_then(Origin::of);
            let repeats =
                server.is_some_and(|server| !granted.host(&server).is_some_and(HostGrant::honours_key));
            if !(repeats && traits.open_world && plan.effect.is_effectful()) {
                class = class.min(plan.effect);
            }
        }
        // What a command does on an open network, nobody can promise to be the same twice.
        let runs_commands = toolbox.plugin(tool).is_some_and(Plugin::runs_commands);
        if granted.network == Network::Open && class.is_effectful() && runs_commands {
            class = EffectClass::NonIdempotent;
        }
        class.max(rule.and_then(|found| found.rule.effect).unwrap_or(EffectClass::Pure))
    }
}

/// The policy does not allow this call.
pub(super) fn denied(planned: &Planned, rule: &SourcedRule) -> StepError {
    StepError {
        kind: "denied".to_owned(),
        message: format!("the policy denies this call of `{}` ({}): {rule}", planned.name, planned.effect),
        effect: EffectState::NotApplied,
    }
}

pub(super) fn approval(planned: &Planned) -> Question {
    Question {
        kind: WaitKind::Approval,
        text: format!("May `{}` ({}) run with {}?", planned.name, planned.effect, shown_args(&planned.args)),
        options: vec![APPROVE.to_owned(), DENY.to_owned()],
        bound: Some(Bound::of(planned)),
    }
}

/// A plan of what touches nothing, until more is known of it.
fn own(kind: StepKind, name: &str, args: Value, planned_ms: u64) -> Planned {
    Planned::new(kind, name, EffectClass::Pure, args, planned_ms)
}
