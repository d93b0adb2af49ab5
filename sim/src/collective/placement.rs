//! The places of a file's blocks on their disks.
//!
//! Places are counted in *slots* of one block. Sequential, random and aged places are computed on demand.
//! Increasing places need all random places of a file; they are kept for the two files that can be in flight.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::machine::Purpose;
use crate::layout::{FileId, Layout};
use crate::random::{hash, permuted};

/// Sectors of the aged layout's block.
pub(super) const AGED_BLOCK_SECTORS: u64 = 16;

/// A way to lay a file's blocks out on each disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// One after another. Files follow one another, or lie at random places ([`CollectiveSpec::apart`](super::CollectiveSpec::apart)).
    Sequential,
    /// At random; no place is used twice while there is room.
    Random,
    /// At the same places as the random layout, but in file order.
    Increasing,
    /// In runs of three blocks on average, at random places; see [`Layout::aged`].
    Aged,
}

impl Placement {
    /// All layouts, in the order in which help texts list them.
    pub const ALL: [Placement; 4] =
        [Placement::Sequential, Placement::Random, Placement::Increasing, Placement::Aged];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Sequential => "sequential",
            Placement::Random => "random",
            Placement::Increasing => "increasing",
            Placement::Aged => "aged",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Placement::ALL.into_iter().find(|placement| placement.name() == text).ok_or_else(|| {
            let known = Placement::ALL.map(Placement::name).join(", ");
            format!("unknown layout {text:?}; known are {known}")
        })
    }
}

/// What the places of blocks depend on.
#[derive(Clone, Copy, Debug)]
pub struct Placing {
    /// How a file lies on each disk.
    pub placement: Placement,
    /// See [`CollectiveSpec::apart`](super::CollectiveSpec::apart).
    pub apart: bool,
    /// The number of disks; block b of a file is on disk b mod `disks`.
    pub disks: usize,
    /// Sectors of each disk.
    pub capacity_sectors: u64,
    /// Blocks of a file.
    pub file_blocks: u64,
    /// Sectors of a block.
    pub block_sectors: u64,
    /// Seed of drawn places: [`CollectiveSpec::seed`](super::CollectiveSpec::seed).
    pub seed: u64,
}

/// The places of the blocks of files that are striped each by itself.
#[derive(Debug)]
pub struct Places {
    placement: Placement,
    disks: u64,
    /// Blocks of a file on a disk, at most.
    per_disk: u64,
    file_blocks: u64,
    block_sectors: u64,
    slots: u64,
    seed: u64,
    apart: bool,
    aged: Layout,
    /// For the increasing layout: `per_disk` slots for each disk, of even and of odd files.
    sorted: [Vec<u32>; 2],
    /// The files that these belong to.
    sorted_for: [Option<u32>; 2],
}

impl Places {
    /// Places of files that all have the same number of blocks.
    pub fn new(placing: &Placing) -> Self {
        let Placing { placement, apart, capacity_sectors, file_blocks, block_sectors, .. } =
            *placing;
        let (disks, seed) =
            (placing.disks as u64, hash(&[placing.seed, Purpose::Places as u64, 0]));
        Places {
            placement,
            disks,
            per_disk: file_blocks.div_ceil(disks),
            file_blocks,
            block_sectors,
            slots: (capacity_sectors / block_sectors).min(u64::from(u32::MAX)),
            seed,
            apart,
            aged: Layout::aged(capacity_sectors, seed),
            sorted: [Vec::new(), Vec::new()],
            sorted_for: [None, None],
        }
    }

    /// The disk of `block`, and its first sector there, in any order of files and blocks.
    pub fn place(&mut self, file: u32, block: u32) -> (usize, u64) {
        if self.sorted_for[file as usize % 2] != Some(file) {
            self.prepare(file);
        }
        ((u64::from(block) % self.disks) as usize, self.sector(file, block))
    }

    /// Must be called before a file's first block is requested, and after all blocks of the file two before it
    /// were.
    pub(super) fn prepare(&mut self, file: u32) {
        self.sorted_for[file as usize % 2] = Some(file);
        if self.placement != Placement::Increasing {
            return;
        }
        let mut sorted = std::mem::take(&mut self.sorted[file as usize % 2]);
        sorted.clear();
        for disk in 0..self.disks {
            let blocks = self.file_blocks.saturating_sub(disk).div_ceil(self.disks);
            let from = sorted.len();
            sorted.extend((0..blocks).map(|index| self.random_slot(disk, file, index) as u32));
            sorted[from..].sort_unstable();
            sorted.resize(from + self.per_disk as usize, 0);
        }
        self.sorted[file as usize % 2] = sorted;
    }

    /// The first sector of `block` on its disk.
    pub(super) fn sector(&self, file: u32, block: u32) -> u64 {
        let (disk, index) = (u64::from(block) % self.disks, u64::from(block) / self.disks);
        let slot = match self.placement {
            Placement::Sequential => {
                let room = (self.slots / self.per_disk).max(1);
                let place = u64::from(file) % room;
                let place = if self.apart { permuted(place, room, self.seed) } else { place };
                place * self.per_disk + index
            }
            Placement::Random => self.random_slot(disk, file, index),
            Placement::Increasing => {
                let at = disk * self.per_disk + index;
                u64::from(self.sorted[file as usize % 2][at as usize])
            }
            Placement::Aged => {
                let id = FileId(hash(&[u64::from(file), disk]));
                let offset = index * AGED_BLOCK_SECTORS * crate::SECTOR_BYTES;
                let first = self.aged.extents(id, offset, crate::SECTOR_BYTES).next();
                // A run may extend beyond the disk's end.
                let last = (self.slots - 1) * self.block_sectors;
                return first.map_or(0, |extent| extent.sector).min(last);
            }
        };
        slot * self.block_sectors
    }

    fn random_slot(&self, disk: u64, file: u32, index: u64) -> u64 {
        let number = (u64::from(file) * self.per_disk + index) % self.slots;
        permuted(number, self.slots, hash(&[self.seed, disk]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::CollectiveSpec;
    use super::*;

    fn placing(placement: Placement) -> Placing {
        let spec = CollectiveSpec { placement, file_blocks: 1003, ..CollectiveSpec::paper(4) };
        spec.placing()
    }

    fn places(placement: Placement) -> Places {
        let mut places = Places::new(&placing(placement));
        places.prepare(0);
        places.prepare(1);
        places
    }

    #[test]
    fn layouts_are_as_they_are_called() {
        let on_disk = |placement, file, disk: u32| -> Vec<u64> {
            let places = places(placement);
            (disk..1003).step_by(8).map(|block| places.sector(file, block)).collect()
        };
        for disk in 0..8 {
            let sequential = on_disk(Placement::Sequential, 1, disk);
            assert_eq!(sequential[0], 126 * 16);
            assert!(sequential.windows(2).all(|pair| pair[1] == pair[0] + 16));
            let mut random = on_disk(Placement::Random, 1, disk);
            let increasing = on_disk(Placement::Increasing, 1, disk);
            assert_ne!(random, increasing);
            random.sort_unstable();
            assert_eq!(random, increasing);
            let aged = on_disk(Placement::Aged, 0, disk);
            let runs = 1 + aged.windows(2).filter(|pair| pair[1] != pair[0] + 16).count();
            assert!((38..=48).contains(&runs), "{runs} of {}", aged.len());
        }
    }

    #[test]
    fn places_can_be_asked_for_in_any_order() {
        for placement in Placement::ALL {
            let in_order = places(placement);
            let mut any = Places::new(&placing(placement));
            for (file, block) in [(1, 1002), (5, 3), (0, 17), (3, 4), (1, 17), (0, 0)] {
                let (disk, sector) = any.place(file, block);
                assert_eq!(disk, block as usize % 8);
                if file < 2 {
                    assert_eq!(sector, in_order.sector(file, block), "{placement}");
                }
            }
        }
    }
}
