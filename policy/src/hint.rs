//! What a program discloses: hints, and the identifiers of files, devices, streams and programs.
//!
//! A hint is one future visit to one file: the whole file, or ordered segments of it, perhaps repeatedly. It uses the program's
//! own terms: a *name* and byte ranges. It does not mention blocks, the geometry of devices or caches (TIP 1994, section 2:
//! "disclosure, not advice"). A name is resolved to a file only when its turn to be prefetched comes. So a list of a million
//! names costs a million names and nothing else.

use std::sync::Arc;

/// Defines an identifier that its issuer may number as it likes.
macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
    };
}

identifier! {
    /// The ordered hints of one hinter. Issued by the policy.
    StreamId
}
identifier! {
    /// A name in a hint, before it is looked up. Issued by the driver.
    NameId
}
identifier! {
    /// A file, whatever its names. Issued by the driver when it resolves a name.
    FileId
}
identifier! {
    /// A device that serves files: one disk array, one mount, one bucket. Issued by the driver.
    DeviceId
}
identifier! {
    /// A source of hints with its own record of accuracy: a process, or a list. Issued by the driver.
    HinterId
}
impl HinterId {
    /// The driver itself, as the hinter of streams that it predicts on its own. These streams are always trusted as if the
    /// hinter had no record, even if earlier ones were wrong: the program that reads has disclosed nothing and is not to blame.
    /// No other hinter may have this number.
    /// Unit: hinter. Reason: layout.
    pub const DRIVER: HinterId = HinterId(u64::MAX);
}
identifier! {
    /// A program that reads. Issued by the driver.
    ReaderId
}
identifier! {
    /// One fetch from its start to its completion. Issued by the policy.
    FetchId
}

/// A byte range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes. The part beyond the end of the file is dropped and counted as refused. A segment that ends at the
    /// largest number reaches to the end of the file, and nothing is refused.
    pub length_bytes: u64,
}

/// Which part of a file will be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The whole file, from the first byte to the last (`tipio_seq`).
    WholeFile,
    /// These ranges, in this order (`tipio_seg`).
    Segments(Arc<[Segment]>),
    /// `count` ranges like `first`, each beginning `stride_bytes` after the one before.
    Strided {
        /// The first range.
        first: Segment,
        /// Distance from the beginning of one range to the beginning of the next.
        stride_bytes: u64,
        /// Number of ranges.
        count: u64,
    },
}

impl Extent {
    /// Number of segments that are stored.
    pub(crate) fn segment_count(&self) -> usize {
        match self {
            Extent::Segments(segments) => segments.len(),
            Extent::WholeFile | Extent::Strided { .. } => 0,
        }
    }

    /// Bytes that it takes outside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.segment_count() * size_of::<Segment>()
    }
}

/// The order in which the blocks of a hint will be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order of the extent.
    #[default]
    Given,
    /// In any order: the extent is a set.
    Any,
}

/// The file that a hint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The file of this name. The driver is asked to look it up when its turn comes.
    Name(NameId),
    /// This file, of this size.
    File {
        /// The file.
        file: FileId,
        /// Its size, in bytes.
        size_bytes: u64,
    },
}

/// Which part of a file will be read, in which order, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) extent: Extent,
    pub(crate) order: Order,
    pub(crate) repeats: u32,
}

impl Plan {
    /// The whole file, once.
    pub(crate) const WHOLE: Plan =
        Plan { extent: Extent::WholeFile, order: Order::Given, repeats: 1 };
}

/// One disclosure; see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The file.
    pub target: Target,
    /// The device that serves it, as far as the driver knows before a lookup.
    pub device: DeviceId,
    /// What will be read.
    pub extent: Extent,
    /// The order of reading.
    pub order: Order,
    /// How often it will be read; 0 counts as 1. A stream may disclose 2⁴⁸ accesses to blocks before all of them are past. One
    /// hint gets at most a sixteenth of the accesses that are left. Beyond that, further repeats are left out, and so are
    /// segments that do not fit and the end of a file that is too long.
    pub repeats: u32,
}

impl Hint {
    /// A hint to read the whole file once from start to end.
    pub fn whole_file(target: Target, device: DeviceId) -> Self {
        Hint { target, device, extent: Extent::WholeFile, order: Order::Given, repeats: 1 }
    }

    /// A hint to read `segments` once, in their order.
    pub fn segments(target: Target, device: DeviceId, segments: &[Segment]) -> Self {
        Hint { extent: Extent::Segments(segments.into()), ..Hint::whole_file(target, device) }
    }
}

/// A block of a file: the policy's unit of caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The file.
    pub file: FileId,
    /// Its byte offset divided by the configured block size.
    pub index: u64,
}
