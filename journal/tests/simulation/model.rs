//! The journal as plain maps and vectors: what every operation does, and what a reader must then find.
//!
//! It is written from the contract and shares no code with the journal but the types. Its comparison is total: what it
//! does not hold must not be there.

use std::collections::BTreeMap;

use deed_journal::{
    Answer, Base, ConflictKind, Digest, Head, Message, MessageBody, Op, Reader, Rewrite, RewriteKind, Run,
    RunId, Session, SessionId, StepEvent, Turn, Wait, WaitId,
};
use serde_json::Value;

/// The state of a journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    pub runs: BTreeMap<RunId, RunState>,
    pub sessions: BTreeMap<SessionId, SessionState>,
    pub waits: BTreeMap<WaitId, Wait>,
    pub call_keys: BTreeMap<Digest, RunId>,
    /// Runs created so far, removed ones included.
    pub created: u64,
}

/// A run: its head record as last given, what it executes, and the events of each of its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    pub run: Run,
    pub source: Value,
    pub steps: Vec<Vec<StepEvent>>,
}

/// A session: every branch as the list of its messages.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionState {
    pub run: Option<RunId>,
    pub created_ms: u64,
    pub revision: u64,
    pub main: Vec<Message>,
    pub heads: BTreeMap<String, Vec<Message>>,
    pub rewrites: Vec<RewriteState>,
    pub turn: Option<Turn>,
    /// Messages written so far, on whatever branch.
    pub written: u64,
}

/// A rewrite with the branches before and after it.
#[derive(Debug, Clone, PartialEq)]
pub struct RewriteState {
    pub kind: RewriteKind,
    pub revision: u64,
    pub before: Vec<Message>,
    pub after: Vec<Message>,
    pub at_ms: u64,
}

/// Why the model refuses: the name of the error's variant, and of the conflict's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    RunExists,
    NoSuchRun,
    RunEnded,
    RunNotEnded,
    StepConflict,
    NoSuchSession,
    SessionExists,
    HeadExists,
    NoSuchMessage,
    KeepsTooMany,
    Snapshot(ConflictKind),
    AskedBefore,
    NoSuchWait,
    NoSuchOption,
    AnsweredBefore,
    Expired,
}

pub fn head_of(branch: &[Message]) -> Option<Head> {
    let last = branch.last()?;
    Some(Head { message: last.id, count: branch.len() as u64, hash: last.hash })
}

impl SessionState {
    fn new(run: Option<RunId>, created_ms: u64) -> Self {
        let (main, heads, rewrites) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { run, created_ms, revision: 0, main, heads, rewrites, turn: None, written: 0 }
    }

    pub fn base(&self) -> Base {
        Base { revision: self.revision, main: head_of(&self.main) }
    }

    /// The branch that ends with this message, wherever it is.
    pub fn branch_to(&self, id: u64, hash: &Digest) -> Option<Vec<Message>> {
        let rewritten = self.rewrites.iter().flat_map(|rewrite| [&rewrite.before, &rewrite.after]);
        std::iter::once(&self.main).chain(self.heads.values()).chain(rewritten).find_map(|branch| {
            let at = branch.iter().position(|message| message.id == id && message.hash == *hash)?;
            Some(branch[..=at].to_vec())
        })
    }

    /// Write `bodies` after `branch`.
    fn extend(&mut self, branch: &mut Vec<Message>, bodies: &[MessageBody]) {
        for body in bodies {
            self.written += 1;
            let parent = branch.last();
            let hash = Message::chain(parent.map(|parent| &parent.hash), body);
            branch.push(Message {
                id: self.written,
                parent: parent.map(|parent| parent.id),
                body: body.clone(),
                hash,
            });
        }
    }

    /// How a stale writer's base and messages differ from `main`.
    fn conflict(&self, base: &Base, bodies: &[MessageBody]) -> ConflictKind {
        let count = usize::try_from(base.count()).expect("a count of messages");
        let at_base = count == 0
            || self.main.get(count - 1).map(|message| message.hash) == base.main.map(|head| head.hash);
        if !at_base {
            return ConflictKind::Rewound;
        }
        let held = self.main[count..].iter().map(|message| &message.body);
        let holds_mine =
            self.main.len() >= count + bodies.len() && held.zip(bodies).all(|(held, mine)| held == mine);
        if holds_mine { ConflictKind::StalePrefix } else { ConflictKind::Diverged }
    }

    fn record(&self, id: SessionId) -> Session {
        Session {
            main: head_of(&self.main),
            revision: self.revision,
            heads: self.heads.iter().map(|(name, branch)| (name.clone(), head_of(branch).unwrap())).collect(),
            next_message: self.written + 1,
            rewrites: self.rewrites.len() as u64,
            turn: self.turn.clone(),
            ..Session::new(id, self.run, self.created_ms)
        }
    }
}

impl Model {
    /// Apply a commit: all of it, or nothing. Says of each operation whether it changed anything.
    pub fn commit(&mut self, ops: &[Op]) -> Result<Vec<bool>, Refusal> {
        let mut draft = self.clone();
        let changed = ops.iter().map(|op| draft.apply(op)).collect::<Result<_, _>>()?;
        *self = draft;
        Ok(changed)
    }

    fn session(&mut self, id: SessionId) -> Result<&mut SessionState, Refusal> {
        self.sessions.get_mut(&id).ok_or(Refusal::NoSuchSession)
    }

    /// Apply one operation. After a refusal the model may hold a part of it.
    pub fn apply(&mut self, op: &Op) -> Result<bool, Refusal> {
        match op {
            Op::CreateRun { run, source } => self.create_run(run, source),
            Op::UpdateRun(run) => self.update_run(run),
            Op::DropRun(run) => self.drop_run(*run),
            Op::Step { run, seq, event } => self.step(*run, *seq, event),
            Op::CreateSession { session, created_ms } => {
                self.create_session(*session, SessionState::new(None, *created_ms))
            }
            Op::Append { session, base, messages } => {
                let session = self.session(*session)?;
                if *base != session.base() {
                    let kind = session.conflict(base, messages);
                    let saved = kind == ConflictKind::StalePrefix
                        && session.main.len() as u64 == base.count() + messages.len() as u64;
                    return if saved { Ok(false) } else { Err(Refusal::Snapshot(kind)) };
                }
                if !messages.is_empty() {
                    let mut main = std::mem::take(&mut session.main);
                    session.extend(&mut main, messages);
                    session.main = main;
                    session.revision += 1;
                }
                Ok(!messages.is_empty())
            }
            Op::Rewrite { session, base, keep, messages, kind, at_ms } => {
                let session = self.session(*session)?;
                if *base != session.base() {
                    return Err(Refusal::Snapshot(session.conflict(base, &[])));
                }
                let keep = usize::try_from(*keep).expect("a count of messages");
                if keep > session.main.len() {
                    return Err(Refusal::KeepsTooMany);
                }
                if keep == session.main.len() && messages.is_empty() {
                    return Ok(false);
                }
                let before = session.main.clone();
                let mut main = before[..keep].to_vec();
                session.extend(&mut main, messages);
                session.main.clone_from(&main);
                session.revision += 1;
                let (kind, revision, at_ms) = (*kind, session.revision, *at_ms);
                session.rewrites.push(RewriteState { kind, revision, before, after: main, at_ms });
                Ok(true)
            }
            Op::KeepAsHead { session, name, from, messages } => {
                let session = self.session(*session)?;
                let mut branch = match from {
                    None => Vec::new(),
                    Some(head) => {
                        session.branch_to(head.message, &head.hash).ok_or(Refusal::NoSuchMessage)?
                    }
                };
                if branch.is_empty() && messages.is_empty() {
                    return Err(Refusal::NoSuchMessage);
                }
                if name == "main" || session.heads.contains_key(name) {
                    return Err(Refusal::HeadExists);
                }
                session.extend(&mut branch, messages);
                session.heads.insert(name.clone(), branch);
                Ok(true)
            }
            Op::BeginTurn { session, turn } => {
                let before = self.session(*session)?.turn.replace(turn.clone());
                Ok(before.as_ref() != Some(turn))
            }
            Op::ClearTurn { session, turn } => {
                let flying = &mut self.session(*session)?.turn;
                let mine = flying.as_ref().is_some_and(|flying| flying.id == *turn);
                if mine {
                    *flying = None;
                }
                Ok(mine)
            }
            Op::Ask(asked) => {
                if self.waits.contains_key(&asked.id) {
                    return Err(Refusal::AskedBefore);
                }
                self.waits.insert(asked.id, Wait { asked: asked.clone(), answer: None });
                Ok(true)
            }
            Op::Answer { id, answer } => self.answer(id, answer),
        }
    }

    fn create_session(&mut self, id: SessionId, session: SessionState) -> Result<bool, Refusal> {
        if self.sessions.contains_key(&id) {
            return Err(Refusal::SessionExists);
        }
        self.sessions.insert(id, session);
        Ok(true)
    }

    fn create_run(&mut self, run: &Run, source: &Value) -> Result<bool, Refusal> {
        if self.runs.contains_key(&run.id) {
            return Err(Refusal::RunExists);
        }
        if let Some(key) = run.call_key
            && self.call_keys.insert(key, run.id).is_some()
        {
            return Err(Refusal::RunExists);
        }
        let numbered = Run { number: self.created, steps: 0, ..run.clone() };
        self.created += 1;
        self.runs.insert(run.id, RunState { run: numbered, source: source.clone(), steps: Vec::new() });
        self.create_session(run.session, SessionState::new(Some(run.id), run.created_ms))
    }

    fn update_run(&mut self, run: &Run) -> Result<bool, Refusal> {
        let state = self.runs.get_mut(&run.id).ok_or(Refusal::NoSuchRun)?;
        if state.run.status.has_ended() {
            return Err(Refusal::RunEnded);
        }
        let stored = &state.run;
        let updated = Run {
            number: stored.number,
            steps: stored.steps,
            nonce: stored.nonce,
            kind: stored.kind,
            session: stored.session,
            created_ms: stored.created_ms,
            call_key: stored.call_key,
            ..run.clone()
        };
        let changed = updated != state.run;
        state.run = updated;
        Ok(changed)
    }

    fn drop_run(&mut self, id: RunId) -> Result<bool, Refusal> {
        let state = self.runs.get(&id).ok_or(Refusal::NoSuchRun)?;
        if !state.run.status.has_ended() {
            return Err(Refusal::RunNotEnded);
        }
        let state = self.runs.remove(&id).expect("it was there");
        self.waits.retain(|wait, _| wait.run != id);
        if let Some(key) = state.run.call_key {
            self.call_keys.remove(&key);
        }
        if self.sessions.get(&state.run.session).is_some_and(|session| session.run == Some(id)) {
            self.sessions.remove(&state.run.session);
        }
        Ok(true)
    }

    fn step(&mut self, run: RunId, seq: u64, event: &StepEvent) -> Result<bool, Refusal> {
        let state = self.runs.get(&run).ok_or(Refusal::NoSuchRun)?;
        if state.run.status.has_ended() {
            return Err(Refusal::RunEnded);
        }
        let planned = state.steps.len() as u64;
        if seq == 0 || seq > planned {
            if !matches!(event, StepEvent::Planned(_)) {
                return Err(Refusal::StepConflict);
            }
            let state = self.runs.get_mut(&run).ok_or(Refusal::NoSuchRun)?;
            if seq != planned + 1 {
                return Err(Refusal::StepConflict);
            }
            state.run.steps = seq;
            state.steps.push(vec![event.clone()]);
            return Ok(true);
        }
        let state = self.runs.get_mut(&run).ok_or(Refusal::NoSuchRun)?;
        let events = &mut state.steps[usize::try_from(seq - 1).expect("a number of steps")];
        if !follows(events, event) {
            return Err(Refusal::StepConflict);
        }
        events.push(event.clone());
        Ok(true)
    }

    fn answer(&mut self, id: &WaitId, answer: &Answer) -> Result<bool, Refusal> {
        let wait = self.waits.get_mut(id).ok_or(Refusal::NoSuchWait)?;
        let expired = wait.asked.expires_ms.is_some_and(|expires_ms| answer.answered_ms >= expires_ms);
        if wait.answer.is_none() && expired && answer.option != "expired" {
            return Err(Refusal::Expired);
        }
        let takes = wait.asked.options.contains(&answer.option) || expired && answer.option == "expired";
        if !takes {
            return Err(Refusal::NoSuchOption);
        }
        match &wait.answer {
            Some(first) if first.option == answer.option && first.text == answer.text => Ok(false),
            Some(_) => Err(Refusal::AnsweredBefore),
            None => {
                wait.answer = Some(answer.clone());
                Ok(true)
            }
        }
    }
}

/// Whether `event` may come after `events`, the first of which is the plan.
fn follows(events: &[StepEvent], event: &StepEvent) -> bool {
    let outcome = events.iter().find_map(|event| match event {
        StepEvent::Outcome(outcome) => Some(outcome),
        _ => None,
    });
    let parts = events.iter().filter(|event| matches!(event, StepEvent::Changes(_))).count();
    if let Some(outcome) = outcome {
        let changed =
            events.iter().any(|event| matches!(event, StepEvent::Changes(part) if !part.changes.is_empty()));
        let published = events.iter().rev().find_map(|event| match event {
            StepEvent::Published(published) => Some(published),
            _ => None,
        });
        return match (event, published) {
            (StepEvent::Published(it), None) => changed && it.attempt == outcome.attempt,
            (StepEvent::Published(it), Some(before)) => {
                before.asks && !it.asks && it.attempt == outcome.attempt
            }
            _ => false,
        };
    }
    if parts > 0 && !matches!(event, StepEvent::Changes(_) | StepEvent::Outcome(_)) {
        return false;
    }
    let contained = matches!(events.first(), Some(StepEvent::Planned(planned)) if planned.contained);
    let attempts = events.iter().filter(|event| matches!(event, StepEvent::Intent(_))).count();
    let attempts = u32::try_from(attempts).expect("a count of attempts");
    let unsettled = |attempt| {
        let is_it = |event: &StepEvent| matches!(event, StepEvent::Unsettled(it) if it.attempt == attempt);
        events.iter().any(is_it)
    };
    let probed =
        |attempt| events.iter().any(|event| matches!(event, StepEvent::Probed(it) if it.attempt == attempt));
    match event {
        StepEvent::Planned(_) | StepEvent::Published(_) => false,
        StepEvent::Intent(intent) => intent.attempt == attempts + 1,
        StepEvent::Receipt(receipt) => {
            let is_of_it =
                |event: &&StepEvent| matches!(event, StepEvent::Receipt(it) if it.attempt == receipt.attempt);
            let before = events.iter().filter(is_of_it).count();
            attempts > 0 && receipt.attempt == attempts && receipt.number as usize == before
        }
        StepEvent::Probed(it) => {
            attempts > 0 && it.attempt == attempts && !probed(attempts) && !unsettled(attempts)
        }
        StepEvent::Unsettled(it) => attempts > 0 && it.attempt == attempts && !unsettled(attempts),
        StepEvent::Changes(part) => {
            contained && attempts > 0 && part.attempt == attempts && part.number as usize == parts
        }
        StepEvent::Outcome(outcome) => attempts == 0 || outcome.attempt == attempts,
    }
}

/// Fails with both sides unless they are equal.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:#?}, expected {expected:#?}")) }
}

impl Model {
    /// Compare everything that `reader` finds.
    pub fn compare(&self, reader: &Reader) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("failed to read: {error}");
        let runs = reader.runs().map_err(|error| failed(&error))?;
        let mut expected: Vec<&RunState> = self.runs.values().collect();
        expected.sort_by_key(|state| state.run.number);
        let all: Vec<Run> = expected.iter().map(|state| state.run.clone()).collect();
        same("unreadable runs", &runs.unreadable.len(), &0)?;
        same("runs", &runs.items, &all)?;
        let open = reader.open_runs().map_err(|error| failed(&error))?;
        same("unreadable open runs", &open.unreadable.len(), &0)?;
        let expected_open: Vec<Run> = all.into_iter().filter(|run| !run.status.has_ended()).collect();
        same("open runs", &open.items, &expected_open)?;
        for state in expected {
            self.compare_run(reader, state)?;
        }
        for (key, run) in &self.call_keys {
            same("call key", &reader.run_of_call_key(key).map_err(|error| failed(&error))?, &Some(*run))?;
        }
        let sessions = reader.sessions().map_err(|error| failed(&error))?;
        same("unreadable sessions", &sessions.unreadable.len(), &0)?;
        let mut expected: Vec<Session> =
            self.sessions.iter().map(|(id, session)| session.record(*id)).collect();
        expected.sort_by_key(|session| (session.created_ms, session.id));
        same("sessions", &sessions.items, &expected)?;
        for session in &expected {
            self.compare_session(reader, session)?;
        }
        Ok(())
    }

    fn compare_run(&self, reader: &Reader, state: &RunState) -> Result<(), String> {
        let id = state.run.id;
        let failed = |error: deed_journal::ReadError| format!("failed to read run {id}: {error}");
        same("source", &reader.run_source(id).map_err(failed)?.as_ref(), &Some(&state.source))?;
        let steps = reader.steps(id).map_err(failed)?;
        same("number of steps", &steps.len(), &state.steps.len())?;
        for (step, events) in steps.iter().zip(&state.steps) {
            same("events", &reader.events(id, step.seq).map_err(failed)?, events)?;
            same("step read alone", &reader.step(id, step.seq).map_err(failed)?.as_ref(), &Some(step))?;
            let settled = events.iter().any(|event| matches!(event, StepEvent::Outcome(_)));
            same("settled", &step.status().is_settled(), &settled)?;
        }
        let beyond = steps.len() as u64 + 1;
        same("step beyond the last", &reader.step(id, beyond).map_err(failed)?, &None)?;
        let waits: Vec<Wait> = self.waits.values().filter(|wait| wait.asked.id.run == id).cloned().collect();
        same("waits", &reader.waits(id).map_err(failed)?, &waits)
    }

    fn compare_session(&self, reader: &Reader, record: &Session) -> Result<(), String> {
        let state = &self.sessions[&record.id];
        let failed =
            |error: deed_journal::ReadError| format!("failed to read session {}: {error}", record.id);
        same("transcript", &reader.transcript(record.id).map_err(failed)?, &state.main)?;
        for (name, branch) in &state.heads {
            same("head", &reader.branch(record, record.heads[name]).map_err(failed)?, branch)?;
        }
        let rewrites = reader.rewrites(record.id).map_err(failed)?;
        let expected: Vec<Rewrite> = state
            .rewrites
            .iter()
            .map(|rewrite| Rewrite {
                kind: rewrite.kind,
                revision: rewrite.revision,
                before: head_of(&rewrite.before),
                after: head_of(&rewrite.after),
                at_ms: rewrite.at_ms,
            })
            .collect();
        same("rewrites", &rewrites, &expected)?;
        for (rewrite, branches) in rewrites.iter().zip(&state.rewrites) {
            if let Some(before) = rewrite.before {
                same("branch cut off", &reader.branch(record, before).map_err(failed)?, &branches.before)?;
            }
        }
        Ok(())
    }
}
