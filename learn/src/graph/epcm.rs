//! The extended partitioned context model of Kroeger and Long, "Design and Implementation of a Predictive File Prefetching
//! Algorithm" (2001), section 2; after prediction by partial match (PPM), a method of data compression.
//!
//! A *context* is the last one, two or three files of a process. The model counts which file came next in each context. The
//! longest context that is known predicts: the chance of a file is its share of what came next there.
//!
//! * *Partitioned*: each file has room for the contexts that end with it, [`NODES`] of them. A full partition halves its
//!   counts, and forgets what falls to 0. So the memory of a file is bounded, and a change is learned soon.
//! * *Extended*: the likeliest next file is taken as opened, and predicts the one after it, as far as the lookahead goes and
//!   the product of the chances lasts.
//!
//! Where this differs: a partition belongs to the last file of a context, theirs to the first; contexts are kept as hashes, and
//! two of the same hash count as one.
//!
//! Cost: three searches in a partition for each open and for each guess.

use super::files::{File, Places, scramble};
use super::window::Processes;
use super::{Guess, Open, Predictor, Settings};

/// Nodes of a file's partition: three contexts for each of eight next files.
const NODES: usize = 24;
/// Files of the longest context.
const ORDER_MAX: usize = 3;

/// What came next in a context.
#[derive(Clone, Copy, Debug)]
struct Node {
    context: u32,
    next: File,
    /// 0: the node is free.
    count: u16,
}

const FREE: Node = Node { context: 0, next: File::NONE, count: 0 };

/// The contexts that end with a file.
#[derive(Debug)]
struct Partition {
    nodes: [Node; NODES],
}

impl Default for Partition {
    fn default() -> Self {
        Partition { nodes: [FREE; NODES] }
    }
}

impl Partition {
    fn count(&mut self, context: u32, next: File) {
        let is_it =
            |node: &&mut Node| node.count > 0 && (node.context, node.next) == (context, next);
        if let Some(node) = self.nodes.iter_mut().find(is_it) {
            node.count = node.count.saturating_add(1);
            return;
        }
        while self.nodes.iter().all(|node| node.count > 0) {
            self.nodes.iter_mut().for_each(|node| node.count /= 2);
        }
        if let Some(free) = self.nodes.iter_mut().find(|node| node.count == 0) {
            *free = Node { context, next, count: 1 };
        }
    }

    /// The likeliest next file in the longest of these contexts that is known, and its share there.
    fn likeliest(&self, contexts: [u32; ORDER_MAX]) -> Option<(File, f32)> {
        contexts.into_iter().rev().find_map(|context| {
            let known = self.nodes.iter().filter(|node| node.count > 0 && node.context == context);
            let all: u32 = known.clone().map(|node| u32::from(node.count)).sum();
            let best = known.max_by_key(|node| node.count)?;
            Some((best.next, f32::from(best.count) / all as f32))
        })
    }
}

/// The hashes of the contexts that end with `last[0]`, of one file, two and three. A context of one is of the partition itself.
fn contexts(last: [File; ORDER_MAX]) -> [u32; ORDER_MAX] {
    let of = |order: u64, files: u64| (scramble(files ^ order << 60) >> 32) as u32;
    let [_, second, third] = last.map(|file| u64::from(file.0));
    [0, of(1, second), of(2, second << 28 ^ third)]
}

/// What came next in the context of the last three files (Kroeger and Long, 2001).
#[derive(Debug)]
pub struct Epcm {
    settings: Settings,
    partitions: Places<Partition>,
    processes: Processes,
}

impl Epcm {
    /// Without any context.
    pub fn new(settings: Settings) -> Self {
        Epcm {
            settings: settings.bounded(),
            partitions: Places::new(),
            processes: Processes::new(),
        }
    }

    /// Follows the likeliest files from `last` on.
    fn guess(&self, mut last: [File; ORDER_MAX], guesses: &mut Vec<Guess>) {
        let (first, opened, mut chance) = (guesses.len(), last[0], 1.0);
        for _ in 0..self.settings.lookahead {
            let next = self
                .partitions
                .get(last[0])
                .and_then(|partition| partition.likeliest(contexts(last)));
            let Some((next, share)) = next else { break };
            chance *= share;
            if chance < self.settings.min_chance {
                break;
            }
            if next != opened && guesses[first..].iter().all(|guess| guess.file != next) {
                guesses.push(Guess { file: next, chance });
            }
            last = [next, last[0], last[1]];
        }
    }
}

impl Predictor for Epcm {
    fn name(&self) -> &'static str {
        "epcm"
    }

    fn open(&mut self, open: &Open, guesses: &mut Vec<Guess>) {
        let before = self.processes.open(open.process, open.file);
        self.guess([open.file, before[0], before[1]], guesses);
        if before[0] != File::NONE {
            let partition = self.partitions.of(before[0]);
            contexts(before).into_iter().for_each(|context| partition.count(context, open.file));
        }
    }

    fn bytes(&self) -> usize {
        self.partitions.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::Opener;
    use super::*;

    fn epcm(min_chance: f32) -> Opener {
        let settings = Settings { lookahead: 2, min_chance, ..Settings::default() };
        Opener::new(Box::new(Epcm::new(settings)))
    }

    #[test]
    fn a_longer_context_predicts_better() {
        let mut epcm = epcm(0.9);
        // After 5 comes 7 if 1 was before it, and 8 if 2 was.
        (0..4).for_each(|_| [1, 5, 7, 2, 5, 8].into_iter().for_each(|key| drop(epcm.open(key))));
        epcm.open(1);
        assert_eq!(epcm.open(5), [(7, 1.0), (2, 1.0)]);
        epcm.open(2);
        assert_eq!(epcm.open(5).first(), Some(&(8, 1.0)));
    }

    #[test]
    fn a_full_partition_forgets() {
        let mut epcm = epcm(0.5);
        (0..1000).for_each(|key| [1, 100 + key].into_iter().for_each(|key| drop(epcm.open(key))));
        (0..30).for_each(|_| [1, 2].into_iter().for_each(|key| drop(epcm.open(key))));
        assert_eq!(epcm.open(1).first().map(|guess| guess.0), Some(2));
    }
}
