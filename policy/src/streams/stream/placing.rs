//! How a stream's hints get positions: they wait for their lookups, are placed in order, and enter the index of next uses.
//!
//! A hint whose lookup takes its time is set aside (`slow`): the hints behind it are placed first, and it is placed when its
//! file is known.

use super::Stream;
use super::index::FileChange;
use super::waiting::{Lookup, Waiting};
use crate::hint::{Extent, NameId};
use crate::streams::shares::{Shares, Standing};

/// Segments, and pieces of them, that one call places and enters into the index: some 0.1 ms of it. A hint is
/// placed as a whole.
const PLACED_AT_ONCE: usize = 4096;

/// Ranges of a stride are written out: less of them is placed ahead, by this factor, which leaves what the
/// prefetcher looks through.
const STRIDED_DIVISOR: u64 = 8;

impl Stream {
    /// One hint more.
    pub(crate) fn wait(&mut self, waiting: Waiting) {
        self.known += u64::from(waiting.lookup().is_known());
        self.waiting_bytes_apart += waiting.bytes_apart();
        self.waiting.push_back(waiting);
    }

    /// Bytes that its hints take, those that wait and those that have their places, with the room for more of them if
    /// that is not small. Segments that hints have in common are counted for each.
    pub(crate) fn hint_bytes(&self) -> usize {
        self.waiting_bytes_apart
            + self.waiting.room_bytes()
            + self.slow.len() * size_of::<(u64, Waiting)>()
            + self.places.hint_bytes()
    }

    /// Places what is known and near enough, and enters it into the index while its load is below `load_max`;
    /// as much as one call may do. Returns whole blocks that lie beyond the ends of their files, and hands
    /// out the waiting hints that it is done with.
    pub(crate) fn advance(
        &mut self,
        load_max: usize,
        mut changed: impl FnMut(FileChange),
        mut done: impl FnMut(Waiting),
    ) -> u64 {
        let (mut beyond_end, mut placed) = (0u64, false);
        let mut work = PLACED_AT_ONCE;
        let block_bytes = self.limits.block_bytes;
        // The search for blocks ends where the index does.
        let searched_all = self.scan >= self.index.end(&self.places, block_bytes);
        let added = self.index.added();
        loop {
            // A file is wanted from when its hint waits until it leaves the index: no hint between.
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
                // No work: it would be begun again and again.
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

    /// Hints that wait for their places, but for those set aside.
    pub(crate) fn waiting_hints(&self) -> usize {
        self.waiting.len()
    }

    /// The number of the next hint that is given to it.
    pub(crate) fn next_number(&self) -> u64 {
        self.first_waiting + self.waiting.len() as u64
    }

    /// Begins the lookup of the hint of this number, which waits with a name.
    pub(crate) fn begin_lookup(&mut self, number: u64) -> NameId {
        let waiting = self.waiting_of(number).expect("it waits");
        let Lookup::Pending(name) = waiting.lookup() else { unreachable!("a name waits") };
        waiting.set_lookup(Lookup::InFlight);
        self.lookups += 1;
        name
    }

    /// Leaves out the hint of this number, which waits. Returns its name, if it was not looked up.
    pub(crate) fn pass_over(&mut self, number: u64) -> Option<NameId> {
        let waiting = self.waiting_of(number).expect("it waits");
        let lookup = waiting.lookup();
        waiting.set_lookup(Lookup::Void);
        match lookup {
            Lookup::Pending(name) => Some(name),
            _ => None,
        }
    }

    /// The lookup of the hint of this number has ended so. Returns whether the hint still waits.
    pub(crate) fn lookup_ended(&mut self, number: u64, lookup: Lookup) -> bool {
        self.lookups -= 1;
        self.set_lookup(number, lookup)
    }

    /// Whether placing was broken off: there is more to be placed.
    pub(crate) fn placing_is_unfinished(&self) -> bool {
        self.placing_is_unfinished
    }

    /// Placing is taken up again. Returns whether it was broken off.
    pub(crate) fn goes_on_placing(&mut self) -> bool {
        std::mem::take(&mut self.placing_is_unfinished)
    }

    /// Whether its index or its hints have another size than was noted.
    #[inline]
    pub(crate) fn has_unnoted_load(&self) -> bool {
        self.load() != self.load_noted || self.hint_bytes() != self.hint_bytes_noted
    }

    /// The lookup of the hint of this number takes its time: it is set aside when its turn to be placed
    /// comes. Returns whether the hint waits for it.
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

    /// The lookup of the hint of this number has ended. Returns whether the hint still waits.
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

    /// Whether all hints are placed, and in the index.
    pub(crate) fn is_placed(&self) -> bool {
        self.waiting.is_empty() && self.entering.is_none() && self.index.is_complete(&self.places)
    }

    /// Hints that are not past.
    pub(crate) fn hints(&self) -> usize {
        self.waiting.len() + self.slow.len() + self.places.len()
    }

    /// How large its index is.
    pub(crate) fn load(&self) -> usize {
        self.index.load()
    }

    /// Hints ahead of the front that were looked up, or are being.
    pub(crate) fn resolved_ahead(&self) -> u64 {
        self.places.ends_after(self.cursor.front()) + self.known + self.lookups
    }

    /// Its standing by what it has [ahead](Self::resolved_ahead), and by its balance.
    pub(crate) fn standing(&self, shares: &Shares) -> Standing {
        shares.standing(self.resolved_ahead(), self.balance)
    }
}
