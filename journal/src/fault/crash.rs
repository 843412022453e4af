//! What a crash leaves of what was done to a disk.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use super::{Event, Seeded, apply, index};

/// What a disk writes whole or not at all, as most do; torn writes are cut finer as well.
pub const SECTOR_BYTES: u64 = 512;

/// Everything that was done to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    pub(super) start: Arc<Vec<u8>>,
    pub(super) events: Vec<Event>,
}

impl History {
    /// How many changes and syncs there were.
    #[expect(clippy::len_without_is_empty, reason = "nothing asks that")]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// How often the length was set.
    pub fn set_lens(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::SetLen(_))).count()
    }

    /// Every moment at which the power can go: before the first change, and after each. A caller that keeps none of
    /// them for long spares copies of the disk.
    pub fn crashes(&self) -> impl Iterator<Item = Crash<'_>> {
        let mut synced = Arc::clone(&self.start);
        let mut synced_at = 0;
        (0..=self.events.len()).map(move |at| {
            if at > 0 && matches!(self.events[at - 1], Event::Sync) {
                let bytes = Arc::make_mut(&mut synced);
                for event in &self.events[synced_at..at] {
                    apply(bytes, event, None);
                }
                synced_at = at;
            }
            Crash { at, synced: Arc::clone(&synced), synced_at, pending: &self.events[synced_at..at] }
        })
    }
}

/// A moment at which the power goes.
#[derive(Debug, Clone)]
pub struct Crash<'a> {
    /// How many changes and syncs came before it.
    pub at: usize,
    synced: Arc<Vec<u8>>,
    synced_at: usize,
    pending: &'a [Event],
}

/// What becomes of the pending changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// All are lost.
    Lost,
    /// All are kept: the process died, the machine did not.
    Kept,
    /// Those before some moment are kept.
    Cut,
    /// Some are kept.
    Subset,
    /// The last one is cut to its first bytes; of the others some are kept.
    TornPrefix,
    /// The last one is cut to its last bytes; of the others some are kept.
    TornSuffix,
    /// Of the last one some sectors are kept; of the others some are kept.
    TornSectors,
    /// All are kept, in another order.
    Reordered,
    /// Some are kept, in any order, each whole or torn in any way.
    Anything,
}

impl ImageKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Lost,
        Self::Kept,
        Self::Cut,
        Self::Subset,
        Self::TornPrefix,
        Self::TornSuffix,
        Self::TornSectors,
        Self::Reordered,
        Self::Anything,
    ];
}

/// What a crash left.
#[derive(Debug, Clone)]
pub struct Image {
    /// The bytes on the disk.
    pub bytes: Vec<u8>,
    synced_at: usize,
    /// The changes that survived, by their number, and which of their bytes.
    survivors: Vec<(usize, Option<Vec<Range<usize>>>)>,
}

impl Image {
    /// Equal for images of one history that are made of the same parts.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.synced_at, &self.survivors).hash(&mut hasher);
        hasher.finish()
    }
}

/// Which changes survived.
impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "synced up to change {}, then", self.synced_at)?;
        for (number, parts) in &self.survivors {
            match parts {
                None => write!(f, " {number}")?,
                Some(parts) => write!(f, " {number}{parts:?}")?,
            }
        }
        if self.survivors.is_empty() { f.write_str(" nothing") } else { Ok(()) }
    }
}

impl Crash<'_> {
    /// How many changes may be lost.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// What a crash at this moment leaves.
    pub fn image(&self, kind: ImageKind, random: &mut Seeded) -> Image {
        let all = 0..self.pending.len();
        let mut survivors: Vec<(usize, Option<Vec<Range<usize>>>)> = match kind {
            ImageKind::Lost => Vec::new(),
            ImageKind::Kept => all.map(|number| (number, None)).collect(),
            ImageKind::Cut => (0..random.below(all.len() + 1)).map(|number| (number, None)).collect(),
            ImageKind::Subset => all.filter(|_| random.once_in(2)).map(|number| (number, None)).collect(),
            ImageKind::TornPrefix | ImageKind::TornSuffix | ImageKind::TornSectors => {
                // Of the others mostly all or most are there: a store is closest to trusting such an image.
                let lost_once_in = *random.pick(&[2, 8, usize::MAX]);
                let mut kept: Vec<_> = (0..all.len().saturating_sub(1))
                    .filter(|_| !random.once_in(lost_once_in))
                    .map(|number| (number, None))
                    .collect();
                if let Some(last) = all.last() {
                    kept.push((last, tear(&self.pending[last], kind, random)));
                }
                kept
            }
            ImageKind::Reordered => {
                let mut kept: Vec<_> = all.map(|number| (number, None)).collect();
                random.shuffle(&mut kept);
                kept
            }
            ImageKind::Anything => {
                let mut kept = Vec::new();
                for number in all {
                    match random.below(6) {
                        0 | 1 => {}
                        2 | 3 => kept.push((number, None)),
                        _ => kept.push((number, tear(&self.pending[number], kind, random))),
                    }
                }
                random.shuffle(&mut kept);
                kept
            }
        };
        survivors.retain(|(number, parts)| {
            parts.as_ref().is_none_or(|parts| !parts.is_empty())
                && !matches!(self.pending[*number], Event::Nothing | Event::Sync)
        });
        let mut bytes = Vec::clone(&self.synced);
        for (number, parts) in &survivors {
            apply(&mut bytes, &self.pending[*number], parts.as_deref());
        }
        for (number, _) in &mut survivors {
            *number += self.synced_at;
        }
        Image { bytes, synced_at: self.synced_at, survivors }
    }
}

/// Which bytes of a torn write survive; everything of a change that cannot be torn.
fn tear(event: &Event, kind: ImageKind, random: &mut Seeded) -> Option<Vec<Range<usize>>> {
    let Event::Write { offset, data } = event else { return None };
    let cut = random.below(data.len() + 1);
    let kind = match kind {
        ImageKind::Anything => {
            *random.pick(&[ImageKind::TornPrefix, ImageKind::TornSuffix, ImageKind::TornSectors])
        }
        named => named,
    };
    Some(match kind {
        ImageKind::TornPrefix => std::iter::once(0..cut).filter(|part| !part.is_empty()).collect(),
        ImageKind::TornSuffix => std::iter::once(cut..data.len()).filter(|part| !part.is_empty()).collect(),
        _ => sectors(*offset, data.len()).filter(|_| random.once_in(2)).collect(),
    })
}

/// The parts of a write that lie in one sector each.
fn sectors(offset: u64, len: usize) -> impl Iterator<Item = Range<usize>> {
    let sector = index(SECTOR_BYTES);
    let first = index(offset % SECTOR_BYTES);
    (0..(first + len).div_ceil(sector))
        .map(move |number| (number * sector).saturating_sub(first)..((number + 1) * sector - first).min(len))
}
