//! How a stream's hints get positions: they wait for their lookups, are placed in order, and enter the index of next uses.
//!
//! A hint with an overdue lookup is set aside (`slow`). Later hints are placed first, and the hint itself is placed when its
//! file is known.

use super::Stream;
use super::index::FileChange;
use super::waiting::{Lookup, Waiting};
use crate::hint::{Extent, NameId};
use crate::streams::shares::{Shares, Standing};

/// Work of one call: segments placed, and segments and pieces entered into the index. It takes about 0.1 ms. A hint is always
/// placed as a whole.
/// Unit: segments. Reason: bound.
const PLACED_AT_ONCE: usize = 4096;

/// Stored ranges of a stride take memory, so fewer accesses of a stride are placed ahead: `placed_max` divided by this. That
/// still leaves enough for the prefetcher to search.
/// Unit: ratio. Reason: judgement.
const STRIDED_DIVISOR: u64 = 8;

impl Stream {
    /// Adds a hint.
    pub(crate) fn wait(&mut self, waiting: Waiting) {
        self.known += u64::from(waiting.lookup().is_known());
        self.waiting_bytes_apart += waiting.bytes_apart();
        self.waiting.push_back(waiting);
    }

    /// Bytes of its hints, waiting and placed, with spare room in the queues unless that is small. Segments shared between
    /// hints are counted once per hint.
    pub(crate) fn hint_bytes(&self) -> usize {
        self.waiting_bytes_apart
            + self.waiting.room_bytes()
            + self.slow.len() * size_of::<(u64, Waiting)>()
            + self.places.hint_bytes()
    }

    /// Places hints with known files, up to `placed_max` ahead, and enters them into the index while its load is below
    /// `load_max`. One call does a limited amount. Calls `done` for each waiting hint that needs no more placing. Returns the
    /// number of whole blocks beyond the ends of their files.
    pub(crate) fn advance(
        &mut self,
        load_max: usize,
        mut changed: impl FnMut(FileChange),
        mut done: impl FnMut(Waiting),
    ) -> u64 {
        let (mut beyond_end, mut placed) = (0u64, false);
        let mut work = PLACED_AT_ONCE;
        let block_bytes = self.limits.block_bytes;
        // The scan stops at the end of the index. If it is there, new entries give it something to search.
        let searched_all = self.scan >= self.index.end(&self.places, block_bytes);
        let added = self.index.added();
        loop {
            // A file stays wanted from its lookup until it leaves the index. So a placed hint is indexed before the next one is
            // placed.
            self.index.extend(&self.places, block_bytes, load_max, &mut work, &mut changed);
            if self.index.is_complete(&self.places) {
                self.entering.take().into_iter().for_each(&mut done);
            }
            if work == 0 || !self.index.has_room(&self.places, load_max) {
                break;
            }
            let ahead = self.ahead();
            let Some(waiting) = self.waiting.front_mut() else { break };
            let most = match waiting.plan().extent {
                Extent::Strided { .. } => self.limits.placed_max / STRIDED_DIVISOR,
                _ => self.limits.placed_max,
            };
            if ahead >= most {
                break;
            }
            let mut rest = None;
            match waiting.lookup() {
                // Not counted as work: placing would be resumed again and again.
                Lookup::Pending(_) | Lookup::InFlight => break,
                Lookup::Overdue => {
                    work -= 1;
                    let slow = self.waiting.pop_front().expect("it is the first");
                    self.slow.push((self.first_waiting, slow));
                    self.first_waiting += 1;
                    continue;
                }
                Lookup::Void => work -= 1,
                Lookup::Known { file, size_bytes } => {
                    let plan = waiting.plan();
                    work = work.saturating_sub(plan.extent.segment_count().max(1));
                    if plan.repeats > 1 && self.places.in_parts(&plan.extent, size_bytes) {
                        waiting.goes_pass_by_pass();
                    }
                    let (plan, device) = (waiting.plan(), waiting.device);
                    let end = self.places.end();
                    let placing = self.places.place(plan, device, file, size_bytes);
                    if self.places.end() > end {
                        waiting.has_placed();
                    }
                    beyond_end = beyond_end.saturating_add(placing.beyond_end);
                    placed = true;
                    rest = placing.rest;
                }
            }
            if let Some(rest) = rest {
                waiting.goes_on_with(rest);
                continue;
            }
            if waiting.begins_next_pass() {
                continue;
            }
            self.first_waiting += 1;
            let first = self.waiting.pop_front().expect("it is the first");
            self.known -= u64::from(first.lookup().is_known());
            self.waiting_bytes_apart -= first.bytes_apart();
            self.entering = Some(first);
        }
        self.placing_is_unfinished = work == 0;
        if placed || (searched_all && self.index.added() > added) {
            self.devices.iter_mut().for_each(|part| part.quiet_until = 0);
        }
        if self.next.is_none() {
            self.next = self.places.run_at(self.cursor.front());
        }
        beyond_end
    }

    /// Hints that wait for their places, without those set aside.
    pub(crate) fn waiting_hints(&self) -> usize {
        self.waiting.len()
    }

    /// The number that its next hint will get.
    pub(crate) fn next_number(&self) -> u64 {
        self.first_waiting + self.waiting.len() as u64
    }

    /// Begins the lookup for the hint of this number, which must have a pending name.
    pub(crate) fn begin_lookup(&mut self, number: u64) -> NameId {
        let waiting = self.waiting_of(number).expect("it waits");
        let Lookup::Pending(name) = waiting.lookup() else { unreachable!("a name waits") };
        waiting.set_lookup(Lookup::InFlight);
        self.lookups += 1;
        name
    }

    /// Drops the waiting hint of this number. Returns its name if its lookup has not begun.
    pub(crate) fn pass_over(&mut self, number: u64) -> Option<NameId> {
        let waiting = self.waiting_of(number).expect("it waits");
        let lookup = waiting.lookup();
        waiting.set_lookup(Lookup::Void);
        match lookup {
            Lookup::Pending(name) => Some(name),
            _ => None,
        }
    }

    /// Records the end of the lookup for the hint of this number. Returns whether the hint still waits.
    pub(crate) fn lookup_ended(&mut self, number: u64, lookup: Lookup) -> bool {
        self.lookups -= 1;
        self.set_lookup(number, lookup)
    }

    /// Whether placing stopped at its limit of work.
    pub(crate) fn placing_is_unfinished(&self) -> bool {
        self.placing_is_unfinished
    }

    /// Resumes placing. Returns whether it had stopped at its limit of work.
    pub(crate) fn goes_on_placing(&mut self) -> bool {
        std::mem::take(&mut self.placing_is_unfinished)
    }

    /// Whether the size of its index or the bytes of its hints differ from what was last noted.
    #[inline]
    pub(crate) fn has_unnoted_load(&self) -> bool {
        self.load() != self.load_noted || self.hint_bytes() != self.hint_bytes_noted
    }

    /// Marks the lookup for the hint of this number as overdue: it is set aside when its turn to be placed comes. Returns
    /// whether the hint still waits for its lookup.
    pub(crate) fn lookup_is_overdue(&mut self, number: u64) -> bool {
        let waiting = self.waiting_of(number).filter(|hint| hint.lookup() == Lookup::InFlight);
        let Some(waiting) = waiting else { return false };
        waiting.set_lookup(Lookup::Overdue);
        true
    }

    fn waiting_of(&mut self, number: u64) -> Option<&mut Waiting> {
        let place = number.checked_sub(self.first_waiting)?;
        self.waiting.get_mut(place as usize)
    }

    /// Sets the lookup state of the hint of this number. A hint that was set aside becomes the first. Returns whether the hint
    /// still waits.
    fn set_lookup(&mut self, number: u64, lookup: Lookup) -> bool {
        if let Some(place) = self.slow.iter().position(|&(slow, _)| slow == number) {
            let (_, mut waiting) = self.slow.swap_remove(place);
            waiting.set_lookup(lookup);
            self.known += u64::from(lookup.is_known());
            self.waiting.push_front(waiting);
            self.first_waiting -= 1;
            return true;
        }
        let Some(waiting) = self.waiting_of(number) else { return false };
        waiting.set_lookup(lookup);
        self.known += u64::from(lookup.is_known());
        true
    }

    /// Whether all hints that are not set aside are placed and in the index.
    pub(crate) fn is_placed(&self) -> bool {
        self.waiting.is_empty() && self.entering.is_none() && self.index.is_complete(&self.places)
    }

    /// Hints that are not past.
    pub(crate) fn hints(&self) -> usize {
        self.waiting.len() + self.slow.len() + self.places.len()
    }

    /// Size of its index.
    pub(crate) fn load(&self) -> usize {
        self.index.load()
    }

    /// Hints ahead of the front whose names were looked up or are in lookup.
    pub(crate) fn resolved_ahead(&self) -> u64 {
        self.places.ends_after(self.cursor.front()) + self.known + self.lookups
    }

    /// Its standing by its [hints ahead](Self::resolved_ahead) and its balance.
    pub(crate) fn standing(&self, shares: &Shares) -> Standing {
        shares.standing(self.resolved_ahead(), self.balance)
    }
}
