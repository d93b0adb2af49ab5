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
}

/// One disclosure; see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The file, by name.
    pub name: NameId,
    /// The device that serves the name, as far as the driver can tell without looking it up.
    pub device: DeviceId,
    /// What will be read.
    pub extent: Extent,
    /// How many times over; 0 counts as 1.
    pub repeats: u32,
}

impl Hint {
    /// One sequential reading of the whole file.
    pub fn whole_file(name: NameId, device: DeviceId) -> Self {
        Hint { name, device, extent: Extent::WholeFile, repeats: 1 }
    }

    /// One reading of `segments`, in their order.
    pub fn segments(name: NameId, device: DeviceId, segments: &[Segment]) -> Self {
        Hint { name, device, extent: Extent::Segments(segments.into()), repeats: 1 }
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
