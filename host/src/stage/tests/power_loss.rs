//! A loss of power at any instant from the call's first write to the end of its publication, and of the redo.
//!
//! # Fault model
//! - What a file holds that was not synced since is lost: it is empty, ends early, or has zeros from some place on.
//! - A change of a directory's names (create, link, symlink, mkdir, unlink, rmdir, rename) that is not followed by a sync of
//!   that directory is there or not, each by itself; of two that concern one name, the later one wins if it is there. A rename
//!   is there as a whole or not at all. Every rename here is within one directory, which is asserted.
//! - A mode and a time that were set since the last sync of a file or directory are there or not, each by itself. A new file or
//!   directory has the mode that it was made with as soon as it has a name.
//! - What was synced stays. The commit of the outcome is one durable instant between the sync of the stage and the first
//!   change of the workspace; the list of changes is then there.
//!
//! Owners are not simulated. Neither are the overlay's own notes (whiteouts, attributes): nobody reads them after the commit.
//!
//! # What has to hold
//! Before the commit, the workspace is the old one. After it, the redo leads to exactly the new one and leaves nothing of its
//! own behind; until then every file is the old or the new one, and all else has a name of ours. Once a publication has
//! returned, the new one is there without a redo.
//!
//! The work is recorded where the host does it, and each image is put on a real disk for a real redo.

use std::cell::RefCell;

use super::medium::{Medium, Step, Time};
use super::model::Model;
use super::publish::{everything, published};
use super::repository::commit;
use super::*;
use crate::stage::sync::sync_observed;
use crate::tests::seeds::{Seeded, each, report};

/// Calls in one run of the tests.
const SEEDS: u64 = 110;

/// Images of each, those of second crashes not counted.
const IMAGES: u64 = 20;

/// Where the stage is, below a directory that was there before.
const STAGES: &str = "stages";
const STAGE: &str = "stages/call";
const UPPER: &str = "stages/call/upper";

/// Writes down what is done below a directory, and spares the disk.
struct Recording {
    root: PathBuf,
    steps: RefCell<Vec<Step>>,
    last: RefCell<Option<Step>>,
}

impl Recording {
    fn new(root: PathBuf) -> Self {
        Self { root, steps: RefCell::default(), last: RefCell::default() }
    }

    fn next(&self, step: Option<Step>) {
        let last = self.last.replace(step);
        self.steps.borrow_mut().extend(last.map(|last| last.seen(&self.root)));
    }

    fn end(self) -> Vec<Step> {
        self.next(None);
        self.steps.into_inner()
    }
}

impl Observer for Recording {
    fn before(&self, operation: Operation<'_>) -> io::Result<()> {
        self.next(Some(Step::of(operation)));
        Ok(())
    }

    fn syncs(&self) -> bool {
        false
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Stage,
    Workspace,
}

/// A tree, and the times of its files as far as they can be seen.
#[derive(Debug, PartialEq, Eq)]
struct Seen(Tree, BTreeMap<PathBuf, Time>);

impl Seen {
    fn at(root: &Path) -> Self {
        let found = tree(root);
        let time = |path: &PathBuf| {
            let metadata = fs::symlink_metadata(root.join(path)).ok().filter(fs::Metadata::is_file)?;
            Some((path.clone(), (metadata.mtime(), metadata.mtime_nsec())))
        };
        let times = found.keys().filter_map(time).collect();
        Self(found, times)
    }

    /// What is not as expected.
    fn against(&self, expected: &Self) -> Result<(), String> {
        same(&self.0, &expected.0)?;
        let other = self.1.iter().find(|(path, time)| expected.1.get(*path) != Some(time));
        other.map_or(Ok(()), |(path, time)| Err(format!("{path:?}: its time is {time:?}")))
    }
}

/// A call and its publication.
struct History {
    place: Place,
    changes: Vec<Change>,
    /// The workspace before the call.
    workspace: Medium,
    old: Seen,
    new: Seen,
    steps: Vec<(Layer, Step)>,
    /// How many of them came before the commit.
    committed: usize,
}

impl History {
    /// Sync and publish what a call left.
    fn record((place, changes): (Place, Vec<Change>)) -> Self {
        let at = |path: &str| place.directory.path().join(path);
        fs::create_dir_all(at(STAGE)).unwrap();
        fs::rename(at("upper"), at(UPPER)).unwrap();
        let (workspace, old) = (Medium::of(&place.lower("")), Seen::at(&place.lower("")));
        let mut staged: Vec<Step> =
            [STAGES, STAGE, UPPER].map(|path| Step::MakeDirectory(path.into(), 0o755)).into();
        Step::making(&at(UPPER), Path::new(UPPER), &mut staged);
        let recording = Recording::new(at(""));
        sync_observed(&place.open(""), Path::new(UPPER), &changes, &recording).unwrap();
        staged.extend(recording.end());
        let recording = Recording::new(place.lower(""));
        assert_eq!(publish(&place, &place, &changes, &recording).unwrap(), [], "{:?}", paths(&changes));
        let published = recording.end();
        let new = Seen::at(&place.lower(""));
        let committed = staged.len();
        let layer = |layer| move |step| (layer, step);
        let steps = staged
            .into_iter()
            .map(layer(Layer::Stage))
            .chain(published.into_iter().map(layer(Layer::Workspace)));
        Self { changes, workspace, old, new, steps: steps.collect(), committed, place }
    }

    /// The same, had the host left out some of its steps. Told are the layer, the step, and what came later.
    fn without(mut self, omitted: impl Fn(Layer, &Step, &[(Layer, Step)]) -> bool) -> Self {
        let is_kept = |at: &usize| {
            let (layer, step) = &self.steps[*at];
            !omitted(*layer, step, &self.steps[at + 1..])
        };
        let kept: Vec<usize> = (0..self.steps.len()).filter(is_kept).collect();
        self.committed = kept.iter().filter(|at| **at < self.committed).count();
        self.steps = kept.into_iter().map(|at| self.steps[at].clone()).collect();
        self
    }

    /// The two layers after so many steps.
    fn media(&self, survived: usize) -> (Medium, Medium) {
        let (mut stage, mut workspace) = (Medium::new(), self.workspace.clone());
        for (layer, step) in &self.steps[..survived] {
            match layer {
                Layer::Stage => stage.apply(step),
                Layer::Workspace => workspace.apply(step),
            }
        }
        (stage, workspace)
    }

    /// Lose power at a random instant. Returns the number of images that were looked at.
    fn crash(&self, random: &mut Seeded) -> Result<u64, String> {
        let all = self.steps.len();
        let survived = match random.below(6) {
            0 => random.below(self.committed),
            1 => all,
            _ => self.committed + random.below(all - self.committed + 1),
        };
        let (stage, workspace) = self.media(survived);
        let (stage, workspace) = (stage.lose(random), workspace.lose(random));
        let image = Place::in_memory();
        stage.materialize(image.directory.path());
        workspace.materialize(&image.lower(""));
        let next = self.steps.get(survived).map(|(_, step)| step);
        self.recover(&image, survived, workspace, random)
            .map_err(|why| format!("after {survived} of {all} steps, before {next:?}: {why}"))
    }

    fn recover(
        &self,
        image: &Place,
        survived: usize,
        workspace: Medium,
        random: &mut Seeded,
    ) -> Result<u64, String> {
        let found = Seen::at(&image.lower(""));
        if survived < self.committed {
            found.against(&self.old).map_err(|why| format!("before the commit: {why}"))?;
            crate::stage::remove(&image.directory.path().join(STAGE)).unwrap();
            // The next attempt does the same.
            return self.redo(&self.place, image).map(|_| 1);
        }
        self.never_between(&found.0)?;
        if survived == self.steps.len() {
            found.against(&self.new).map_err(|why| format!("after the end: {why}"))?;
        }
        let steps = self.redo(image, image)?;
        if !random.once_in(4) {
            return Ok(1);
        }
        let mut again = workspace;
        let survived = random.below(steps.len() + 1);
        steps[..survived].iter().for_each(|step| again.apply(step));
        fs::rename(image.lower(""), image.directory.path().join("first")).unwrap();
        fs::create_dir(image.lower("")).unwrap();
        again.lose(random).materialize(&image.lower(""));
        let second =
            self.never_between(&tree(&image.lower(""))).and_then(|()| self.redo(image, image)).map(|_| 2);
        second.map_err(|why| {
            format!("after {survived} steps of the redo, before {:?}: {why}", steps.get(survived))
        })
    }

    /// Publish again from a stage, and find all there. Returns what had to be done.
    fn redo(&self, stage: &Place, image: &Place) -> Result<Vec<Step>, String> {
        let recording = Recording::new(image.lower(""));
        let left = publish(stage, image, &self.changes, &recording).map_err(|error| error.to_string())?;
        if !left.is_empty() {
            return Err(format!("left to the owner: {left:?}"));
        }
        Seen::at(&image.lower("")).against(&self.new).map_err(|why| format!("after the redo: {why}"))?;
        Ok(recording.end())
    }

    /// Whether every file of a tree is the old or the new one, and all else is ours.
    fn never_between(&self, found: &Tree) -> Result<(), String> {
        never_between(found, &self.old.0, &self.new.0)
    }
}

/// Whether every file of a tree is the old or the new one, and all else has a name of ours.
pub(super) fn never_between(found: &Tree, old: &Tree, new: &Tree) -> Result<(), String> {
    let kind = |mode: u32| mode & libc::S_IFMT;
    for (path, (mode, content)) in found {
        let is_in = |tree: &Tree| {
            tree.get(path).is_some_and(|(other, wanted)| kind(*other) == kind(*mode) && wanted == content)
        };
        let name = path.file_name().unwrap().as_bytes();
        let is_ours = name.starts_with(format!(".deed-{KEY}-").as_bytes())
            || name.ends_with(b".lock") && path.iter().any(|part| part == ".git");
        if !is_ours && !is_in(old) && !is_in(new) {
            return Err(format!("{} is neither the old one nor the new one", path.display()));
        }
    }
    for (path, (mode, _)) in old {
        let is_directory = |mode: u32| kind(mode) == libc::S_IFDIR;
        let stays = new.get(path).is_some_and(|(new, _)| is_directory(*new) == is_directory(*mode));
        if stays && !found.contains_key(path) {
            return Err(format!("{} is gone in between", path.display()));
        }
    }
    Ok(())
}

fn publish(
    stage: &Place,
    workspace: &Place,
    changes: &[Change],
    observer: &dyn Observer,
) -> Result<Vec<Left>, StageError> {
    let path = stage.directory.path().join(UPPER);
    let upper = &Dir::open_ambient_dir(&path, cap_std::ambient_authority())
        .map_err(StageError::file("open", &path))?;
    let workspace = &workspace.open("lower");
    let publication = Publication { changes, upper, workspace, key: KEY, replace: false, passed: &|_| {} };
    publish_observed(&publication, observer, Duration::ZERO)
}

/// The call of a seed.
fn history(seed: u64, random: &mut Seeded) -> History {
    match seed % 8 {
        0 => {
            let history = History::record(everything());
            assert_eq!(history.new.0, published());
            history
        }
        1 => History::record(commit()),
        _ => {
            let old = if random.once_in(2) { Model::work(random) } else { Model::repository(random) };
            let new = old.changed(random);
            let place = Place::new();
            old.lay(&place.lower(""));
            new.stage(&old, &place.upper(""), random);
            let changes = place.changes();
            let history = History::record((place, changes));
            assert_eq!(history.old.0, old.tree());
            assert_eq!(history.new.0, new.tree());
            history
        }
    }
}

#[test]
fn a_loss_of_power_at_any_instant_leaves_what_the_redo_finishes() {
    let counted = each("a_loss_of_power", SEEDS, |seed| {
        let random = &mut Seeded::new(seed);
        let history = history(seed, random);
        let whole = history.media(history.steps.len()).1.keep_all();
        let simulated = Place::in_memory();
        whole.materialize(&simulated.lower(""));
        Seen::at(&simulated.lower("")).against(&history.new).expect("the simulation is like the disk");
        (0..IMAGES).map(|_| history.crash(random).unwrap_or_else(|why| panic!("{why}"))).sum()
    });
    report(format_args!(
        "power loss: {} images of {} calls from seed {}, no violations",
        counted.total, counted.seeds, counted.first
    ));
    assert!(!counted.is_all || counted.total >= 2000, "{} images are too few", counted.total);
}

/// A host that leaves out one kind of sync, or one sync alone, is found out.
#[test]
fn a_host_that_leaves_out_a_sync_is_found_out() {
    type Omitted = fn(Layer, &Step, &[(Layer, Step)]) -> bool;
    let omitted: [(&str, Omitted); 5] = [
        ("a staged file", |layer, step, _| layer == Layer::Stage && matches!(step, Step::SyncFile(_))),
        (
            "the name of the stage",
            |_, step, _| matches!(step, Step::SyncDirectory(path) if path == Path::new(STAGES)),
        ),
        ("a temporary, before it is renamed", |layer, step, _| {
            layer == Layer::Workspace && matches!(step, Step::SyncFile(_))
        }),
        ("the name of a temporary, before it is a lock as well", |layer, step, later| {
            layer == Layer::Workspace
                && matches!(step, Step::SyncDirectory(_))
                && later.iter().any(|(_, step)| matches!(step, Step::Link(..)))
        }),
        ("a directory, in the end", |layer, step, later| {
            layer == Layer::Workspace
                && matches!(step, Step::SyncDirectory(_))
                && !later.iter().any(|(_, step)| matches!(step, Step::Link(..)))
        }),
    ];
    for (what, omitted) in omitted {
        let mut violations = 0;
        for seed in 0..16 {
            let random = &mut Seeded::new(seed);
            let history = history(seed, random).without(omitted);
            violations += (0..IMAGES).filter(|_| history.crash(random).is_err()).count();
        }
        report(format_args!("power loss: without a sync of {what}, {violations} of {} fail", 16 * IMAGES));
        assert!(violations > 0, "without a sync of {what} nothing was lost");
    }
}

/// Once, the files of a stage were synced, and the directories up to the stage's own root, but not the names that lead there. A
/// loss of power after the commit could take the whole stage away, and what was committed could never be published. Of a call
/// that only deleted, nothing was synced at all, and the redo did not even find the stage to open.
#[test]
fn the_names_that_lead_to_a_stage_are_made_durable_with_it() {
    for deleted in [false, true] {
        let place = Place::new();
        write(place.lower("a"), "old");
        if deleted {
            whiteout(&place.upper("a"));
        } else {
            write(place.upper("a"), "new");
        }
        let changes = place.changes();
        let history = History::record((place, changes));
        let synced: Vec<&Path> = history.steps[..history.committed]
            .iter()
            .filter_map(|(_, step)| if let Step::SyncDirectory(path) = step { Some(&**path) } else { None })
            .collect();
        assert_eq!(synced, [UPPER, STAGE, STAGES, ""].map(Path::new));
    }
}
