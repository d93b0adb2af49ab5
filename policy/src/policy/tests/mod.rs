//! Tests of the public interface with all parts behind it, and what they share.

mod bounded;
mod disclosing;
mod fetching;
mod following;
mod limit;
mod lookups;
mod random;
mod repeats;
mod sources;
mod streams;

use super::*;
use crate::blocks::Claim;
use crate::contract::{CostModel, CostSource, Reason, Work};

use crate::devices::depth::SAMPLE_MAX;
use crate::hint::{Extent, FileId, HinterId, NameId, Segment, Target};
use crate::rules::Rules;
use proptest::prelude::*;
use std::collections::VecDeque;

const NOW: Nanos = Nanos::ZERO;
const DISK: DeviceId = DeviceId(0);
const READER: ReaderId = ReaderId(1);
const HINTER: HinterId = HinterId(1);

fn config(capacity_blocks: u64) -> Config {
    Config {
        cluster_blocks_max: 4,
        outstanding_max: 64,
        resolved_max: 8,
        capacity_blocks,
        ..Config::new(Memory::Kernel { keeps: false }, 10, 1)
    }
}

fn named(name: u64) -> Target {
    Target::Name(NameId(name))
}

fn block(file: u64, index: u64) -> Block {
    Block { file: FileId(file), index }
}

/// A policy, and a stream that has hinted this many whole files by name. A name's number is its file's.
fn hinted(config: Config, files: u64) -> (Policy, StreamId) {
    let mut policy = Policy::new(config);
    let stream = policy.open_stream(NOW, HINTER, None);
    for name in 0..files {
        policy.hint(NOW, stream, Hint::whole_file(named(name), DISK));
    }
    (policy, stream)
}

/// Completes lookups until the next read; all files have `size_bytes`.
fn next_read(policy: &mut Policy, size_bytes: u64) -> Option<Fetch> {
    loop {
        let fetch = policy.next_fetch(NOW, DISK)?;
        let Work::Resolve { name } = fetch.work else { return Some(fetch) };
        policy.completed(NOW, fetch.id, Outcome::Resolved { file: FileId(name.0), size_bytes });
    }
}

fn fetch_all(policy: &mut Policy, size_bytes: u64) -> Vec<Block> {
    let mut fetched = Vec::new();
    while let Some(fetch) = next_read(policy, size_bytes) {
        let Work::Read { file, first_block, blocks } = fetch.work else { unreachable!() };
        fetched.extend((0..blocks).map(|offset| Block { file, index: first_block + offset }));
        policy.completed(NOW, fetch.id, Outcome::Fetched);
    }
    fetched
}

fn size_of(name: u64) -> u64 {
    [0, 10, 95, 100, 150, 7][name as usize]
}

fn outcome_of(work: Work, how: u8) -> Outcome {
    match (work, how) {
        (_, 0) => Outcome::Refused,
        (Work::Resolve { name }, _) => {
            Outcome::Resolved { file: FileId(name.0), size_bytes: size_of(name.0) }
        }
        (Work::Read { .. }, 1) => Outcome::AlreadyCached,
        (Work::Read { blocks, .. }, 2) => Outcome::Short { blocks: blocks / 2 },
        (Work::Read { .. }, _) => Outcome::Fetched,
    }
}

/// A policy over memory of its own (not the kernel's page cache), with fixed costs, and a stream that has disclosed a file of
/// `file_blocks` blocks.
fn owned(capacity_blocks: u64, file_blocks: u64) -> (Policy, StreamId) {
    disclosed(owned_config(capacity_blocks), file_blocks)
}

fn owned_config(capacity_blocks: u64) -> Config {
    let costs = CostModel { hit_ns: 1e5, driver_ns: 1e5, disk_ns: 1e6 };
    Config {
        memory: Memory::Owned,
        tries_depths: false,
        costs: CostSource::Fixed(costs),
        ..config(capacity_blocks)
    }
}

/// A policy, and a stream that has disclosed a file of `file_blocks` blocks.
fn disclosed(config: Config, file_blocks: u64) -> (Policy, StreamId) {
    let mut policy = Policy::new(config);
    let stream = policy.open_stream(NOW, HINTER, Some(READER));
    disclose(&mut policy, stream, FileId(1), file_blocks);
    (policy, stream)
}

fn disclose(policy: &mut Policy, stream: StreamId, file: FileId, blocks: u64) {
    let target = Target::File { file, size_bytes: blocks * 10 };
    policy.hint(NOW, stream, Hint::whole_file(target, DISK));
}

/// Fetches everything that the policy wants at `now`. Returns the number of fetches.
fn fetch_at(policy: &mut Policy, now: Nanos) -> usize {
    std::iter::from_fn(|| {
        let fetch = policy.next_fetch(now, DISK)?;
        policy.completed(now, fetch.id, Outcome::Fetched);
        Some(())
    })
    .count()
}

/// A hint of scattered segments of `blocks` blocks each.
fn far_apart(segments: u64, blocks: u64) -> Hint {
    let at = |index: u64| (index * 387_431 % 1_000_003) * 10_000_010;
    let segments: Vec<Segment> = (0..segments)
        .map(|index| Segment { offset_bytes: at(index), length_bytes: blocks * 10 })
        .collect();
    let target = Target::File { file: FileId(1), size_bytes: u64::MAX / 4 };
    Hint::segments(target, DISK, &segments)
}
