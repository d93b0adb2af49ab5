//! The probability graph of Griffioen and Appleton, "Improving File System Performance via Predictive Caching" (1995).
//!
//! The paper's sections are not numbered in our copy; they are named here.
//!
//! *The prediction algorithm.* A node is a file, with the number of its opens. An arc from A to B counts how often B was opened
//! within the lookahead after A. The chance of B after an open of A is the arc's count divided by the opens of A.
//! *The prefetch algorithm.* At an open of A, the files of A's arcs whose chance is at least the minimum are the candidates.
//! They are built before the open is added to the graph.
//!
//! Where this differs from the paper:
//! * A: B counts once after an open of A, even if it is opened twice within the lookahead. Else chances exceed 1.
//! * B: Counts are halved when a file has been opened [`OPENS_MAX`] times, so that what is no longer done fades.
//! * C: A node has at most [`ARCS`] arcs. If they are all taken, the least counted loses one, and its place at 0.
//!
//! Cost: for an open, a search in the arcs of as many nodes as the lookahead has opens.

use super::files::{File, Places};
use super::window::Window;
use super::{Guess, Open, Predictor, Settings};

/// Arcs of a node. As many as the default lookahead: a file that is always followed by the same files has that many.
const ARCS: usize = 32;
/// Opens of a file at which its counts are halved.
const OPENS_MAX: u16 = 64;

/// A file's node.
#[derive(Debug)]
struct Node {
    opens: u16,
    /// Files and counts. A free arc has the count 0.
    files: [File; ARCS],
    counts: [u8; ARCS],
}

impl Default for Node {
    fn default() -> Self {
        Node { opens: 0, files: [File::NONE; ARCS], counts: [0; ARCS] }
    }
}

impl Node {
    /// Counts `file` as opened soon after this one.
    fn count(&mut self, file: File) {
        // Without an early end, so that the compiler compares several at once.
        let at = (0..ARCS).fold(ARCS, |at, arc| if self.files[arc] == file { arc } else { at });
        if at < ARCS {
            self.counts[at] = self.counts[at].saturating_add(1);
            return;
        }
        let least = (1..ARCS)
            .fold(0, |least, arc| if self.counts[arc] < self.counts[least] { arc } else { least });
        // Case C.
        self.counts[least] = self.counts[least].saturating_sub(1);
        if self.counts[least] == 0 {
            (self.files[least], self.counts[least]) = (file, 1);
        }
    }

    fn opened(&mut self) {
        self.opens += 1;
        if self.opens >= OPENS_MAX {
            // Case B.
            self.opens /= 2;
            for (count, file) in self.counts.iter_mut().zip(&mut self.files) {
                *count /= 2;
                if *count == 0 {
                    *file = File::NONE;
                }
            }
        }
    }
}

/// Files opened within a number of opens of each other, by counts (Griffioen and Appleton, 1995).
#[derive(Debug)]
pub struct ProbabilityGraph {
    settings: Settings,
    nodes: Places<Node>,
    window: Window,
}

impl ProbabilityGraph {
    /// An empty graph.
    pub fn new(settings: Settings) -> Self {
        let settings = settings.bounded();
        ProbabilityGraph { settings, nodes: Places::new(), window: Window::new(settings.lookahead) }
    }
}

impl Predictor for ProbabilityGraph {
    fn name(&self) -> &'static str {
        "graph"
    }

    fn open(&mut self, open: &Open, guesses: &mut Vec<Guess>) {
        let node = self.nodes.of(open.file);
        if node.opens > 0 {
            let opens = f32::from(node.opens);
            for (&file, &count) in node.files.iter().zip(&node.counts) {
                let chance = (f32::from(count) / opens).min(1.0);
                if count > 0 && chance >= self.settings.min_chance {
                    guesses.push(Guess { file, chance });
                }
            }
        }
        node.opened();
        for before in self.window.before(open.file) {
            if let Some(node) = self.nodes.known(before) {
                node.count(open.file);
            }
        }
        self.window.push(open.file);
    }

    fn bytes(&self) -> usize {
        self.nodes.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::Opener;
    use super::*;

    fn graph(lookahead: usize, min_chance: f32) -> Opener {
        let settings = Settings { lookahead, min_chance, ..Settings::default() };
        Opener::new(Box::new(ProbabilityGraph::new(settings)))
    }

    #[test]
    fn the_chance_is_the_share_of_opens_that_were_followed() {
        let mut graph = graph(2, 0.3);
        // A is followed by B three times of four, and by C twice. C is within two opens once.
        for opens in ["AB..", "AB..", "A.C.", "ABC."] {
            opens.chars().zip("ABCDEFGH".chars().rev()).for_each(|(name, other)| {
                graph.open(if name == '.' {
                    other.to_ascii_lowercase() as u64
                } else {
                    name as u64
                });
            });
        }
        let guesses = graph.open(u64::from(b'A'));
        let of =
            |key: u8| guesses.iter().find(|guess| guess.0 == u64::from(key)).map(|guess| guess.1);
        assert_eq!(of(b'B'), Some(0.75));
        assert_eq!(of(b'C'), Some(0.5));
        assert_eq!(of(b'D'), None);
    }

    #[test]
    fn a_file_counts_once_after_an_open_and_not_beyond_the_lookahead() {
        let mut graph = graph(3, 0.01);
        [1, 2, 2, 2, 5, 6].into_iter().for_each(|key| drop(graph.open(key)));
        assert_eq!(graph.open(1), [(2, 1.0)], "5 is four opens behind");
    }

    #[test]
    fn what_is_no_longer_done_fades() {
        let mut graph = graph(1, 0.25);
        (0..40).for_each(|_| [1, 2].into_iter().for_each(|key| drop(graph.open(key))));
        assert_eq!(graph.open(1), [(2, 1.0)]);
        graph.open(3);
        let mut opens = 0;
        while graph.open(1).iter().any(|&(key, _)| key == 2) {
            graph.open(3);
            opens += 1;
        }
        assert!((20..200).contains(&opens), "{opens}");
        assert!(graph.open(1).iter().any(|&(key, chance)| key == 3 && chance > 0.7));
    }
}
