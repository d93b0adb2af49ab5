//! Sources of disclosures, which become hints to the policy.
//!
//! A source is an iterator that may wait for standard input or a slow folder. It runs on a thread of its own, and is asked for
//! more only as its earlier hints are worked off. So a source of any length takes bounded memory.
//!
//! The list [`KINDS`] names the sources that `foretell run` has options for. To add one, write a file of this folder with its
//! `KIND`, and add its `mod` and its entry here. Not in the list is [`walk`]: it discloses the files below a folder that
//! another source has named.

pub mod arguments;
pub mod list;
pub mod walk;

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use foretell_policy::{Extent, Order};

use crate::Source;

/// All kinds of source, in the order in which the help lists their options.
pub const KINDS: &[Kind] = &[arguments::KIND, list::KIND];

/// A kind of source, and how the options of `foretell run` switch it on and off.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// On unless its option switches it off.
    ByDefault(ByDefault),
    /// On if its option names a file.
    FromFile(FromFile),
}

/// See [`Kind::ByDefault`].
#[derive(Clone, Copy, Debug)]
pub struct ByDefault {
    /// The option that switches it on again, without its dashes.
    pub on: &'static str,
    /// Describes this option.
    pub help: &'static str,
    /// The option that switches it off, without its dashes.
    pub off: &'static str,
    /// Describes this option.
    pub help_off: &'static str,
    /// Whether the manager does the same for the processes that the program starts
    /// ([`Options::lineage`](crate::Options::lineage)).
    pub of_processes: bool,
    /// Makes the source. It looks at no file.
    pub open: fn(Setting) -> Source,
}

/// See [`Kind::FromFile`].
#[derive(Clone, Copy, Debug)]
pub struct FromFile {
    /// The option that names the file, without its dashes.
    pub on: &'static str,
    /// Describes this option and the FILE.
    pub help: &'static str,
    /// What messages call the file: the words before its name.
    pub called: &'static str,
    /// Makes the source over the file, which may be a pipe. Its errors need not name the file.
    pub open: fn(Setting, File) -> Source,
}

/// What a source is made for.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The folder that relative paths are taken from; `None` if it was removed.
    pub working_folder: Option<PathBuf>,
}

/// A file, or parts of one, that a source says will be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disclosure {
    /// Absolute path.
    pub path: PathBuf,
    /// Which part of the file will be read.
    pub extent: Extent,
    /// How many times that part will be read, at least 1.
    pub repeats: u32,
    /// Whether the parts are read in the order given.
    pub order: Order,
    /// How sure the source is that the path is a file.
    pub certainty: Certainty,
}

/// What a [`Disclosure`] claims about its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// The path names a file. If it does not, the hint is refused.
    File,
    /// The path may be none at all (a word of a command line). Then the hint is dropped silently.
    MaybeFile,
    /// As `MaybeFile`. If the path names a folder, all files below it will be read.
    MaybeTree(Visits),
    /// As `MaybeTree`, but if the path names a file, that was disclosed before.
    MaybeFolder(Visits),
    /// As `MaybeFile`, but if other hints name the file, this one is dropped.
    MaybeUnread,
}

/// In which order a program visits the entries of a folder. It visits a subfolder's entries at the subfolder's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Visits {
    /// As the folder lists them.
    #[default]
    Listed,
    /// By inode number, which is often the order on disk.
    ByInode,
    /// By the bytes of their names.
    ByName,
    /// By the bytes of their names, and all files before all folders.
    FilesFirst,
}

impl Disclosure {
    /// Bytes that it takes on the heap.
    pub(crate) fn memory_bytes(&self) -> usize {
        let segments = match &self.extent {
            Extent::Segments(segments) => size_of_val(&segments[..]),
            Extent::WholeFile | Extent::Strided { .. } => 0,
        };
        self.path.capacity() + segments
    }

    /// One sequential reading of all of `path`.
    pub fn whole_file(path: PathBuf, certainty: Certainty) -> Self {
        let (extent, order) = (Extent::WholeFile, Order::Given);
        Disclosure { path, extent, repeats: 1, order, certainty }
    }
}
