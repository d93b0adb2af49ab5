//! Predictive caching in simulation: LRU against LRU with prediction, over recorded opens.
//!
//! As in Griffioen and Appleton, "Improving File System Performance via Predictive Caching" (1995), *Simulation system*:
//!
//! An open asks the predictor, and its guesses are fetched or kept in the cache as [`foretell_learn::graph::model`]
//! says. Some time after the open comes the read, which the recording says; it may have to wait. What it waited delays all
//! later opens. Where a second or more lies between two opens, a person has paused, and starts again at their own time.
//!
//! [`Report::read_us`] is the paper's *read complete time*: the sum of the waits.
//!
//! With [`Fetching::ByWorth`] a predictor is heard only while a [`Trial`] of it and of LRU alone says that its reads wait less.
//! The combination makes this trial itself.
//!
//! Where this differs from the paper: an open's fetch goes ahead of queued fetches, as foretell does it. The opens of all
//! programs form one line, so a wait delays programs that run at the same time, too.
//!
//! * [`stream`]: recorded runs as one stream; [`mod@device`]: the storage.
//! * [`Predicting`]: none, a predictor of [`foretell_learn::graph`], or the oracle, which knows the next opens.

pub mod device;
pub mod stream;

pub use foretell_learn::graph;
use foretell_learn::graph::model::{Counts, Model, Sized, Trial};
pub use foretell_learn::graph::model::{FILE_BYTES_MAX, Fetching};
use foretell_learn::graph::{Entry, Foresight, Seen, Settings, Storage};

use device::DeviceSpec;
use stream::{Step, Stream};

/// From this time between two opens on, a person has paused, in microseconds.
const PAUSE_US: u64 = 1_000_000;
/// Files that the predictor knows at most.
const FILES_KNOWN_MAX: usize = 1 << 20;

/// Who says what will be opened.
#[derive(Clone, Copy, Debug)]
pub enum Predicting {
    /// Nobody: LRU alone.
    Nothing,
    /// A predictor.
    By(Entry),
    /// The next opens themselves, as many as the lookahead.
    Oracle,
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The predictor.
    pub predicting: Predicting,
    /// Which of its guesses are fetched.
    pub fetching: Fetching,
    /// Its settings. The storage is that of the device and the cache.
    pub settings: Settings,
    /// The cache, in bytes.
    pub cache_bytes: u64,
    /// The storage.
    pub device: DeviceSpec,
}

/// Figures of a simulation. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Opens, and those whose file was in memory when it was read.
    pub opens: u64,
    /// See `opens`.
    pub hits: u64,
    /// Read complete time: the sum of what reads have waited for.
    pub read_us: u64,
    /// Predictions that were right: the file was opened within the lookahead after the last guess.
    pub right: u64,
    /// Right predictions whose file was in memory when it was read.
    pub in_time: u64,
    /// Fetches and predictions.
    pub counts: Counts,
    /// For each right prediction, the time from the prediction to the read.
    pub leads_us: Vec<u64>,
}

impl Report {
    /// Right predictions of those made; 1 if none was made.
    pub fn accuracy(&self) -> f64 {
        let made = self.counts.predictions;
        if made == 0 { 1.0 } else { self.right as f64 / made as f64 }
    }
}

struct Simulation<'a> {
    steps: &'a [Step],
    options: Options,
    model: Model,
    /// Of the predictor and of nobody; none for the oracle and the combination.
    trial: Option<Trial>,
    guesses: Vec<Sized>,
    foresight: Option<Foresight>,
    report: Report,
}

/// Runs the simulation.
pub fn run(stream: &Stream, options: &Options) -> Report {
    let slower = options.device.slower.max(1);
    let mut reads_us: Vec<u64> = stream.steps.iter().map(|step| step.read_us).collect();
    reads_us.sort_unstable();
    let read_us = reads_us.get(reads_us.len() / 2).map_or(0, |median_us| median_us * slower);
    let storage = Storage { read_us, cache_bytes: options.cache_bytes, ..options.device.storage };
    let settings = Settings { storage, ..options.settings };
    let mut simulation = Simulation {
        steps: &stream.steps,
        options: Options { settings, ..*options },
        model: Model::new(storage, options.fetching, settings.lookahead),
        trial: match options.predicting {
            Predicting::By(entry) if !entry.has_trial && options.fetching == Fetching::ByWorth => {
                Some(Trial::new(2, storage, settings.lookahead))
            }
            _ => None,
        },
        guesses: Vec::new(),
        foresight: match options.predicting {
            Predicting::By(entry) => Some(Foresight::new(entry, settings, FILES_KNOWN_MAX)),
            Predicting::Nothing | Predicting::Oracle => None,
        },
        report: Report::default(),
    };
    let (mut free_us, mut last_us) = (0, 0);
    for (number, step) in stream.steps.iter().enumerate() {
        // A pause is a person's, and is not stretched.
        let gap_us = step.time_us - last_us;
        let program_us = if gap_us < PAUSE_US { gap_us * slower } else { PAUSE_US };
        let now_us = step.time_us.max(free_us + program_us);
        last_us = step.time_us;
        free_us = now_us + simulation.step(number, step, now_us);
    }
    let counts = simulation.model.finish();
    Report { counts, ..simulation.report }
}

impl Simulation<'_> {
    /// Opens the file of a step and reads it. Returns for how long the read waits.
    fn step(&mut self, number: usize, step: &Step, now_us: u64) -> u64 {
        let expected = self.model.open(step.file, step.size_bytes, now_us);
        self.predict(number, step, now_us);
        self.model.send(now_us);
        let read_at_us = now_us + step.read_us.min(PAUSE_US) * self.options.device.slower.max(1);
        let waited_us = self.model.read(step.file, read_at_us);
        self.report.opens += 1;
        self.report.hits += u64::from(waited_us == 0);
        self.report.read_us += waited_us;
        if let Some(since_us) = expected {
            self.report.right += 1;
            self.report.in_time += u64::from(waited_us == 0);
            self.report.leads_us.push(read_at_us.saturating_sub(since_us));
        }
        waited_us
    }

    /// Takes what the predictor expects after this open.
    fn predict(&mut self, number: usize, step: &Step, now_us: u64) {
        let &Step { file, size_bytes, process, .. } = step;
        if let Some(foresight) = &mut self.foresight {
            let seen = Seen { key: u64::from(file), size_bytes, process, time_us: now_us };
            let expected = foresight.open(&seen).iter();
            self.guesses.clear();
            self.guesses.extend(expected.map(|one| (one.key as u32, one.size_bytes, one.chance)));
            let guesses = &self.guesses;
            let heard = self.trial.as_mut().map_or(0, |trial| {
                trial.open(file, size_bytes, now_us, |rival| {
                    let heard = if rival == 0 { &guesses[..] } else { &[] };
                    heard.iter().copied()
                })
            });
            for &(file, size_bytes, chance) in guesses {
                self.model.expect(file, size_bytes, chance, now_us, heard == 0);
            }
        } else if matches!(self.options.predicting, Predicting::Oracle) {
            let next = self.steps[number + 1..].iter().take(self.options.settings.lookahead);
            for step in next.filter(|step| step.file != file) {
                self.model.expect(step.file, step.size_bytes, 1.0, now_us, true);
            }
        }
    }
}
