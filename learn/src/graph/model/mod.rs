//! A model of a cache and its storage: for how long reads would wait if certain guesses were fetched.
//!
//! [`Combination`](super::Combination) keeps one for each member, which tells what the member would bring.
//! `foretell sim predict` uses the same model as its machine. As in the 1995 paper, the cache is LRU over whole files, of which
//! the first 256 KiB count.
//!
//! 1. A guess of a file that is in memory makes it the most recently used one (the paper's *prefetch algorithm*). Another is
//!    queued. A queued file is sent when the storage has room for it, if it is still expected.
//! 2. A read of a file in memory takes no time. One of a file on its way waits for the rest. For others the storage is asked,
//!    ahead of all that is queued.
//!
//! With [`Fetching::ByChance`] every guess is fetched: the paper's rule. With [`Fetching::ByWorth`] three rules of foretell's
//! policy are added, so that a wrong guess pushes out nothing that is worth more:
//!
//! * A: A guess is fetched if its chance times the time that it saves is at least what its bytes are worth in the cache until
//!   the lookahead is over (`worth`).
//! * B: A file that was fetched and is no longer expected goes first when room is needed.
//! * C: Files that were fetched and are expected have at most half of the cache. The nearest come first.
//!
//! Times are in microseconds and do not run backwards. Files are small numbers.
//!
//! Cost: constant for each open, guess and eviction.

mod memory;
mod storage;
mod trial;
mod worth;

use std::collections::VecDeque;

use super::LOOKAHEAD_MAX;
pub use memory::Memory;
use storage::Device;
pub use storage::Storage;
pub use trial::{Sized, Trial};
use worth::Worth;

/// Bytes of a file that are read and fetched at an open. The rest is read ahead when the file is read.
pub const FILE_BYTES_MAX: u64 = 256 << 10;
/// Files are rounded up to pages of this size, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Files queued at most. Beyond, what is expected is not fetched.
const QUEUED_MAX: usize = 4 * LOOKAHEAD_MAX;

/// The bytes that a file of this size takes in the cache.
pub fn cached_bytes(size_bytes: u64) -> u64 {
    size_bytes.clamp(1, FILE_BYTES_MAX).next_multiple_of(PAGE_BYTES)
}

/// Which guesses are fetched; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetching {
    /// All.
    ByChance,
    /// Those that are worth their place in the cache.
    ByWorth,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Predictions made: a file became expected.
    pub predictions: u64,
    /// Files fetched ahead, and those of them that were read.
    pub fetched: u64,
    /// See `fetched`.
    pub used: u64,
    /// Bytes fetched ahead.
    pub fetched_bytes: u64,
    /// Bytes fetched ahead and evicted unread.
    pub wasted_bytes: u64,
    /// The time that the disk has worked, in microseconds.
    pub busy_us: u64,
}

/// Where a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// In the storage, or in memory.
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
    /// Whether it was fetched ahead and has not been read.
    is_unread: bool,
    /// Whether its bytes count against rule C.
    is_ahead: bool,
    /// Its bytes in the cache.
    bytes: u32,
    /// The open until which it is expected; 0 if it is not.
    expected_until: u64,
    expected_since_us: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Model {
    storage: Storage,
    fetching: Fetching,
    lookahead: u64,
    device: Device,
    memory: Memory,
    states: Vec<State>,
    queued: VecDeque<u32>,
    /// Fetches ahead on their way: when they arrive, in that order, and the file.
    sent: VecDeque<(u64, u32)>,
    evicted: Vec<u32>,
    /// Files fetched ahead, and the open until which they were expected.
    unread: VecDeque<(u64, u32)>,
    /// Bytes that count against rule C.
    ahead_bytes: u64,
    worth: Worth,
    /// The number of the open, from 1.
    number: u64,
    counts: Counts,
}

impl Model {
    /// An empty cache before an idle storage.
    pub fn new(storage: Storage, fetching: Fetching, lookahead: usize) -> Self {
        Model {
            storage,
            fetching,
            lookahead: lookahead as u64,
            device: Device::new(storage),
            memory: Memory::new(storage.cache_bytes),
            states: Vec::new(),
            queued: VecDeque::new(),
            sent: VecDeque::new(),
            evicted: Vec::new(),
            unread: VecDeque::new(),
            ahead_bytes: 0,
            worth: Worth::new(storage.cache_bytes),
            number: 0,
            counts: Counts::default(),
        }
    }

    /// A file is opened. Returns since when it had been expected. Guesses of this open follow, then [`send`](Self::send), then
    /// [`read`](Self::read).
    pub fn open(&mut self, file: u32, size_bytes: u64, now_us: u64) -> Option<u64> {
        self.advance(now_us);
        self.worth.open();
        self.number += 1;
        self.resize(file, size_bytes);
        let state = &mut self.states[file as usize];
        let was_expected = std::mem::take(&mut state.expected_until) >= self.number;
        was_expected.then_some(state.expected_since_us)
    }

    /// A file is expected with this chance. `is_heard`: whether that is acted upon.
    pub fn expect(&mut self, file: u32, size_bytes: u64, chance: f32, now_us: u64, is_heard: bool) {
        self.resize(file, size_bytes);
        let state = &mut self.states[file as usize];
        if state.expected_until < self.number {
            self.counts.predictions += 1;
            state.expected_since_us = now_us;
        }
        state.expected_until = self.number + self.lookahead;
        if !is_heard {
            return;
        }
        if self.memory.has(file) {
            self.memory.touch(file);
        } else if state.place == Place::Settled && self.queued.len() < QUEUED_MAX {
            let bytes = u64::from(state.bytes);
            if self.is_worth(chance, bytes) {
                self.states[file as usize].place = Place::Queued;
                self.queued.push_back(file);
            }
        }
    }

    /// Sends queued files while the storage has room.
    pub fn send(&mut self, now_us: u64) {
        self.expire();
        self.send_some(now_us);
    }

    /// Reads a file that was opened; returns for how long that waits, in microseconds.
    pub fn read(&mut self, file: u32, now_us: u64) -> u64 {
        self.advance(now_us);
        if self.memory.has(file) {
            self.memory.touch(file);
            self.used(file);
            return 0;
        }
        let on_its_way = self.sent.iter().find(|(_, other)| *other == file).map(|sent| sent.0);
        if let Some(there_us) = on_its_way {
            self.advance(there_us);
            self.used(file);
            return there_us - now_us;
        }
        let state = &mut self.states[file as usize];
        state.place = Place::Settled;
        let bytes = u64::from(state.bytes);
        self.worth.missed(file, self.storage.fetch_us(bytes));
        let there_us = self.device.fetch(now_us, bytes);
        self.advance(there_us);
        self.arrive(file, false);
        there_us - now_us
    }

    /// The caller has given the number `file` to another file.
    pub fn forget(&mut self, file: u32) {
        let Some(state) = self.states.get(file as usize) else { return };
        if state.place == Place::Sent {
            // It arrives as the other file.
            return;
        }
        self.no_longer_ahead(file);
        if self.memory.has(file) {
            self.memory.remove(file);
        }
        // A queued one is passed over, as it is not expected.
        let place = self.states[file as usize].place;
        self.states[file as usize] = State { place, ..State::default() };
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        Counts { busy_us: self.device.busy_us, ..self.counts }
    }

    /// The same at the end: what is on its way arrives, and what is unread then was wasted.
    pub fn finish(&mut self) -> Counts {
        self.queued.clear();
        self.advance(u64::MAX);
        let unread = self.states.iter().filter(|state| state.is_unread);
        self.counts.wasted_bytes += unread.map(|state| u64::from(state.bytes)).sum::<u64>();
        self.counts()
    }

    /// Bytes of memory of this model.
    pub fn bytes(&self) -> usize {
        let lists = (self.queued.capacity() + self.evicted.capacity()) * 4
            + (self.sent.capacity() + self.unread.capacity()) * 16;
        self.states.capacity() * size_of::<State>()
            + self.memory.bytes()
            + self.worth.bytes()
            + lists
    }

    /// Takes the size of a file that is neither in memory nor on its way. A file that is there keeps its bytes until it goes.
    fn resize(&mut self, file: u32, size_bytes: u64) {
        if file as usize >= self.states.len() {
            self.states.resize(file as usize + 1, State::default());
        }
        let state = &mut self.states[file as usize];
        if state.place != Place::Sent && !self.memory.has(file) {
            state.bytes = cached_bytes(size_bytes) as u32;
        }
    }

    /// Rule A.
    fn is_worth(&self, chance: f32, bytes: u64) -> bool {
        let saved_us = f64::from(chance) * self.storage.fetch_us(bytes) as f64;
        self.fetching == Fetching::ByChance
            || saved_us >= self.worth.of(bytes) * self.lookahead as f64
    }

    /// Rule B.
    fn expire(&mut self) {
        while let Some(&(_, file)) = self.unread.front().filter(|(until, _)| *until < self.number) {
            self.unread.pop_front();
            let state = &self.states[file as usize];
            if !state.is_unread || !self.memory.has(file) {
                continue;
            }
            if state.expected_until >= self.number {
                self.unread.push_back((state.expected_until, file));
            } else {
                self.memory.demote(file);
                self.no_longer_ahead(file);
            }
        }
    }

    fn send_some(&mut self, now_us: u64) {
        while self.sent.len() < self.storage.ahead {
            let Some(file) = self.queued.pop_front() else { return };
            let state = &mut self.states[file as usize];
            // A file that was read meanwhile is no longer queued.
            if state.place != Place::Queued {
                continue;
            }
            if state.expected_until < self.number {
                state.place = Place::Settled;
                continue;
            }
            let bytes = u64::from(state.bytes);
            // Rule C.
            let is_bounded = self.fetching == Fetching::ByWorth;
            if is_bounded && 2 * (self.ahead_bytes + bytes) > self.storage.cache_bytes {
                self.queued.push_front(file);
                return;
            }
            self.ahead_bytes += bytes;
            (state.place, state.is_ahead) = (Place::Sent, true);
            self.counts.fetched += 1;
            self.counts.fetched_bytes += bytes;
            let there_us = self.device.fetch(now_us, bytes);
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
            self.send_some(there_us);
        }
    }

    fn arrive(&mut self, file: u32, is_ahead: bool) {
        let state = &mut self.states[file as usize];
        (state.place, state.is_unread) = (Place::Settled, is_ahead);
        let bytes = u64::from(state.bytes);
        if is_ahead && self.fetching == Fetching::ByWorth {
            self.unread.push_back((state.expected_until, file));
        }
        self.memory.insert(file, bytes, &mut self.evicted);
        let mut evicted = std::mem::take(&mut self.evicted);
        for file in evicted.drain(..) {
            self.no_longer_ahead(file);
            let gone = &mut self.states[file as usize];
            let bytes = u64::from(gone.bytes);
            self.worth.evicted(file, bytes);
            if std::mem::take(&mut gone.is_unread) {
                self.counts.wasted_bytes += bytes;
            }
        }
        self.evicted = evicted;
    }

    /// A file's bytes no longer count against rule C.
    fn no_longer_ahead(&mut self, file: u32) {
        let state = &mut self.states[file as usize];
        if std::mem::take(&mut state.is_ahead) {
            self.ahead_bytes -= u64::from(state.bytes);
        }
    }

    /// A file that may have been fetched ahead is read.
    fn used(&mut self, file: u32) {
        self.no_longer_ahead(file);
        self.counts.used += u64::from(std::mem::take(&mut self.states[file as usize].is_unread));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Storage = Storage {
        disk_us: 100,
        disk_bytes_per_us: 4096.0,
        network: None,
        ahead: 1,
        read_us: 0,
        cache_bytes: 10 * 4096,
    };

    fn open(model: &mut Model, file: u32, guesses: &[u32], now_us: u64) -> u64 {
        model.open(file, 1, now_us);
        guesses.iter().for_each(|&guess| model.expect(guess, 1, 1.0, now_us, true));
        model.send(now_us);
        model.read(file, now_us)
    }

    #[test]
    fn what_is_fetched_ahead_is_there_or_on_its_way() {
        let mut model = Model::new(LOCAL, Fetching::ByWorth, 4);
        // The guess goes first here, since the read comes after it.
        assert_eq!(open(&mut model, 0, &[1, 2], 0), 202);
        assert_eq!(open(&mut model, 1, &[], 202), 0);
        assert_eq!(open(&mut model, 2, &[], 250), 53, "on its way since 202 at the latest");
        let counts = model.finish();
        assert_eq!(
            (counts.predictions, counts.fetched, counts.used, counts.wasted_bytes),
            (2, 2, 2, 0)
        );
    }

    #[test]
    fn what_is_expected_no_longer_goes_first() {
        let mut model = Model::new(LOCAL, Fetching::ByWorth, 2);
        open(&mut model, 0, &[20, 21], 0);
        (1..8).for_each(|file| {
            assert_eq!(open(&mut model, file, &[], 10_000 * u64::from(file)), 101)
        });
        // Ten files are there. The next three push out the wrong guesses, then the oldest.
        (8..11).for_each(|file| {
            assert_eq!(open(&mut model, file, &[], 10_000 * u64::from(file)), 101)
        });
        assert_eq!(model.counts().wasted_bytes, 2 * 4096);
        assert_eq!(open(&mut model, 1, &[], 1_000_000), 0);
        assert_eq!(open(&mut model, 0, &[], 1_000_001), 101, "evicted");
    }

    #[test]
    fn files_ahead_have_half_of_the_cache() {
        let mut model = Model::new(LOCAL, Fetching::ByWorth, 100);
        open(&mut model, 0, &(1..10).collect::<Vec<_>>(), 0);
        model.advance(1_000_000);
        assert_eq!(model.counts().fetched, 5);
        assert_eq!(open(&mut model, 1, &[], 1_000_000), 0);
        model.send(1_000_000);
        model.advance(2_000_000);
        assert_eq!(model.counts().fetched, 6);
    }

    #[test]
    fn a_forgotten_file_is_not_there() {
        let mut model = Model::new(LOCAL, Fetching::ByWorth, 4);
        open(&mut model, 0, &[], 0);
        model.forget(0);
        model.forget(77);
        assert_eq!(open(&mut model, 0, &[], 1000), 101);
    }
}
