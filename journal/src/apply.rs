//! What each operation of a commit does to the records, and when it is refused.

use crate::commit::{CommitError, Op};
use crate::id::{RunId, SessionId, WaitId};
use crate::open::StoreRecord;
use crate::record::{self, Key};
use crate::run::Run;
use crate::session::{
    Base, ConflictKind, Head, Message, MessageBody, Rewrite, RewriteKind, Session, SnapshotConflict, Turn,
};
use crate::staged::Staged;
use crate::step::StepEvent;
use crate::stored;
use crate::wait::{Answer, Asked, EXPIRED, Wait};

impl Staged<'_> {
    /// Apply one operation. Returns whether it changed anything.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<bool, CommitError> {
        match op {
            Op::CreateRun { run, source } => self.create_run(run, source),
            Op::UpdateRun(run) => self.update_run(run),
            Op::Step { run, seq, event } => self.step(*run, *seq, event),
            Op::CreateSession { session, created_ms } => {
                self.create_session(&Session::new(*session, None, *created_ms))
            }
            Op::Append { session, base, messages } => self.append(*session, base, messages),
            Op::Rewrite { session, base, keep, messages, kind, at_ms } => {
                self.rewrite(*session, base, *keep, messages, *kind, *at_ms)
            }
            Op::KeepAsHead { session, name, from, messages } => {
                self.keep_as_head(*session, name, *from, messages)
            }
            Op::BeginTurn { session, turn } => self.begin_turn(*session, turn),
            Op::ClearTurn { session, turn } => self.clear_turn(*session, turn),
            Op::Ask(asked) => self.ask(asked),
            Op::Answer { id, answer } => self.answer(*id, answer),
            Op::DropRun(run) => self.drop_run(*run),
        }
    }

    /// What this commit may not touch any more: a newer owner is here.
    pub(crate) fn fenced(&self, mine: u64, stored: u64, ops: &[Op]) -> CommitError {
        let touched = ops.iter().find_map(|op| match op {
            Op::Append { session, base, messages } => {
                Some((session, base, base.count() + messages.len() as u64))
            }
            Op::Rewrite { session, base, keep, messages, .. } => {
                Some((session, base, keep + messages.len() as u64))
            }
            _ => None,
        });
        if let Some((&session, base, count)) = touched
            && let Ok(record) = self.session(session)
        {
            return conflict(&record, ConflictKind::Fenced, base, count).into();
        }
        CommitError::Fenced { mine, stored }
    }

    fn store_record(&self) -> Result<StoreRecord, CommitError> {
        Ok(record::read(self, &Key::store())?.ok_or_else(StoreRecord::missing)?)
    }

    fn run(&self, run: RunId) -> Result<Run, CommitError> {
        record::read(self, &Key::run(run))?.ok_or(CommitError::NoSuchRun(run))
    }

    fn session(&self, session: SessionId) -> Result<Session, CommitError> {
        record::read(self, &Key::session(session))?.ok_or(CommitError::NoSuchSession(session))
    }

    fn create_run(&mut self, run: &Run, source: &serde_json::Value) -> Result<bool, CommitError> {
        if record::read::<Run>(self, &Key::run(run.id))?.is_some() {
            return Err(CommitError::RunExists(run.id));
        }
        if let Some(call_key) = &run.call_key {
            let key = Key::call_key(call_key);
            if let Some(first) = record::read::<RunId>(self, &key)? {
                return Err(CommitError::RunExists(first));
            }
            self.put(&key, &run.id, "call key")?;
        }
        let mut store = self.store_record()?;
        let run = Run { number: store.created, steps: 0, ..run.clone() };
        store.created += 1;
        store.runs += 1;
        self.put(&Key::store(), &store, "store")?;
        self.put(&Key::run(run.id), &run, "run")?;
        self.put(&Key::run_source(run.id), source, "what the run executes")?;
        self.put(&Key::open_run(run.number), &run.id, "open run")?;
        self.create_session(&Session::new(run.session, Some(run.id), run.created_ms))
    }

    fn update_run(&mut self, run: &Run) -> Result<bool, CommitError> {
        let stored = self.run(run.id)?;
        if stored.status.has_ended() {
            return Err(CommitError::RunEnded(run.id));
        }
        if run.status.has_ended() {
            self.delete(Key::open_run(stored.number).as_bytes())?;
        }
        // What a run is and what names it never changes.
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
        let changed = updated != stored;
        if changed {
            self.put(&Key::run(run.id), &updated, "run")?;
        }
        Ok(changed)
    }

    fn step(&mut self, id: RunId, seq: u64, event: &StepEvent) -> Result<bool, CommitError> {
        let conflict = |reason| CommitError::StepConflict { run: id, seq, event: event.describe(), reason };
        let mut run = self.run(id)?;
        if run.status.has_ended() {
            return Err(CommitError::RunEnded(id));
        }
        let step = stored::step(self, id, seq)?;
        let events = match (event, step) {
            (StepEvent::Planned(_), None) => {
                if seq != run.steps + 1 {
                    return Err(conflict("steps are numbered from 1, without gaps"));
                }
                run.steps = seq;
                self.put(&Key::run(id), &run, "run")?;
                1
            }
            (_, None) => return Err(conflict("the step is not planned")),
            (_, Some((mut step, events))) => {
                step.apply(event).map_err(conflict)?;
                events + 1
            }
        };
        let what = format!("the {} of step {seq}", event.describe());
        self.put(&event.key(id, seq), event, &what)?;
        self.put(&Key::step_head(id, seq), &events, "step head")?;
        Ok(true)
    }

    fn create_session(&mut self, session: &Session) -> Result<bool, CommitError> {
        let key = Key::session(session.id);
        if record::read::<Session>(self, &key)?.is_some() {
            return Err(CommitError::SessionExists(session.id));
        }
        self.put(&key, session, "session")?;
        Ok(true)
    }

    fn append(&mut self, id: SessionId, base: &Base, bodies: &[MessageBody]) -> Result<bool, CommitError> {
        let mut session = self.session(id)?;
        if *base != session.base() {
            let kind = self.compare(&session, base, bodies)?;
            let count = base.count() + bodies.len() as u64;
            return match kind {
                // The store holds the writer's messages, and nothing more: they are saved.
                ConflictKind::StalePrefix if session.base().count() == count => Ok(false),
                kind => Err(conflict(&session, kind, base, count).into()),
            };
        }
        if bodies.is_empty() {
            return Ok(false);
        }
        let messages = session.extend(bodies);
        self.put_messages(id, &messages)?;
        self.put(&Key::session(id), &session, "session")?;
        Ok(true)
    }

    /// How a writer's base and messages differ from what `main` is now.
    fn compare(
        &self,
        session: &Session,
        base: &Base,
        bodies: &[MessageBody],
    ) -> Result<ConflictKind, CommitError> {
        let main = stored::branch(self, session, session.main)?;
        let at_base = match base.count().checked_sub(1) {
            None => true,
            Some(index) => usize::try_from(index)
                .ok()
                .and_then(|index| main.get(index))
                .is_some_and(|message| Some(message.hash) == base.main.map(|head| head.hash)),
        };
        if !at_base {
            return Ok(ConflictKind::Rewound);
        }
        let held = main.iter().skip(usize::try_from(base.count()).unwrap_or(usize::MAX));
        let held: Vec<_> = held.take(bodies.len()).map(|message| &message.body).collect();
        let holds_mine = held.len() == bodies.len() && held.into_iter().eq(bodies);
        Ok(if holds_mine { ConflictKind::StalePrefix } else { ConflictKind::Diverged })
    }

    fn rewrite(
        &mut self,
        id: SessionId,
        base: &Base,
        keep: u64,
        bodies: &[MessageBody],
        kind: RewriteKind,
        at_ms: u64,
    ) -> Result<bool, CommitError> {
        let mut session = self.session(id)?;
        if *base != session.base() {
            let differ = self.compare(&session, base, &[])?;
            return Err(conflict(&session, differ, base, keep + bodies.len() as u64).into());
        }
        let count = base.count();
        if keep > count {
            return Err(CommitError::KeepsTooMany { session: id, count, keep });
        }
        if keep == count && bodies.is_empty() {
            return Ok(false);
        }
        let kept = self.end_of(&session, keep)?;
        let before = session.main;
        let (messages, after) = session.branch(kept, bodies);
        session.main = after;
        session.revision += 1;
        session.rewrites += 1;
        let rewrite = Rewrite { kind, revision: session.revision, before, after, at_ms };
        self.put_messages(id, &messages)?;
        self.put(&Key::rewrite(id, session.revision), &rewrite, "rewrite")?;
        self.put(&Key::session(id), &session, "session")?;
        Ok(true)
    }

    /// The end of the first `count` messages of `main`.
    fn end_of(&self, session: &Session, count: u64) -> Result<Option<Head>, CommitError> {
        let Some(index) = count.checked_sub(1) else { return Ok(None) };
        let main = stored::branch(self, session, session.main)?;
        let message = usize::try_from(index).ok().and_then(|index| main.get(index));
        Ok(message.map(|message| Head { message: message.id, count, hash: message.hash }))
    }

    fn put_messages(&mut self, session: SessionId, messages: &[Message]) -> Result<(), CommitError> {
        for message in messages {
            self.put(&Key::message(session, message.id), message, &format!("message {}", message.id))?;
        }
        Ok(())
    }

    fn keep_as_head(
        &mut self,
        id: SessionId,
        name: &str,
        from: Option<Head>,
        bodies: &[MessageBody],
    ) -> Result<bool, CommitError> {
        let mut session = self.session(id)?;
        if let Some(from) = from {
            let there = record::read::<Message>(self, &Key::message(id, from.message))?;
            let chain = match there {
                Some(message) if message.hash == from.hash => stored::chain(self, &session, from.message)?,
                _ => Vec::new(),
            };
            if chain.len() as u64 != from.count {
                return Err(CommitError::NoSuchMessage { session: id, message: from.message });
            }
        }
        let (messages, head) = session.branch(from, bodies);
        let Some(head) = head else {
            return Err(CommitError::NoSuchMessage { session: id, message: 0 });
        };
        if name == "main" || session.heads.contains_key(name) {
            return Err(CommitError::HeadExists { session: id, name: name.to_owned() });
        }
        session.heads.insert(name.to_owned(), head);
        self.put_messages(id, &messages)?;
        self.put(&Key::session(id), &session, "session")?;
        Ok(true)
    }

    fn begin_turn(&mut self, id: SessionId, turn: &Turn) -> Result<bool, CommitError> {
        let mut session = self.session(id)?;
        if session.turn.as_ref() == Some(turn) {
            return Ok(false);
        }
        session.turn = Some(turn.clone());
        self.put(&Key::session(id), &session, "session")?;
        Ok(true)
    }

    fn clear_turn(&mut self, id: SessionId, turn: &str) -> Result<bool, CommitError> {
        let mut session = self.session(id)?;
        if session.turn.as_ref().is_none_or(|flying| flying.id != turn) {
            return Ok(false);
        }
        session.turn = None;
        self.put(&Key::session(id), &session, "session")?;
        Ok(true)
    }

    fn ask(&mut self, asked: &Asked) -> Result<bool, CommitError> {
        let key = Key::wait(asked.id);
        if record::read::<Wait>(self, &key)?.is_some() {
            return Err(CommitError::AskedBefore(asked.id));
        }
        self.put(&key, &Wait { asked: asked.clone(), answer: None }, "question")?;
        Ok(true)
    }

    fn answer(&mut self, id: WaitId, answer: &Answer) -> Result<bool, CommitError> {
        let key = Key::wait(id);
        let wait: Wait = record::read(self, &key)?.ok_or(CommitError::NoSuchWait(id))?;
        let expired = wait.asked.has_expired(answer.answered_ms);
        if wait.answer.is_none() && expired && answer.option != EXPIRED {
            return Err(CommitError::Expired(id));
        }
        if !(wait.asked.options.contains(&answer.option) || expired && answer.option == EXPIRED) {
            let expected = wait.asked.options;
            return Err(CommitError::NoSuchOption { id, option: answer.option.clone(), expected });
        }
        match wait.answer {
            Some(first) if (&first.option, &first.text) == (&answer.option, &answer.text) => Ok(false),
            Some(first) => Err(CommitError::AnsweredBefore { id, first: first.option }),
            None => {
                self.put(&key, &Wait { asked: wait.asked, answer: Some(answer.clone()) }, "answer")?;
                Ok(true)
            }
        }
    }

    fn drop_run(&mut self, id: RunId) -> Result<bool, CommitError> {
        let run = self.run(id)?;
        if !run.status.has_ended() {
            return Err(CommitError::RunNotEnded(id));
        }
        let session: Option<Session> = record::read(self, &Key::session(run.session))?;
        if session.is_some_and(|session| session.run == Some(id)) {
            for prefix in [Key::messages(run.session), Key::rewrites(run.session)] {
                self.delete_all(&prefix)?;
            }
            self.delete(Key::session(run.session).as_bytes())?;
        }
        for prefix in [Key::steps(id), Key::waits(id)] {
            self.delete_all(&prefix)?;
        }
        if let Some(call_key) = &run.call_key {
            self.delete(Key::call_key(call_key).as_bytes())?;
        }
        for key in [Key::run(id), Key::run_source(id)] {
            self.delete(key.as_bytes())?;
        }
        let mut store = self.store_record()?;
        store.runs = store
            .runs
            .checked_sub(1)
            .ok_or_else(|| record::damaged(Key::store().as_bytes(), "it counts fewer runs than there are"))?;
        self.put(&Key::store(), &store, "store")?;
        Ok(true)
    }
}

fn conflict(session: &Session, kind: ConflictKind, base: &Base, count: u64) -> SnapshotConflict {
    SnapshotConflict {
        session: session.id,
        kind,
        base: base.revision,
        count,
        stored: session.revision,
        stored_count: session.base().count(),
    }
}
