//! Speech recognition: Sphinx of TIP 1995, section 3.5.
//!
//! An utterance of 18 seconds is processed in three passes. For each frame of 10 ms, the program works, and
//! then looks up the likely next words in a language model of several hundred megabytes. It needs about 100
//! ranges of the model. All but a few are in a cache of its own; the number of missing ones varies much. These
//! are read from the file one after another, and can be disclosed together before the first read.

use foretell_policy::{Nanos, ReaderId};

use super::{BLOCK_BYTES, Volume, Workload};
use crate::machine::program::{Program, Step, StoredFile};
use crate::random::SplitMix64;

/// Frames of 10 ms in the utterance.
pub const FRAMES: u64 = 1800;
/// Passes over it.
pub const PASSES: u64 = 3;
/// Bytes of the language model.
pub const MODEL_BYTES: u64 = 200 << 20;

/// The program.
#[derive(Clone, Copy, Debug)]
pub struct Speech {
    /// Work on each frame.
    pub frame_cpu: Nanos,
    /// One frame in this number reads from the file.
    pub frames_per_burst: u64,
    /// Mean number of reads of such a frame; the distribution is geometric.
    pub burst_reads: f64,
    /// Whether a frame's reads are disclosed before the first of them.
    pub disclosed: bool,
    /// See [`Volume::new`].
    pub pitch_sectors: u64,
    /// Seed of the reads.
    pub seed: u64,
}

impl Speech {
    /// The program and its files.
    pub fn workload(&self) -> Workload {
        Workload::of(self.pitch_sectors, &[&|volume, reader| self.program(volume, reader)])
    }

    /// The program, and its files in `volume`.
    pub fn program(&self, volume: &mut Volume, reader: ReaderId) -> Program {
        let model = volume.file(MODEL_BYTES);
        let steps = self.steps(model);
        Program::new("sphinx", reader, Box::new(steps.into_iter()))
    }

    fn steps(&self, model: StoredFile) -> Vec<Step> {
        let mut random = SplitMix64::new(self.seed);
        let blocks = MODEL_BYTES / BLOCK_BYTES;
        let mut steps = vec![Step::Open(model.file, model.device)];
        for _ in 0..FRAMES * PASSES {
            steps.push(Step::Compute(self.frame_cpu));
            if random.below(self.frames_per_burst) > 0 {
                continue;
            }
            let draw = (1.0 - random.unit()).ln() / (1.0 - 1.0 / self.burst_reads).ln();
            let reads = 1 + draw as usize;
            // Likely words change from frame to frame. The pairs of one word lie together; different words do
            // not.
            let wanted: Vec<u64> = (0..reads).map(|_| random.below(blocks)).collect();
            if self.disclosed {
                steps.push(Step::Hint(model.hint_blocks(wanted.iter().copied())));
            }
            steps.extend(wanted.into_iter().map(|block| model.read(block)));
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_their_mean() {
        let speech = Speech {
            frame_cpu: Nanos::ZERO,
            frames_per_burst: 4,
            burst_reads: 6.0,
            disclosed: true,
            pitch_sectors: 16,
            seed: 1,
        };
        let steps: Vec<Step> =
            speech.workload().programs.into_iter().flat_map(|program| program.steps).collect();
        let bursts = steps.iter().filter(|step| matches!(step, Step::Hint(_))).count() as f64;
        let reads = steps.iter().filter(|step| matches!(step, Step::Read(..))).count() as f64;
        assert!((bursts / 1350.0 - 1.0).abs() < 0.1, "{bursts}");
        assert!((reads / bursts / 6.0 - 1.0).abs() < 0.1, "{reads}");
    }
}
