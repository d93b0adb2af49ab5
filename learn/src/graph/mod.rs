//! Predicts from the files that programs open which files will be opened next, across programs.
//!
//! Profiles ([`profile`](crate::profile)) know the runs of one workload. The predictors here serve what no profile covers: a
//! shell session, an editor, `make` of a changed tree. They see one stream of opens and execs of all programs. For each they
//! name files that will be opened soon, each with a chance. The caller decides which of these it fetches.
//!
//! | file | predictor | what it keeps of a file |
//! |---|---|---|
//! | `probability_graph` | [`ProbabilityGraph`]: files opened within N opens (Griffioen and Appleton) | 32 files and counts |
//! | `last_successor` | [`LastSuccessor`]: the file that came next the last time, and so on from there | 1 file |
//! | `epcm` | [`Epcm`]: what came next in the context of the last three files (Kroeger and Long) | 24 contexts |
//! | `mithril` | [`Mithril`]: files whose last opens were all close together (Yang and others) | 16 files |
//! | `combination` | [`Combination`]: all of these, weighed by the worth of their guesses | a mark and a model's state each |
//! | [`model`] | none: the cache and the storage by which the combination compares | |
//! | `skeleton` | a predictor to copy | 1 flag |
//!
//! [`Foresight`] puts the parts together for a caller: files by its own keys, one predictor, guesses by its keys.
//!
//! # Duties of a predictor
//! The caller gives opens in the order of their time, with files of one [`Files`]. A predictor
//! * builds its guesses from what it knew before this open, and learns the open afterwards (the paper's section on the
//!   prefetch algorithm);
//! * guesses each file at most once in an answer, never the file just opened, with a chance in (0, 1];
//! * names nearer files first, so that an equal chance is fetched in the order of need;
//! * takes time and memory that [`Settings`] bound, whatever is opened; there is no clock and no randomness, so the same
//!   opens give the same guesses.
//!
//! The conformance suite (`conformance.rs`) checks these for every predictor of [`PREDICTORS`].
//!
//! Not here: what is in memory, what a fetch costs, and the decision to fetch. Candidates that are already in memory are to be
//! *refreshed* in the caller's replacement order, not fetched (same section).

mod combination;
#[cfg(test)]
mod conformance;
mod epcm;
pub mod files;
mod last_successor;
mod mithril;
pub mod model;
mod probability_graph;
#[cfg(test)]
mod skeleton;
mod window;

pub use combination::Combination;
pub use epcm::Epcm;
pub use files::{File, Files};
pub use last_successor::LastSuccessor;
pub use mithril::Mithril;
pub use model::Storage;
pub use probability_graph::ProbabilityGraph;

/// An open of a file for reading, or the exec of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The file.
    pub file: File,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The process that opens it: any number that tells processes apart.
    pub process: u32,
    /// When, in microseconds since any moment. It does not run backwards.
    pub time_us: u64,
}

/// A file that will be opened soon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// The file.
    pub file: File,
    /// The chance that it is opened within the lookahead, in (0, 1].
    pub chance: f32,
}

/// What all predictors take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Opens within which a file counts as opened soon: the paper's lookahead period. 1 to [`LOOKAHEAD_MAX`].
    pub lookahead: usize,
    /// Guesses with a lower chance are not given: the paper's minimum chance, in (0, 1].
    pub min_chance: f32,
    /// The storage and the cache, by which [`Combination`] models what guesses are worth.
    pub storage: Storage,
}

/// Most opens of a lookahead. Above it an open would cost microseconds.
pub const LOOKAHEAD_MAX: usize = 256;

/// Least minimum chance: below it, guesses are noise.
const MIN_CHANCE: f32 = 0.01;

impl Default for Settings {
    /// 32 opens and a chance of 0.25: within 10 % of the best of each large cache in the sweep of `docs/results/predictive.md`.
    /// Small caches want fewer opens or a higher chance, as in the 1995 paper.
    fn default() -> Self {
        Settings { lookahead: 32, min_chance: 0.25, storage: Storage::REMOTE }
    }
}

impl Settings {
    /// These, with values that are out of bounds moved to the bound.
    fn bounded(self) -> Self {
        let lookahead = self.lookahead.clamp(1, LOOKAHEAD_MAX);
        let min_chance =
            if self.min_chance.is_nan() { 1.0 } else { self.min_chance.clamp(MIN_CHANCE, 1.0) };
        Settings { lookahead, min_chance, ..self }
    }
}

/// See the [module](self) for the duties of both sides.
pub trait Predictor: Send {
    /// Its name on command lines and in figures.
    fn name(&self) -> &'static str;

    /// Appends the files that it expects after `open` to `guesses`, then learns `open`.
    fn open(&mut self, open: &Open, guesses: &mut Vec<Guess>);

    /// Bytes of memory.
    fn bytes(&self) -> usize;
}

/// A predictor's name, and how it is made.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// As [`Predictor::name`] gives it.
    pub name: &'static str,
    /// Makes it.
    pub make: fn(Settings) -> Box<dyn Predictor>,
    /// Most bytes that it keeps of a file.
    pub file_bytes_max: usize,
    /// Whether it falls silent by itself where its guesses do harm.
    pub has_trial: bool,
}

/// All predictors, the combination last.
pub const PREDICTORS: [Entry; 5] = [
    Entry {
        name: "graph",
        make: |settings| Box::new(ProbabilityGraph::new(settings)),
        file_bytes_max: 256,
        has_trial: false,
    },
    Entry {
        name: "last-successor",
        make: |settings| Box::new(LastSuccessor::new(settings)),
        file_bytes_max: 32,
        has_trial: false,
    },
    Entry {
        name: "epcm",
        make: |settings| Box::new(Epcm::new(settings)),
        file_bytes_max: 384,
        has_trial: false,
    },
    Entry {
        name: "mithril",
        make: |settings| Box::new(Mithril::new(settings)),
        file_bytes_max: 192,
        has_trial: false,
    },
    Entry {
        name: "combination",
        make: |settings| Box::new(Combination::new(settings)),
        file_bytes_max: 2048,
        has_trial: true,
    },
];

/// The predictor called `name`.
pub fn predictor(name: &str) -> Option<Entry> {
    PREDICTORS.into_iter().find(|entry| entry.name == name)
}

/// An open in the words of a caller: as [`Open`], with the caller's key in place of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Any number that tells files apart, for example a hash of the path.
    pub key: u64,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The process.
    pub process: u32,
    /// When, in microseconds. It does not run backwards.
    pub time_us: u64,
}

/// A guess in the words of a caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The file's key.
    pub key: u64,
    /// Its size when it was opened last, in bytes.
    pub size_bytes: u64,
    /// The chance that it is opened within the lookahead.
    pub chance: f32,
}

/// A predictor with its files: what a caller holds.
pub struct Foresight {
    files: Files,
    predictor: Box<dyn Predictor>,
    guesses: Vec<Guess>,
    expected: Vec<Expected>,
}

impl Foresight {
    /// The predictor of `entry`, which knows at most `files_max` files.
    pub fn new(entry: Entry, settings: Settings, files_max: usize) -> Self {
        let (files, predictor) = (Files::new(files_max), (entry.make)(settings));
        Foresight { files, predictor, guesses: Vec::new(), expected: Vec::new() }
    }

    /// Learns an open, and returns what will be opened soon, nearer files first.
    pub fn open(&mut self, seen: &Seen) -> &[Expected] {
        let &Seen { key, size_bytes, process, time_us } = seen;
        let file = self.files.open(key, size_bytes);
        self.guesses.clear();
        self.predictor.open(&Open { file, size_bytes, process, time_us }, &mut self.guesses);
        let files = &self.files;
        let expected = |guess: &Guess| {
            let (key, size_bytes) = files.get(guess.file)?;
            Some(Expected { key, size_bytes, chance: guess.chance })
        };
        self.expected.clear();
        self.expected.extend(self.guesses.iter().filter_map(expected));
        &self.expected
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.files.bytes() + self.predictor.bytes()
    }
}
