//! A journal on a disk of the tests, beside its model; and the question that every image of the disk must answer.
//!
//! Each state that the journal passes through is kept with the place in the disk's history at which its commit began and
//! at which it was acknowledged. What a crash leaves must be one of them: not older than the last one acknowledged as
//! durable, and none whose commit had not begun.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use deed_journal::test_support::{Crash, FaultDisk, History, ImageKind, RedbStore, Seeded, Storage};
use deed_journal::{
    CommitError, Digest, Durability, Entropy, Idle, Journal, Op, OpenError, Options, PrunePolicy, Reader,
    RecoveryAction, StorageError, TailPolicy,
};

use crate::generate::{Generator, Scope};
use crate::model::{Model, Refusal};

/// The same identifiers in every run.
struct Sevens;

impl Entropy for Sevens {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

pub fn open_journal(storage: Arc<dyn Storage>) -> Result<Journal, OpenError> {
    Journal::open_storage(storage, Options { entropy: Arc::new(Sevens), boot: None, idle: Idle::Never })
}

/// Digest of every pair in a store: nothing more is there, and nothing less.
pub fn fingerprint(storage: &dyn Storage) -> Result<Digest, StorageError> {
    let mut all = Vec::new();
    storage.snapshot()?.scan(&[], &mut |key, value| {
        all.extend_from_slice(&(key.len() as u64).to_be_bytes());
        all.extend_from_slice(key);
        all.extend_from_slice(&(value.len() as u64).to_be_bytes());
        all.extend_from_slice(value);
        true
    })?;
    Ok(Digest::of(&all))
}

/// Open what is on `disk` and close it again. Returns the digest of what was there.
pub fn fingerprint_of_contents(disk: &FaultDisk) -> Result<Digest, String> {
    let store = RedbStore::open_medium(disk.medium()).map_err(|error| error.to_string())?;
    fingerprint(&store).map_err(|error| error.to_string())
}

/// A state that the journal was in, or was on its way to.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Changes of the disk when the commit to it began.
    pub from: usize,
    /// Changes of the disk when it was acknowledged.
    pub to: usize,
    pub durable: bool,
    /// Of the store's pairs; none for a state that was passed through unseen.
    pub digest: Option<Digest>,
    pub model: Arc<Model>,
}

/// Where it is, and the beginning of its digest.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest =
            self.digest.map_or_else(|| "unseen".to_owned(), |digest| digest.to_string()[..8].to_owned());
        let durable = if self.durable { "durable" } else { "riding" };
        write!(f, "{digest} ({}..{}, {durable})", self.from, self.to)
    }
}

/// A journal on a disk, beside its model.
pub struct Simulation {
    disk: FaultDisk,
    /// None while it is closed.
    opened: Option<Opened>,
    pub model: Arc<Model>,
    states: Vec<State>,
    /// Whether each state's bytes are kept. Reading them reads the disk, which is not to be when its reads may fail.
    watch: bool,
    /// The store has failed: closing it saves nothing.
    failed: bool,
}

struct Opened {
    // In this order: the journal lets go of the store first.
    journal: Journal,
    storage: Arc<dyn Storage>,
}

impl Opened {
    fn on(disk: &FaultDisk) -> Result<Self, String> {
        let store = RedbStore::open_medium(disk.medium()).map_err(|error| error.to_string())?;
        let storage: Arc<dyn Storage> = Arc::new(store);
        let journal = open_journal(Arc::clone(&storage)).map_err(|error| error.to_string())?;
        Ok(Self { journal, storage })
    }
}

/// What came of a commit.
#[derive(Debug)]
pub enum Done {
    /// The journal and the model agree about it.
    Agreed,
    /// The store failed.
    Failed(CommitError),
}

impl Simulation {
    /// Create a journal on an empty disk.
    pub fn create() -> Self {
        let nothing: Arc<Model> = Arc::default();
        Self::open(FaultDisk::new(), nothing, Digest::of(&[])).expect("an empty disk becomes a journal")
    }

    /// Open what is on `disk`, which is in the state `model`.
    pub fn open(disk: FaultDisk, model: Arc<Model>, digest: Digest) -> Result<Self, String> {
        Self::open_watched(disk, model, Some(digest))
    }

    /// The same on a disk that may fail: only the model is known of each state.
    pub fn open_unwatched(disk: FaultDisk, model: Arc<Model>) -> Result<Self, String> {
        Self::open_watched(disk, model, None)
    }

    fn open_watched(disk: FaultDisk, model: Arc<Model>, digest: Option<Digest>) -> Result<Self, String> {
        let (at, watch) = (disk.changes(), digest.is_some());
        let before = State { from: at, to: at, durable: true, digest, model: Arc::clone(&model) };
        let opened = Some(Opened::on(&disk)?);
        let mut this = Self { disk, opened, model, states: vec![before], watch, failed: false };
        this.note(at, true);
        Ok(this)
    }

    fn opened(&self) -> &Opened {
        self.opened.as_ref().expect("it is open")
    }

    pub fn journal(&self) -> &Journal {
        &self.opened().journal
    }

    pub fn disk(&self) -> &FaultDisk {
        &self.disk
    }

    /// How many states it has been in.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    /// The journal is in the state of the model; the commit to it began at `from`.
    fn note(&mut self, from: usize, durable: bool) {
        let digest =
            self.watch.then(|| fingerprint(&*self.opened().storage).expect("the disk has no faults"));
        let (to, model) = (self.disk.changes(), Arc::clone(&self.model));
        self.states.push(State { from, to, durable, digest, model });
    }

    /// Commit to the journal and to the model, which must agree.
    pub fn commit(&mut self, ops: &[Op], durability: Durability) -> Result<(), String> {
        match self.try_commit(ops, durability)? {
            Done::Agreed => Ok(()),
            Done::Failed(error) => Err(error.to_string()),
        }
    }

    /// Commit where the store may fail. Then it is in doubt whether the commit is there.
    pub fn try_commit(&mut self, ops: &[Op], durability: Durability) -> Result<Done, String> {
        let from = self.disk.changes();
        let mut model = Model::clone(&self.model);
        let expected = model.commit(ops);
        let found = self.journal().commit(ops.to_vec(), durability);
        match (found, expected) {
            (Ok(found), Ok(expected)) if found == expected => self.model = Arc::new(model),
            // Nothing happened, and nothing that rode has become durable.
            (Err(error), Err(refusal)) if refusal_of(&error) == Some(refusal) => {
                return if self.watch { self.unchanged().map(|()| Done::Agreed) } else { Ok(Done::Agreed) };
            }
            (Err(error), _) if has_failed(&error) => {
                // Only one that is unknown can have happened; the others were not begun.
                if matches!(error, CommitError::Unknown(_)) {
                    let (to, model) = (usize::MAX, Arc::new(model));
                    self.states.push(State { from, to, durable: false, digest: None, model });
                }
                self.failed = true;
                return Ok(Done::Failed(error));
            }
            (found, expected) => {
                return Err(format!("{ops:#?}: the journal says {found:?}, the model {expected:?}"));
            }
        }
        // A durable commit that had nothing to write has made durable what rode.
        self.note(from, durability > Durability::Riding);
        Ok(Done::Agreed)
    }

    fn unchanged(&self) -> Result<(), String> {
        let digest = fingerprint(&*self.opened().storage).expect("the disk has no faults");
        let last = self.states.last().expect("there is a first state");
        if last.digest.is_none_or(|before| before == digest) {
            Ok(())
        } else {
            Err("a refused commit changed something".to_owned())
        }
    }

    /// Remove ended runs: a commit for each, then a sync. A crash in between leaves each of them whole or gone.
    pub fn prune(&mut self, keep: usize) -> Result<(), String> {
        let policy = PrunePolicy { older_than_ms: None, keep: Some(keep) };
        let surplus = self.model.surplus(keep);
        let drops = surplus.iter().map(|run| vec![Op::DropRun(*run)]);
        let from = self.note_ahead(drops)?;
        let gone = self.journal().prune(policy, 0).map_err(|error| error.to_string())?;
        self.note(from, true);
        if gone == surplus { Ok(()) } else { Err(format!("pruned {gone:?}, expected {surplus:?}")) }
    }

    /// Settle turns in flight, a commit for each. The plan is what is done, and then there is nothing left to do.
    pub fn recover(&mut self, policy: TailPolicy) -> Result<(), String> {
        let failed = |error: &dyn fmt::Display| error.to_string();
        let expected = self.model.recovery(policy);
        let items: Vec<_> = expected.iter().map(|(item, _)| item.clone()).collect();
        let plan = self.journal().recovery_plan(policy).map_err(|error| failed(&error))?;
        if plan != items {
            return Err(format!("the plan is {plan:#?}, expected {items:#?}"));
        }
        let ops: Vec<_> = expected.into_iter().map(|(_, ops)| ops).filter(|ops| !ops.is_empty()).collect();
        let any = !ops.is_empty();
        let from = self.note_ahead(ops.into_iter())?;
        let done = self.journal().recover(policy, 0).map_err(|error| failed(&error))?;
        if done != plan {
            return Err(format!("recovered {done:#?}, planned {plan:#?}"));
        }
        // With nothing to do there was no commit, and what rode still does.
        self.note(from, any);
        let left = self.journal().recovery_plan(policy).map_err(|error| failed(&error))?;
        match left.iter().find(|item| !matches!(item.action, RecoveryAction::LeaveToRun(_))) {
            Some(item) => Err(format!("recovery left {item:?}")),
            None => Ok(()),
        }
    }

    /// Commit these to the model, and keep each state on the way, whose bytes nobody has seen. Returns where they begin.
    fn note_ahead(&mut self, commits: impl Iterator<Item = Vec<Op>>) -> Result<usize, String> {
        let from = self.disk.changes();
        for ops in commits {
            let mut model = Model::clone(&self.model);
            model.commit(&ops).map_err(|refusal| format!("{ops:?}: {refusal:?}"))?;
            self.model = Arc::new(model);
            let model = Arc::clone(&self.model);
            self.states.push(State { from, to: usize::MAX, durable: false, digest: None, model });
        }
        Ok(from)
    }

    pub fn sync(&mut self) -> Result<(), String> {
        let from = self.disk.changes();
        self.journal().sync().map_err(|error| error.to_string())?;
        self.note(from, true);
        Ok(())
    }

    /// Compare the journal with the model, and let the journal verify itself.
    pub fn compare(&self) -> Result<(), String> {
        self.model.compare(self.journal().read())?;
        verify(self.journal().read())
    }

    /// Close it, compact the store or not, and open it again. The records stay as they are, but for the generation.
    pub fn reopen(&mut self, compact: bool) -> Result<(), String> {
        let from = self.disk.changes();
        let last = self.states.last().expect("there is a first state").clone();
        self.opened = None;
        if compact {
            let store = RedbStore::open_medium(self.disk.medium());
            store.and_then(|mut store| store.compact()).map_err(|error| error.to_string())?;
        }
        let closed = self.disk.changes();
        self.states.push(State { from, to: closed, durable: true, ..last });
        self.opened = Some(Opened::on(&self.disk)?);
        self.note(closed, true);
        Ok(())
    }

    /// Close it, which makes everything durable unless the store has failed.
    pub fn close(mut self) -> Recording {
        let (from, fired) = (self.disk.changes(), self.disk.fired());
        let last = self.states.last().expect("there is a first state").clone();
        self.opened = None;
        if !self.failed && self.disk.fired() == fired {
            self.states.push(State { from, to: self.disk.changes(), durable: true, ..last });
        }
        Recording::new(self.disk.history(), self.states)
    }
}

/// The refusal that an error of the journal is; none for a failure.
fn refusal_of(error: &CommitError) -> Option<Refusal> {
    Some(match error {
        CommitError::RunExists(_) => Refusal::RunExists,
        CommitError::NoSuchRun(_) => Refusal::NoSuchRun,
        CommitError::RunEnded(_) => Refusal::RunEnded,
        CommitError::RunNotEnded(_) => Refusal::RunNotEnded,
        CommitError::StepConflict { .. } => Refusal::StepConflict,
        CommitError::NoSuchSession(_) => Refusal::NoSuchSession,
        CommitError::SessionExists(_) => Refusal::SessionExists,
        CommitError::HeadExists { .. } => Refusal::HeadExists,
        CommitError::NoSuchMessage { .. } => Refusal::NoSuchMessage,
        CommitError::KeepsTooMany { .. } => Refusal::KeepsTooMany,
        CommitError::Snapshot(conflict) => Refusal::Snapshot(conflict.kind),
        CommitError::AskedBefore(_) => Refusal::AskedBefore,
        CommitError::NoSuchWait(_) => Refusal::NoSuchWait,
        CommitError::NoSuchOption { .. } => Refusal::NoSuchOption,
        CommitError::AnsweredBefore { .. } => Refusal::AnsweredBefore,
        CommitError::Expired(_) => Refusal::Expired,
        CommitError::Fenced { .. }
        | CommitError::TooLarge { .. }
        | CommitError::Read(_)
        | CommitError::Unknown(_)
        | CommitError::Stopped(_) => return None,
    })
}

fn has_failed(error: &CommitError) -> bool {
    use deed_journal::ReadError::Storage;
    matches!(error, CommitError::Unknown(_) | CommitError::Stopped(_) | CommitError::Read(Storage(_)))
}

fn verify(reader: &Reader) -> Result<(), String> {
    let report = reader.verify().map_err(|error| error.to_string())?;
    match report.damage.first() {
        Some(damage) => Err(format!("verification found damage: {damage}")),
        None => Ok(()),
    }
}

/// How closely an image is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Every byte of every record.
    Bytes,
    /// And what a reader makes of them, and what the journal's own verification says.
    Whole,
}

/// Everything a journal did, and the states it passed through.
#[derive(PartialEq)]
pub struct Recording {
    history: History,
    pub states: Vec<State>,
}

impl Recording {
    pub fn new(history: History, states: Vec<State>) -> Self {
        Self { history, states }
    }

    /// Changes of the disk, syncs included.
    pub fn changes(&self) -> usize {
        self.history.len()
    }

    /// Every moment to crash at. To be used one after the other: each holds a copy of the disk.
    pub fn crashes(&self) -> impl Iterator<Item = Crash<'_>> {
        self.history.crashes()
    }

    /// The states that a crash at this place may leave.
    pub fn allowed(&self, at: usize) -> &[State] {
        let oldest = self.states.iter().rposition(|state| state.durable && state.to <= at);
        let newest = self.states.iter().rposition(|state| state.from < at || state.to <= at);
        &self.states[oldest.unwrap_or(0)..=newest.expect("the first state is from the beginning")]
    }

    /// Open an image of a crash at `at`, and find the state it is in.
    pub fn look(&self, at: usize, image: &[u8], look: Look) -> Result<&State, String> {
        let found = catch_unwind(AssertUnwindSafe(|| look_at(self.allowed(at), image, look)));
        let found = found.unwrap_or_else(|_| Err("the store panicked".to_owned()));
        found.map_err(|reason| {
            let path: Vec<String> = self.states.iter().map(State::to_string).collect();
            format!("{reason}\nthe states were {}", path.join(", "))
        })
    }

    /// Crash at `crash` in this way, and look at what is left unless the same was seen before.
    pub fn crash(
        &self,
        crash: &Crash<'_>,
        kind: ImageKind,
        look: Look,
        random: &mut Seeded,
        seen: &mut HashSet<u64>,
        mut each: impl FnMut(&State, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let image = crash.image(kind, random);
        if !seen.insert(image.fingerprint()) {
            return Ok(());
        }
        let found = self.look(crash.at, &image.bytes, look).and_then(|state| each(state, &image.bytes));
        found.map_err(|reason| format!("crash after change {}, {kind:?}: {image}: {reason}", crash.at))
    }
}

fn look_at<'a>(allowed: &'a [State], image: &[u8], look: Look) -> Result<&'a State, String> {
    let disk = FaultDisk::scratch(image.to_vec());
    let opened =
        RedbStore::open_medium(disk.medium()).map_err(|error| format!("it does not open: {error}"))?;
    let storage: Arc<dyn Storage> = Arc::new(opened);
    let digest = Some(fingerprint(&*storage).map_err(|error| format!("it cannot be read: {error}"))?);
    let reader = Reader::over(storage);
    let unseen = |state: &&State| state.digest.is_none() && state.model.compare(&reader).is_ok();
    let seen = allowed.iter().rev().find(|state| state.digest == digest);
    let Some(state) = seen.or_else(|| allowed.iter().rev().find(unseen)) else {
        let differences: Vec<String> =
            allowed.iter().filter_map(|state| state.model.compare(&reader).err()).collect();
        return Err(format!(
            "it is in none of the {} states allowed: {}",
            allowed.len(),
            differences.join("\n")
        ));
    };
    if look == Look::Whole {
        state.model.compare(&reader)?;
        verify(&reader)?;
    }
    Ok(state)
}

/// When a journal at work is compared with its model, which costs more than the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    AfterEach,
    AtTheEnd,
    /// Only what each commit says. What crashes leave is compared in any case.
    Never,
}

/// How much of a sequence is done.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub scope: Scope,
    pub commits: usize,
    pub compare: Compare,
}

/// Go on with random commits, and now and then with what an operator does.
pub fn go_on(simulation: &mut Simulation, seed: u64, extent: Extent) -> Result<(), String> {
    let mut generator = Generator::new(seed, extent.scope);
    let mut random = Seeded::new(!seed);
    for number in 0..extent.commits {
        let done = match random.below(24) {
            0 => simulation.prune(random.below(2)),
            1 => simulation.recover(*random.pick(&[
                TailPolicy::Keep,
                TailPolicy::KeepAndWarn,
                TailPolicy::Strip,
            ])),
            2 => simulation.sync(),
            3 => simulation.reopen(random.once_in(2)),
            _ => {
                let (ops, durability) = generator.commit(&simulation.model);
                simulation.commit(&ops, durability)
            }
        };
        let last = number + 1 == extent.commits;
        let due = match extent.compare {
            Compare::AfterEach => true,
            Compare::AtTheEnd => last,
            Compare::Never => false,
        };
        let checked = done.and_then(|()| if due { simulation.compare() } else { Ok(()) });
        checked.map_err(|reason| format!("commit {number}: {reason}"))?;
    }
    Ok(())
}
