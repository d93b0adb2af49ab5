//! The programs of the TIP papers, each as a function from parameters and a seed to steps and files.
//!
//! | program | reads | paper |
//! |---|---|---|
//! | [`search`] | each file of a set whole, in the order of its arguments: agrep | 1994 section 3.1, 1995 section 3.2 |
//! | [`slice`](mod@slice) | the blocks of a data volume that a plane meets: XDataSlice | 1994 section 3.2, 1995 section 3.3 |
//! | [`join`] | an outer relation in sequence, an index and an inner relation at random: Postgres | 1995 section 3.4 |
//! | [`speech`] | bursts of lookups in a large model: Sphinx | 1995 section 3.5 |
//! | [`davidson`] | a file in sequence, again and again | 1995 section 3.6 |
//!
//! Values that a paper states are constants, named after its table or section. Other values are parameters
//! without a default. Times are those of the program alone; reading, opening and fetching cost the machine's
//! times.

pub mod davidson;
pub mod join;
pub mod search;
pub mod slice;
pub mod speech;

use std::collections::HashMap;

use foretell_policy::{DeviceId, FileId, ReaderId};

use crate::layout::{
    BLOCK_SECTORS, FileId as PlacedFile, GAP_BLOCKS, GROUP_SECTORS, Place, SECTION_BLOCKS,
};
use crate::machine::directory::Directories;
use crate::machine::program::{Program, StoredFile};
use crate::random::SplitMix64;

/// Bytes of a block in all of these file systems.
pub const BLOCK_BYTES: u64 = 8192;
/// The device of all files.
pub const DEVICE: DeviceId = DeviceId(0);

/// Inodes of 128 bytes in a block.
const INODES_PER_BLOCK: u64 = BLOCK_BYTES / 128;
/// Sectors from one directory's inodes to the next directory's: room for 4,096 inodes.
const INODE_TABLE_SECTORS: u64 = 64 * BLOCK_SECTORS;

/// Bytes of a directory's name in the root. The number does not matter, since the root has few entries.
const ROOT_NAME_BYTES: u64 = 8;

/// Programs, and the files that they read.
pub struct Workload {
    /// The programs, which start together.
    pub programs: Vec<Program>,
    /// Their files.
    pub volume: Volume,
}

/// Makes a program, and puts its files into the volume.
pub type InVolume<'a> = dyn Fn(&mut Volume, ReaderId) -> Program + 'a;

impl Workload {
    /// Makes these programs, with the readers 1, 2, …, on a new volume; see [`Volume::new`].
    pub fn of(pitch_sectors: u64, programs: &[&InVolume<'_>]) -> Self {
        let mut volume = Volume::new(pitch_sectors);
        let made =
            (1..).zip(programs).map(|(reader, program)| program(&mut volume, ReaderId(reader)));
        Workload { programs: made.collect(), volume }
    }
}

/// A newly made file system, which is filled from its beginning.
#[derive(Clone, Debug)]
pub struct Volume {
    pitch_sectors: u64,
    next_sector: u64,
    next_file: u64,
    /// The place of each file.
    pub places: HashMap<PlacedFile, Place>,
    /// Sizes of the files, in bytes.
    pub sizes_bytes: HashMap<FileId, u64>,
    /// Directories whose contents have places too.
    pub directories: Directories,
    root: Option<FileId>,
}

/// The order and distances of a directory's files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scattering {
    /// Share of the files that change places at random. The others lie in the order in which they are read.
    pub shuffled: f64,
    /// Room that the files take in the volume, as a multiple of their own size. The rest is gaps.
    pub spread: f64,
    /// The cylinder groups that the files are divided among; `None` if one has room for all.
    pub groups: Option<Groups>,
    /// Bytes of each file's name, if the directory and its path from the root have places too.
    pub name_bytes: Option<u64>,
}

/// Cylinder groups of FFS. A directory's files go to its own group while that has inodes. Then FFS's quadratic
/// rehash takes the next group, the second after that, the fourth after that, and so on. Data lies in the group
/// of its inode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Groups {
    /// Sectors from one group to the next; more than the files of a group take.
    pub sectors: u64,
    /// Inodes of each group.
    pub inodes: u64,
}

impl Scattering {
    /// In the order in which they are read, side by side.
    pub const IN_ORDER: Scattering =
        Scattering { shuffled: 0.0, spread: 1.0, groups: None, name_bytes: None };
    /// Side by side, in any order.
    pub const SHUFFLED: Scattering = Scattering { shuffled: 1.0, ..Scattering::IN_ORDER };
}

impl Volume {
    /// An empty volume. The blocks of a file begin `pitch_sectors` apart, at least the 16 sectors of a block.
    pub fn new(pitch_sectors: u64) -> Self {
        assert!(pitch_sectors >= BLOCK_SECTORS, "blocks do not overlap");
        Volume {
            pitch_sectors,
            next_sector: 0,
            next_file: 1,
            places: HashMap::new(),
            sizes_bytes: HashMap::new(),
            directories: Directories::default(),
            root: None,
        }
    }

    /// A single file, in one piece.
    pub fn file(&mut self, size_bytes: u64) -> StoredFile {
        self.directory(&[size_bytes], Scattering::IN_ORDER, &mut SplitMix64::new(0))[0]
    }

    /// Makes the next file begin in a new cylinder group.
    pub fn begin_group(&mut self) {
        self.next_sector = self.next_sector.next_multiple_of(GROUP_SECTORS);
    }

    /// Leaves a gap of `sectors` before the next file.
    pub fn leave_room(&mut self, sectors: u64) {
        self.next_sector += sectors;
    }

    /// The sector after all files.
    pub fn end_sector(&self) -> u64 {
        self.next_sector
    }

    /// Files of these sizes: their inodes together, followed by their data.
    pub fn directory(
        &mut self,
        sizes_bytes: &[u64],
        scattering: Scattering,
        random: &mut SplitMix64,
    ) -> Vec<StoredFile> {
        let Scattering { shuffled, spread, groups, name_bytes } = scattering;
        let directory = name_bytes.map(|_| self.new_directory(groups));
        let own_group = self.next_sector.next_multiple_of(self.pitch_sectors);
        let mut order: Vec<usize> = (0..sizes_bytes.len()).collect();
        shuffle(&mut order, shuffled, random);
        let mut files = vec![None; sizes_bytes.len()];
        let first_file = self.take_ids(sizes_bytes.len() as u64);
        // A directory that has a place takes the first inode.
        let of_group = groups.map_or(usize::MAX, |it| it.inodes as usize);
        let (own, others) =
            order.split_at(order.len().min(of_group - usize::from(directory.is_some())));
        let mut end_of_own = None;
        for (group, order) in std::iter::once(own).chain(others.chunks(of_group)).enumerate() {
            let away = groups.map_or(0, |groups| ((1 << group) - 1) * groups.sectors);
            let inodes = (own_group + away).next_multiple_of(self.pitch_sectors);
            let first_sector = (inodes + INODE_TABLE_SECTORS).next_multiple_of(self.pitch_sectors);
            let mut next = first_sector;
            let taken = u64::from(group == 0 && directory.is_some());
            if let Some(directory) = directory.filter(|_| group == 0) {
                self.put(directory, inodes, first_sector);
            }
            for (number, &at) in (taken..).zip(order) {
                let file = FileId(first_file + at as u64);
                if let (Some(directory), Some(name_bytes)) = (directory, name_bytes) {
                    let room = end_of_own.as_mut().unwrap_or(&mut next);
                    self.put_name(directory, file, name_bytes, room);
                }
                let size_bytes = sizes_bytes[at];
                let blocks = size_bytes.div_ceil(BLOCK_BYTES);
                self.put(file, inodes + number / INODES_PER_BLOCK * BLOCK_SECTORS, next);
                self.sizes_bytes.insert(file, size_bytes);
                files[at] =
                    Some(StoredFile { file, device: DEVICE, blocks, block_bytes: BLOCK_BYTES });
                // Whole pitches, so that no block crosses the border of a stripe unit.
                let gap = 2.0 * (spread - 1.0) * random.unit() * blocks as f64;
                let after = blocks + blocks / SECTION_BLOCKS * GAP_BLOCKS + gap.round() as u64;
                next += after * self.pitch_sectors;
            }
            self.next_sector = next;
            end_of_own.get_or_insert(next);
            let end = groups.map_or(u64::MAX, |groups| own_group + away + groups.sectors);
            assert!(self.next_sector <= end, "a group has no room for its files");
        }
        files.into_iter().map(|file| file.expect("each has had its turn")).collect()
    }

    /// Reserves `count` file numbers, and returns the first.
    fn take_ids(&mut self, count: u64) -> u64 {
        self.next_file += count;
        self.next_file - count
    }

    fn put(&mut self, file: FileId, inode_sector: u64, first_sector: u64) {
        let place = Place { inode_sector, first_sector, pitch_sectors: self.pitch_sectors };
        self.places.insert(PlacedFile(file.0), place);
    }

    /// Adds a name to a directory. A new block of the directory is placed at `room`, in its group.
    fn put_name(&mut self, directory: FileId, file: FileId, name_bytes: u64, room: &mut u64) {
        let block = FileId(self.next_file);
        self.directories.add(directory, file, name_bytes, || block);
        if self.directories.blocks(directory).last() == Some(&block) {
            self.take_ids(1);
            self.put(block, *room, *room);
            *room += self.pitch_sectors;
        }
    }

    /// A directory in the root, with its own cylinder group, as in FFS.
    fn new_directory(&mut self, groups: Option<Groups>) -> FileId {
        let root = self.root.unwrap_or_else(|| {
            let root = FileId(self.take_ids(1));
            let inodes = self.next_sector.next_multiple_of(self.pitch_sectors);
            let data = (inodes + INODE_TABLE_SECTORS).next_multiple_of(self.pitch_sectors);
            self.put(root, inodes, data);
            self.directories.add_directory(root);
            self.next_sector = data + self.pitch_sectors;
            root
        });
        self.root = Some(root);
        let directory = FileId(self.take_ids(1));
        self.directories.add_directory(directory);
        let mut room = self.places[&PlacedFile(root.0)].first_sector;
        self.put_name(root, directory, ROOT_NAME_BYTES, &mut room);
        let group_sectors = groups.map_or(GROUP_SECTORS, |groups| groups.sectors);
        self.next_sector = self.next_sector.next_multiple_of(group_sectors);
        directory
    }
}

/// Permutes a random `share` of the items among themselves, each order with equal probability.
fn shuffle<T>(items: &mut [T], share: f64, random: &mut SplitMix64) {
    assert!((0.0..=1.0).contains(&share), "a share of {share}");
    let mut moved: Vec<usize> = (0..items.len()).collect();
    if share < 1.0 {
        moved.retain(|_| random.unit() < share);
    }
    for last in (1..moved.len()).rev() {
        items.swap(moved[last], moved[random.below(last as u64 + 1) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_the_share_of_files_is_moved_and_none_is_lost() {
        for share in [0.0, 0.25, 0.5, 1.0] {
            let mut items: Vec<usize> = (0..10_000).collect();
            shuffle(&mut items, share, &mut SplitMix64::new(3));
            let moved = items.iter().enumerate().filter(|(at, item)| at != *item).count() as f64;
            assert!((moved / 10_000.0 - share).abs() < 0.02, "{moved} for {share}");
            items.sort_unstable();
            assert!(items.into_iter().eq(0..10_000));
        }
    }

    #[test]
    #[should_panic(expected = "a share of 1.5")]
    fn no_more_than_all_files_are_moved() {
        shuffle(&mut [1, 2], 1.5, &mut SplitMix64::new(3));
    }

    #[test]
    fn a_directory_goes_on_in_the_groups_that_ffs_looks_at() {
        let groups = Some(Groups { sectors: 4096, inodes: 64 });
        let mut volume = Volume::new(16);
        volume.file(1);
        let scattering = Scattering { groups, ..Scattering::IN_ORDER };
        let files = volume.directory(&[8192; 200], scattering, &mut SplitMix64::new(5));
        let first = |at: usize| volume.places[&PlacedFile(files[at].file.0)].first_sector;
        let groups: Vec<u64> = (0..200).map(|at| (first(at) - first(0)) / 4096).collect();
        assert!(groups.iter().zip(0..).all(|(&group, at)| group == [0, 1, 3, 7][at / 64]));
        assert_eq!((first(64) - first(0), first(65) - first(64)), (4096, 16));
        let end = first(199) + 16;
        let next = volume.file(1);
        assert!(volume.places[&PlacedFile(next.file.0)].first_sector >= end);
    }

    #[test]
    fn a_directory_that_is_laid_out_lies_among_its_files() {
        let groups = Some(Groups { sectors: 32_768, inodes: 384 });
        let scattering = Scattering { groups, name_bytes: Some(12), ..Scattering::IN_ORDER };
        let mut volume = Volume::new(16);
        let files = volume.directory(&[8192; 700], scattering, &mut SplitMix64::new(5));
        let place = |file: FileId| volume.places[&PlacedFile(file.0)];
        let [root, directory] = [1, 2].map(FileId);
        let [root_block] = *volume.directories.blocks(root) else { panic!("one block") };
        assert_eq!((place(root).inode_sector, place(root_block).first_sector), (0, 64 * 16));
        // In the next group: the directory's inode, 383 files, and the first block of names before their data.
        let (inodes, data) = (32_768, 32_768 + 64 * 16);
        assert_eq!(place(directory).inode_sector, inodes);
        let inode = |at: usize| place(files[at].file).inode_sector;
        assert_eq!([inode(0), inode(62), inode(63)], [inodes, inodes, inodes + 16]);
        assert_eq!([inode(382), inode(383)], [inodes + 5 * 16, inodes + 32_768]);
        let block = |at: usize| place(volume.directories.blocks(directory)[at]).first_sector;
        let first = |at: usize| place(files[at].file).first_sector;
        assert_eq!([block(0), first(0)], [data, data + 16]);
        // The first block holds 335 names. The third begins when files go to another group, but lies in this
        // one.
        assert_eq!([first(334), block(1), first(335)], [335, 336, 337].map(|at| data + at * 16));
        assert_eq!([first(382), block(2)], [384, 385].map(|at| data + at * 16));
        assert_eq!(first(383), data + 32_768);
        assert_eq!(volume.directories.blocks(directory).len(), 3);
    }

    #[test]
    #[should_panic(expected = "no room for its files")]
    fn groups_do_not_overlap() {
        let groups = Some(Groups { sectors: 2048, inodes: 64 });
        let scattering = Scattering { groups, ..Scattering::IN_ORDER };
        Volume::new(16).directory(&[8192 * 20; 64], scattering, &mut SplitMix64::new(5));
    }

    #[test]
    fn files_lie_apart_and_inodes_together() {
        for scattering in [Scattering::IN_ORDER, Scattering { spread: 2.5, ..Scattering::SHUFFLED }]
        {
            let mut volume = Volume::new(24);
            let sizes: Vec<u64> = (1..100).map(|n| n * 3000).collect();
            let files = volume.directory(&sizes, scattering, &mut SplitMix64::new(5));
            let other = volume.file(1);
            let mut pieces: Vec<(u64, u64)> = files
                .iter()
                .chain([&other])
                .map(|file| {
                    let place = volume.places[&PlacedFile(file.file.0)];
                    assert_eq!(place.first_sector % 24, 0);
                    (place.first_sector, place.first_sector + file.blocks * 24)
                })
                .collect();
            if scattering.shuffled > 0.0 {
                assert!(!pieces.is_sorted());
                pieces.sort_unstable();
            }
            assert!(pieces.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{pieces:?}");
            let mut inodes: Vec<u64> =
                volume.places.values().map(|place| place.inode_sector).collect();
            inodes.sort_unstable();
            inodes.dedup();
            assert_eq!(inodes.len(), 3);
        }
    }
}
