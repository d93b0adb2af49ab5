//! The machine's own books: the blocks in memory and in flight.
//!
//! The books follow from the fetches and evictions that the policy ordered, and are compared with the policy's answers. A
//! contradiction ends the run with a panic that names the block and the two claims.

use std::collections::HashMap;

use foretell_policy::hash::Mix;
use foretell_policy::{Access, Block, FileId};

use super::server::Run;
use super::slab::Key;

/// The state of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// In memory. `unread`: it was prefetched and not read since.
    Resident { unread: bool },
    /// In flight, by this job.
    InFlight(Key),
}

/// Neighbours in a file that share an entry, one bit for each. Sequential reads find the next blocks in the same entry, and
/// clusters are entered at once.
const GROUP_BLOCKS: u64 = u16::BITS as u64;

/// A file, and the number of a group in it.
type GroupId = (FileId, u64);

/// The buffers of a group, as bits.
#[derive(Debug, Default)]
struct Group {
    /// Blocks in memory, and those of them that were prefetched and not read since.
    resident: u16,
    unread: u16,
    /// Blocks in flight by this job. Mostly there is no other job.
    coming: u16,
    job: Key,
    /// Blocks in flight by other jobs.
    coming_too: Vec<(u16, Key)>,
}

impl Group {
    fn is_empty(&self) -> bool {
        self.resident | self.coming == 0 && self.coming_too.is_empty()
    }

    /// The blocks in flight, by job.
    fn jobs(&self) -> impl Iterator<Item = (u16, Key)> {
        let first = (self.coming != 0).then_some((self.coming, self.job));
        first.into_iter().chain(self.coming_too.iter().copied())
    }

    fn held(&self, bit: u16) -> Option<Held> {
        if self.resident & bit != 0 {
            return Some(Held::Resident { unread: self.unread & bit != 0 });
        }
        self.jobs().find(|(blocks, _)| blocks & bit != 0).map(|(_, job)| Held::InFlight(job))
    }

    /// These blocks, which have no buffers yet, are in flight.
    fn begin(&mut self, blocks: u16, job: Key) {
        if self.coming == 0 {
            (self.coming, self.job) = (blocks, job);
        } else {
            self.coming_too.push((blocks, job));
        }
    }

    /// These blocks are not in flight any more. Returns those that were not before.
    fn end(&mut self, blocks: u16) -> u16 {
        let mut left = blocks & !self.coming;
        self.coming &= !blocks;
        if left != 0 {
            for (coming, _) in &mut self.coming_too {
                let ended = *coming & left;
                (*coming, left) = (*coming & !ended, left & !ended);
            }
            self.coming_too.retain(|&(coming, _)| coming != 0);
        }
        left
    }
}

/// Blocks in buffers.
#[derive(Debug)]
pub(super) struct Account {
    capacity_blocks: u64,
    /// Groups with at least one buffer.
    groups: HashMap<GroupId, Group, Mix>,
    /// Buffers in use, and those of them in flight.
    held: u64,
    in_flight: u64,
}

/// The group and the bit of `block`.
fn place(block: Block) -> (GroupId, u16) {
    ((block.file, block.index / GROUP_BLOCKS), 1 << (block.index % GROUP_BLOCKS))
}

/// The groups and the bits of a run.
fn places(run: Run) -> impl Iterator<Item = (GroupId, u16)> {
    let Run { first: Block { file, index: first }, blocks } = run;
    // An empty run has no groups. The last block may have the greatest index.
    let last = blocks.checked_sub(1).map(|more| first + more);
    let groups = last.map(|last| first / GROUP_BLOCKS..=last / GROUP_BLOCKS);
    groups.into_iter().flatten().map(move |group| {
        let begin = group * GROUP_BLOCKS;
        let above = u16::MAX << first.saturating_sub(begin);
        let after_last = (GROUP_BLOCKS - 1).saturating_sub(last.map_or(0, |last| last - begin));
        ((file, group), above & u16::MAX >> after_last)
    })
}

/// The first of `blocks`, which are bits of the group.
fn first_of((file, group): GroupId, blocks: u16) -> Block {
    Block { file, index: group * GROUP_BLOCKS + u64::from(blocks.trailing_zeros()) }
}

impl Account {
    pub(super) fn new(capacity_blocks: u64) -> Self {
        Account { capacity_blocks, groups: HashMap::default(), held: 0, in_flight: 0 }
    }

    fn held(&self, block: Block) -> Option<Held> {
        let (group, bit) = place(block);
        self.groups.get(&group)?.held(bit)
    }

    /// The first block in flight of each group and job.
    fn coming(&self) -> impl Iterator<Item = (Block, Key)> {
        let all = self.groups.iter().flat_map(|(&id, group)| group.jobs().map(move |it| (id, it)));
        all.map(|(id, (blocks, job))| (first_of(id, blocks), job))
    }

    /// A read of `block` has found `access`, which is checked. Returns the state before the read. A block in memory is read
    /// now.
    #[inline(always)] // On the way of every read.
    pub(super) fn read(&mut self, block: Block, access: Access) -> Option<Held> {
        let (id, bit) = place(block);
        let mut group = self.groups.get_mut(&id);
        let before = group.as_ref().and_then(|group| group.held(bit));
        let expected = match before {
            Some(Held::Resident { .. }) => Access::Hit,
            Some(Held::InFlight(_)) => Access::InFlight,
            None => Access::Miss,
        };
        assert_eq!(access, expected, "reading {block:?}");
        if let Some(group) = &mut group {
            group.unread &= !bit;
        }
        before
    }

    /// Number of buffers.
    pub(super) fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    /// Whether `block` is in memory or in flight.
    pub(super) fn holds(&self, block: Block) -> bool {
        self.held(block).is_some()
    }

    /// The job that brings `block`, if it is in flight.
    pub(super) fn job_of(&self, block: Block) -> Option<Key> {
        match self.held(block) {
            Some(Held::InFlight(job)) => Some(job),
            Some(Held::Resident { .. }) | None => None,
        }
    }

    /// `block`, which has arrived, is handed to a program, which has now read it.
    pub(super) fn hand_over(&mut self, block: Block) {
        let (group, bit) = place(block);
        let group = self.groups.get_mut(&group).filter(|group| group.resident & bit != 0);
        group.unwrap_or_else(|| panic!("{block:?} is handed over and has not arrived")).unread &=
            !bit;
    }

    /// After an event: checks the number of buffers that the policy reports.
    pub(super) fn check_buffers(&self, held: u64) {
        let capacity = self.capacity_blocks;
        assert_eq!(held, self.held, "buffers that the policy holds, and those in the books");
        assert!(held <= capacity, "{held} buffers of {capacity}");
    }

    /// Checks that nothing is in flight.
    pub(super) fn check_idle(&self) {
        let first = self.coming().min();
        assert_eq!(first, None, "a block, by a job, still on its way after the end");
        assert_eq!(self.in_flight, 0, "blocks on their way after the end, and none in the books");
    }

    /// Job `job` will bring the blocks of `run` into free buffers.
    pub(super) fn begin(&mut self, run: Run, job: Key) {
        for (id, blocks) in places(run) {
            let group = self.groups.entry(id).or_default();
            let coming = group.jobs().fold(0, |all, (coming, _)| all | coming);
            let first = |of| first_of(id, of);
            let (there, under_way) = (group.resident & blocks, coming & blocks);
            assert!(there == 0, "fetching {:?}, which is in memory", first(there));
            assert!(under_way == 0, "fetching {:?}, which is on its way", first(under_way));
            group.begin(blocks, job);
        }
        self.held += run.blocks;
        self.in_flight += run.blocks;
        let (buffers, capacity) = (self.held, self.capacity_blocks);
        assert!(buffers <= capacity, "{buffers} buffers of {capacity} for {run:?}");
    }

    /// The blocks of `run` have arrived, unread.
    pub(super) fn arrive(&mut self, run: Run) {
        for (id, blocks) in places(run) {
            let group = self.groups.get_mut(&id);
            let amiss = group.map_or(blocks, |group| {
                group.resident |= blocks;
                group.unread |= blocks;
                group.end(blocks)
            });
            let first = |of| first_of(id, of);
            assert!(amiss == 0, "{:?} has arrived and was not on its way", first(amiss));
        }
        self.in_flight -= run.blocks;
    }

    /// The blocks of `run`, which were in flight, will not arrive.
    pub(super) fn lose(&mut self, run: Run) {
        for (id, blocks) in places(run) {
            let group = self.groups.get_mut(&id);
            let amiss = group.map_or(blocks, |group| group.end(blocks));
            let first = |of| first_of(id, of);
            assert!(amiss == 0, "{:?} has failed to arrive and was not on its way", first(amiss));
            self.drop_if_empty(id);
        }
        self.held -= run.blocks;
        self.in_flight -= run.blocks;
    }

    /// `block` gives up its buffer.
    pub(super) fn evict(&mut self, block: Block) {
        let (id, bit) = place(block);
        let group = self.groups.get_mut(&id).filter(|group| group.resident & bit != 0);
        let group = group.unwrap_or_else(|| panic!("evicting {block:?}, which is not in memory"));
        group.resident &= !bit;
        group.unread &= !bit;
        if group.resident == 0 {
            self.drop_if_empty(id);
        }
        self.held -= 1;
    }

    fn drop_if_empty(&mut self, id: GroupId) {
        if self.groups.get(&id).is_some_and(Group::is_empty) {
            self.groups.remove(&id);
        }
    }

    /// The policy had no buffer for `block`: checks that all buffers are in flight.
    pub(super) fn check_full(&self, block: Block) {
        let (in_flight, capacity) = (self.in_flight, self.capacity_blocks);
        assert_eq!(in_flight, capacity, "no buffer for {block:?} with one to be had");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn block(index: u64) -> Block {
        Block { file: FileId(1), index }
    }

    /// Of one block.
    fn run(index: u64) -> Run {
        Run { first: block(index), blocks: 1 }
    }

    fn job(place: u32) -> Key {
        Key::first_at(place)
    }

    #[test]
    fn a_block_is_unread_until_it_is_read() {
        let mut account = Account::new(2);
        account.begin(run(1), job(7));
        assert_eq!(account.read(block(1), Access::InFlight), Some(Held::InFlight(job(7))));
        account.arrive(run(1));
        let held = |unread| Some(Held::Resident { unread });
        assert_eq!(account.read(block(1), Access::Hit), held(true));
        assert_eq!(account.read(block(1), Access::Hit), held(false));
        account.evict(block(1));
        assert_eq!(account.read(block(1), Access::Miss), None);
        account.begin(run(1), job(8));
        account.arrive(run(1));
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
        account.begin(run(1), job(1));
        assert_eq!(account.job_of(block(1)), Some(job(1)));
        account.lose(run(1));
        assert_eq!(account.job_of(block(1)), None);
        assert_eq!(account.read(block(1), Access::Miss), None);
        account.check_buffers(0);
        account.check_idle();
    }

    #[test]
    #[should_panic(expected = "has failed to arrive and was not on its way")]
    fn losing_what_is_there_is_noticed() {
        let mut account = Account::new(1);
        account.begin(run(1), job(1));
        account.arrive(run(1));
        account.lose(run(1));
    }

    #[test]
    #[should_panic(expected = "has not arrived")]
    fn handing_over_what_is_on_its_way_is_noticed() {
        let mut account = Account::new(1);
        account.begin(run(1), job(1));
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
        account.begin(run(1), job(1));
        account.check_idle();
    }

    #[test]
    #[should_panic(expected = "2 buffers of 1")]
    fn more_blocks_than_buffers_are_noticed() {
        let mut account = Account::new(1);
        account.begin(run(1), job(1));
        account.begin(run(2), job(2));
    }

    #[test]
    #[should_panic(expected = "which is in memory")]
    fn fetching_what_is_there_is_noticed() {
        let mut account = Account::new(2);
        account.begin(run(1), job(1));
        account.arrive(run(1));
        account.begin(run(1), job(2));
    }

    #[test]
    #[should_panic(expected = "which is on its way")]
    fn fetching_what_is_coming_is_noticed() {
        let mut account = Account::new(2);
        account.begin(run(1), job(1));
        account.begin(run(1), job(2));
    }

    #[test]
    #[should_panic(expected = "was not on its way")]
    fn arriving_twice_is_noticed() {
        let mut account = Account::new(1);
        account.begin(run(1), job(1));
        account.arrive(run(1));
        account.arrive(run(1));
    }

    #[test]
    #[should_panic(expected = "which is not in memory")]
    fn evicting_what_is_coming_is_noticed() {
        let mut account = Account::new(1);
        account.begin(run(1), job(1));
        account.evict(block(1));
    }

    proptest! {
        /// Runs that begin, arrive, are lost and evicted anywhere, beside a map of single blocks.
        #[test]
        fn it_holds_what_a_map_holds(
            changes in prop::collection::vec((0u64..60, 1u64..40, 0..4), 1..200)
        ) {
            let mut account = Account::new(100);
            let mut model: BTreeMap<Block, Held> = BTreeMap::new();
            for (number, (first, blocks, change)) in (0u32..).zip(changes) {
                let all = || (first..first + blocks).map(block);
                let run = Run { first: block(first), blocks };
                let is_coming = |block| matches!(model.get(&block), Some(Held::InFlight(_)));
                let arrived = Held::Resident { unread: true };
                match change {
                    0 if all().all(|block| !model.contains_key(&block)) => {
                        account.begin(run, job(number));
                        model.extend(all().map(|block| (block, Held::InFlight(job(number)))));
                    }
                    1 if all().all(is_coming) => {
                        account.arrive(run);
                        model.extend(all().map(|block| (block, arrived)));
                    }
                    2 if all().all(is_coming) => {
                        account.lose(run);
                        all().for_each(|block| assert!(model.remove(&block).is_some()));
                    }
                    _ => {
                        let resident = |held: Option<&Held>| matches!(held, Some(Held::Resident { .. }));
                        for block in all().filter(|block| resident(model.get(block))).collect::<Vec<_>>() {
                            match change {
                                3 => {
                                    account.evict(block);
                                    model.remove(&block);
                                }
                                _ => {
                                    let before = model.insert(block, Held::Resident { unread: false });
                                    prop_assert_eq!(account.read(block, Access::Hit), before);
                                }
                            }
                        }
                    }
                }
                for block in (0..100).map(block) {
                    prop_assert_eq!(account.held(block), model.get(&block).copied(), "{:?}", block);
                }
                account.check_buffers(model.len() as u64);
                let coming = model.values().filter(|held| matches!(held, Held::InFlight(_))).count();
                prop_assert_eq!(account.in_flight, coming as u64);
            }
            prop_assert!(account.groups.values().all(|group| !group.is_empty()));
        }
    }

    #[test]
    fn a_file_may_have_as_many_blocks_as_there_are_numbers() {
        let mut account = Account::new(40);
        for (first, blocks) in [(u64::MAX, 1), (u64::MAX - 30, 20), (u64::MAX - 10, 1)] {
            let run = Run { first: block(first), blocks };
            account.begin(run, job(1));
            account.arrive(run);
        }
        let held = (0..40).filter(|back| account.holds(block(u64::MAX - back)));
        assert_eq!(
            held.collect::<Vec<_>>(),
            [0, 10].into_iter().chain(11..=30).collect::<Vec<_>>()
        );
        account.check_buffers(22);
    }

    #[test]
    fn nothing_is_kept_of_what_is_not_held() {
        let mut account = Account::new(4);
        for index in [26, 27, 33, 25] {
            account.begin(run(index), job(1));
            account.arrive(run(index));
        }
        assert_eq!(account.groups.len(), 2);
        for index in [25, 26, 33, 27] {
            account.evict(block(index));
        }
        assert_eq!((account.groups.len(), account.held), (0, 0));
    }

    #[test]
    #[should_panic(expected = "no buffer")]
    fn refusing_a_buffer_that_is_there_is_noticed() {
        let mut account = Account::new(1);
        account.begin(run(1), job(1));
        account.arrive(run(1));
        account.check_full(block(2));
    }
}
