//! The exact least total stall of a small case.
//!
//! The model is the machine's, for one program that discloses everything, in units:
//! * A fetch of a block takes its device's time, however many are in flight. It holds a buffer from its start.
//!   When it ends, the block is in memory.
//! * Decisions are made at the start, after each read has begun, and when fetches have ended, also while the
//!   program waits. A decision starts any number of fetches of blocks that are yet to be read and neither in
//!   memory nor in flight. If buffers are lacking, it evicts any blocks in memory, and never more than needed.
//! * A read begins when the one before ends, after the fetches that end at that instant. If its block is in
//!   memory, the read ends a unit later, and the block may be evicted from its beginning on. If the block is in
//!   flight, the program waits for it, and the read ends a unit after its arrival. Otherwise a fetch starts at
//!   once, in a free buffer, or in that of any block in memory, which is evicted. If all buffers are being
//!   filled, the block is read without a buffer in the same time.
//!
//! The search is A* over the states between decisions. Its bound: under any decisions, a block that will be
//! read arrives no sooner than its fetch can end, and is needed no sooner than one unit for each read before
//! it. The search prunes one thing: a block that will not be read again counts as a free buffer, since evicting
//! it instead of another costs nothing.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::Case;

/// Blocks of a case at most.
const BLOCKS_MAX: usize = 8;
/// Units that a read of a block in memory takes.
const HIT: u8 = 1;

/// A set of blocks, one bit each.
type Set = u8;

/// The program's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Doing {
    /// Reads from memory for this many more units.
    Reading(u8),
    /// Waits for the block of the last read begun.
    Waiting,
    /// Reads without a buffer for this many more units, and then from memory.
    Around(u8),
}

/// The state at a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    /// Number of reads begun.
    begun: u8,
    doing: Doing,
    /// Blocks in memory that will be read again.
    resident: Set,
    /// Units until each block arrives; 0 if it is not in flight.
    arrives_in: [u8; BLOCKS_MAX],
}

/// The least total stall of `case`, in units. Takes exponential time, so cases have at most 8 blocks.
pub fn optimum(case: &Case) -> u64 {
    let search = Search::new(case);
    let start =
        State { begun: 0, doing: Doing::Reading(0), resident: 0, arrives_in: [0; BLOCKS_MAX] };
    let mut best: HashMap<State, u64> = HashMap::from([(start, 0)]);
    let mut open = BinaryHeap::from([(Reverse(search.bound(&start)), 0, start)]);
    let mut next = Vec::new();
    while let Some((_, stall, state)) = open.pop() {
        if search.is_over(&state) {
            return stall;
        }
        if best[&state] < stall {
            continue;
        }
        for decided in search.decisions(&state) {
            search.advance(decided, stall, &mut next);
        }
        for (state, stall) in next.drain(..) {
            let known = best.entry(state).or_insert(u64::MAX);
            if stall < *known {
                *known = stall;
                open.push((Reverse(stall + search.bound(&state)), stall, state));
            }
        }
    }
    unreachable!("demand alone reaches the end");
}

struct Search<'a> {
    case: &'a Case,
    fetch: [u8; BLOCKS_MAX],
    /// For each number of reads begun, the blocks still to be read.
    wanted: Vec<Set>,
}

impl<'a> Search<'a> {
    fn new(case: &'a Case) -> Self {
        let blocks = case.remote.len();
        assert!(blocks <= BLOCKS_MAX && case.reads.len() < 256, "the case is too large");
        assert!(case.buffers > 0, "the case has no buffers");
        let mut fetch = [0; BLOCKS_MAX];
        for (block, units) in fetch.iter_mut().enumerate().take(blocks) {
            let wanted = case.fetch_units(block);
            *units = u8::try_from(wanted).expect("a fetch takes less than 256 units");
            assert!(wanted > 0, "a fetch takes time");
        }
        let from = |begun: usize| case.reads[begun..].iter().fold(0, |set, block| set | 1 << block);
        Search { case, fetch, wanted: (0..=case.reads.len()).map(from).collect() }
    }

    fn is_over(&self, state: &State) -> bool {
        usize::from(state.begun) == self.case.reads.len()
            && matches!(state.doing, Doing::Reading(_))
    }

    fn wanted(&self, state: &State) -> Set {
        self.wanted[usize::from(state.begun)]
    }

    fn last_read(&self, state: &State) -> usize {
        self.case.reads[usize::from(state.begun) - 1]
    }

    /// A lower bound of the stall from `state` on, in units.
    fn bound(&self, state: &State) -> u64 {
        let (stalled, busy) = match state.doing {
            Doing::Reading(left) => (0, left),
            Doing::Waiting => (state.arrives_in[self.last_read(state)], HIT),
            Doing::Around(left) => (left, HIT),
        };
        let mut wanted_in = u64::from(stalled) + u64::from(busy);
        let mut later = 0;
        for &block in &self.case.reads[usize::from(state.begun)..] {
            let there_in = match state.arrives_in[block] {
                _ if state.resident & 1 << block != 0 => 0,
                0 => self.fetch[block],
                left => left,
            };
            later = later.max(u64::from(there_in).saturating_sub(wanted_in));
            wanted_in += u64::from(HIT);
        }
        u64::from(stalled) + later
    }

    fn free(&self, state: &State) -> usize {
        self.case.buffers - state.resident.count_ones() as usize - in_flight(state)
    }

    /// The states that can follow `state` by a decision, including the decision to do nothing.
    fn decisions(&self, state: &State) -> Vec<State> {
        let on_the_way = (0..BLOCKS_MAX).filter(|&block| state.arrives_in[block] > 0);
        let on_the_way: Set = on_the_way.fold(0, |set, block| set | 1 << block);
        let missing = self.wanted(state) & !state.resident & !on_the_way;
        let free = self.free(state);
        let mut decided = Vec::new();
        for fetched in subsets(missing) {
            let lacking = (fetched.count_ones() as usize).saturating_sub(free);
            for evicted in subsets(state.resident) {
                if evicted.count_ones() as usize == lacking {
                    decided.push(self.start(state, fetched, evicted));
                }
            }
        }
        decided
    }

    fn start(&self, state: &State, fetched: Set, evicted: Set) -> State {
        let mut state = State { resident: state.resident & !evicted, ..*state };
        for block in members(fetched) {
            state.arrives_in[block] = self.fetch[block];
        }
        state
    }

    /// Lets time pass until the next decision, and pushes the possible states with the stall so far.
    fn advance(&self, state: State, stall: u64, next: &mut Vec<(State, u64)>) {
        let arrival = state.arrives_in.iter().copied().filter(|&left| left > 0).min();
        let own = match state.doing {
            Doing::Reading(left) | Doing::Around(left) => Some(left),
            Doing::Waiting => None,
        };
        let first = [arrival, own].into_iter().flatten().min();
        let passed = first.expect("a program that waits waits for an arrival");
        let mut later = state;
        for block in 0..BLOCKS_MAX {
            if state.arrives_in[block] > 0 {
                later.arrives_in[block] -= passed;
                later.resident |= Set::from(later.arrives_in[block] == 0) << block;
            }
        }
        later.doing = match state.doing {
            Doing::Reading(left) => Doing::Reading(left - passed),
            Doing::Around(left) if left == passed => Doing::Reading(HIT),
            Doing::Around(left) => Doing::Around(left - passed),
            Doing::Waiting if later.arrives_in[self.last_read(&state)] == 0 => Doing::Reading(HIT),
            Doing::Waiting => Doing::Waiting,
        };
        // A block that arrives and is not read again leaves a free buffer.
        later.resident &= self.wanted(&later);
        let stalled = !matches!(state.doing, Doing::Reading(_));
        let stall = stall + if stalled { u64::from(passed) } else { 0 };
        let decides = stalled || arrival == Some(passed) || self.is_over(&state);
        if decides { next.push((later, stall)) } else { self.read(later, stall, next) }
    }

    /// Begins the next read.
    fn read(&self, state: State, stall: u64, next: &mut Vec<(State, u64)>) {
        let block = self.case.reads[usize::from(state.begun)];
        let mut begun = State { begun: state.begun + 1, doing: Doing::Waiting, ..state };
        let here = state.resident & 1 << block != 0;
        begun.resident &= self.wanted(&begun);
        if here {
            begun.doing = Doing::Reading(HIT);
            next.push((begun, stall));
        } else if state.arrives_in[block] > 0 {
            next.push((begun, stall));
        } else if self.free(&begun) > 0 {
            next.push((self.start(&begun, 1 << block, 0), stall));
        } else if begun.resident != 0 {
            for victim in members(begun.resident) {
                next.push((self.start(&begun, 1 << block, 1 << victim), stall));
            }
        } else {
            begun.doing = Doing::Around(self.fetch[block]);
            next.push((begun, stall));
        }
    }
}

fn in_flight(state: &State) -> usize {
    state.arrives_in.iter().filter(|&&left| left > 0).count()
}

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..BLOCKS_MAX).filter(move |block| set & 1 << block != 0)
}

/// All subsets of `set`, the empty one first.
fn subsets(set: Set) -> impl Iterator<Item = Set> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let subset: Set = next?;
        // Counts through the bits of `set`.
        next = (subset != set).then(|| subset.wrapping_sub(set) & set);
        Some(subset)
    })
}

#[cfg(test)]
mod tests;
