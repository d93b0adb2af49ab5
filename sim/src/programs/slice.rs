//! A plane through a volume of data: XDataSlice of TIP 1994, section 3.2, and TIP 1995, section 3.3.
//!
//! The data are cubes of 4-byte values, in blocks of 16 × 16 × 8 values (8 KB), stored with Z first: the blocks
//! of a column along Z are contiguous, followed by the next column along Y, and so on. The program reads the
//! blocks that a plane meets, in file order, and then colours the pixels.

use foretell_policy::{Nanos, ReaderId};

use super::{BLOCK_BYTES, Volume, Workload};
use crate::machine::program::{Program, Step, StoredFile};
use crate::random::SplitMix64;

/// The orientation of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Meets one contiguous piece of the file.
    Yz,
    /// Meets whole columns.
    Xz,
    /// Meets one block of each column.
    Xy,
}

impl Plane {
    /// All orientations, in the order of the papers' tables.
    pub const ALL: [Plane; 3] = [Plane::Yz, Plane::Xz, Plane::Xy];

    /// The name in those tables.
    pub fn name(self) -> &'static str {
        match self {
            Plane::Yz => "Y-Z",
            Plane::Xz => "X-Z",
            Plane::Xy => "X-Y",
        }
    }
}

/// Values of a block along X, Y and Z.
const BLOCK_VALUES: [u64; 3] = [16, 16, 8];

/// A slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Values along each side of the cube: 300 in 1994, 512 in 1995.
    pub side: u64,
    /// The orientation of the plane.
    pub plane: Plane,
    /// Work on each block, on average.
    pub block_cpu: Nanos,
    /// Work on the picture: a quarter before the first read, and the rest after the last.
    pub picture_cpu: Nanos,
    /// Whether all blocks are disclosed before the first read.
    pub disclosed: bool,
    /// See [`Volume::new`].
    pub pitch_sectors: u64,
    /// Seed of the plane's position.
    pub seed: u64,
}

impl Slice {
    /// The program and its files.
    pub fn workload(&self) -> Workload {
        Workload::of(self.pitch_sectors, &[&|volume, reader| self.program(volume, reader)])
    }

    /// The program, and its files in `volume`.
    pub fn program(&self, volume: &mut Volume, reader: ReaderId) -> Program {
        let [nx, ny, nz] = self.blocks_along();
        let file = volume.file(nx * ny * nz * BLOCK_BYTES);
        let steps = self.steps(file);
        Program::new(self.plane.name(), reader, Box::new(steps.into_iter()))
    }

    fn blocks_along(&self) -> [u64; 3] {
        BLOCK_VALUES.map(|values| self.side.div_ceil(values))
    }

    /// The blocks that the plane meets, in the order of the file.
    pub fn blocks(&self) -> Vec<u64> {
        let [nx, ny, nz] = self.blocks_along();
        let mut random = SplitMix64::new(self.seed);
        let mut one = |n: u64| {
            let at = random.below(n);
            at..at + 1
        };
        let (xs, ys, zs) = match self.plane {
            Plane::Yz => (one(nx), 0..ny, 0..nz),
            Plane::Xz => (0..nx, one(ny), 0..nz),
            Plane::Xy => (0..nx, 0..ny, one(nz)),
        };
        let columns = xs.flat_map(|x| ys.clone().map(move |y| (x, y)));
        columns.flat_map(|(x, y)| zs.clone().map(move |z| (x * ny + y) * nz + z)).collect()
    }

    fn steps(&self, file: StoredFile) -> Vec<Step> {
        let blocks = self.blocks();
        let before = Nanos(self.picture_cpu.0 / 4);
        let mut steps = vec![Step::Open(file.file, file.device), Step::Compute(before)];
        if self.disclosed {
            steps.push(Step::Hint(file.hint_blocks(blocks.iter().copied())));
        }
        let mut random = SplitMix64::new(!self.seed);
        for block in blocks {
            // Half to one and a half times the mean, so that the work stays out of step with a disk's rotation.
            let work = self.block_cpu.0 / 2 + random.below(self.block_cpu.0);
            steps.extend([file.read(block), Step::Compute(Nanos(work))]);
        }
        steps.push(Step::Compute(self.picture_cpu.saturating_sub(before)));
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_meet_as_many_blocks_as_in_the_papers() {
        let slice = |side, plane| Slice {
            side,
            plane,
            block_cpu: Nanos::ZERO,
            picture_cpu: Nanos::ZERO,
            disclosed: false,
            pitch_sectors: 16,
            seed: 3,
        };
        let counts = |side| Plane::ALL.map(|plane| slice(side, plane).blocks().len());
        assert_eq!(counts(300), [722, 722, 361]);
        assert_eq!(counts(512), [2048, 2048, 1024]);
        for plane in Plane::ALL {
            let blocks = slice(300, plane).blocks();
            assert!(blocks.is_sorted() && blocks[blocks.len() - 1] < 19 * 19 * 38);
            let step = blocks[1] - blocks[0];
            assert_eq!(step, if plane == Plane::Xy { 38 } else { 1 });
        }
    }
}
