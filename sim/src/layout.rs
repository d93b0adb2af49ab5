//! The places of files in the volume: of each file's blocks and its inode.
//!
//! A place only decides how long a read takes; no data is kept. So a layout may give the same sectors to two
//! files. In the scattered layouts that happens as often as the data fills the volume, and its only effect is a
//! rare cache hit. If the data is larger than the volume, places wrap round.
//!
//! The place of a file does not depend on when or in which order files are looked up. So two runs over one
//! folder, with and without hints, read the same sectors.
//!
//! * A, *sequential*: files follow one another in the given order. Each has its inode's block, and then its
//!   data, which begins at a multiple of 8 KiB. A file that was not given lies in one piece, at a place drawn
//!   from its number.
//! * B, *aged*: as on a file system that has been filled and emptied for years. A file is broken into runs of
//!   two to four blocks of 8 KiB, three on average, each at a random place of the volume. A file of at most two
//!   blocks is always in one piece. The inode lies in the inode table at the beginning of some cylinder group.
//!   Each place is a hash of the seed, the file and the number of the run. Nothing is stored, and any run is
//!   found without computing those before it.
//! * C, *placed*: each file lies at a given place, with equal distances between its blocks, and with its inode
//!   in a block with others, as on a newly made and filled file system.

use std::collections::HashMap;
use std::sync::Arc;

use foretell_policy::hash::Mix;

use crate::SECTOR_BYTES;
use crate::array::Extent;
use crate::random::{hash, scale};

/// Sectors that are read for an inode: one block of 4 KiB.
const INODE_SECTORS: u64 = 4096 / SECTOR_BYTES;
/// Sectors of a block of an aged file: 8 KiB, as in the file systems of the TIP papers.
pub const BLOCK_SECTORS: u64 = 8192 / SECTOR_BYTES;
/// Blocks that are cut into four runs at once; see [`run_of`].
const CHUNK_BLOCKS: u64 = 12;
/// Sectors between two possible places of a run: the length of the longest run.
const SLOT_SECTORS: u64 = 4 * BLOCK_SECTORS;
/// Sectors of a cylinder group: 16 MiB.
pub const GROUP_SECTORS: u64 = (16 << 20) / SECTOR_BYTES;
/// Sectors of the inode table at the start of a group: 512 KiB, 1/32 of the group.
const TABLE_SECTORS: u64 = GROUP_SECTORS / 32;

/// Separates the hashes that are drawn for different purposes.
#[derive(Clone, Copy)]
enum Purpose {
    Inode,
    Cut,
    Run,
    Whole,
}

/// A file's identity in the layout: its inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// The place of a file in layout C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first sector of the block of 8 KiB that holds its inode and those of other files.
    pub inode_sector: u64,
    /// The first sector of its data.
    pub first_sector: u64,
    /// Sectors from the beginning of one of its blocks of 8 KiB to that of the next. The gap of [`GAP_BLOCKS`]
    /// after each [`SECTION_BLOCKS`] is extra.
    pub pitch_sectors: u64,
}

/// Blocks of a placed file that lie in one piece: the number of addresses in an indirect block of FFS. FFS puts
/// the next ones into another cylinder group.
pub const SECTION_BLOCKS: u64 = 2048;
/// Blocks between two pieces of [`SECTION_BLOCKS`]: the indirect block, and what a group has at its beginning (two copies of
/// its descriptors, and 8 blocks of inodes: one inode for each 32 KB of 16 MB, as in TIP 1995).
pub const GAP_BLOCKS: u64 = 12;

/// Blocks of a file whose addresses are in its inode, in FFS.
const DIRECT_BLOCKS: u64 = 12;

/// The indirect blocks that lead to a block of a file in FFS, by number, in the order in which they are read.
/// Number 0 leads to the first [`SECTION_BLOCKS`] after the inode's own. Number 1 is the double indirect block,
/// and n + 1 leads to the n-th section after the first. Files have at most two levels here: 32 GB.
pub fn address_blocks(block: u64) -> impl Iterator<Item = u64> {
    let section = block.checked_sub(DIRECT_BLOCKS).map(|beyond| beyond / SECTION_BLOCKS);
    let (first, second) = match section {
        None => (None, None),
        Some(0) => (Some(0), None),
        Some(section) => (Some(1), Some(section + 1)),
    };
    first.into_iter().chain(second)
}

/// A way to place files in a volume; see the [module](self).
#[derive(Clone, Debug)]
pub struct Layout {
    volume_sectors: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Sequential { starts: HashMap<FileId, u64, Mix> },
    Aged { seed: u64 },
    Placed { places: Arc<HashMap<FileId, Place>> },
}

impl Layout {
    /// Case A: `files`, each with its size in bytes, in this order.
    pub fn sequential(volume_sectors: u64, files: impl IntoIterator<Item = (FileId, u64)>) -> Self {
        let mut starts = HashMap::default();
        let mut next = 0u64;
        for (file, size_bytes) in files {
            if let std::collections::hash_map::Entry::Vacant(entry) = starts.entry(file) {
                // Aligned, so that the data begins at a multiple of 8 KiB.
                let start = aligned(next);
                entry.insert(start);
                let data = size_bytes.div_ceil(4096) * (4096 / SECTOR_BYTES);
                next = start.wrapping_add(INODE_SECTORS + data);
            }
        }
        Layout::new(volume_sectors, Kind::Sequential { starts })
    }

    /// Case B: places drawn from `seed`.
    pub fn aged(volume_sectors: u64, seed: u64) -> Self {
        Layout::new(volume_sectors, Kind::Aged { seed })
    }

    /// Case C. A file without a place lies at the beginning of the volume.
    pub fn placed(volume_sectors: u64, places: Arc<HashMap<FileId, Place>>) -> Self {
        Layout::new(volume_sectors, Kind::Placed { places })
    }

    fn new(volume_sectors: u64, kind: Kind) -> Self {
        Layout { volume_sectors: volume_sectors.max(1), kind }
    }

    /// Identifies the block that holds the inode of `file`.
    pub fn inode_block(&self, file: FileId) -> u64 {
        match &self.kind {
            Kind::Sequential { .. } | Kind::Aged { .. } => file.0,
            Kind::Placed { places } => place(places, file).inode_sector,
        }
    }

    /// The block that holds a file's inode.
    pub fn inode(&self, file: FileId) -> impl Iterator<Item = Extent> + use<> {
        let sector = match &self.kind {
            Kind::Sequential { starts } => self.sequential_start(starts, file),
            Kind::Placed { places } => {
                let sector = place(places, file).inode_sector;
                return wrap(sector, BLOCK_SECTORS, self.volume_sectors);
            }
            Kind::Aged { seed } => {
                let draw = hash(&[*seed, file.0, Purpose::Inode as u64]);
                let blocks = TABLE_SECTORS / INODE_SECTORS;
                let block = scale(draw, self.groups() * blocks);
                block / blocks * GROUP_SECTORS + block % blocks * INODE_SECTORS
            }
        };
        wrap(sector, INODE_SECTORS, self.volume_sectors)
    }

    /// An indirect block, by its number in [`address_blocks`]. Number 0 lies right before the file. Each later
    /// one lies right before the next [`SECTION_BLOCKS`], to which it leads except for the first 12 blocks. The
    /// double indirect block lies before the first of these.
    pub fn addresses(&self, file: FileId, number: u64) -> impl Iterator<Item = Extent> + use<> {
        let (section, blocks_before) = match number {
            0 => (0, 1),
            1 => (1, 2),
            _ => (number - 1, 1),
        };
        let (start, _) = self.piece(file, section * SECTION_BLOCKS * BLOCK_SECTORS);
        let pitch_sectors = match &self.kind {
            Kind::Sequential { .. } | Kind::Aged { .. } => BLOCK_SECTORS,
            Kind::Placed { places } => place(places, file).pitch_sectors,
        };
        let sector = start.saturating_sub(blocks_before * pitch_sectors);
        wrap(sector, BLOCK_SECTORS, self.volume_sectors)
    }

    /// The pieces that hold `len_bytes` bytes of a file from `offset_bytes` on, in file order, widened to whole
    /// sectors. A layout does not know where files end.
    pub fn extents(
        &self,
        file: FileId,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> impl Iterator<Item = Extent> + '_ {
        let mut next = offset_bytes / SECTOR_BYTES;
        let end = (offset_bytes.saturating_add(len_bytes)).div_ceil(SECTOR_BYTES);
        let end = if len_bytes == 0 { next } else { end };
        std::iter::from_fn(move || {
            (next < end).then(|| {
                let (start, left) = self.piece(file, next);
                let piece = left.min(end - next);
                next += piece;
                wrap(start, piece, self.volume_sectors)
            })
        })
        .flatten()
    }

    /// The place of a file's sector, and how many sectors from it on are contiguous.
    fn piece(&self, file: FileId, sector: u64) -> (u64, u64) {
        match &self.kind {
            Kind::Sequential { starts } => {
                let data = self.sequential_start(starts, file).wrapping_add(INODE_SECTORS);
                (data.wrapping_add(sector), u64::MAX)
            }
            Kind::Placed { places } => {
                let Place { first_sector, pitch_sectors, .. } = place(places, file);
                let (block, within) = (sector / BLOCK_SECTORS, sector % BLOCK_SECTORS);
                let blocks_left = match pitch_sectors {
                    BLOCK_SECTORS => SECTION_BLOCKS - block % SECTION_BLOCKS,
                    _ => 1,
                };
                let place = block + block / SECTION_BLOCKS * GAP_BLOCKS;
                let left = blocks_left * BLOCK_SECTORS - within;
                (first_sector + place * pitch_sectors + within, left)
            }
            Kind::Aged { seed } => {
                let run = run_of(*seed, file, sector / BLOCK_SECTORS);
                let within = sector - run.first_block * BLOCK_SECTORS;
                let draw = hash(&[*seed, file.0, Purpose::Run as u64, run.index]);
                let slots = (GROUP_SECTORS - TABLE_SECTORS) / SLOT_SECTORS;
                let slot = scale(draw, self.groups() * slots);
                let start =
                    slot / slots * GROUP_SECTORS + TABLE_SECTORS + slot % slots * SLOT_SECTORS;
                (start + within, run.blocks * BLOCK_SECTORS - within)
            }
        }
    }

    fn sequential_start(&self, starts: &HashMap<FileId, u64, Mix>, file: FileId) -> u64 {
        let drawn = || {
            let blocks = (self.volume_sectors / BLOCK_SECTORS).max(1);
            aligned(scale(hash(&[file.0, Purpose::Whole as u64]), blocks) * BLOCK_SECTORS)
        };
        starts.get(&file).copied().unwrap_or_else(drawn)
    }

    fn groups(&self) -> u64 {
        (self.volume_sectors / GROUP_SECTORS).max(1)
    }
}

/// The first sector from `sector` on for an inode's block whose data then begins at a multiple of 8 KiB.
fn aligned(sector: u64) -> u64 {
    let block = sector.wrapping_add(INODE_SECTORS - 1) / BLOCK_SECTORS;
    block * BLOCK_SECTORS + BLOCK_SECTORS - INODE_SECTORS
}

/// The given place of a file, or the beginning of the volume.
fn place(places: &HashMap<FileId, Place>, file: FileId) -> Place {
    let nowhere = Place { inode_sector: 0, first_sector: 0, pitch_sectors: BLOCK_SECTORS };
    places.get(&file).copied().unwrap_or(nowhere)
}

/// A run of an aged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    index: u64,
    first_block: u64,
    blocks: u64,
}

/// The run that holds block `block` of a file.
///
/// Every twelve blocks are cut into runs of 3+a, 3−a, 3+b and 3−b blocks, where a and b are drawn from −1, 0
/// and 1. So the mean is three, and no earlier run needs to be known.
fn run_of(seed: u64, file: FileId, block: u64) -> Run {
    let chunk = block / CHUNK_BLOCKS;
    let draw = scale(hash(&[seed, file.0, Purpose::Cut as u64, chunk]), 9);
    let (a, b) = (draw / 3, draw % 3);
    let mut run = Run { index: chunk * 4, first_block: chunk * CHUNK_BLOCKS, blocks: 2 + a };
    for blocks in [4 - a, 2 + b, 4 - b] {
        if block < run.first_block + run.blocks {
            break;
        }
        run = Run { index: run.index + 1, first_block: run.first_block + run.blocks, blocks };
    }
    run
}

/// A piece of the volume that wraps round at the volume's end.
fn wrap(sector: u64, sectors: u64, volume_sectors: u64) -> impl Iterator<Item = Extent> {
    let (mut sector, mut left) = (sector % volume_sectors, sectors);
    std::iter::from_fn(move || {
        (left > 0).then(|| {
            let piece = left.min(volume_sectors - sector);
            let extent = Extent { sector, sectors: piece };
            sector = 0;
            left -= piece;
            extent
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOLUME: u64 = 4 * 2_647_080;

    #[test]
    fn sequential_files_follow_one_another() {
        let files = [(FileId(9), 5000), (FileId(4), 0), (FileId(7), 4096)];
        let layout = Layout::sequential(VOLUME, files);
        let at = |file| layout.inode(FileId(file)).next();
        assert_eq!(at(9), Some(Extent { sector: 8, sectors: 8 }));
        assert_eq!(at(4), Some(Extent { sector: 16 + 16 + 8, sectors: 8 }));
        assert_eq!(at(7), Some(Extent { sector: 48 + 8, sectors: 8 }));
        let data: Vec<Extent> = layout.extents(FileId(9), 0, 5000).collect();
        assert_eq!(data, [Extent { sector: 16, sectors: 10 }]);
        assert_eq!(layout.extents(FileId(9), 100, 0).count(), 0);
    }

    #[test]
    fn an_unknown_file_has_a_place_too() {
        let layout = Layout::sequential(VOLUME, []);
        let first = layout.extents(FileId(3), 0, 1).next().expect("a byte");
        assert!(first.sector < VOLUME, "{first:?}");
        assert_ne!(layout.inode(FileId(3)).next(), layout.inode(FileId(4)).next());
    }

    #[test]
    fn data_is_aligned_so_that_blocks_are_in_one_piece() {
        let known = (0..50).map(|file| (FileId(file), file * 1000));
        let layout = Layout::sequential(VOLUME, known);
        for file in 0..100 {
            let first = layout.extents(FileId(file), 0, 1).next().expect("a byte");
            assert_eq!(first.sector % BLOCK_SECTORS, 0);
        }
        assert_eq!([0, 8, 9, 24, 25, u64::MAX].map(aligned)[..5], [8, 8, 24, 24, 40]);
    }

    #[test]
    fn addresses_lie_in_the_gaps_before_what_they_lead_to() {
        assert_eq!(address_blocks(11).count(), 0);
        assert!(address_blocks(12).eq([0]) && address_blocks(12 + 2047).eq([0]));
        assert!(address_blocks(12 + 2048).eq([1, 2]) && address_blocks(12 + 3 * 2048).eq([1, 4]));
        let pitch_sectors = 24;
        let place = Place { inode_sector: 0, first_sector: 2400, pitch_sectors };
        let places = Arc::new(HashMap::from([(FileId(1), place)]));
        let layout = Layout::placed(VOLUME, places);
        let section = |section: u64| 2400 + section * (SECTION_BLOCKS + GAP_BLOCKS) * 24;
        let before = [section(0) - 24, section(1) - 48, section(1) - 24, section(2) - 24];
        for (number, sector) in (0..).zip(before) {
            let extent = Extent { sector, sectors: BLOCK_SECTORS };
            assert_eq!(layout.addresses(FileId(1), number).collect::<Vec<_>>(), [extent]);
        }
    }

    #[test]
    fn a_volume_too_small_wraps() {
        let layout = Layout::sequential(100, [(FileId(1), 1 << 20)]);
        let pieces: Vec<Extent> = layout.extents(FileId(1), 0, 100 * 512).collect();
        let expected = [Extent { sector: 16, sectors: 84 }, Extent { sector: 0, sectors: 16 }];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn aged_runs_have_the_mean_length_and_spread_over_the_volume() {
        let layout = Layout::aged(VOLUME, 1);
        let bytes = 12_000 * 8192;
        let pieces: Vec<Extent> = layout.extents(FileId(12), 0, bytes).collect();
        assert_eq!(pieces.len(), 4000);
        let mean = pieces.iter().map(|e| e.sector).sum::<u64>() as f64 / 4000.0;
        assert!((mean / VOLUME as f64 - 0.5).abs() < 0.02, "{mean}");
        let small = layout.extents(FileId(13), 0, 2 * 8192).count();
        assert_eq!(small, 1);
    }

    proptest! {
        #[test]
        fn extents_add_up_and_stay_in_the_volume(
            aged: bool, file: u64, offset in 0u64..1 << 40, len in 0u64..300_000,
            volume in 1u64..VOLUME,
        ) {
            let layout =
                if aged { Layout::aged(volume, 5) } else { Layout::sequential(volume, []) };
            // A volume of a few sectors would give too many pieces.
            let len = len.min(volume * 512 * 20);
            let first = offset / 512;
            let last = if len == 0 { first } else { (offset + len).div_ceil(512) };
            let extents: Vec<Extent> = layout.extents(FileId(file), offset, len).collect();
            prop_assert_eq!(extents.iter().map(|e| e.sectors).sum::<u64>(), last - first);
            for extent in extents.iter().copied().chain(layout.inode(FileId(file))) {
                prop_assert!(extent.sectors > 0 && extent.sector + extent.sectors <= volume);
            }
        }

        #[test]
        fn a_read_in_parts_reads_the_same_sectors(
            file: u64, seed: u64, cut in 0u64..200_000, len in 1u64..200_000,
        ) {
            let layout = Layout::aged(VOLUME, seed);
            let sectors = |offset: u64, len: u64| -> Vec<u64> {
                let extents = layout.extents(FileId(file), offset * 512, len * 512);
                extents.flat_map(|e| e.sector..e.sector + e.sectors).collect()
            };
            let len = len / 512;
            let cut = (cut / 512).min(len);
            let mut parts = sectors(0, cut);
            parts.extend(sectors(cut, len - cut));
            prop_assert_eq!(parts, sectors(0, len));
        }
    }
}
