//! What readers have read, on its way to the policy.
//!
//! Hits do not ask the policy: they are noted here and told to it in batches. There are several shards, each with
//! a lock of its own that is held for as long as it takes to append; a thread keeps to one shard, so that its
//! reads stay in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foretell_policy::{Block, ReaderId};

/// One read of blocks that were in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) reader: ReaderId,
    pub(crate) first: Block,
    pub(crate) blocks: u64,
}

/// Shards: more than there are processors on the machines where two would meet often.
const SHARDS: usize = 32;

/// Blocks of a shard at which it is to be emptied.
const FULL_BLOCKS: u64 = 128;

#[derive(Debug, Default)]
struct Noted {
    records: Vec<Record>,
    blocks: u64,
}

/// A shard on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Noted>);

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        // Nothing that can panic happens under it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Records {
    shards: [Shard; SHARDS],
}

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
}

impl Records {
    /// Notes a read, and says whether it is time to [take](Records::take) what was noted.
    pub(crate) fn note(&self, read: Record) -> bool {
        // A thread that is about to end may have lost its number.
        let shard = SHARD.try_with(|shard| *shard).unwrap_or(0);
        let mut shard = self.shards[shard].lock();
        shard.records.push(read);
        shard.blocks += read.blocks;
        shard.blocks >= FULL_BLOCKS
    }

    /// Takes out all, the reads of each thread in their order.
    pub(crate) fn take(&self, into: &mut Vec<Record>) {
        for shard in &self.shards {
            let mut noted = shard.lock();
            into.append(&mut noted.records);
            noted.blocks = 0;
        }
    }
}
