//! Records of hits, on their way to the policy.
//!
//! A hit does not call the policy: it is noted here, and the policy is told in batches. There are several shards. Each
//! has a lock of its own, held only to append or to take out. A thread always uses the same shard, so its reads stay in
//! order.

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

/// Number of shards: enough that two threads seldom share one.
const SHARDS: usize = 32;

/// Blocks in a shard after which the policy should be told.
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
        // Nothing under the lock can panic.
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
    /// Notes a read. Returns whether it is time to [take](Records::take) the records out.
    pub(crate) fn note(&self, read: Record) -> bool {
        // The thread-local is gone while a thread ends.
        let shard = SHARD.try_with(|shard| *shard).unwrap_or(0);
        let mut shard = self.shards[shard].lock();
        shard.records.push(read);
        shard.blocks += read.blocks;
        shard.blocks >= FULL_BLOCKS
    }

    /// Takes all records out. The reads of each thread are in order.
    pub(crate) fn take(&self, into: &mut Vec<Record>) {
        for shard in &self.shards {
            let mut noted = shard.lock();
            into.append(&mut noted.records);
            noted.blocks = 0;
        }
    }
}
