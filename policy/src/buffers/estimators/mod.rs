//! Estimators: the reasons to keep a block in memory, and what each says the block is worth.
//!
//! Each estimator knows one reason: a block was used lately (`queues.rs`), a stream of hints will read it (`hint.rs`), it
//! cannot leave yet (`orphan.rs`). An estimator values only the blocks that it *tracks*, and finds only the least valuable of
//! them. The arbiter (`buffers/arbiter.rs`) compares estimators and never looks at blocks (TIP 1995, section 5.1).
//!
//! The *list* below names the estimators of which a policy has one each. [`Estimators`] asks them in turn and tells them of
//! events. The hint estimator is not in the list: there is one for each stream, thousands of them may be open, and a heap ranks
//! them by their last declared values, so that a victim does not cost a question to each stream.
//!
//! To add an estimator, copy `skeleton.rs` and add a line to the list (`docs/internals/extending.md`). The list also makes its
//! test: all estimators pass one suite, `conformance.rs`.

/// The list: `FIELD: TYPE = CONSTRUCTOR`, a function of a [`Setting`]. Of equal values the first one's block leaves first.
macro_rules! listed_estimators {
    ($for_all:ident) => {
        $for_all! {
            queues: queues::QueuesEstimator = queues::QueuesEstimator::new;
            orphans: orphan::OrphanEstimator = orphan::OrphanEstimator::new;
            #[cfg(test)]
            frequency: skeleton::FrequencyEstimator = skeleton::FrequencyEstimator::new;
        }
    };
}

#[cfg(test)]
mod conformance;
pub(crate) mod hint;
mod list;
mod lru;
mod orphan;
mod queues;
#[cfg(test)]
mod skeleton;

pub(crate) use self::list::{Estimators, Least, Listed};

use crate::blocks::{BlockTable, DeviceIndex, SlotId};
use crate::buffers::rates::{Rates, UNHINTED};
use crate::contract::Memory;
use crate::devices::costs::Costs;
use crate::hint::Block;
use crate::rules::Rules;

/// What estimators see of the rest.
pub(crate) struct Scene<'a> {
    pub(crate) blocks: &'a mut BlockTable,
    pub(crate) costs: &'a Costs,
    pub(crate) rates: &'a Rates,
    pub(crate) rules: &'a Rules,
}

impl Scene<'_> {
    /// The same scene for a call that is not inlined. Where such a call is rare, the caller can keep its own scene in
    /// registers.
    #[inline]
    pub(crate) fn again(&mut self) -> Scene<'_> {
        let Scene { blocks, costs, rates, rules } = self;
        Scene { blocks, costs, rates, rules }
    }
}

/// What an estimator is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) rules: Rules,
    pub(crate) memory: Memory,
    pub(crate) capacity_blocks: usize,
}

/// A reason to keep blocks; see the [module](self).
///
/// The caller guarantees:
/// * every slot that it names is in the table, and in memory but for orphans;
/// * it calls [`forget`](Self::forget) before a slot leaves the table;
/// * it asks for values again after a call of [`offer`](Self::offer), [`pick`](Self::pick), [`forget`](Self::forget) or
///   [`moved`](Self::moved), and after each event that the estimator takes in.
///
/// The estimator guarantees:
/// * a block that it tracks is worth at least what it declares;
/// * what it declares is finite and not negative;
/// * `pick` returns the block that `declare` has valued.
///
/// Values are in ns of execution time for each buffer and access *of the estimator's own requests*; the
/// arbiter multiplies them by the estimator's share of all requests.
pub(crate) trait Estimator {
    /// The value of the least valuable block tracked, or `None` if none is.
    fn declare(&mut self, scene: &Scene<'_>) -> Option<f64>;

    /// Stops tracking the least valuable block, and names it.
    fn pick(&mut self, scene: &mut Scene<'_>) -> Option<SlotId>;

    /// Asked about a block that another estimator has picked. Tracks it, and returns true, if it is worth more than `floor`
    /// here. A block that is tracked already stays tracked, and the answer says whether it is worth more than `floor`. The
    /// caller guarantees that estimators of the list are not offered prefetched blocks that are unread.
    fn offer(&mut self, scene: &mut Scene<'_>, slot: SlotId, floor: f64) -> bool;

    /// The slot leaves the table: stops tracking it.
    fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId);

    /// The block of this slot would from now on be fetched from another device than `before`; the slot already names the new
    /// one. An estimator that keeps blocks by device moves the block.
    fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex);

    /// Whether the block is tracked.
    fn tracks(&self, blocks: &BlockTable, slot: SlotId) -> bool;

    /// Whether it may take over a block that it does not track. If not, it is offered the blocks that it tracks.
    #[inline]
    fn takes_over(&self) -> bool {
        true
    }

    /// The number under which [`Rates`] counts the estimator's own requests.
    #[inline]
    fn share(&self) -> u32 {
        UNHINTED
    }

    /// What its least valuable block would be worth if streams gave up their prefetched blocks; see
    /// [`Estimators::least`].
    #[inline]
    fn value_beyond_reach(&mut self, _scene: &Scene<'_>) -> f64 {
        0.0
    }

    /// Bytes that it takes on the heap for the blocks that it knows.
    fn memory_bytes(&self) -> usize {
        0
    }

    // Events. The arbiter tells only the estimators of the list.

    /// An unhinted read of a block in memory.
    #[inline]
    fn read(&mut self, _scene: &mut Scene<'_>, _slot: SlotId) {}

    /// An unhinted read of a block that is not in memory, or in flight.
    #[inline]
    fn missed(&mut self, _block: Block) {}

    /// A hinted read of a block in memory.
    #[inline]
    fn read_hinted(&mut self, _scene: &mut Scene<'_>, _slot: SlotId) {}

    /// The data of a block has arrived.
    #[inline]
    fn arrived(&mut self, _scene: &mut Scene<'_>, _slot: SlotId) {}

    /// At most this many buffers can hold blocks without hints: streams have prefetched into the others.
    #[inline]
    fn set_reach(&mut self, _buffers: usize) {}
}
