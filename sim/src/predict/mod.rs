//! Predictive caching in simulation: LRU against LRU with prediction, over recorded opens.
//!
//! As in Griffioen and Appleton, "Improving File System Performance via Predictive Caching" (1995), *Simulation system*:
//!
//! 1. An open asks the predictor. A file that it expects and that is in memory becomes the most recently used one; one that is not
//!    is queued. A queued file is sent when the device has room for it, if it is still expected.
//! 2. Some time after the open comes the read, which the recording says. If the file is in memory, it takes no time. If it is on
//!    its way, the read waits for the rest. Else the device brings it, ahead of all that is queued.
//! 3. What the read waited for delays all later opens. Where a second or more lies between two opens, somebody has paused, and
//!    starts again at his own time.
//!
//! With [`Fetching::ByChance`], every guess of at least the minimum chance is fetched: the paper's rule. With
//! [`Fetching::ByWorth`], four rules of foretell's policy are added, so that a wrong guess pushes out nothing that is worth more:
//!
//! * A: A guess is fetched if its chance times the time that it saves is at least what its bytes are worth in the cache until the
//!   lookahead is over (`worth`).
//! * B: A file that was fetched and is no longer expected goes first when room is needed.
//! * C: Files that were fetched and are expected have at most half of the cache. The nearest come first.
//! * D: The predictor is heard while the reads of late have waited no longer than under LRU alone (`guard`).
//!
//! The first 256 KiB of a file count, rounded up to pages: the paper prefetches the beginning, and leaves the rest to read-ahead.
//! [`Report::read_us`] is the paper's *read complete time*: the sum of the waits.
//!
//! Where this differs from the paper: an open's fetch goes ahead of queued fetches, as foretell does it. The opens of all programs
//! form one line, so a wait delays programs that run at the same time, too.
//!
//! * [`stream`]: recorded runs as one stream; [`mod@device`]: the storage; `memory`: the cache; `worth`: the worth of its bytes.
//! * [`Predicting`]: none, a predictor of [`foretell_learn::graph`], or the oracle, which knows the next opens.

pub mod device;
mod guard;
mod memory;
pub mod stream;
mod worth;

use std::collections::VecDeque;

pub use foretell_learn::graph;
use foretell_learn::graph::{Entry, Foresight, LOOKAHEAD_MAX, Seen, Settings};

use device::{Device, DeviceSpec};
use guard::Guard;
use memory::Memory;
use stream::{Step, Stream};
use worth::Worth;

/// Bytes of a file that are read and fetched at an open.
pub const FILE_BYTES_MAX: u64 = 256 << 10;
/// Files are rounded up to pages of this size, in bytes.
const PAGE_BYTES: u64 = 4096;
/// From this time between two opens on, a person has paused, in microseconds.
const PAUSE_US: u64 = 1_000_000;
/// Files that the predictor knows at most.
const FILES_KNOWN_MAX: usize = 1 << 20;
/// Files queued at most. Beyond, what is expected is not fetched.
const QUEUED_MAX: usize = 4 * LOOKAHEAD_MAX;

/// The bytes in memory of a file.
fn cached_bytes(size_bytes: u64, most: u64) -> u64 {
    size_bytes.clamp(1, most).next_multiple_of(PAGE_BYTES)
}

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

/// Which guesses are fetched; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetching {
    /// Those of the minimum chance.
    ByChance,
    /// Those of them that are worth their place in the cache.
    ByWorth,
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The predictor.
    pub predicting: Predicting,
    /// Which of its guesses are fetched.
    pub fetching: Fetching,
    /// Its settings. `fetch_us` is taken from the device.
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
    /// The time that the disk worked.
    pub busy_us: u64,
    /// Predictions made: a file became expected.
    pub predictions: u64,
    /// Predictions that were right: the file was opened within the lookahead after the last guess.
    pub right: u64,
    /// Right predictions whose file was in memory when it was read.
    pub in_time: u64,
    /// Files fetched ahead, and those of them that were read.
    pub fetched: u64,
    /// See `fetched`.
    pub used: u64,
    /// Bytes fetched ahead.
    pub fetched_bytes: u64,
    /// Bytes fetched ahead and never read before they were evicted, or until the end.
    pub wasted_bytes: u64,
    /// For each right prediction, the time from the prediction to the read.
    pub leads_us: Vec<u64>,
}

impl Report {
    /// Right predictions of those made; 1 if none was made.
    pub fn accuracy(&self) -> f64 {
        if self.predictions == 0 { 1.0 } else { self.right as f64 / self.predictions as f64 }
    }
}

/// Where a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// On the device, or in memory.
    #[default]
    Settled,
    Queued,
    /// On its way.
    Sent,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    place: Place,
    /// Its bytes, at its last open.
    bytes: u64,
    /// The number of the open until which it is expected; 0 if it is not.
    expected_until: u64,
    expected_since_us: u64,
    /// Whether it was fetched ahead and has not been read.
    is_unread: bool,
    /// Whether its bytes count against rule C.
    is_ahead: bool,
}

struct Simulation<'a> {
    steps: &'a [Step],
    options: Options,
    device: Device,
    memory: Memory,
    states: Vec<State>,
    queued: VecDeque<u32>,
    /// Fetches ahead on their way: when they arrive, in that order, and the file.
    sent: VecDeque<(u64, u32)>,
    evicted: Vec<u32>,
    /// Files fetched ahead, and the open until which they were expected when they arrived.
    unread: VecDeque<(u64, u32)>,
    /// Bytes that count against rule C.
    ahead_bytes: u64,
    worth: Worth,
    guard: Guard,
    report: Report,
}

/// Runs the simulation.
pub fn run(stream: &Stream, options: &Options) -> Report {
    let slower = options.device.slower.max(1);
    let settings = Settings { fetch_us: options.device.fetch_us(PAGE_BYTES), ..options.settings };
    let mut simulation = Simulation {
        steps: &stream.steps,
        options: Options { settings, ..*options },
        device: Device::new(options.device),
        memory: Memory::new(stream.files, options.cache_bytes),
        states: vec![State::default(); stream.files],
        queued: VecDeque::new(),
        sent: VecDeque::new(),
        evicted: Vec::new(),
        unread: VecDeque::new(),
        ahead_bytes: 0,
        guard: Guard::new(stream.files, options.cache_bytes),
        worth: Worth::new(stream.files, options.cache_bytes),
        report: Report::default(),
    };
    let mut foresight = match options.predicting {
        Predicting::By(entry) => Some(Foresight::new(entry, settings, FILES_KNOWN_MAX)),
        Predicting::Nothing | Predicting::Oracle => None,
    };
    let (mut free_us, mut last_us) = (0, 0);
    for (number, step) in stream.steps.iter().enumerate() {
        // A pause is a person's, and is not stretched.
        let gap_us = step.time_us - last_us;
        let program_us = if gap_us < PAUSE_US { gap_us * slower } else { PAUSE_US };
        let now_us = step.time_us.max(free_us + program_us);
        last_us = step.time_us;
        free_us = simulation.open(number, step, now_us, foresight.as_mut());
    }
    simulation.finish()
}

impl Simulation<'_> {
    /// Opens the file of a step and reads it. Returns when the program goes on: the time of the open, and what the read waited.
    fn open(
        &mut self,
        number: usize,
        step: &Step,
        now_us: u64,
        foresight: Option<&mut Foresight>,
    ) -> u64 {
        self.advance(now_us);
        self.worth.open();
        self.resize(step);
        let state = &mut self.states[step.file as usize];
        // The file itself counts as read now: only its device is asked later.
        let number = number as u64 + 1;
        let expected = (state.expected_until >= number).then_some(state.expected_since_us);
        state.expected_until = 0;
        self.predict(number, step, now_us, foresight);
        self.expire(number);
        self.send(now_us);
        let read_at_us = now_us + step.read_us * self.options.device.slower.max(1);
        self.advance(read_at_us);
        let waited_us = self.read(step.file, read_at_us);
        let bytes = self.states[step.file as usize].bytes;
        self.guard.read(step.file, bytes, waited_us, self.options.device.fetch_us(bytes));
        self.report.opens += 1;
        self.report.hits += u64::from(waited_us == 0);
        self.report.read_us += waited_us;
        if let Some(since_us) = expected {
            self.report.right += 1;
            self.report.in_time += u64::from(waited_us == 0);
            self.report.leads_us.push(read_at_us.saturating_sub(since_us));
        }
        now_us + waited_us
    }

    /// Takes the size of a file that is neither in memory nor on its way. A file that is there keeps its bytes until it goes.
    fn resize(&mut self, step: &Step) {
        let state = &mut self.states[step.file as usize];
        if state.place != Place::Sent && !self.memory.has(step.file) {
            state.bytes = cached_bytes(step.size_bytes, FILE_BYTES_MAX);
        }
    }

    /// Takes what the predictor expects after this open.
    fn predict(
        &mut self,
        number: u64,
        step: &Step,
        now_us: u64,
        foresight: Option<&mut Foresight>,
    ) {
        let &Step { file, size_bytes, process, .. } = step;
        if let Some(foresight) = foresight {
            let seen = Seen { key: u64::from(file), size_bytes, process, time_us: now_us };
            for expected in foresight.open(&seen) {
                self.expect(expected.key as u32, expected.chance, number, now_us);
            }
        } else if matches!(self.options.predicting, Predicting::Oracle) {
            let next = (number as usize..self.steps.len()).take(self.options.settings.lookahead);
            for at in next {
                let step = self.steps[at];
                if step.file != file {
                    self.resize(&step);
                    self.expect(step.file, 1.0, number, now_us);
                }
            }
        }
    }

    fn expect(&mut self, file: u32, chance: f32, number: u64, now_us: u64) {
        let state = &mut self.states[file as usize];
        if state.expected_until < number {
            self.report.predictions += 1;
            state.expected_since_us = now_us;
        }
        state.expected_until = number + self.options.settings.lookahead as u64;
        if self.options.fetching == Fetching::ByWorth && !self.guard.is_open() {
            return;
        }
        if self.memory.has(file) {
            self.memory.touch(file);
        } else if state.place == Place::Settled && self.queued.len() < QUEUED_MAX {
            let bytes = state.bytes;
            if self.is_worth(chance, bytes) {
                self.states[file as usize].place = Place::Queued;
                self.queued.push_back(file);
            }
        }
    }

    /// Rule A.
    fn is_worth(&self, chance: f32, bytes: u64) -> bool {
        let saved_us = f64::from(chance) * self.options.device.fetch_us(bytes) as f64;
        let opens = self.options.settings.lookahead as f64;
        self.options.fetching == Fetching::ByChance || saved_us >= self.worth.of(bytes) * opens
    }

    /// Rule B.
    fn expire(&mut self, number: u64) {
        while let Some(&(_, file)) = self.unread.front().filter(|(until, _)| *until < number) {
            self.unread.pop_front();
            let state = &self.states[file as usize];
            if !state.is_unread {
                continue;
            }
            if state.expected_until >= number {
                self.unread.push_back((state.expected_until, file));
            } else {
                self.memory.demote(file);
                self.no_longer_ahead(file);
            }
        }
    }

    /// Sends queued files while the device has room.
    fn send(&mut self, now_us: u64) {
        while self.sent.len() < self.options.device.ahead {
            let Some(file) = self.queued.pop_front() else { return };
            let state = &mut self.states[file as usize];
            // A file that was read meanwhile is no longer queued.
            if state.place != Place::Queued {
                continue;
            }
            if state.expected_until < self.report.opens {
                state.place = Place::Settled;
                continue;
            }
            let (bytes, is_bounded) = (state.bytes, self.options.fetching == Fetching::ByWorth);
            // Rule C.
            if is_bounded && 2 * (self.ahead_bytes + bytes) > self.options.cache_bytes {
                self.queued.push_front(file);
                return;
            }
            self.ahead_bytes += bytes;
            (state.place, state.is_ahead) = (Place::Sent, true);
            self.report.fetched += 1;
            self.report.fetched_bytes += state.bytes;
            let there_us = self.device.fetch(now_us, state.bytes);
            self.sent.push_back((there_us, file));
        }
    }

    /// Lets time pass: fetches arrive, and others are sent in their place.
    fn advance(&mut self, now_us: u64) {
        while let Some(&(there_us, file)) =
            self.sent.front().filter(|(there_us, _)| *there_us <= now_us)
        {
            self.sent.pop_front();
            self.arrive(file, true);
            self.send(there_us);
        }
    }

    fn arrive(&mut self, file: u32, is_ahead: bool) {
        let state = &mut self.states[file as usize];
        (state.place, state.is_unread) = (Place::Settled, is_ahead);
        if is_ahead && self.options.fetching == Fetching::ByWorth {
            self.unread.push_back((state.expected_until, file));
        }
        self.memory.insert(file, state.bytes, &mut self.evicted);
        for file in std::mem::take(&mut self.evicted) {
            self.no_longer_ahead(file);
            let gone = &mut self.states[file as usize];
            self.worth.evicted(file, gone.bytes);
            if std::mem::take(&mut gone.is_unread) {
                self.report.wasted_bytes += gone.bytes;
            }
        }
    }

    /// Reads a file; returns for how long that waits.
    fn read(&mut self, file: u32, now_us: u64) -> u64 {
        if self.memory.has(file) {
            self.memory.touch(file);
            self.used(file);
            return 0;
        }
        let there_us = match self.states[file as usize].place {
            Place::Sent => {
                let sent = self.sent.iter().find(|(_, other)| *other == file);
                sent.expect("invariant: a file on its way is in the list").0
            }
            Place::Settled | Place::Queued => {
                let state = &mut self.states[file as usize];
                state.place = Place::Settled;
                self.worth.missed(file, self.options.device.fetch_us(state.bytes));
                let there_us = self.device.fetch(now_us, state.bytes);
                self.advance(there_us);
                self.arrive(file, false);
                return there_us - now_us;
            }
        };
        self.advance(there_us);
        self.used(file);
        there_us - now_us
    }

    /// A file's bytes no longer count against rule C.
    fn no_longer_ahead(&mut self, file: u32) {
        let state = &mut self.states[file as usize];
        if std::mem::take(&mut state.is_ahead) {
            self.ahead_bytes -= state.bytes;
        }
    }

    /// A file that may have been fetched ahead is read.
    fn used(&mut self, file: u32) {
        self.no_longer_ahead(file);
        self.report.used += u64::from(std::mem::take(&mut self.states[file as usize].is_unread));
    }

    fn finish(mut self) -> Report {
        self.advance(u64::MAX);
        let unread = self.states.iter().filter(|state| state.is_unread);
        self.report.wasted_bytes += unread.map(|state| state.bytes).sum::<u64>();
        self.report.busy_us = self.device.busy_us;
        self.report
    }
}
