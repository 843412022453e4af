//! Random commits: mostly what a host would do next, sometimes what must be refused.
//!
//! To cover a new operation, write a method that makes one and give it a weight in `CHOICES`.

use deed_journal::test_support::Seeded;
use deed_journal::{
    Answer, Asked, Base, Change, Changes, Digest, Durability, EffectClass, EffectState, Intent, MessageBody,
    Op, Outcome, PathBytes, Planned, Position, ProbeVerdict, Probed, Published, Receipt, RewriteKind, Role,
    Run, RunId, RunStatus, SessionId, SettledBy, StepError, StepEvent, StepKind, StepResult, ToolCall,
    ToolResult, Turn, Unsettled, Version, WaitId, WaitKind,
};
use serde_json::{Value, json};

use crate::model::{Model, SessionState, head_of};

/// Larger than what a record holds inline, so that it goes to a blob.
const LARGE_BYTES: usize = 70 << 10;

/// Runs that have not ended, at most: a new one is begun when there are fewer.
const OPEN_RUNS: usize = 3;

type Make = fn(&mut Generator, &Model) -> Option<Op>;

/// What comes next, by weight. A choice that has nothing to work on is made again.
const CHOICES: [(usize, Make); 13] = [
    (3, Generator::create_run),
    (4, Generator::update_run),
    (1, Generator::drop_run),
    (8, Generator::plan),
    (14, Generator::go_on_with_a_step),
    (1, Generator::create_session),
    (10, Generator::append),
    (3, Generator::rewrite),
    (2, Generator::keep_as_head),
    (2, Generator::begin_turn),
    (2, Generator::clear_turn),
    (3, Generator::ask),
    (3, Generator::answer),
];

/// The same, for sequences that are about transcripts only.
const SESSION_CHOICES: [(usize, Make); 6] = [
    (1, Generator::create_session),
    (12, Generator::append),
    (6, Generator::rewrite),
    (3, Generator::keep_as_head),
    (2, Generator::begin_turn),
    (2, Generator::clear_turn),
];

/// What a sequence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Sessions,
}

/// Makes the commits of one seed.
pub struct Generator {
    scope: Scope,
    random: Seeded,
    /// Numbers everything that has to be new.
    next: u64,
    /// Bases that were current once: what a stale writer names.
    bases: Vec<(SessionId, Base)>,
}

impl Generator {
    pub fn new(seed: u64, scope: Scope) -> Self {
        Self { scope, random: Seeded::new(seed), next: 1, bases: Vec::new() }
    }

    /// The next commit on a journal in the state `model`.
    pub fn commit(&mut self, model: &Model) -> (Vec<Op>, Durability) {
        let durability = match self.random.below(20) {
            0 => Durability::DurableForQuickOpen,
            1..=9 => Durability::Riding,
            _ => Durability::Durable,
        };
        let mut draft = model.clone();
        let mut ops = Vec::new();
        for _ in 0..=self.random.below(4) {
            let op = self.op(&draft);
            // An operation that will be refused ends the commit; the draft may hold a part of it.
            let refused = draft.apply(&op).is_err();
            ops.push(op);
            if refused {
                break;
            }
        }
        let sessions = model.sessions.iter().map(|(id, session)| (*id, session.base()));
        self.bases.extend(sessions);
        (ops, durability)
    }

    fn op(&mut self, model: &Model) -> Op {
        let choices: &[(usize, Make)] =
            if self.scope == Scope::Sessions { &SESSION_CHOICES } else { &CHOICES };
        loop {
            let mut left = self.random.below(choices.iter().map(|(weight, _)| weight).sum());
            let chosen = choices.iter().find(|(weight, _)| {
                let here = left < *weight;
                left = left.saturating_sub(*weight);
                here
            });
            let (_, make) = chosen.expect("the weights add up");
            if let Some(op) = make(self, model) {
                return op;
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn id(&mut self) -> [u8; 16] {
        let mut id = [0; 16];
        // Spread over the key space, as random ids are.
        id[..8].copy_from_slice(&self.random.number().to_be_bytes());
        id[8..].copy_from_slice(&self.number().to_be_bytes());
        id
    }

    /// Rarely, where something must be refused.
    fn wrong(&mut self) -> bool {
        self.random.once_in(15)
    }

    fn text(&mut self) -> String {
        let bytes = match self.random.below(200) {
            0 => LARGE_BYTES,
            1..=9 => 3000,
            _ => self.random.below(60),
        };
        let number = self.number();
        format!("{number} {}", "x".repeat(bytes))
    }

    fn any_run(&mut self, model: &Model, wanted: impl Fn(&Run) -> bool) -> Option<RunId> {
        if self.wrong() {
            return Some(RunId::from_bytes(self.id()));
        }
        let ids: Vec<RunId> =
            model.runs.values().filter(|state| wanted(&state.run)).map(|state| state.run.id).collect();
        (!ids.is_empty()).then(|| *self.random.pick(&ids))
    }

    fn any_session(&mut self, model: &Model) -> Option<SessionId> {
        if self.wrong() {
            return Some(SessionId::from_bytes(self.id()));
        }
        let ids: Vec<SessionId> = model.sessions.keys().copied().collect();
        (!ids.is_empty()).then(|| *self.random.pick(&ids))
    }

    fn create_run(&mut self, model: &Model) -> Option<Op> {
        let open = model.runs.values().filter(|state| !state.run.status.has_ended()).count();
        if open >= OPEN_RUNS && !self.wrong() {
            return None;
        }
        let (id, session, nonce) =
            (RunId::from_bytes(self.id()), SessionId::from_bytes(self.id()), self.id());
        let mut run = Run::new(id, session, nonce, self.text(), self.number());
        if self.random.once_in(3) {
            let taken: Vec<Digest> = model.call_keys.keys().copied().collect();
            let key = if !taken.is_empty() && self.wrong() {
                *self.random.pick(&taken)
            } else {
                Digest::of(&self.id())
            };
            run.call_key = Some(key);
        }
        Some(Op::CreateRun { run: Box::new(run), source: json!({ "objective": self.text() }) })
    }

    fn update_run(&mut self, model: &Model) -> Option<Op> {
        let ended_too = self.wrong();
        let id = self.any_run(model, |run| ended_too || !run.status.has_ended())?;
        let Some(state) = model.runs.get(&id) else {
            let unknown = Run::new(id, SessionId::from_bytes(self.id()), [0; 16], "unknown", 0);
            return Some(Op::UpdateRun(Box::new(unknown)));
        };
        let mut run = state.run.clone();
        // What the journal counts is not taken from the caller.
        run.number = self.random.number();
        run.steps = self.random.number();
        run.status = *self.random.pick(&[
            RunStatus::Running,
            RunStatus::Running,
            RunStatus::Running,
            RunStatus::Waiting,
            RunStatus::Done,
            RunStatus::Failed,
        ]);
        run.position = Position::Turn { seq: state.run.steps + 1 };
        run.usage.turns += 1;
        if run.status.has_ended() {
            run.position = Position::End;
            run.result = Some(self.text());
        }
        Some(Op::UpdateRun(Box::new(run)))
    }

    fn drop_run(&mut self, model: &Model) -> Option<Op> {
        let open_too = self.wrong();
        self.any_run(model, |run| open_too || run.status.has_ended()).map(Op::DropRun)
    }

    fn plan(&mut self, model: &Model) -> Option<Op> {
        let run = self.any_run(model, |run| !run.status.has_ended())?;
        let steps = model.runs.get(&run).map_or(0, |state| state.run.steps);
        let seq = if self.wrong() { self.random.below(4) as u64 } else { steps + 1 };
        let args = json!({ "text": self.text() });
        let planned = Planned {
            kind: *self.random.pick(&[StepKind::ToolCall, StepKind::ModelCall, StepKind::Now]),
            name: "tool".into(),
            effect: *self.random.pick(&[
                EffectClass::Pure,
                EffectClass::Idempotent,
                EffectClass::NonIdempotent,
            ]),
            contained: self.random.once_in(4),
            component: self.random.once_in(2).then(|| Digest::of(b"component")),
            args_digest: Digest::of_json(&args),
            args,
            call: self.random.once_in(2).then(|| "call".into()),
            refused: None,
            planned_ms: self.number(),
        };
        Some(Op::Step { run, seq, event: StepEvent::Planned(planned) })
    }

    fn go_on_with_a_step(&mut self, model: &Model) -> Option<Op> {
        let run = self.any_run(model, |run| run.steps > 0)?;
        let state = model.runs.get(&run)?;
        // Mostly among the last ones, which are open.
        let back = self.random.below(state.steps.len().min(3));
        let seq = (state.steps.len() - back) as u64;
        let events = &state.steps[state.steps.len() - back - 1];
        let count = |is_it: fn(&StepEvent) -> bool| {
            u32::try_from(events.iter().filter(|event| is_it(event)).count()).expect("a count of events")
        };
        let attempts = count(|event| matches!(event, StepEvent::Intent(_)));
        let attempt = if self.wrong() { attempts + 2 } else { attempts };
        let receipts = events
            .iter()
            .filter(|event| matches!(event, StepEvent::Receipt(receipt) if receipt.attempt == attempts))
            .count();
        let ended = matches!(events.last(), Some(StepEvent::Unsettled(_) | StepEvent::Probed(_)));
        let parts = count(|event| matches!(event, StepEvent::Changes(_)));
        let is_settled = matches!(events.last(), Some(StepEvent::Outcome(_) | StepEvent::Published(_)));
        let event = match self.random.below(13) {
            7..=8 => StepEvent::Changes(Changes {
                attempt,
                number: if self.wrong() { parts + 1 } else { parts },
                changes: vec![self.change()],
                diff: self.text(),
            }),
            _ if is_settled && !self.wrong() => StepEvent::Published(Published {
                attempt,
                published_ms: self.number(),
                kept: Vec::new(),
                asks: self.random.once_in(2),
            }),
            3..=4 if ended => return None,
            0..=2 => StepEvent::Intent(Intent { attempt: attempt + 1, clock_ms: self.number(), marks: None }),
            3..=4 => StepEvent::Receipt(Receipt {
                attempt,
                number: u32::try_from(receipts).expect("a count of receipts"),
                bytes: self.text().into_bytes(),
            }),
            5 => StepEvent::Unsettled(Unsettled { attempt, reason: self.text() }),
            6 => StepEvent::Probed(Probed { attempt, verdict: self.verdict(), probed_ms: self.number() }),
            _ => StepEvent::Outcome(Outcome {
                attempt,
                result: self.result(),
                settled_by: SettledBy::Execution,
                landed_before: self.random.once_in(2),
                settled_ms: self.number(),
            }),
        };
        Some(Op::Step { run, seq, event })
    }

    fn change(&mut self) -> Change {
        let path = PathBytes::new(self.text());
        let file =
            Version::File { digest: Digest::of(path.as_bytes()), size_bytes: self.number(), mode: 0o644 };
        let link = Version::Link { target: PathBytes::new(*b"\xff") };
        let mut versions =
            [Version::Absent, Version::Directory { mode: 0o755 }, Version::Special, file, link];
        let staged = self.random.below(versions.len());
        versions.swap(0, staged);
        let [staged, .., base] = versions;
        Change { path, base, staged }
    }

    fn verdict(&mut self) -> ProbeVerdict {
        match self.random.below(5) {
            0 => ProbeVerdict::Landed,
            1 => ProbeVerdict::NotLanded,
            2 => ProbeVerdict::Partial { what: self.text() },
            3 => ProbeVerdict::Undecidable { why: self.text() },
            _ => ProbeVerdict::Failed { why: self.text() },
        }
    }

    fn result(&mut self) -> StepResult {
        match self.random.below(6) {
            0 => StepResult::Abandoned { reason: self.text() },
            1 => StepResult::Failed {
                error: StepError {
                    kind: "not-found".into(),
                    message: self.text(),
                    effect: EffectState::NotApplied,
                },
            },
            _ => StepResult::Completed { value: Value::String(self.text()) },
        }
    }

    fn create_session(&mut self, model: &Model) -> Option<Op> {
        if model.sessions.len() > OPEN_RUNS && !self.wrong() {
            return None;
        }
        let taken = if self.wrong() { model.sessions.keys().next().copied() } else { None };
        let session = taken.unwrap_or_else(|| SessionId::from_bytes(self.id()));
        Some(Op::CreateSession { session, created_ms: self.number() })
    }

    fn messages(&mut self, at_most: usize) -> Vec<MessageBody> {
        (0..self.random.below(at_most + 1)).map(|_| self.message()).collect()
    }

    fn message(&mut self) -> MessageBody {
        match self.random.below(4) {
            0 => MessageBody {
                role: Role::Assistant,
                text: self.text(),
                calls: vec![ToolCall {
                    id: "c1".into(),
                    tool: "tool".into(),
                    input: json!({ "n": self.number() }),
                }],
                result: None,
            },
            1 => MessageBody::tool_result(ToolResult {
                call: "c1".into(),
                tool: "tool".into(),
                ok: self.random.once_in(2),
                text: self.text(),
            }),
            _ => MessageBody::text(Role::User, self.text()),
        }
    }

    /// What a writer is based on: mostly what is there, sometimes what was.
    fn base(&mut self, model: &Model, session: SessionId) -> Base {
        let stale: Vec<Base> =
            self.bases.iter().filter(|(id, _)| *id == session).map(|(_, base)| *base).collect();
        if !stale.is_empty() && self.random.once_in(8) {
            return *self.random.pick(&stale);
        }
        model.sessions.get(&session).map_or(Base { revision: 0, main: None }, SessionState::base)
    }

    fn append(&mut self, model: &Model) -> Option<Op> {
        let session = self.any_session(model)?;
        let base = self.base(model, session);
        let after = usize::try_from(base.count()).expect("a count of messages");
        let held = model.sessions.get(&session).and_then(|session| session.main.get(after..));
        let messages = match held {
            // The writer's own messages are there already.
            Some(held) if !held.is_empty() && self.random.once_in(2) => {
                let mine = self.random.below(held.len()) + 1;
                held[..mine].iter().map(|message| message.body.clone()).collect()
            }
            _ => self.messages(4),
        };
        Some(Op::Append { session, base, messages })
    }

    fn rewrite(&mut self, model: &Model) -> Option<Op> {
        let session = self.any_session(model)?;
        let base = self.base(model, session);
        let count = usize::try_from(base.count()).expect("a count of messages");
        let keep = if self.wrong() { count + 1 } else { self.random.below(count + 1) } as u64;
        let kinds = [RewriteKind::Rewind, RewriteKind::Compact, RewriteKind::Edit, RewriteKind::Recover];
        let (kind, messages) = (*self.random.pick(&kinds), self.messages(2));
        Some(Op::Rewrite { session, base, keep, messages, kind, at_ms: self.number() })
    }

    fn keep_as_head(&mut self, model: &Model) -> Option<Op> {
        let session = self.any_session(model)?;
        let state = model.sessions.get(&session)?;
        if state.heads.len() > 3 && !self.wrong() {
            return None;
        }
        let branches: Vec<_> = std::iter::once(&state.main)
            .chain(state.rewrites.iter().map(|rewrite| &rewrite.before))
            .chain(state.heads.values())
            .collect();
        let branch = *self.random.pick(&branches);
        let mut from = head_of(&branch[..self.random.below(branch.len() + 1)]);
        if self.wrong()
            && let Some(head) = &mut from
        {
            head.hash = Digest::of(b"another");
        }
        let taken = state.heads.keys().next().filter(|_| self.wrong()).cloned();
        let name = taken.unwrap_or_else(|| format!("head-{}", self.number()));
        Some(Op::KeepAsHead { session, name, from, messages: self.messages(2) })
    }

    fn begin_turn(&mut self, model: &Model) -> Option<Op> {
        let session = self.any_session(model)?;
        let base = model.sessions.get(&session)?.base();
        let turn = Turn { id: format!("turn-{}", self.number()), base, begun_ms: self.number() };
        Some(Op::BeginTurn { session, turn })
    }

    fn clear_turn(&mut self, model: &Model) -> Option<Op> {
        let session = self.any_session(model)?;
        let flying = model.sessions.get(&session)?.turn.as_ref()?;
        let turn = if self.random.once_in(4) { "turn-0".into() } else { flying.id.clone() };
        Some(Op::ClearTurn { session, turn })
    }

    fn ask(&mut self, model: &Model) -> Option<Op> {
        let run = self.any_run(model, |run| run.steps > 0 && !run.status.has_ended())?;
        let state = model.runs.get(&run)?;
        let seq = self.random.below(state.steps.len()) as u64 + 1;
        let id = WaitId { run, seq, revision: *self.random.pick(&[1, 2, 3]) };
        if model.waits.contains_key(&id) && !self.wrong() {
            return None;
        }
        Some(Op::Ask(Asked {
            id,
            kind: *self.random.pick(&[WaitKind::Approval, WaitKind::Question, WaitKind::Reconcile]),
            name: "tool".into(),
            question: self.text(),
            options: vec!["yes".into(), "no".into()],
            opened_ms: self.number(),
            expires_ms: if self.random.once_in(4) {
                Some(self.number() + self.random.below(40) as u64)
            } else {
                None
            },
        }))
    }

    fn answer(&mut self, model: &Model) -> Option<Op> {
        let answered_too = self.random.once_in(5);
        let waits: Vec<_> =
            model.waits.values().filter(|wait| answered_too || wait.answer.is_none()).collect();
        if waits.is_empty() {
            return None;
        }
        let wait = *self.random.pick(&waits);
        let option =
            if self.wrong() { "perhaps" } else { *self.random.pick(&["yes", "yes", "no", "no", "expired"]) };
        let text = self.random.once_in(3).then(|| self.text());
        let answer = match &wait.answer {
            Some(first) if self.random.once_in(2) => Answer { answered_ms: self.number(), ..first.clone() },
            _ => Answer { option: option.into(), text, answered_ms: self.number() },
        };
        Some(Op::Answer { id: wait.asked.id, answer })
    }
}
