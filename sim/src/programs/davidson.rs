//! A file in sequence, again and again: the Davidson algorithm of TIP 1995, section 3.6.
//!
//! Each iteration multiplies by a sparse matrix of 17 MB that is kept in a file. At its start, it discloses
//! that the next iteration will read the whole file.

use foretell_policy::{Nanos, ReaderId};

use super::{Volume, Workload};
use crate::machine::program::{Disclosure, Program, passes};

/// Bytes of the matrix (section 3.6).
pub const MATRIX_BYTES: u64 = 17 << 20;

/// The program.
#[derive(Clone, Copy, Debug)]
pub struct Davidson {
    /// Number of iterations.
    pub passes: u32,
    /// Work on each block.
    pub block_cpu: Nanos,
    /// Whether each iteration discloses the next.
    pub disclosed: bool,
    /// See [`Volume::new`].
    pub pitch_sectors: u64,
}

impl Davidson {
    /// The program and its files.
    pub fn workload(&self) -> Workload {
        Workload::of(self.pitch_sectors, &[&|volume, reader| self.program(volume, reader)])
    }

    /// The program, and its files in `volume`.
    pub fn program(&self, volume: &mut Volume, reader: ReaderId) -> Program {
        let file = volume.file(MATRIX_BYTES);
        let disclosure = if self.disclosed { Disclosure::NextPass } else { Disclosure::None };
        let steps = passes(file, self.passes, self.block_cpu, disclosure);
        Program::new("davidson", reader, steps)
    }
}
