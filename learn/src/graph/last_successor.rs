//! Last successor: after a file comes the file that came the last time, and so on from there.
//!
//! The base line of Lei and Duchamp (1997) and of Kroeger and Long (1999). Those predict one file. This follows the successors
//! as far as the lookahead goes, because a fetch takes longer than one open.
//!
//! *Next* is the next open of the same process, so programs that run at the same time do not mix. The chance of one step is the
//! share of opens at which the successor stayed the same, and that of several steps is the product.
//!
//! Cost: as many look-ups as there are guesses.

use super::files::{File, Places};
use super::window::Processes;
use super::{Guess, Open, Predictor, Settings};

/// Opens at which the counts are halved.
const OPENS_MAX: u8 = 16;

/// The successor of a file.
#[derive(Debug)]
struct Successor {
    next: File,
    /// How often it stayed the same, of how many opens.
    same: u8,
    opens: u8,
}

impl Default for Successor {
    fn default() -> Self {
        Successor { next: File::NONE, same: 0, opens: 0 }
    }
}

impl Successor {
    fn learn(&mut self, next: File) {
        if self.opens >= OPENS_MAX {
            (self.same, self.opens) = (self.same / 2, self.opens / 2);
        }
        self.same += u8::from(self.next == next);
        self.opens += 1;
        self.next = next;
    }

    /// The chance that it stays the same. The first open has no successor to compare with, and counts as one that stayed.
    fn chance(&self) -> f32 {
        (f32::from(self.same) + 1.0) / f32::from(self.opens).max(1.0)
    }
}

/// The file that came next the last time, and so on from there.
#[derive(Debug)]
pub struct LastSuccessor {
    settings: Settings,
    successors: Places<Successor>,
    processes: Processes,
}

impl LastSuccessor {
    /// Without any successor.
    pub fn new(settings: Settings) -> Self {
        LastSuccessor {
            settings: settings.bounded(),
            successors: Places::new(),
            processes: Processes::new(),
        }
    }
}

impl Predictor for LastSuccessor {
    fn name(&self) -> &'static str {
        "last-successor"
    }

    fn open(&mut self, open: &Open, guesses: &mut Vec<Guess>) {
        let (first, mut at, mut chance) = (guesses.len(), open.file, 1.0);
        for _ in 0..self.settings.lookahead {
            let Some(successor) = self.successors.get(at) else { break };
            chance *= successor.chance().min(1.0);
            at = successor.next;
            if chance < self.settings.min_chance || at == File::NONE {
                break;
            }
            let is_new = at != open.file && guesses[first..].iter().all(|guess| guess.file != at);
            if is_new {
                guesses.push(Guess { file: at, chance });
            }
        }
        let [before, ..] = self.processes.open(open.process, open.file);
        if before != File::NONE {
            self.successors.of(before).learn(open.file);
        }
    }

    fn bytes(&self) -> usize {
        self.successors.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::Opener;
    use super::*;

    #[test]
    fn successors_are_followed_while_the_chance_lasts() {
        let settings = Settings { lookahead: 3, min_chance: 0.05, ..Settings::default() };
        let mut opener = Opener::new(Box::new(LastSuccessor::new(settings)));
        (0..3).for_each(|_| (1..=6).for_each(|key| drop(opener.open(key))));
        let guesses = opener.open(1);
        assert_eq!(guesses.iter().map(|guess| guess.0).collect::<Vec<_>>(), [2, 3, 4]);
        assert!(guesses.iter().all(|guess| guess.1 == 1.0), "{guesses:?}");
        // The successor changes: one of four stayed the same since.
        opener.open(9);
        let guesses = opener.open(1);
        assert_eq!(guesses.first().map(|guess| guess.0), Some(9));
        assert!(guesses[0].1 < 1.0, "{guesses:?}");
    }
}
