//! The orders in which nodes read. They are computed, not stored: each is a pseudorandom permutation.

use super::{FleetSpec, Reads};
use crate::random::{hash, permuted};

/// The orders of all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    reads: Reads,
    nodes: u32,
    chunks: u32,
    epochs: u32,
    seed: u64,
}

impl Plan {
    /// The orders of this fleet.
    pub fn new(spec: &FleetSpec) -> Self {
        let FleetSpec { reads, nodes, chunks, epochs, seed, .. } = *spec;
        Plan { reads, nodes, chunks, epochs, seed }
    }

    /// Chunks that a node reads in an epoch.
    fn each(&self, node: u32) -> u32 {
        match self.reads {
            Reads::Same | Reads::Shuffled => self.chunks,
            Reads::Partition | Reads::Shards => {
                self.chunks.saturating_sub(node).div_ceil(self.nodes)
            }
        }
    }

    /// Chunks that a node reads in all epochs.
    pub fn steps(&self, node: u32) -> u64 {
        u64::from(self.each(node)) * u64::from(self.epochs)
    }

    /// The chunk that `node` reads at `step`, which is below [`steps`](Self::steps).
    pub fn chunk(&self, node: u32, step: u64) -> u32 {
        let each = u64::from(self.each(node));
        let (epoch, at) = (step / each, step % each);
        let (chunks, nodes) = (u64::from(self.chunks), u64::from(self.nodes));
        let chunk = match self.reads {
            Reads::Same => permuted(at, chunks, hash(&[self.seed, epoch])),
            Reads::Shuffled => permuted(at, chunks, hash(&[self.seed, epoch, u64::from(node)])),
            Reads::Partition => {
                permuted(at * nodes + u64::from(node), chunks, hash(&[self.seed, epoch]))
            }
            Reads::Shards => {
                let place = permuted(at, each, hash(&[self.seed, epoch, u64::from(node)]));
                place * nodes + u64::from(node)
            }
        };
        chunk as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::small;

    #[test]
    fn each_epoch_has_each_chunk_once() {
        for reads in Reads::ALL {
            let spec = FleetSpec { reads, nodes: 3, chunks: 10, epochs: 2, ..small() };
            let plan = Plan::new(&spec);
            for epoch in 0..2 {
                let of = |node| {
                    let each = plan.steps(node) / 2;
                    (epoch * each..(epoch + 1) * each).map(move |step| plan.chunk(node, step))
                };
                let mut all: Vec<u32> = (0..3).flat_map(of).collect();
                all.sort_unstable();
                all.dedup();
                assert!(all.into_iter().eq(0..10), "{reads}");
                if reads.is_whole() {
                    assert!((0..3).all(|node| plan.steps(node) == 20));
                    assert_eq!(of(0).eq(of(1)), reads == Reads::Same);
                }
            }
        }
    }
}
