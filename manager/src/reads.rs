//! The reads of programs, on their way from the rings to the policy.
//!
//! A record is one call; the policy counts in blocks. Blocks are reported several at a time, so that the policy can prefetch
//! its own tables for them together.
//!
//! A call that did not wait for a device and read at least one whole block is also a sample of `T_hit`, the cost of a block in
//! memory. Shorter calls are no samples: an access is a whole block, and several of them would make up one.

use std::ops::{Range, RangeInclusive};

use foretell_policy::{Block, Cost, DeviceId, FileId, Nanos, PREPARED_MAX, Policy, ReaderId};
use foretell_protocol::{Record, RecordKind, stall_threshold_ns};

use crate::driver::file::file_id;

/// Bytes of the policy's block: 8 KiB, as in TIP.
pub const BLOCK_BYTES: u64 = 8 * 1024;

/// Most blocks that one record may cover: Linux reads at most 2 GiB in one call.
const CALL_BLOCKS_MAX: u64 = (2 << 30) / BLOCK_BYTES;

/// Bounds of a `T_hit` sample, in ns: one program reports it, and it is used for all.
const HIT_NS: RangeInclusive<u64> = 100..=10_000;

/// `T_hit` does not depend on the device.
const ANY_DEVICE: DeviceId = DeviceId(0);

/// The time of one block in a call that did not wait. `None` if the call read less than a block.
fn hit_sample(duration_ns: u64, length_bytes: u64, block_bytes: u64) -> Option<Nanos> {
    let block_ns = u128::from(duration_ns) * u128::from(block_bytes) / u128::from(length_bytes);
    let block_ns = u64::try_from(block_ns).unwrap_or(u64::MAX);
    let sample = Nanos(block_ns.clamp(*HIT_NS.start(), *HIT_NS.end()));
    (length_bytes >= block_bytes).then_some(sample)
}

/// See the [module](self).
pub(crate) struct Reads<'a> {
    policy: &'a mut Policy,
    now: Nanos,
    of: ReaderId,
    /// Blocks to be reported, each with the time that its call waited if it did. The first block of a call carries the whole
    /// time.
    next: Vec<(Block, Option<Nanos>)>,
    told_blocks: u64,
}

impl<'a> Reads<'a> {
    pub(crate) fn new(policy: &'a mut Policy, now: Nanos, of: ReaderId) -> Self {
        Reads { policy, now, of, next: Vec::with_capacity(PREPARED_MAX), told_blocks: 0 }
    }

    /// Takes in one call of the program.
    pub(crate) fn take(&mut self, record: Record) {
        if record.kind != RecordKind::Read || record.length_bytes == 0 {
            return;
        }
        let file = file_id(record.device, record.inode);
        let stalled = record.duration_ns > stall_threshold_ns(record.length_bytes);
        let block_bytes = self.policy.config().block_bytes;
        let first = record.offset_bytes / block_bytes;
        let last = (record.offset_bytes.saturating_add(record.length_bytes) - 1) / block_bytes;
        if !stalled
            && record.duration_ns > 0
            && let Some(sample) = hit_sample(record.duration_ns, record.length_bytes, block_bytes)
        {
            self.policy.observe(ANY_DEVICE, Cost::Hit, sample);
        }
        // A program may claim anything, so a record counts for no more blocks than one call can read.
        for index in first..=last.min(first + CALL_BLOCKS_MAX) {
            let waited = if index == first { Nanos(record.duration_ns) } else { Nanos::ZERO };
            self.next.push((Block { file, index }, stalled.then_some(waited)));
            if self.next.len() == PREPARED_MAX {
                self.tell();
            }
        }
    }

    /// Takes in the pages of `range` of a mapped file, which the program has touched. `waited`: it has waited for some of
    /// them.
    pub(crate) fn take_pages(&mut self, file: FileId, range: Range<u64>, waited: Option<Nanos>) {
        let block_bytes = self.policy.config().block_bytes;
        let (first, end) = (range.start / block_bytes, range.end.div_ceil(block_bytes));
        for index in first..end {
            let stalled = waited.filter(|_| index == first);
            self.next.push((Block { file, index }, stalled));
            if self.next.len() == PREPARED_MAX {
                self.tell();
            }
        }
    }

    /// Number of blocks reported to the policy.
    pub(crate) fn told_blocks(&self) -> u64 {
        self.told_blocks
    }

    /// Reports the pending blocks to the policy.
    pub(crate) fn tell(&mut self) {
        self.told_blocks += self.next.len() as u64;
        self.policy.prepare(self.next.iter().map(|&(block, _)| block));
        for (block, waited) in self.next.drain(..) {
            self.policy.read(self.now, self.of, block, waited.is_some());
            if let Some(waited) = waited {
                self.policy.waited(self.of, waited);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_policy::{Config, Hint, HinterId, Memory, Outcome, Target};
    use foretell_protocol::RecordFlags;

    const NOW: Nanos = Nanos(1);
    const BLOCKS: u64 = 300;

    fn record(first_block: u64, blocks: u64) -> Record {
        Record {
            kind: RecordKind::Read,
            flags: RecordFlags::default(),
            device: 8,
            inode: 7,
            offset_bytes: first_block * BLOCK_BYTES,
            length_bytes: blocks * BLOCK_BYTES,
            end_ns: 0,
            duration_ns: 1,
        }
    }

    #[test]
    fn the_policy_is_told_of_every_block_of_every_call() {
        let budget_bytes = 2 * BLOCKS * BLOCK_BYTES;
        let memory = Memory::Kernel { keeps: false };
        let mut policy = Policy::new(Config::new(memory, BLOCK_BYTES, budget_bytes));
        let stream = policy.open_stream(NOW, HinterId(1), None);
        let target = Target::File { file: file_id(8, 7), size_bytes: BLOCKS * BLOCK_BYTES };
        policy.hint(NOW, stream, Hint::whole_file(target, ANY_DEVICE));
        while let Some(fetch) = policy.next_fetch(NOW, ANY_DEVICE) {
            policy.completed(NOW, fetch.id, Outcome::Fetched);
        }
        let fetched = policy.counts().prefetched;
        // More and fewer blocks than are prepared at a time, no blocks, and a record that is no read.
        let mut reads = Reads::new(&mut policy, NOW, ReaderId(1));
        for (first, blocks) in [(0, 100), (100, 0), (100, 3), (103, 10)] {
            reads.take(record(first, blocks));
        }
        reads.take(Record { kind: RecordKind::Open, ..record(0, 1) });
        reads.tell();
        assert!(fetched >= 113, "{fetched} were fetched");
        assert_eq!(policy.counts().useful, 113);
    }

    #[test]
    fn a_record_counts_for_no_more_than_a_call_can_read() {
        let config = Config::new(Memory::Kernel { keeps: false }, BLOCK_BYTES, 1 << 20);
        let mut policy = Policy::new(config);
        for (offset_bytes, length_bytes) in
            [(0, u64::MAX), (u64::MAX, u64::MAX), (1 << 40, 1 << 62)]
        {
            let mut reads = Reads::new(&mut policy, NOW, ReaderId(1));
            reads.take(Record { offset_bytes, length_bytes, ..record(0, 1) });
            reads.tell();
            assert!((1..=CALL_BLOCKS_MAX + 1).contains(&reads.told_blocks()));
        }
    }

    #[test]
    fn no_program_says_that_reading_memory_costs_nothing_or_as_much_as_a_disk() {
        assert_eq!(hit_sample(64_000, 32 * BLOCK_BYTES, BLOCK_BYTES), Some(Nanos(2_000)));
        let least = hit_sample(1, BLOCK_BYTES << 40, BLOCK_BYTES);
        assert_eq!(least, Some(Nanos(*HIT_NS.start())));
        assert_eq!(hit_sample(u64::MAX, BLOCK_BYTES, BLOCK_BYTES), Some(Nanos(*HIT_NS.end())));
    }

    #[test]
    fn calls_for_less_than_a_block_say_nothing_of_what_a_block_costs() {
        assert_eq!(hit_sample(300, 100, BLOCK_BYTES), None);
        assert_eq!(hit_sample(2_000, BLOCK_BYTES - 1, BLOCK_BYTES), None);
        let block_and_half = hit_sample(3_000, BLOCK_BYTES + BLOCK_BYTES / 2, BLOCK_BYTES);
        assert_eq!(block_and_half, Some(Nanos(2_000)));
    }
}
