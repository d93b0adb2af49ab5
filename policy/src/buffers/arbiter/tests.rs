//! The arbiter with the estimator of the skeleton switched on: its line in the list is all it takes.

use super::*;
use crate::blocks::{DeviceIndex, Slot};
use crate::hint::FileId;

const CAPACITY: u64 = 8;
const NOW: Nanos = Nanos::ZERO;

impl Arbiter {
    /// Switches the estimator of the skeleton on or off.
    pub(crate) fn set_frequency(&mut self, learns: bool) {
        self.estimators.frequency.learns = learns;
    }
}

fn arbiter(with_frequency: bool) -> Arbiter {
    let mut arbiter = Arbiter::new(&Config::new(Memory::Owned, 1, CAPACITY));
    arbiter.set_frequency(with_frequency);
    arbiter
}

/// An unhinted read, and the fetch if it is a miss. Returns whether it was a hit.
fn read(arbiter: &mut Arbiter, index: u64) -> bool {
    let block = Block { file: FileId(1), index };
    arbiter.count_access(None);
    let found = arbiter.find_loaded(block);
    if let Some(slot) = found {
        arbiter.read_recent(slot);
    } else {
        arbiter.missed_recent(block);
        let need = Need { block, by: None, worth: f64::INFINITY, spares_unread: false };
        arbiter.make_room(NOW, need).expect("nothing is in flight");
        let slot = arbiter.begin(block, DeviceIndex(0), None);
        arbiter.arrived(NOW, slot, true);
    }
    arbiter.check_all();
    found.is_some()
}

/// Hits of two blocks that are each read once between scans of more blocks than fit.
fn hits_between_scans(arbiter: &mut Arbiter) -> usize {
    const ROUNDS: u64 = 20;
    let mut hits = 0;
    for round in 1..=ROUNDS {
        hits += (0..2).filter(|&block| read(arbiter, block)).count();
        for block in 0..CAPACITY {
            read(arbiter, round * 100 + block);
        }
    }
    hits
}

#[test]
fn an_estimator_of_the_list_keeps_blocks_that_the_others_let_go() {
    assert_eq!(hits_between_scans(&mut arbiter(false)), 0);
    let mut arbiter = arbiter(true);
    let hits = hits_between_scans(&mut arbiter);
    assert!(hits > 30, "{hits} hits of 40");
    assert!(arbiter.estimators.frequency.memory_bytes() > 0);
}

#[test]
fn what_leaves_is_forgotten_by_all_of_the_list() {
    let mut arbiter = arbiter(true);
    for block in 0..CAPACITY {
        read(&mut arbiter, block % 3);
    }
    let slots: Vec<SlotId> = arbiter.blocks.iter().map(|(slot, _)| slot).collect();
    assert_eq!(slots.len(), 3);
    for slot in slots {
        assert!(arbiter.kept_by(slot).is_some());
        arbiter.remove(slot);
    }
    let (scene, estimators) = arbiter.scene();
    assert_eq!(estimators.frequency.declare(&scene), None);
    assert_eq!(estimators.queues.declare(&scene), None);
}

#[test]
fn an_unread_block_is_not_offered_to_the_list() {
    let mut arbiter = arbiter(true);
    read(&mut arbiter, 0);
    let block = Block { file: FileId(1), index: 0 };
    let read_before = arbiter.find_loaded(block).expect("it was read");
    arbiter.remove(read_before);
    let mut prefetched = Slot::in_flight(block, DeviceIndex(0), true);
    prefetched.arrived();
    let slot = arbiter.blocks.insert(prefetched);
    arbiter.unread += 1;
    assert!(!arbiter.list_saves(slot, None, -1.0));
    arbiter.mark_read(slot);
    assert!(arbiter.list_saves(slot, None, -1.0), "it was read before");
    arbiter.check_all();
}
