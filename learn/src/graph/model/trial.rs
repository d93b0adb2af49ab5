//! What would be if somebody's guesses were fetched: rivals see the same opens, each with a model of its own, and the one whose
//! reads wait least is heard.
//!
//! Waits of late count most. The opens come at the times at which they come with the rival that is heard. A rival whose reads
//! wait longer would be behind these times, so its model runs behind, until somebody pauses.

use super::{Fetching, Model, Storage};

/// Opens over which waits are compared.
const OPENS: f64 = 2048.0;
/// From this time between two opens on, a person has paused, in microseconds: no model is behind another then.
const PAUSE_US: u64 = 1_000_000;
/// The share by which a rival must be better before it is heard in place of the other.
const BETTER: f64 = 0.01;

/// A guess with the size of its file in bytes: file, size, chance.
pub type Sized = (u32, u64, f32);

/// One rival.
#[derive(Debug)]
struct Rival {
    model: Model,
    /// For how long its reads have waited, in microseconds; the longer ago, the less it counts.
    waited_us: f64,
    behind_us: i64,
    now_us: u64,
}

impl Rival {
    /// Opens and reads a file, with these guesses; returns for how long the read waits.
    fn open(
        &mut self,
        file: u32,
        size_bytes: u64,
        time_us: u64,
        guesses: impl Iterator<Item = Sized>,
    ) -> u64 {
        self.now_us = self.now_us.max(time_us.saturating_add_signed(self.behind_us));
        let now_us = self.now_us;
        self.model.open(file, size_bytes, now_us);
        for (file, size_bytes, chance) in guesses {
            self.model.expect(file, size_bytes, chance, now_us, true);
        }
        self.model.send(now_us);
        let waited_us = self.model.read(file, now_us.saturating_add(self.model.storage.read_us));
        self.waited_us = self.waited_us * (1.0 - 1.0 / OPENS) + waited_us as f64;
        waited_us
    }
}

/// Caches that are modelled side by side, each with the guesses of one rival.
#[derive(Debug)]
pub struct Trial {
    rivals: Vec<Rival>,
    heard: usize,
    last_us: u64,
    waited_us: Vec<u64>,
}

impl Trial {
    /// So many rivals, at least one; the first is heard.
    pub fn new(rivals: usize, storage: Storage, lookahead: usize) -> Self {
        let rival = |_| Rival {
            model: Model::new(storage, Fetching::ByWorth, lookahead),
            waited_us: 0.0,
            behind_us: 0,
            now_us: 0,
        };
        Trial {
            rivals: (0..rivals).map(rival).collect(),
            heard: 0,
            last_us: 0,
            waited_us: Vec::new(),
        }
    }

    /// Opens a file for all rivals, and returns who is heard from now on. `guesses`: those of a rival after this open.
    pub fn open<I: Iterator<Item = Sized>>(
        &mut self,
        file: u32,
        size_bytes: u64,
        time_us: u64,
        guesses: impl Fn(usize) -> I,
    ) -> usize {
        let has_paused = time_us.saturating_sub(self.last_us) >= PAUSE_US;
        self.last_us = time_us;
        self.waited_us.clear();
        for (number, rival) in self.rivals.iter_mut().enumerate() {
            rival.behind_us = if has_paused { 0 } else { rival.behind_us };
            self.waited_us.push(rival.open(file, size_bytes, time_us, guesses(number)));
        }
        let heard_us = self.waited_us[self.heard];
        for (rival, &waited_us) in self.rivals.iter_mut().zip(&self.waited_us) {
            let signed = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
            rival.behind_us = rival.behind_us.saturating_add(signed(waited_us) - signed(heard_us));
        }
        let waited_us = |rival: &usize| self.rivals[*rival].waited_us;
        let best = (0..self.rivals.len()).min_by(|a, b| waited_us(a).total_cmp(&waited_us(b)));
        let limit_us = waited_us(&self.heard) * (1.0 - BETTER);
        if let Some(best) = best.filter(|best| waited_us(best) < limit_us) {
            self.heard = best;
        }
        self.heard
    }

    /// The number of a file was given to another file.
    pub fn forget(&mut self, file: u32) {
        self.rivals.iter_mut().for_each(|rival| rival.model.forget(file));
    }

    /// Bytes of memory that this takes.
    pub fn bytes(&self) -> usize {
        self.rivals.iter().map(|rival| rival.model.bytes()).sum()
    }
}
