//! Fetching by reading: for file systems on which advice has no effect. A thread waits for the data of each range.

use super::{Advised, Backend, BackendKind, Standing, Target};
use crate::driver::residency::Range;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ReadThrough;

/// It has no state.
pub(crate) static READ_THROUGH: ReadThrough = ReadThrough;

impl Backend for ReadThrough {
    fn kind(&self) -> BackendKind {
        BackendKind::ReadThrough
    }

    fn fetch(&self, file: &Target, range: Range) -> Advised {
        match file.standing(range) {
            Standing::Cached => Advised::AlreadyCached,
            Standing::Missing | Standing::Unknown => file.read_through(range),
        }
    }
}
