//! Text search through a set of files: `agrep` of TIP 1994, section 3.1, and TIP 1995, section 3.2.
//!
//! The program opens one file after another, in the order of its arguments, and reads each from beginning to end. It discloses
//! the names, in that order. TIP resolves a name when it begins to prefetch the file. TIP does so in the foreground, at the
//! cost of an open, and only while fewer than a given number of blocks are prefetched and unread. The simulated program
//! therefore discloses a file when there is room for it, and opens it at that moment.

use foretell_policy::{Nanos, ReaderId};

use super::{Scattering, Volume, Workload};
use crate::machine::program::{Program, Step, StoredFile};
use crate::random::SplitMix64;

use super::{BLOCK_BYTES, DEVICE};

/// A set of files to be searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileSet {
    /// Its name in the paper.
    pub name: &'static str,
    /// Number of files.
    pub files: u64,
    /// Number of blocks of 8 KB.
    pub blocks: u64,
}

/// The sets of TIP 1994, table 1.
pub const SETS_1994: [FileSet; 4] = [
    FileSet { name: "X11 includes", files: 139, blocks: 198 },
    FileSet { name: "bboard, mail", files: 158, blocks: 218 },
    FileSet { name: "source code", files: 57, blocks: 152 },
    FileSet { name: "man pages", files: 834, blocks: 892 },
];

/// The sets of TIP 1995, section 3.2.
pub const SETS_1995: [FileSet; 4] = [
    FileSet { name: "wood", files: 224, blocks: 358 },
    FileSet { name: "man3", files: 1352, blocks: 1556 },
    FileSet { name: "incl", files: 193, blocks: 260 },
    FileSet { name: "kern", files: 107, blocks: 183 },
];

/// The cold start of a program: neither it nor its path is in memory, but its libraries are. It lies in its own
/// file system, which for simplicity shares the disks of the searched files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdStart {
    /// Directories of its path, including the root. Each lies in its own group, and its inode and one block are
    /// read.
    pub directories: u64,
    /// Its pages, in the order of their first use. A fault reads only its own page.
    pub pages: &'static [u64],
}

impl ColdStart {
    /// Puts the directories and the program into `volume`, and reads them.
    fn steps(self, volume: &mut Volume) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.directories {
            volume.begin_group();
            let directory = volume.file(BLOCK_BYTES);
            steps.extend([Step::Open(directory.file, DEVICE), directory.read(0)]);
        }
        // Each page is a file of its own, side by side, so that there is no read-ahead.
        let pages = self.pages.iter().max().map_or(0, |last| last + 1);
        let sizes_bytes = vec![BLOCK_BYTES; pages as usize];
        let no_draws = &mut SplitMix64::new(0);
        let files = volume.directory(&sizes_bytes, Scattering::IN_ORDER, no_draws);
        steps.extend(files.first().map(|first| Step::Open(first.file, DEVICE)));
        steps.extend(self.pages.iter().map(|&page| files[page as usize].read(0)));
        steps
    }
}

/// A search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The set of files.
    pub set: FileSet,
    /// The places of its files.
    pub scattering: Scattering,
    /// Work on each block.
    pub block_cpu: Nanos,
    /// The reads of the program's own file; `None` if all of it is in memory.
    pub cold_start: Option<ColdStart>,
    /// Names are disclosed while fewer than this number of blocks are disclosed and unread. With 0, nothing is
    /// disclosed.
    pub disclosed_blocks: u64,
    /// Distance of a file's blocks; see [`Volume::new`].
    pub pitch_sectors: u64,
    /// Seed of sizes and places.
    pub seed: u64,
}

impl Search {
    /// The program and its files.
    pub fn workload(&self) -> Workload {
        Workload::of(self.pitch_sectors, &[&|volume, reader| self.program(volume, reader)])
    }

    /// The program, and its files in `volume`.
    pub fn program(&self, volume: &mut Volume, reader: ReaderId) -> Program {
        let mut random = SplitMix64::new(self.seed);
        let sizes = sizes_bytes(self.set, &mut random);
        let files = volume.directory(&sizes, self.scattering, &mut random);
        let start = self.cold_start.map(|start| start.steps(volume)).unwrap_or_default();
        let steps = [start, self.steps(files)].concat();
        Program::new(self.set.name, reader, Box::new(steps.into_iter()))
    }

    fn steps(&self, files: Vec<StoredFile>) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut undisclosed = files.iter().peekable();
        let mut unread = 0;
        for file in &files {
            for index in 0..file.blocks {
                while unread < self.disclosed_blocks
                    && let Some(next) = undisclosed.next()
                {
                    steps.extend([Step::Open(next.file, DEVICE), Step::Hint(next.hint(1))]);
                    unread += next.blocks;
                }
                if index == 0 {
                    steps.push(Step::Open(file.file, DEVICE));
                }
                steps.extend([file.read(index), Step::Compute(self.block_cpu)]);
                unread = unread.saturating_sub(1);
            }
        }
        steps
    }
}

/// Random sizes that add up to the set's blocks. Each file has one block; each further block goes to a file
/// with a probability in proportion to its blocks so far. The last block of each file is filled to a random
/// degree.
fn sizes_bytes(set: FileSet, random: &mut SplitMix64) -> Vec<u64> {
    let mut blocks = vec![1u64; set.files as usize];
    // The owner of each block so far. A new block goes to the owner of a randomly drawn one.
    let mut owners: Vec<usize> = (0..blocks.len()).collect();
    for _ in set.files..set.blocks {
        let owner = owners[random.below(owners.len() as u64) as usize];
        blocks[owner] += 1;
        owners.push(owner);
    }
    blocks.iter().map(|blocks| (blocks - 1) * BLOCK_BYTES + 1 + random.below(BLOCK_BYTES)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: Search = Search {
        set: SETS_1994[2],
        scattering: Scattering::SHUFFLED,
        block_cpu: Nanos(1),
        cold_start: None,
        disclosed_blocks: 0,
        pitch_sectors: 16,
        seed: 1,
    };

    #[test]
    fn the_sets_are_those_of_the_papers() {
        for set in SETS_1994.into_iter().chain(SETS_1995) {
            let workload = Search { set, ..SEARCH }.workload();
            let blocks = workload.volume.sizes_bytes.values().map(|size| size.div_ceil(8192));
            assert_eq!(blocks.sum::<u64>(), set.blocks);
            assert_eq!(workload.volume.sizes_bytes.len() as u64, set.files);
        }
    }

    #[test]
    fn a_cold_start_reads_the_way_to_the_program_and_each_page_by_itself() {
        let start = ColdStart { directories: 2, pages: &[0, 2, 1] };
        let [cold, warm] = [Some(start), None].map(|cold_start| {
            let Workload { mut programs, volume } = Search { cold_start, ..SEARCH }.workload();
            let steps: Vec<Step> = programs.remove(0).steps.collect();
            (steps, volume.places)
        });
        let (steps, places) = cold;
        let (start, search) = steps.split_at(steps.len() - warm.0.len());
        assert_eq!(search, warm.0);
        let files: Vec<_> = start
            .iter()
            .map(|step| match step {
                Step::Open(file, _) => (file.0, "inode"),
                Step::Read(block, _) if block.index == 0 => (block.file.0, "block"),
                _ => panic!("{step:?}"),
            })
            .collect();
        let [one, two, program, ..] = [0, 2, 4].map(|at| files[at].0);
        let inodes = [(one, "inode"), (one, "block"), (two, "inode"), (two, "block")];
        assert_eq!(files[..4], inodes);
        let pages = [(program, "inode"), (program, "block"), (program + 2, "block")];
        assert_eq!((&files[4..7], files[7]), (&pages[..], (program + 1, "block")));
        // Each directory has its own group; pages lie side by side.
        let place = |file| places[&crate::layout::FileId(file)];
        let group = |file| place(file).inode_sector / crate::layout::GROUP_SECTORS;
        assert!(group(one) < group(two));
        let page_sectors = [0, 1, 2].map(|page| place(program + page).first_sector);
        assert_eq!(page_sectors[2] - page_sectors[1], SEARCH.pitch_sectors);
        assert_eq!(page_sectors[1] - page_sectors[0], SEARCH.pitch_sectors);
    }

    #[test]
    fn what_is_disclosed_and_unread_is_bounded() {
        let workload = Search { disclosed_blocks: 20, ..SEARCH }.workload();
        let sizes = workload.volume.sizes_bytes.clone();
        let largest = sizes.values().max().map_or(0, |size| size.div_ceil(8192));
        let (mut disclosed, mut read, mut hints) = (0, 0, 0);
        for step in workload.programs.into_iter().next().into_iter().flat_map(|p| p.steps) {
            match step {
                Step::Hint(hint) => {
                    let foretell_policy::Target::File { size_bytes, .. } = hint.target else {
                        panic!("{hint:?}")
                    };
                    disclosed += size_bytes / 8192;
                    hints += 1;
                    assert!(disclosed - read < 20 + largest);
                }
                Step::Read(..) => read += 1,
                _ => {}
            }
        }
        assert_eq!((hints, disclosed, read), (57, 152, 152));
    }
}
