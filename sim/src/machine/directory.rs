//! Names in FFS: the blocks that an open needs before it knows its file.
//!
//! An open walks the path from the root. For each directory it needs the inode, and then the blocks that are searched for the
//! name (`namei` of 4.3BSD). The search begins where the last name of this directory was found, goes to the end, and then
//! from the beginning to the name. A name that was found once is known from then on: the kernel's name cache holds all names
//! here. No block that was read is lost. The processor time of the search is part of the machine's open.

use std::collections::{HashMap, HashSet};

use foretell_policy::FileId;
use foretell_policy::hash::Mix;

use super::server::MetadataBlock;
use crate::SECTOR_BYTES;
use crate::layout::BLOCK_SECTORS;

/// Bytes of a directory block.
const BLOCK_BYTES: u64 = BLOCK_SECTORS * SECTOR_BYTES;
/// Bytes of a chunk (`DIRBLKSIZ`). Entries do not cross chunks, and searches begin at their borders.
const CHUNK_BYTES: u64 = 512;
/// Bytes of an entry beside its name.
const ENTRY_BYTES: u64 = 8;

/// The place of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    directory: FileId,
    offset_bytes: u64,
}

/// A directory. To the layout it is a file of which only the inode is read. Each of its blocks is another file, of which only
/// the first block is read.
#[derive(Clone, Debug, Default)]
struct Directory {
    blocks: Vec<FileId>,
    end_bytes: u64,
}

/// Directories and the names in them.
#[derive(Clone, Debug, Default)]
pub struct Directories {
    entries: HashMap<FileId, Entry, Mix>,
    directories: HashMap<FileId, Directory, Mix>,
}

impl Directories {
    /// Adds a directory with the names `.` and `..` and no block yet. Its name in its parent is added apart.
    pub fn add_directory(&mut self, directory: FileId) {
        let own_bytes = entry_bytes(1) + entry_bytes(2);
        let empty = Directory { blocks: Vec::new(), end_bytes: own_bytes };
        let before = self.directories.insert(directory, empty);
        assert!(before.is_none(), "{directory:?} is there already");
    }

    /// Adds a name of `name_bytes` bytes for `file` at the end of `directory`. If its blocks are full, `new_block` makes
    /// another one.
    pub fn add(
        &mut self,
        directory: FileId,
        file: FileId,
        name_bytes: u64,
        new_block: impl FnOnce() -> FileId,
    ) {
        let found = self.directories.get_mut(&directory).expect("a directory was added before");
        let bytes = entry_bytes(name_bytes);
        assert!(bytes <= CHUNK_BYTES, "a name of {name_bytes} bytes");
        if found.end_bytes % CHUNK_BYTES + bytes > CHUNK_BYTES {
            found.end_bytes = found.end_bytes.next_multiple_of(CHUNK_BYTES);
        }
        let offset_bytes = found.end_bytes;
        found.end_bytes += bytes;
        if offset_bytes / BLOCK_BYTES >= found.blocks.len() as u64 {
            found.blocks.push(new_block());
        }
        self.entries.insert(file, Entry { directory, offset_bytes });
    }

    /// The blocks of a directory, in order.
    pub fn blocks(&self, directory: FileId) -> &[FileId] {
        self.directories.get(&directory).map_or(&[], |directory| &directory.blocks)
    }
}

/// Bytes of an entry of FFS: the name ends with a zero, and is padded to a multiple of four bytes.
fn entry_bytes(name_bytes: u64) -> u64 {
    ENTRY_BYTES + (name_bytes + 1).next_multiple_of(4)
}

/// Names, and those that are known so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    directories: Directories,
    found: HashSet<FileId, Mix>,
    /// For each directory, the chunk in which the last name was found.
    search_from_bytes: HashMap<FileId, u64, Mix>,
}

impl Names {
    pub(super) fn new(directories: Directories) -> Self {
        Names { directories, ..Names::default() }
    }

    /// The first unknown block on the path to `file`, whose inode is the last. If there is none, all names on the path are
    /// found.
    pub(super) fn missing(
        &mut self,
        file: FileId,
        is_known: &mut impl FnMut(MetadataBlock) -> bool,
    ) -> Option<MetadataBlock> {
        if !self.found.contains(&file)
            && let Some(&entry) = self.directories.entries.get(&file)
        {
            let missing = self.missing(entry.directory, is_known);
            let missing = missing.or_else(|| self.missing_block(entry, is_known));
            if missing.is_some() {
                return missing;
            }
            let chunk = entry.offset_bytes / CHUNK_BYTES * CHUNK_BYTES;
            self.search_from_bytes.insert(entry.directory, chunk);
            self.found.insert(file);
        }
        let inode = MetadataBlock::Inode(file);
        (!is_known(inode)).then_some(inode)
    }

    /// The first unknown block among those that are searched for this entry.
    fn missing_block(
        &self,
        entry: Entry,
        is_known: &mut impl FnMut(MetadataBlock) -> bool,
    ) -> Option<MetadataBlock> {
        let blocks = self.directories.blocks(entry.directory);
        let from_bytes = self.search_from_bytes.get(&entry.directory).copied().unwrap_or(0);
        let [from, at] = [from_bytes, entry.offset_bytes].map(|at| (at / BLOCK_BYTES) as usize);
        let (first, then) = match entry.offset_bytes >= from_bytes {
            true => (&blocks[from..=at], &blocks[..0]),
            false => (&blocks[from..], &blocks[..=at]),
        };
        let mut looked_through =
            first.iter().chain(then).map(|&block| MetadataBlock::Directory(block));
        looked_through.find(|&block| !is_known(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: FileId = FileId(1);
    const SET: FileId = FileId(2);

    /// A directory below the root, with so many files from 1000 on, and blocks from 100 on. The root's block is 50.
    fn directories(files: u64, name_bytes: u64) -> Directories {
        let mut directories = Directories::default();
        directories.add_directory(ROOT);
        directories.add_directory(SET);
        directories.add(ROOT, SET, 4, || FileId(50));
        let mut blocks = (100..).map(FileId);
        for file in 1000..1000 + files {
            directories.add(SET, FileId(file), name_bytes, || blocks.next().expect("endless"));
        }
        directories
    }

    /// The blocks that an open of `file` reads, in order.
    fn read(
        names: &mut Names,
        known: &mut HashSet<MetadataBlock>,
        file: u64,
    ) -> Vec<MetadataBlock> {
        let mut read = Vec::new();
        while let Some(block) = names.missing(FileId(file), &mut |block| known.contains(&block)) {
            assert!(known.insert(block), "{block:?} twice");
            read.push(block);
        }
        read
    }

    #[test]
    fn entries_are_those_of_ffs() {
        assert_eq!([1, 3, 4, 12, 15, 16].map(entry_bytes), [12, 12, 16, 24, 24, 28]);
        // 20 names beside `.` and `..` in the first chunk, 21 in each other one; 16 chunks in a block.
        let small = directories(336, 12);
        assert_eq!(small.entries[&FileId(1019)].offset_bytes, 24 + 19 * 24);
        assert_eq!(small.entries[&FileId(1020)].offset_bytes, 512);
        assert_eq!(small.entries[&FileId(1334)].offset_bytes, 15 * 512 + 20 * 24);
        assert_eq!(small.entries[&FileId(1335)].offset_bytes, BLOCK_BYTES);
        assert_eq!(small.blocks(SET), [FileId(100), FileId(101)]);
        // The 1,352 of man3: 65 chunks.
        assert_eq!(directories(1352, 12).blocks(SET).len(), 5);
    }

    #[test]
    fn a_name_is_looked_for_from_where_the_last_one_was() {
        let (mut names, mut known) = (Names::new(directories(1352, 12)), HashSet::new());
        let inode = |file| MetadataBlock::Inode(FileId(file));
        let block = |block| MetadataBlock::Directory(FileId(block));
        // In the third block: the two before it are searched first.
        let way = [inode(1), block(50), inode(2), block(100), block(101), block(102), inode(1700)];
        assert_eq!(read(&mut names, &mut known, 1700), way);
        // Known now.
        assert_eq!(read(&mut names, &mut known, 1700), []);
        // In the last block; then in the second, which is known.
        assert_eq!(read(&mut names, &mut known, 2351), [block(103), block(104), inode(2351)]);
        assert_eq!(read(&mut names, &mut known, 1400), [inode(1400)]);
        // A file without a name needs only its inode.
        assert_eq!(read(&mut names, &mut known, 7), [inode(7)]);
        // Backwards: the search goes to the end first.
        let (mut names, mut known) = (Names::new(directories(1352, 12)), HashSet::new());
        names.search_from_bytes.insert(SET, 2 * BLOCK_BYTES + 512);
        let way = [inode(1), block(50), inode(2), block(102), block(103), block(104), block(100)];
        assert_eq!(read(&mut names, &mut known, 1000)[..7], way);
    }
}
