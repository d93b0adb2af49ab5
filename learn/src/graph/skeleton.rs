//! A predictor to copy: says that the file before comes again. Say here what it keeps of a file, the paper that it comes from,
//! where it differs from the paper, and what an open costs.
//!
//! 1. Copy this file, and rename [`Skeleton`].
//! 2. Add `mod` and `pub use` lines, a row of the table and an entry of `PREDICTORS` in `mod.rs`. The conformance suite,
//!    `foretell sim predict --predictor` and the pages of the results then have it.
//! 3. If it is to weigh in, add it to the members in `combination.rs`.

use super::files::{File, Places};
use super::{Guess, Open, Predictor, Settings};

/// What is known of a file.
#[derive(Debug, Default)]
struct Known {
    was_opened: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Skeleton {
    settings: Settings,
    known: Places<Known>,
    before: File,
}

impl Skeleton {
    pub(super) fn new(settings: Settings) -> Self {
        Skeleton { settings: settings.bounded(), known: Places::new(), before: File::NONE }
    }
}

impl Predictor for Skeleton {
    fn name(&self) -> &'static str {
        "skeleton"
    }

    fn open(&mut self, open: &Open, guesses: &mut Vec<Guess>) {
        // Guess first: only files that are known, with a chance that is enough, and never the file itself.
        let before = self.known.get(self.before).filter(|known| known.was_opened);
        if before.is_some() && self.before != open.file && self.settings.min_chance <= 0.5 {
            guesses.push(Guess { file: self.before, chance: 0.5 });
        }
        // Then learn.
        self.known.of(open.file).was_opened = true;
        self.before = open.file;
    }

    fn bytes(&self) -> usize {
        self.known.bytes()
    }
}
