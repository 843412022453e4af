//! What every case of one crash test shares, and the undisturbed run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use super::case::Case;
use super::difference::{Difference, compare};
use super::mask::Masks;
use super::observer::Observers;
use super::passage::{Orders, Passage};
use super::place::{Place, Template};
use super::process::{self, Ended, Ending, Launcher};
use super::snapshot::{Except, JOURNAL, Recorded, Snapshot, TRANSCRIPT, is_of_world};
use super::trace::{Trace, TraceLine, crossed};
use super::world::World;
use super::{CrashTest, CrashTestError, remotes};
use crate::boundary::{Boundary, KillPoint};
use crate::mission::{AnswerRule, Spec};

/// What every case shares.
pub(super) struct Tester<'a> {
    launcher: Launcher,
    template: Template,
    observers: Observers,
    answers: Vec<AnswerRule>,
    seed: u64,
    /// Whether each case has ids of its own: a server outside would take equal keys of two cases for one call.
    own_ids: bool,
    /// Holds the places. Goes with everything in it.
    root: TempDir,
    places: AtomicU32,
    /// The world before a step, where somebody asked.
    before: Mutex<BTreeMap<u64, Arc<World>>>,
    pub(super) stop: &'a AtomicBool,
}

impl<'a> Tester<'a> {
    /// Read the file, and copy what the cases begin with.
    pub(super) fn new(wanted: &CrashTest, stop: &'a AtomicBool) -> Result<Self, CrashTestError> {
        let spec = Spec::read(&wanted.file)?;
        let text = std::fs::read_to_string(&wanted.file).map_err(CrashTestError::io("read", &wanted.file))?;
        let mission: Value =
            serde_json::from_str(&text).map_err(|error| CrashTestError::Read(error.to_string()))?;
        let beside = wanted.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let beside = beside.unwrap_or(Path::new("."));
        let named = match (&wanted.workspace, spec.workspace()) {
            (Some(named), _) => named.clone(),
            (None, Some(relative)) => beside.join(relative),
            (None, None) => beside.to_owned(),
        };
        let workspace = named.canonicalize().map_err(|_| CrashTestError::Workspace(named.clone()))?;
        if !workspace.is_dir() {
            return Err(CrashTestError::Workspace(named));
        }
        let directory = beside.canonicalize().map_err(CrashTestError::io("find", beside))?;
        let observers = Observers::new(spec.observe(), &directory, &workspace)?;
        let remotes = remotes::find(&workspace, &mission)?;
        let root = tempfile::Builder::new().prefix("deed-crash-test-").tempdir();
        let root = root.map_err(CrashTestError::io("create a directory for", &wanted.file))?;
        let own_ids = reaches_servers(&mission, &workspace, wanted.config_dir.as_deref());
        let template = Template::take(root.path().join("template"), &workspace, remotes, mission)?;
        let absolute = |path: &Path| path.canonicalize().map_err(CrashTestError::io("find", path));
        Ok(Self {
            launcher: Launcher {
                deed: wanted.deed.clone(),
                tools: wanted.tools.as_deref().map(absolute).transpose()?,
                variables: wanted.variables.clone(),
            },
            template,
            observers,
            answers: spec.answers().to_vec(),
            seed: wanted.seed,
            own_ids,
            root,
            places: AtomicU32::new(0),
            before: Mutex::default(),
            stop,
        })
    }

    pub(super) fn answers(&self) -> &[AnswerRule] {
        &self.answers
    }

    /// A fresh place. Its ids come from the seed, and from its number where each is to have its own.
    pub(super) fn place(&self) -> Result<Place, CrashTestError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(CrashTestError::Stopped);
        }
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        let seed = if self.own_ids { self.seed.wrapping_add(u64::from(number)) } else { self.seed };
        self.template.lay_out(self.root.path().join(format!("{number:05}")), seed)
    }

    /// A process of `deed` with the journal of a place.
    pub(super) fn deed(&self, place: &Place, args: &[String]) -> Result<Ended, CrashTestError> {
        let mut command = self.launcher.command(args, &place.state(), &place.temporary());
        command
            .arg("--journal")
            .arg(place.journal())
            .args(["--deterministic", &place.seed.to_string()])
            .current_dir(&place.directory);
        process::run(command, &place.output(), self.stop)
            .map_err(CrashTestError::io("start", &self.launcher.deed))
    }

    /// The tools at hand, as `deed tools` lists them.
    pub(super) fn tools(&self) -> Result<Vec<Value>, CrashTestError> {
        let place = self.place()?;
        let ended = self.deed(&place, &["tools".into()])?;
        place.remove()?;
        match ended.ending {
            Ending::Exit(0) => {
                serde_json::from_str(&ended.stdout).map_err(|error| CrashTestError::Read(error.to_string()))
            }
            Ending::Stopped => Err(CrashTestError::Stopped),
            _ => Err(CrashTestError::Reference(ended.describe())),
        }
    }

    /// Whether a journal that was cut off holds a run. Asked of `deed`, which repairs it on the way.
    pub(super) fn has_run(&self, place: &Place) -> Result<bool, CrashTestError> {
        let ended = self.deed(place, &["runs".into()])?;
        let runs: Option<Vec<Value>> = serde_json::from_str(&ended.stdout).ok();
        Ok(runs.is_some_and(|runs| !runs.is_empty()))
    }

    /// The world as it is now, while the run is not at its end.
    pub(super) fn look(&self, place: &Place) -> Result<World, CrashTestError> {
        let mut masks = Masks::new(place.directory.display().to_string());
        // Where all cases have the same ids, there is nothing else to mask.
        if self.own_ids && self.has_run(place)? {
            masks = Recorded::read(place)?.map_or(masks, |recorded| recorded.masks);
        }
        World::look(place, self.template.remotes.len(), &self.observers, &mut masks, self.stop)
    }

    /// The world before a step begins.
    pub(super) fn before(&self, seq: u64) -> Result<Arc<World>, CrashTestError> {
        let known = |before: &BTreeMap<u64, Arc<World>>| before.get(&seq).cloned();
        if let Some(world) = known(&self.before.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(world);
        }
        let place = self.place()?;
        let case = Case::Kill(KillPoint { seq, boundary: Boundary::BeforeIntent });
        let orders = Orders { case: Some(case), look: true, leave: true, ..Orders::default() };
        let world = Arc::new(self.pass(&place, orders)?.at_kill.unwrap_or_default());
        place.remove()?;
        self.before.lock().unwrap_or_else(PoisonError::into_inner).insert(seq, Arc::clone(&world));
        Ok(world)
    }

    /// Everything that a run left.
    pub(super) fn snapshot(&self, place: &Place) -> Result<Snapshot, CrashTestError> {
        let mut recorded = Recorded::read(place)?
            .ok_or_else(|| CrashTestError::Read("there is no run in the journal".to_owned()))?;
        let remotes = self.template.remotes.len();
        let world = World::look(place, remotes, &self.observers, &mut recorded.masks, self.stop)?;
        recorded.with(world)
    }

    /// Run undisturbed, twice: what differs then means nothing when it differs after a kill. The second run writes down
    /// which points there are.
    pub(super) fn reference(&self) -> Result<Reference, CrashTestError> {
        let once = |watch| {
            let place = self.place()?;
            let passage = self.pass(&place, Orders { watch, ..Orders::default() })?;
            if let Some(why) = passage.broken {
                return Err(CrashTestError::Reference(why));
            }
            let snapshot = self.snapshot(&place)?;
            let trace = read_trace(&place)?;
            place.remove()?;
            Ok((passage, snapshot, trace))
        };
        let (passage, snapshot, _) = once(false)?;
        let (_, again, trace) = once(true)?;
        let points = crossed(&trace).into_iter().collect();
        let mut except = Except::default();
        let mut unsteady = Vec::new();
        for step in &snapshot.steps {
            let result = |snapshot: &Snapshot| snapshot.result(step.seq).map(str::to_owned);
            let (first, second) = (result(&snapshot), result(&again));
            if first != second {
                except.steps.insert(step.seq);
                unsteady.push(Unsteady {
                    seq: Some(step.seq),
                    difference: Difference {
                        part: format!("result of step {}", step.seq),
                        verdict: super::Verdict::Differs,
                        expected: first,
                        found: second,
                    },
                });
            }
        }
        for difference in compare(&snapshot.parts(&except), &again.parts(&except)) {
            if !is_of_world(&difference.part) {
                let part = difference.part.as_str();
                let what = if part == JOURNAL || part == TRANSCRIPT { part } else { "(envelope)" };
                let brief = difference.brief();
                return Err(CrashTestError::Reference(format!(
                    "two undisturbed runs differ in {what}: {brief}"
                )));
            }
            except.parts.insert(difference.part.clone());
            unsteady.push(Unsteady { seq: None, difference });
        }
        Ok(Reference { passage, snapshot, points, except, unsteady, trace })
    }

    /// How many operations the store makes of its medium in an undisturbed run.
    pub(super) fn operations(&self) -> Result<usize, CrashTestError> {
        let place = self.place()?;
        let case = Case::PowerCut { operation: usize::MAX, seed: 0 };
        self.pass(&place, Orders { case: Some(case), ..Orders::default() })?;
        let trace = read_trace(&place)?;
        place.remove()?;
        let counted = trace.iter().find_map(|line| match line {
            TraceLine::Operations(count) => Some(*count),
            _ => None,
        });
        counted.ok_or_else(|| CrashTestError::Read("the store did not say what it did".to_owned()))
    }
}

pub(super) fn read_trace(place: &Place) -> Result<Vec<TraceLine>, CrashTestError> {
    Trace::read(&place.trace()).map_err(CrashTestError::io("read", &place.trace()))
}

/// The undisturbed run.
pub(super) struct Reference {
    pub(super) passage: Passage,
    pub(super) snapshot: Snapshot,
    /// The points it crosses.
    pub(super) points: BTreeSet<KillPoint>,
    /// What is another every time.
    pub(super) except: Except,
    pub(super) unsteady: Vec<Unsteady>,
    pub(super) trace: Vec<TraceLine>,
}

/// Something that differs between two undisturbed runs.
pub(super) struct Unsteady {
    /// The step whose result it is; none when it is a part of the world.
    pub(super) seq: Option<u64>,
    pub(super) difference: Difference,
}

/// Whether anything may reach a server, by the mission or a `deed.toml`.
fn reaches_servers(mission: &Value, workspace: &Path, config_dir: Option<&Path>) -> bool {
    let files = [Some(workspace), config_dir].into_iter().flatten();
    let tables = files.filter_map(|directory| {
        let text = std::fs::read_to_string(directory.join("deed.toml")).ok()?;
        toml::from_str::<Value>(&text).ok()
    });
    let open = |value: &Value| value["network"] == "open";
    let reaches = |file: &Value| {
        let grants = file["grants"].as_array();
        open(file) || grants.into_iter().flatten().any(|grant| open(grant) || grant["hosts"].is_array())
    };
    reaches(mission) || tables.collect::<Vec<_>>().iter().any(reaches)
}
