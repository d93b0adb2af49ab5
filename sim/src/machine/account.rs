//! The machine's own books: which blocks are in memory or on their way.
//!
//! Kept from what the policy has ordered, and compared with what it says. Whoever disagrees with
//! the books is wrong, and the run ends with a panic that names block and claim.

use std::collections::HashMap;

use foretell_policy::{Access, Block};

/// Blocks in buffers.
#[derive(Debug)]
pub(super) struct Account {
    capacity_blocks: u64,
    /// In memory; whether it was prefetched and not read since.
    resident: HashMap<Block, bool>,
    /// On its way, and by which job.
    in_flight: HashMap<Block, u64>,
}

impl Account {
    pub(super) fn new(capacity_blocks: u64) -> Self {
        Account { capacity_blocks, resident: HashMap::new(), in_flight: HashMap::new() }
    }

    /// Whether a read of `block` could have found `access`.
    pub(super) fn check_access(&self, block: Block, access: Access) {
        let expected = if self.resident.contains_key(&block) {
            Access::Hit
        } else if self.in_flight.contains_key(&block) {
            Access::InFlight
        } else {
            Access::Miss
        };
        assert_eq!(access, expected, "reading {block:?}");
    }

    /// A read of a block in memory: whether it is the first since it was prefetched.
    pub(super) fn take_unread(&mut self, block: Block) -> bool {
        self.resident.get_mut(&block).is_some_and(std::mem::take)
    }

    /// The job that brings `block`.
    pub(super) fn job_of(&self, block: Block) -> u64 {
        self.in_flight[&block]
    }

    /// Whether `block` is on its way.
    pub(super) fn is_in_flight(&self, block: Block) -> bool {
        self.in_flight.contains_key(&block)
    }

    /// `block` is handed to a program.
    pub(super) fn check_arrived(&self, block: Block) {
        assert!(self.resident.contains_key(&block), "{block:?} is handed over and has not arrived");
    }

    /// After an event: the policy says that it holds so many buffers.
    pub(super) fn check_buffers(&self, held: u64) {
        let (buffers, capacity) =
            (self.resident.len() + self.in_flight.len(), self.capacity_blocks);
        assert_eq!(held, buffers as u64, "buffers that the policy holds, and those in the books");
        assert!(held <= capacity, "{held} buffers of {capacity}");
    }

    /// Nothing is under way any more.
    pub(super) fn check_idle(&self) {
        let first = self.in_flight.iter().min();
        assert_eq!(first, None, "a block, by a job, still on its way after the end");
    }

    /// Job `job` will bring `block`, in a buffer that is free.
    pub(super) fn begin(&mut self, block: Block, job: u64) {
        assert!(!self.resident.contains_key(&block), "fetching {block:?}, which is in memory");
        let before = self.in_flight.insert(block, job);
        assert_eq!(before, None, "fetching {block:?}, which is on its way");
        let buffers = self.resident.len() + self.in_flight.len();
        let capacity = self.capacity_blocks;
        assert!(buffers as u64 <= capacity, "{buffers} buffers of {capacity} for {block:?}");
    }

    /// `block` has arrived; `unread` if nobody has waited for it.
    pub(super) fn arrive(&mut self, block: Block, unread: bool) {
        let job = self.in_flight.remove(&block);
        assert!(job.is_some(), "{block:?} has arrived and was not on its way");
        self.resident.insert(block, unread);
    }

    /// `block` was on its way and has not arrived.
    pub(super) fn lose(&mut self, block: Block) {
        let job = self.in_flight.remove(&block);
        assert!(job.is_some(), "{block:?} has failed to arrive and was not on its way");
    }

    /// `block` gives up its buffer.
    pub(super) fn evict(&mut self, block: Block) {
        let evicted = self.resident.remove(&block);
        assert!(evicted.is_some(), "evicting {block:?}, which is not in memory");
    }

    /// `block` could be given no buffer: only right if every buffer is being filled.
    pub(super) fn check_full(&self, block: Block) {
        let (in_flight, capacity) = (self.in_flight.len() as u64, self.capacity_blocks);
        assert_eq!(in_flight, capacity, "no buffer for {block:?} with one to be had");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_policy::FileId;

    fn block(index: u64) -> Block {
        Block { file: FileId(1), index }
    }

    #[test]
    fn a_block_is_unread_until_it_is_read() {
        let mut account = Account::new(2);
        account.begin(block(1), 7);
        account.check_access(block(1), Access::InFlight);
        assert_eq!(account.job_of(block(1)), 7);
        account.arrive(block(1), true);
        account.check_access(block(1), Access::Hit);
        assert!(account.take_unread(block(1)));
        assert!(!account.take_unread(block(1)));
        account.evict(block(1));
        account.check_access(block(1), Access::Miss);
    }

    #[test]
    fn a_block_that_fails_to_arrive_has_no_buffer() {
        let mut account = Account::new(1);
        account.begin(block(1), 1);
        account.lose(block(1));
        account.check_access(block(1), Access::Miss);
        account.check_buffers(0);
        account.check_idle();
    }

    #[test]
    #[should_panic(expected = "has not arrived")]
    fn handing_over_what_is_on_its_way_is_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), 1);
        account.check_arrived(block(1));
    }

    #[test]
    #[should_panic(expected = "buffers that the policy holds")]
    fn buffers_of_nobody_are_noticed() {
        Account::new(1).check_buffers(1);
    }

    #[test]
    #[should_panic(expected = "still on its way")]
    fn what_never_ends_is_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), 1);
        account.check_idle();
    }

    #[test]
    #[should_panic(expected = "2 buffers of 1")]
    fn more_blocks_than_buffers_are_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), 1);
        account.begin(block(2), 2);
    }

    #[test]
    #[should_panic(expected = "which is in memory")]
    fn fetching_what_is_there_is_noticed() {
        let mut account = Account::new(2);
        account.begin(block(1), 1);
        account.arrive(block(1), false);
        account.begin(block(1), 2);
    }

    #[test]
    #[should_panic(expected = "no buffer")]
    fn refusing_a_buffer_that_is_there_is_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), 1);
        account.arrive(block(1), false);
        account.check_full(block(2));
    }
}
