//! One budget for the managers of several runs in a process.
//!
//! Each manager has a policy of its own, for its own programs. What they share is memory: a manager fetches up to a limit,
//! which it asks for in each turn (`Lease::tell`). They also share devices (`devices.rs`).
//!
//! * Managers with something to fetch get equal shares. One that needs less than its share leaves the rest to the others.
//! * A manager that had more when another came keeps what it has fetched, and fetches nothing until its programs have read it
//!   down to its share. What is held too long is let go (`PATIENCE`), so a program that has stopped reading starves nobody.
//! * If the budget itself shrinks, because memory is short, what is beyond a share is let go at once.
//!
//! Invariant: what all managers hold, and may fetch without asking again, is at most the budget, and `FLOOR_BYTES` for each
//! of them. A manager may fetch more only once the others have heard that they may fetch less.
//!
//! Cost: O(managers) a turn, under a lock that no one holds while waiting.

mod devices;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foretell_policy::DeviceId;

use self::devices::Devices;
pub(crate) use self::devices::Measured;
use crate::driver::done::DoneQueue;
use crate::reads::BLOCK_BYTES;
use crate::threads::Threads;

/// Managers of a process. Each has such a share of its descriptors.
pub const MANAGERS_MAX: usize = 32;

/// What a manager may fetch at least.
const FLOOR_BYTES: u64 = 1 << 20;
const FLOOR_BLOCKS: u64 = FLOOR_BYTES / BLOCK_BYTES;

/// What is beyond a share while others want it, and has not been read for so long, is let go.
const PATIENCE: Duration = Duration::from_secs(1);

/// A manager that has had a fetch in flight within this time counts as fetching for those that follow nothing meanwhile.
pub(crate) const FETCHING: Duration = Duration::from_millis(200);

/// A budget that managers share; see the [module](self). Clones share one state.
#[derive(Clone, Debug)]
pub struct Shares {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    budget_blocks: u64,
    full_blocks: u64,
    threads: Option<Threads>,
    /// The budget was lowered, and some managers may not have heard of it.
    is_short: bool,
    next: u64,
    members: Vec<Member>,
    devices: Devices,
}

#[derive(Debug)]
struct Member {
    id: u64,
    /// The most that it may have, whatever others want.
    most_blocks: u64,
    is_active: bool,
    held_blocks: u64,
    /// The limit that it was told last.
    limit_blocks: u64,
    /// Since when it has held more than its share, and how much.
    over: Option<(Instant, u64)>,
    /// When it last had a fetch in flight.
    fetched_at: Option<Instant>,
    bell: Arc<DoneQueue>,
}

impl Member {
    /// What it holds, or may come to hold before it asks again.
    fn taken(&self) -> u64 {
        self.held_blocks.max(self.limit_blocks)
    }

    fn has_fetched(&self, now: Instant) -> bool {
        self.fetched_at.is_some_and(|at| now.saturating_duration_since(at) < FETCHING)
    }
}

/// What a manager is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The blocks that may be in memory or in flight.
    pub(crate) limit_blocks: u64,
    /// Whether to let go of what is beyond that.
    pub(crate) sheds: bool,
    /// Whether other managers fetch, so that it matters where its programs wait.
    pub(crate) others_fetch: bool,
}

impl Shares {
    /// Of so many bytes.
    pub fn new(budget_bytes: u64) -> Self {
        let budget_blocks = (budget_bytes / BLOCK_BYTES).max(1);
        let state = State {
            budget_blocks,
            full_blocks: budget_blocks,
            threads: None,
            is_short: false,
            next: 0,
            members: Vec::new(),
            devices: Devices::default(),
        };
        Shares { state: Arc::new(Mutex::new(state)) }
    }

    /// From now on so many bytes are shared. All managers hear of it.
    pub fn set_budget(&self, bytes: u64) {
        let mut state = self.lock();
        let blocks = (bytes / BLOCK_BYTES).max(1);
        state.is_short = blocks < state.budget_blocks;
        state.budget_blocks = blocks;
        state.full_blocks = state.full_blocks.max(blocks);
        state.members.iter().for_each(|member| member.bell.ring());
    }

    /// The bytes that are shared.
    pub fn budget_bytes(&self) -> u64 {
        self.lock().budget_blocks * BLOCK_BYTES
    }

    /// The most that was ever shared.
    pub(crate) fn full_bytes(&self) -> u64 {
        self.lock().full_blocks * BLOCK_BYTES
    }

    /// The threads of all managers, which have one bound.
    pub(crate) fn threads(&self) -> Result<Threads, u64> {
        let mut state = self.lock();
        match &state.threads {
            Some(threads) => Ok(threads.clone()),
            None => Ok(state.threads.insert(Threads::new()?).clone()),
        }
    }

    /// A manager joins, which may have `most_blocks`. `bell` wakes it when it may have more.
    pub(crate) fn join(&self, most_blocks: u64, bell: Arc<DoneQueue>) -> Lease {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.members.push(Member {
            id,
            most_blocks,
            is_active: false,
            held_blocks: 0,
            limit_blocks: 0,
            over: None,
            fetched_at: None,
            bell,
        });
        drop(state);
        Lease { shares: self.clone(), id }
    }

    /// The state is valid even if a thread has panicked under the lock: no code that can panic runs there.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A manager's part of the budget; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lease {
    shares: Shares,
    id: u64,
}

impl Lease {
    /// The manager says what it holds, and whether it has something to fetch, and is told its limit.
    pub(crate) fn tell(&self, now: Instant, is_active: bool, held_blocks: u64) -> Terms {
        self.shares.lock().tell(self.id, now, is_active, held_blocks)
    }

    /// The most fetches that it may have in flight at `device`, of which it has measured this.
    pub(crate) fn most_in_flight(&self, device: DeviceId, measured: Option<Measured>) -> usize {
        let mut state = self.shares.lock();
        let is_only_one = state.members.len() == 1;
        state.devices.limit(Instant::now(), (device, self.id), measured, is_only_one)
    }

    /// The manager has so many fetches in flight at `device`, and may want more if it `is_held_back`.
    pub(crate) fn note_in_flight(&self, device: DeviceId, in_flight: usize, is_held_back: bool) {
        let (mut state, now) = (self.shares.lock(), Instant::now());
        state.devices.note(now, (device, self.id), in_flight, is_held_back);
        if in_flight > 0 {
            state.fetches(self.id, now);
        }
    }

    /// Programs wait for reads of `device` that no fetch serves, presumably until then.
    pub(crate) fn note_waits(&self, device: DeviceId, until: Instant) {
        self.shares.lock().devices.waits((device, self.id), until);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.shares.lock();
        state.members.retain(|member| member.id != self.id);
        state.devices.leave(self.id);
        state.wake(None);
    }
}

impl State {
    fn tell(&mut self, id: u64, now: Instant, is_active: bool, held_blocks: u64) -> Terms {
        let Some(at) = self.members.iter().position(|member| member.id == id) else {
            return Terms { limit_blocks: 1, sheds: false, others_fetch: false };
        };
        let (budget, is_short) = (self.budget_blocks, self.is_short);
        let before = self.members[at].taken();
        self.members[at].is_active = is_active;
        self.members[at].held_blocks = held_blocks;
        let share = if is_active { self.share(at) } else { 0 };
        let of_others: u64 = self.others(at).map(Member::taken).sum();
        let is_wanted = self.others(at).any(|other| other.is_active);
        let member = &mut self.members[at];
        let free = budget.saturating_sub(of_others);
        member.limit_blocks = share.min(free).max(FLOOR_BLOCKS.min(member.most_blocks)).max(1);
        let is_over = held_blocks > member.limit_blocks;
        let sheds = is_over && (is_short || (is_wanted && member.lingers(now, held_blocks)));
        if !is_over {
            member.over = None;
        }
        let limit_blocks = member.limit_blocks;
        let gives_back = member.taken() < before;
        if self.is_short {
            self.is_short = self.members.iter().map(Member::taken).sum::<u64>() > budget;
        }
        if gives_back {
            self.wake(Some(at));
        }
        let others_fetch = self.others(at).any(|other| other.has_fetched(now));
        Terms { limit_blocks, sheds, others_fetch }
    }

    /// A manager has fetches in flight. If it had none for a while, the others hear of it.
    fn fetches(&mut self, id: u64, now: Instant) {
        let Some(at) = self.members.iter().position(|member| member.id == id) else { return };
        let is_new = !self.members[at].has_fetched(now);
        self.members[at].fetched_at = Some(now);
        if is_new {
            self.others(at).filter(|other| !other.is_active).for_each(|other| other.bell.ring());
        }
    }

    fn others(&self, at: usize) -> impl Iterator<Item = &Member> {
        self.members.iter().enumerate().filter(move |&(other, _)| other != at).map(|(_, m)| m)
    }

    /// What an active member may have if all active ones are to have the same, and none more than it can use.
    fn share(&self, at: usize) -> u64 {
        let most = self.members[at].most_blocks;
        let mut mosts: Vec<u64> =
            self.members.iter().filter(|m| m.is_active).map(|m| m.most_blocks).collect();
        mosts.sort_unstable();
        let (mut left, mut count) = (self.budget_blocks, mosts.len() as u64);
        for of_one in mosts {
            let equal = left / count;
            if of_one >= equal {
                return equal.min(most);
            }
            if of_one == most {
                return most;
            }
            left -= of_one;
            count -= 1;
        }
        most.min(left)
    }

    /// Wakes the active members that might have more.
    fn wake(&self, but: Option<usize>) {
        for (at, member) in self.members.iter().enumerate() {
            if Some(at) != but && member.is_active && member.limit_blocks < self.share(at) {
                member.bell.ring();
            }
        }
    }
}

impl Member {
    /// Whether it has held too much for long, and reads nothing of it.
    fn lingers(&mut self, now: Instant, held_blocks: u64) -> bool {
        match self.over {
            Some((since, held)) if held <= held_blocks => now - since >= PATIENCE,
            _ => {
                self.over = Some((now, held_blocks));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::descriptors::is_readable;

    const BUDGET: u64 = 1000 * FLOOR_BLOCKS;

    fn shares() -> Shares {
        Shares::new(BUDGET * BLOCK_BYTES)
    }

    fn join(shares: &Shares, most: u64) -> Lease {
        shares.join(most, Arc::new(DoneQueue::new().expect("a descriptor")))
    }

    fn limit(lease: &Lease, is_active: bool, held: u64) -> u64 {
        lease.tell(Instant::now(), is_active, held).limit_blocks
    }

    #[test]
    fn one_alone_has_all_and_two_have_halves_once_the_first_has_read() {
        let shares = shares();
        let (one, two) = (join(&shares, BUDGET), join(&shares, BUDGET));
        assert_eq!(limit(&one, true, 0), BUDGET);
        assert_eq!(limit(&two, true, 0), FLOOR_BLOCKS, "the first may be about to fetch all");
        assert_eq!(limit(&one, true, BUDGET / 4), BUDGET / 2);
        assert_eq!(limit(&two, true, 0), BUDGET / 2);
        assert_eq!(limit(&two, false, 0), FLOOR_BLOCKS, "it has nothing to fetch");
        assert_eq!(limit(&one, true, BUDGET / 4), BUDGET - FLOOR_BLOCKS);
        drop(two);
        assert_eq!(limit(&one, true, BUDGET / 4), BUDGET);
    }

    #[test]
    fn what_one_cannot_use_others_have() {
        let shares = shares();
        let (small, one, two) =
            (join(&shares, BUDGET / 10), join(&shares, BUDGET), join(&shares, BUDGET));
        let mut limits = [0; 3];
        for _ in 0..3 {
            limits = [&small, &one, &two].map(|lease| limit(lease, true, 0));
        }
        assert_eq!(limits, [BUDGET / 10, BUDGET * 9 / 20, BUDGET * 9 / 20]);
    }

    #[test]
    fn what_is_held_too_long_is_let_go_and_what_is_read_is_not() {
        let shares = shares();
        let (one, two) = (join(&shares, BUDGET), join(&shares, BUDGET));
        let began = Instant::now();
        assert_eq!(one.tell(began, true, 0).limit_blocks, BUDGET);
        two.tell(began, true, 0);
        assert!(!one.tell(began, true, BUDGET).sheds);
        assert!(!one.tell(began + PATIENCE, true, BUDGET - 1).sheds, "it reads");
        assert!(one.tell(began + 2 * PATIENCE, true, BUDGET - 1).sheds);
        two.tell(began, false, 0);
        assert!(!one.tell(began + 4 * PATIENCE, true, BUDGET - 1).sheds, "nobody wants it");
    }

    #[test]
    fn a_smaller_budget_is_heard_at_once() {
        let shares = shares();
        let one = join(&shares, BUDGET);
        limit(&one, true, 0);
        shares.set_budget(BUDGET / 2 * BLOCK_BYTES);
        let terms = one.tell(Instant::now(), true, BUDGET);
        assert_eq!(terms, Terms { limit_blocks: BUDGET / 2, sheds: true, others_fetch: false });
        let terms = one.tell(Instant::now(), true, BUDGET / 2);
        assert_eq!(terms, Terms { limit_blocks: BUDGET / 2, sheds: false, others_fetch: false });
        shares.set_budget(BUDGET * BLOCK_BYTES);
        assert_eq!(limit(&one, true, BUDGET / 2), BUDGET);
    }

    #[test]
    fn those_that_fetch_nothing_hear_that_others_do() {
        let shares = shares();
        let (one, two) = (join(&shares, BUDGET), join(&shares, BUDGET));
        let others_fetch = |lease: &Lease| lease.tell(Instant::now(), false, 0).others_fetch;
        assert!(!others_fetch(&one) && !others_fetch(&two));
        one.note_in_flight(DeviceId(1), 3, false);
        assert!(!others_fetch(&one) && others_fetch(&two));
        let rung = |at: usize| is_readable(shares.lock().members[at].bell.as_fd());
        assert!(!rung(0) && rung(1));
        drop(one);
        assert!(!others_fetch(&two));
    }

    proptest::proptest! {
        /// Whoever joins, fetches up to its limit, reads and leaves, in whatever order: the budget holds.
        #[test]
        fn the_budget_holds(steps in proptest::collection::vec((0..4usize, 0..3u8, 0..=BUDGET), 1..200)) {
            let shares = shares();
            let mut members: [Option<(Lease, u64, u64)>; 4] = Default::default();
            for (who, what, number) in steps {
                let member = &mut members[who];
                match (member.take(), what) {
                    (None, _) => *member = Some((join(&shares, number.max(1)), 0, 0)),
                    (Some(_), 0) if number % 5 == 0 => {}
                    (Some((lease, limit, held)), 0) => {
                        let held = held.min(number);
                        *member = Some((lease, limit, held));
                    }
                    (Some((lease, limit, held)), 1) => {
                        let held = held.max(number.min(limit));
                        *member = Some((lease, limit, held));
                    }
                    (Some((lease, _, held)), _) => {
                        let terms = lease.tell(Instant::now(), number % 3 > 0, held);
                        let held = if terms.sheds { held.min(terms.limit_blocks) } else { held };
                        *member = Some((lease, terms.limit_blocks, held));
                    }
                }
                let taken: u64 = members.iter().flatten().map(|&(_, limit, held)| limit.max(held)).sum();
                proptest::prop_assert!(taken <= BUDGET + 4 * FLOOR_BLOCKS, "{taken}");
            }
        }
    }
}
