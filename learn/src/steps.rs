//! Steps of a run: what a program does to one path, and which parts of the file it reads then.

use std::ops::BitOr;
use std::sync::Arc;

/// What was done to a path: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acts(u8);

impl Acts {
    /// Its attributes were asked for, or its link was read.
    pub const LOOK: Acts = Acts(1);
    /// It was opened or listed as a folder.
    pub const LIST: Acts = Acts(2);
    /// It was opened for reading.
    pub const OPEN: Acts = Acts(4);
    /// The call failed: the name is not there, as a rule.
    pub const FAIL: Acts = Acts(8);
    /// Parts of it were read, or touched where it is mapped.
    pub const READ: Acts = Acts(16);
    /// It was read to its end.
    pub const END: Acts = Acts(32);
    /// It was mapped. What is seen of that within some milliseconds has no order.
    pub const MAP: Acts = Acts(64);

    /// The set of these bits. Others are dropped.
    pub fn from_bits(bits: u8) -> Self {
        Acts(bits & 127)
    }

    /// The bits of the set.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The set without `others`.
    pub fn without(self, others: Acts) -> Self {
        Acts(self.0 & !others.0)
    }

    /// Whether it has one of `others`.
    pub fn has(self, others: Acts) -> bool {
        self.0 & others.0 != 0
    }
}

impl BitOr for Acts {
    type Output = Acts;

    fn bitor(self, other: Acts) -> Acts {
        Acts(self.0 | other.0)
    }
}

/// A part of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Part {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Bytes that both have.
    pub fn overlap_bytes(&self, other: &Part) -> u64 {
        self.end.min(other.end).saturating_sub(self.start.max(other.start))
    }
}

/// What a run did to one path at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Absolute path.
    pub path: Arc<[u8]>,
    /// What was done.
    pub acts: Acts,
    /// Parts that were read, in the order of their first use.
    pub parts: Vec<Part>,
    /// When it was first touched, in milliseconds since the start of the run.
    pub at_ms: u32,
}

/// A run: its steps in the order of first use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The steps.
    pub steps: Vec<Step>,
    /// More happened than there was room for.
    pub is_cut: bool,
}
