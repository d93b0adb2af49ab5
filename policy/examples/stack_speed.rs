//! What a touch of the LRU stack costs: `cargo run --release -p foretell-policy --example stack_speed
//! [ENTRIES [NAME]]`, for the rows whose name contains this.
//!
//! A touch is the removal of a resident and its push on top, the new stamps of entries that moved
//! stored among a million others. The stack is not public, so its sources are built in here.
#![allow(clippy::print_stdout, dead_code, missing_docs, unreachable_pub)]

#[path = "../src/curve.rs"]
mod curve;
#[path = "../src/handles.rs"]
mod handles;
#[path = "../src/hash.rs"]
mod hash;
#[path = "../src/hint.rs"]
mod hint;
#[path = "../src/recency/mod.rs"]
mod recency;

use std::time::Instant;

use hint::{Block, FileId};
use recency::{SlotId, Stack, Stamp};

/// Rounds that are timed, of as many steps as there are entries.
const ROUNDS: usize = 20;

struct Residents {
    stack: Stack,
    stamps: Vec<Stamp>,
    /// Sum of the segments of all hits, so that they are not computed in vain.
    depths: usize,
}

impl Residents {
    fn new(entries: usize, boundaries: bool) -> Self {
        let mut stack = Stack::new(entries, boundaries);
        let first = stack.push(SlotId(0), |_, _| {});
        let mut residents = Residents { stack, stamps: vec![first; entries], depths: 0 };
        (1..entries).for_each(|slot| residents.push(slot));
        residents
    }

    fn push(&mut self, slot: usize) {
        let stamps = &mut self.stamps;
        let moved = |other: SlotId, stamp| stamps[other.0 as usize] = stamp;
        let stamp = self.stack.push(SlotId(slot as u32), moved);
        self.stamps[slot] = stamp;
    }

    fn touch(&mut self, slot: usize) {
        self.depths += self.stack.take(self.stamps[slot]);
        self.push(slot);
    }
}

/// Pseudo-random numbers below `below`.
fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    ((u128::from(*state) * below as u128) >> 64) as usize
}

fn report(name: &str, entries: usize, mut step: impl FnMut(usize)) {
    if std::env::args().nth(2).is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    (0..2 * entries).for_each(&mut step);
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let start = Instant::now();
            (round * entries..(round + 1) * entries).for_each(&mut step);
            start.elapsed().as_nanos() as f64 / entries as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<44}{:>8.1}{:>8.1}", rounds[0], rounds[ROUNDS / 2]);
}

/// A resident leaves its header behind, and a block that is not there comes: one of `blocks`, or a
/// new one each time.
fn replace(entries: usize, blocks: Option<usize>) -> impl FnMut(usize) {
    let mut residents = Residents::new(entries / 2, true);
    residents.stack = Stack::new(entries, true);
    let mut block_of: Vec<u64> = (0..entries as u64 / 2).collect();
    (0..entries / 2).for_each(|slot| residents.push(slot));
    let mut next = 0;
    move |_| {
        let block = |index| Block { file: FileId(1), index };
        let slot = residents.stack.oldest().expect("residents").0 as usize;
        residents.stack.demote(residents.stamps[slot], block(block_of[slot]));
        block_of[slot] = match blocks {
            Some(blocks) => (entries as u64 / 2 + next) % blocks as u64,
            None => entries as u64 / 2 + next,
        };
        next += 1;
        residents.depths += residents.stack.take_ghost(block(block_of[slot])).unwrap_or(0);
        residents.push(slot);
    }
}

fn main() {
    let entries = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().expect("a number"));
    println!("{:<44}{:>8}{:>8}", "ns a step", "least", "median");
    for boundaries in [false, true] {
        let kind = if boundaries { "with segments" } else { "plain" };
        let mut residents = Residents::new(entries, boundaries);
        let mut state = 1;
        report(&format!("{kind}: uniform random touches"), entries, |_| {
            residents.touch(random(&mut state, entries));
        });
        let mut residents = Residents::new(entries, boundaries);
        report(&format!("{kind}: loop, all at the bottom"), entries, |i| {
            residents.touch(i % entries);
        });
        let mut residents = Residents::new(entries, boundaries);
        let mut state = 1;
        report(&format!("{kind}: one touch in 64 of a small set"), entries, |_| {
            let slot = random(&mut state, entries);
            residents.touch(if slot.is_multiple_of(64) { slot } else { slot % 1000 });
        });
    }
    report("half ghosts: a scan, all misses", entries, replace(entries, None));
    report("half ghosts: a loop, all ghost hits", entries, replace(entries, Some(entries * 3 / 4)));
    let mut state = 1;
    let mut stamps = vec![0u32; entries];
    report("for comparison: one random store", entries, |i| {
        stamps[random(&mut state, entries)] = i as u32;
    });
}
