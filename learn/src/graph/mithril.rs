//! Mithril: mines files whose opens have all been close together (Yang, Karimi, Sæmundsson, Wildani and Vigfusson, "Mithril:
//! Mining Sporadic Associations for Cache Prefetching", SoCC 2017, section 3).
//!
//! It looks for files that are opened seldom, and together. Time is counted in opens.
//!
//! * *Recording.* A row for each file, with the times of its last [`SUPPORT`] opens. A full row moves to the mining table, and
//!   the file begins a new one.
//! * *Mining*, when the mining table has [`ROWS`] rows, in the order of their first times. A and B are associated if each time
//!   of B follows the time of A in the same column within the lookahead.
//! * *Prefetching.* An open of A names the files associated with A.
//!
//! Where this differs: a row that is reached by few opens in a long time stays, since rows are bounded by the number of files.
//! Each association counts how often it came true, which gives its chance; the paper has none.
//!
//! Cost: for an open, a search in the associations of as many files as the lookahead has opens; every [`ROWS`] full rows, a
//! sort and a comparison of each row with those that follow within the lookahead.

use super::files::{File, Places};
use super::window::Window;
use super::{Guess, Open, Predictor, Settings};

/// Opens of a full row: the paper's minimum support. 2, so that the third run is helped.
const SUPPORT: usize = 2;
/// Rows of the mining table.
const ROWS: usize = 256;
/// Associations of a file. The paper has 2 or 3; a list of headers needs more.
const ASSOCIATIONS: usize = 16;
/// Opens at which the counts of an association are halved.
const OPENS_MAX: u8 = 32;

/// A file that is opened soon after another.
#[derive(Clone, Copy, Debug)]
struct Association {
    file: File,
    /// How often it came true, of how many opens.
    right: u8,
    opens: u8,
}

const FREE: Association = Association { file: File::NONE, right: 0, opens: 0 };

impl Association {
    /// Before any open: that of the opens by which it was found.
    fn chance(&self) -> f32 {
        let found = SUPPORT as f32;
        ((f32::from(self.right) + found) / (f32::from(self.opens) + found)).min(1.0)
    }
}

/// What is known of a file.
#[derive(Debug)]
struct Row {
    times: [u32; SUPPORT],
    filled: usize,
    associations: [Association; ASSOCIATIONS],
}

impl Default for Row {
    fn default() -> Self {
        Row { times: [0; SUPPORT], filled: 0, associations: [FREE; ASSOCIATIONS] }
    }
}

impl Row {
    /// Adds an association, in place of the one with the least chance.
    fn associate(&mut self, file: File) {
        if self.associations.iter().any(|one| one.file == file) {
            return;
        }
        let worth = |one: &Association| if one.file == File::NONE { 0.0 } else { one.chance() };
        let least = self.associations.iter_mut().min_by(|a, b| worth(a).total_cmp(&worth(b)));
        if let Some(least) = least {
            *least = Association { file, ..FREE };
        }
    }

    fn opened(&mut self) {
        for one in self.associations.iter_mut().filter(|one| one.file != File::NONE) {
            one.opens += 1;
            if one.opens >= OPENS_MAX {
                (one.right, one.opens) = (one.right / 2, one.opens / 2);
            }
        }
    }
}

/// Files whose last opens were all close together (Yang and others, 2017).
#[derive(Debug)]
pub struct Mithril {
    settings: Settings,
    rows: Places<Row>,
    mining: Vec<(File, [u32; SUPPORT])>,
    window: Window,
    /// Opens so far. Wraps around; then some associations are missed.
    now: u32,
}

impl Mithril {
    /// Without any association.
    pub fn new(settings: Settings) -> Self {
        let settings = settings.bounded();
        let (rows, window) = (Places::new(), Window::new(settings.lookahead));
        Mithril { settings, rows, mining: Vec::with_capacity(ROWS), window, now: 0 }
    }

    fn mine(&mut self) {
        self.mining.sort_unstable_by_key(|&(file, times)| (times, file));
        let lookahead = self.settings.lookahead as u32;
        for (at, (file, times)) in self.mining.iter().enumerate() {
            for (other, later) in &self.mining[at + 1..] {
                let mut gaps =
                    times.iter().zip(later).map(|(time, later)| later.wrapping_sub(*time));
                if later[0].wrapping_sub(times[0]) > lookahead {
                    break;
                }
                if file != other && gaps.all(|gap| (1..=lookahead).contains(&gap)) {
                    self.rows.of(*file).associate(*other);
                }
            }
        }
        self.mining.clear();
    }
}

impl Predictor for Mithril {
    fn name(&self) -> &'static str {
        "mithril"
    }

    fn open(&mut self, open: &Open, guesses: &mut Vec<Guess>) {
        self.now = self.now.wrapping_add(1);
        let row = self.rows.of(open.file);
        for one in row.associations.iter().filter(|one| one.file != File::NONE) {
            let chance = one.chance();
            if chance >= self.settings.min_chance {
                guesses.push(Guess { file: one.file, chance });
            }
        }
        row.opened();
        row.times[row.filled] = self.now;
        row.filled += 1;
        if row.filled == SUPPORT {
            row.filled = 0;
            self.mining.push((open.file, row.times));
        }
        for before in self.window.before(open.file) {
            let Some(row) = self.rows.known(before) else { continue };
            if let Some(one) = row.associations.iter_mut().find(|one| one.file == open.file) {
                one.right = one.right.saturating_add(1).min(one.opens);
            }
        }
        self.window.push(open.file);
        if self.mining.len() == ROWS {
            self.mine();
        }
    }

    fn bytes(&self) -> usize {
        self.rows.bytes() + self.mining.capacity() * size_of::<(File, [u32; SUPPORT])>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::Opener;
    use super::*;

    #[test]
    fn files_that_are_seldom_opened_and_always_together_are_associated() {
        let settings = Settings { lookahead: 8, min_chance: 0.5, ..Settings::default() };
        let mut opener = Opener::new(Box::new(Mithril::new(settings)));
        let mut other = 1000;
        for _ in 0..2 * ROWS {
            // Others in between, and in another number each time.
            for key in [1, 2] {
                opener.open(key);
                (0..1 + other % 3).for_each(|_| drop(opener.open(other)));
                other += 1;
            }
            (0..8).for_each(|_| drop(opener.open(other)));
            other += 1;
        }
        let guesses = opener.open(1);
        assert_eq!(guesses.first().map(|guess| guess.0), Some(2), "{guesses:?}");
        assert!(!guesses.iter().any(|guess| guess.0 >= 1000));
        assert!(
            !opener.open(2).iter().any(|guess| guess.0 == 1),
            "1 does not follow 2 within 8 opens"
        );
    }

    #[test]
    fn an_association_that_fails_loses_its_chance() {
        let mut one = Association { file: File(1), ..FREE };
        assert_eq!(one.chance(), 1.0);
        one.opens = 6;
        assert_eq!(one.chance(), 0.25);
    }
}
