//! The machine's own books: which blocks are in memory or on their way.
//!
//! Kept from what the policy has ordered, and compared with what it says. Whoever disagrees with
//! the books is wrong, and the run ends with a panic that names block and claim.

use std::collections::HashMap;

use foretell_policy::hash::Mix;
use foretell_policy::{Access, Block, FileId};

use super::slab::Key;

/// What is in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// In memory; whether it was prefetched and not read since.
    Resident { unread: bool },
    /// On its way, and by which job.
    InFlight(Key),
}

/// Neighbours in a file that are entered together: who reads in sequence finds the next ones in the same place.
const GROUP_BLOCKS: u64 = 4;

/// A file, and the number of a group in it.
type GroupId = (FileId, u64);

/// What is held of a group.
type Group = [Option<Held>; GROUP_BLOCKS as usize];

/// Blocks in buffers.
#[derive(Debug)]
pub(super) struct Account {
    capacity_blocks: u64,
    /// Those of which something is held.
    groups: HashMap<GroupId, Group, Mix>,
    /// Blocks held, and of these, on their way.
    held: u64,
    in_flight: u64,
}

/// Where `block` is entered.
fn place(block: Block) -> (GroupId, usize) {
    let group = (block.file, block.index / GROUP_BLOCKS);
    (group, (block.index % GROUP_BLOCKS) as usize)
}

impl Account {
    pub(super) fn new(capacity_blocks: u64) -> Self {
        Account { capacity_blocks, groups: HashMap::default(), held: 0, in_flight: 0 }
    }

    fn held(&self, block: Block) -> Option<Held> {
        let (group, at) = place(block);
        self.groups.get(&group)?[at]
    }

    fn held_mut(&mut self, block: Block) -> Option<&mut Held> {
        let (group, at) = place(block);
        self.groups.get_mut(&group)?[at].as_mut()
    }

    /// What is on its way, and by which job.
    fn coming(&self) -> impl Iterator<Item = (Block, Key)> {
        let all = self.groups.iter().flat_map(|(&(file, group), held)| {
            let blocks = (group * GROUP_BLOCKS..).map(move |index| Block { file, index });
            blocks.zip(held)
        });
        all.filter_map(|(block, held)| match held {
            Some(Held::InFlight(job)) => Some((block, *job)),
            Some(Held::Resident { .. }) | None => None,
        })
    }

    /// Of `block` nothing is held any more; what was.
    fn take(&mut self, block: Block) -> Option<Held> {
        let (id, at) = place(block);
        let group = self.groups.get_mut(&id)?;
        let taken = group[at].take()?;
        if group.iter().all(Option::is_none) {
            self.groups.remove(&id);
        }
        self.held -= 1;
        Some(taken)
    }

    /// A read of `block` has found `access`, if that could be. Returns what was held before the read, which makes
    /// a block in memory a read one.
    pub(super) fn read(&mut self, block: Block, access: Access) -> Option<Held> {
        let held = self.held_mut(block);
        let before = held.as_deref().copied();
        let expected = match before {
            Some(Held::Resident { .. }) => Access::Hit,
            Some(Held::InFlight(_)) => Access::InFlight,
            None => Access::Miss,
        };
        assert_eq!(access, expected, "reading {block:?}");
        if let Some(Held::Resident { unread }) = held {
            *unread = false;
        }
        before
    }

    /// Blocks that there is memory for.
    pub(super) fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    /// Whether `block` is in memory or on its way.
    pub(super) fn holds(&self, block: Block) -> bool {
        self.held(block).is_some()
    }

    /// The job that brings `block`, if it is on its way.
    pub(super) fn job_of(&self, block: Block) -> Option<Key> {
        match self.held(block) {
            Some(Held::InFlight(job)) => Some(job),
            Some(Held::Resident { .. }) | None => None,
        }
    }

    /// `block` is handed to a program, which has read it then.
    pub(super) fn hand_over(&mut self, block: Block) {
        match self.held_mut(block) {
            Some(Held::Resident { unread }) => *unread = false,
            _ => panic!("{block:?} is handed over and has not arrived"),
        }
    }

    /// After an event: the policy says that it holds so many buffers.
    pub(super) fn check_buffers(&self, held: u64) {
        let capacity = self.capacity_blocks;
        assert_eq!(held, self.held, "buffers that the policy holds, and those in the books");
        assert!(held <= capacity, "{held} buffers of {capacity}");
    }

    /// Nothing is under way any more.
    pub(super) fn check_idle(&self) {
        let first = self.coming().min();
        assert_eq!(first, None, "a block, by a job, still on its way after the end");
        assert_eq!(self.in_flight, 0, "blocks on their way after the end, and none in the books");
    }

    /// Job `job` will bring `block`, in a buffer that is free.
    pub(super) fn begin(&mut self, block: Block, job: Key) {
        let (group, at) = place(block);
        let held = &mut self.groups.entry(group).or_default()[at];
        match held.replace(Held::InFlight(job)) {
            None => {}
            Some(Held::Resident { .. }) => panic!("fetching {block:?}, which is in memory"),
            Some(Held::InFlight(_)) => panic!("fetching {block:?}, which is on its way"),
        }
        self.held += 1;
        self.in_flight += 1;
        let (buffers, capacity) = (self.held, self.capacity_blocks);
        assert!(buffers <= capacity, "{buffers} buffers of {capacity} for {block:?}");
    }

    /// `block` has arrived; nobody has read it.
    pub(super) fn arrive(&mut self, block: Block) {
        match self.held_mut(block) {
            Some(held @ Held::InFlight(_)) => *held = Held::Resident { unread: true },
            _ => panic!("{block:?} has arrived and was not on its way"),
        }
        self.in_flight -= 1;
    }

    /// `block` was on its way and has not arrived.
    pub(super) fn lose(&mut self, block: Block) {
        match self.take(block) {
            Some(Held::InFlight(_)) => self.in_flight -= 1,
            Some(Held::Resident { .. }) | None => {
                panic!("{block:?} has failed to arrive and was not on its way")
            }
        }
    }

    /// `block` gives up its buffer.
    pub(super) fn evict(&mut self, block: Block) {
        match self.take(block) {
            Some(Held::Resident { .. }) => {}
            Some(Held::InFlight(_)) | None => panic!("evicting {block:?}, which is not in memory"),
        }
    }

    /// `block` could be given no buffer: only right if every buffer is being filled.
    pub(super) fn check_full(&self, block: Block) {
        let (in_flight, capacity) = (self.in_flight, self.capacity_blocks);
        assert_eq!(in_flight, capacity, "no buffer for {block:?} with one to be had");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(index: u64) -> Block {
        Block { file: FileId(1), index }
    }

    fn job(place: u32) -> Key {
        Key::first_at(place)
    }

    #[test]
    fn a_block_is_unread_until_it_is_read() {
        let mut account = Account::new(2);
        account.begin(block(1), job(7));
        assert_eq!(account.read(block(1), Access::InFlight), Some(Held::InFlight(job(7))));
        account.arrive(block(1));
        let held = |unread| Some(Held::Resident { unread });
        assert_eq!(account.read(block(1), Access::Hit), held(true));
        assert_eq!(account.read(block(1), Access::Hit), held(false));
        account.evict(block(1));
        assert_eq!(account.read(block(1), Access::Miss), None);
        account.begin(block(1), job(8));
        account.arrive(block(1));
        account.hand_over(block(1));
        assert_eq!(account.read(block(1), Access::Hit), held(false));
    }

    #[test]
    #[should_panic(expected = "reading")]
    fn a_hit_of_what_is_not_there_is_noticed() {
        Account::new(1).read(block(1), Access::Hit);
    }

    #[test]
    fn a_block_that_fails_to_arrive_has_no_buffer() {
        let mut account = Account::new(1);
        account.begin(block(1), job(1));
        assert_eq!(account.job_of(block(1)), Some(job(1)));
        account.lose(block(1));
        assert_eq!(account.job_of(block(1)), None);
        assert_eq!(account.read(block(1), Access::Miss), None);
        account.check_buffers(0);
        account.check_idle();
    }

    #[test]
    #[should_panic(expected = "has failed to arrive and was not on its way")]
    fn losing_what_is_there_is_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), job(1));
        account.arrive(block(1));
        account.lose(block(1));
    }

    #[test]
    #[should_panic(expected = "has not arrived")]
    fn handing_over_what_is_on_its_way_is_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), job(1));
        account.hand_over(block(1));
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
        account.begin(block(1), job(1));
        account.check_idle();
    }

    #[test]
    #[should_panic(expected = "2 buffers of 1")]
    fn more_blocks_than_buffers_are_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), job(1));
        account.begin(block(2), job(2));
    }

    #[test]
    #[should_panic(expected = "which is in memory")]
    fn fetching_what_is_there_is_noticed() {
        let mut account = Account::new(2);
        account.begin(block(1), job(1));
        account.arrive(block(1));
        account.begin(block(1), job(2));
    }

    #[test]
    #[should_panic(expected = "which is on its way")]
    fn fetching_what_is_coming_is_noticed() {
        let mut account = Account::new(2);
        account.begin(block(1), job(1));
        account.begin(block(1), job(2));
    }

    #[test]
    #[should_panic(expected = "was not on its way")]
    fn arriving_twice_is_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), job(1));
        account.arrive(block(1));
        account.arrive(block(1));
    }

    #[test]
    #[should_panic(expected = "which is not in memory")]
    fn evicting_what_is_coming_is_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), job(1));
        account.evict(block(1));
    }

    #[test]
    fn nothing_is_kept_of_what_is_not_held() {
        let mut account = Account::new(4);
        for index in [6, 7, 9, 5] {
            account.begin(block(index), job(1));
            account.arrive(block(index));
        }
        assert_eq!(account.groups.len(), 2);
        for index in [5, 6, 9, 7] {
            account.evict(block(index));
        }
        assert_eq!((account.groups.len(), account.held), (0, 0));
    }

    #[test]
    #[should_panic(expected = "no buffer")]
    fn refusing_a_buffer_that_is_there_is_noticed() {
        let mut account = Account::new(1);
        account.begin(block(1), job(1));
        account.arrive(block(1));
        account.check_full(block(2));
    }
}
