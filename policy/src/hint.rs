//! What a program discloses: hints, and the names the policy gives to things.
//!
//! A hint is one future visit to one file: all of it, or ordered segments of it, perhaps several
//! times over. It is given in the program's own terms, a *name* and byte ranges; blocks, devices'
//! geometry and caches do not appear (TIP 1994, section 2: "disclosure, not advice"). A name is
//! resolved to a file only when its turn to be prefetched comes, so that a list of a million names
//! costs a million names and nothing else.

use std::sync::Arc;

/// Defines an identifier that its giver may number as it likes.
macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
    };
}

identifier! {
    /// The ordered hints of one hinter. Given by the policy.
    StreamId
}
identifier! {
    /// A name that a hint gave, not yet looked up. Given by the driver.
    NameId
}
identifier! {
    /// A file as such, whatever its names. Given by the driver when it resolves a name.
    FileId
}
identifier! {
    /// What serves a file: one disk array, one mount, one bucket. Given by the driver.
    DeviceId
}
identifier! {
    /// Who gives hints, as far as belief goes: a process, or a list. Given by the driver.
    HinterId
}
impl HinterId {
    /// The driver itself, for streams of what it expects by its own reckoning: these are believed as those of somebody of
    /// whom nothing is known, whatever has become of others, since whoever reads has not said anything. Nobody else is
    /// to have this number.
    pub const DRIVER: HinterId = HinterId(u64::MAX);
}
identifier! {
    /// A program, as far as reading goes. Given by the driver.
    ReaderId
}
identifier! {
    /// One fetch from its start to its completion. Given by the policy.
    FetchId
}

/// A byte range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes; the part that lies beyond the end of the file is dropped (and counted as refused).
    pub length_bytes: u64,
}

/// Which part of a file will be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, from the first byte to the last (`tipio_seq`).
    WholeFile,
    /// These ranges, in this order (`tipio_seg`).
    Segments(Arc<[Segment]>),
    /// `count` ranges like `first`, each beginning `stride_bytes` after the one before.
    Strided {
        /// The first range.
        first: Segment,
        /// From the beginning of one range to that of the next.
        stride_bytes: u64,
        /// How many ranges.
        count: u64,
    },
}

impl Extent {
    /// Segments that are written out.
    pub(crate) fn segment_count(&self) -> usize {
        match self {
            Extent::Segments(segments) => segments.len(),
            Extent::WholeFile | Extent::Strided { .. } => 0,
        }
    }

    /// Bytes that it takes beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.segment_count() * size_of::<Segment>()
    }
}

/// In which order the blocks of a hint will be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the extent's own.
    #[default]
    Given,
    /// In any: the extent is a set.
    Any,
}

/// Which file a hint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The file of this name. The driver will be asked to look it up when its turn comes.
    Name(NameId),
    /// This file, of this size.
    File {
        /// The file.
        file: FileId,
        /// Its size.
        size_bytes: u64,
    },
}

/// Which part of a file will be read, in which order, and how many times over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) extent: Extent,
    pub(crate) order: Order,
    pub(crate) repeats: u32,
}

impl Plan {
    /// All of it, once.
    pub(crate) const WHOLE: Plan =
        Plan { extent: Extent::WholeFile, order: Order::Given, repeats: 1 };
}

/// One disclosure; see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The file.
    pub target: Target,
    /// The device that serves it, as far as the driver can tell without looking it up.
    pub device: DeviceId,
    /// What will be read.
    pub extent: Extent,
    /// In which order.
    pub order: Order,
    /// How many times over; 0 counts as 1. Of the 2⁴⁸ accesses to blocks that a stream may disclose before all of them are past,
    /// one hint gets a sixteenth of those that are left: what is read more often, of segments those that do not fit, and of a
    /// whole file what lies behind, are left out.
    pub repeats: u32,
}

impl Hint {
    /// One sequential reading of the whole file.
    pub fn whole_file(target: Target, device: DeviceId) -> Self {
        Hint { target, device, extent: Extent::WholeFile, order: Order::Given, repeats: 1 }
    }

    /// One reading of `segments`, in their order.
    pub fn segments(target: Target, device: DeviceId, segments: &[Segment]) -> Self {
        Hint { extent: Extent::Segments(segments.into()), ..Hint::whole_file(target, device) }
    }
}

/// A block of a file: the policy's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The file.
    pub file: FileId,
    /// Its byte offset divided by the configured block size.
    pub index: u64,
}
