//! Estimators: the reasons to keep a block in memory, and what each says the block is worth.
//!
//! Each estimator knows one reason: the block was used lately ([`lru`]), a stream of hints will read it ([`hint`]), it cannot be
//! let go yet ([`orphan`]). An estimator values only the blocks that it *tracks*, and finds only the least valuable of them. The
//! arbiter (`buffers/arbiter.rs`) compares estimators and never looks at blocks (TIP 1995, section 5.1).
//!
//! `docs/internals/extending.md` says how to add one; `skeleton.rs` is one to copy. All of them pass one suite, `conformance.rs`.

#[cfg(test)]
mod conformance;
pub(crate) mod hint;
pub(crate) mod lru;
pub(crate) mod orphan;
#[cfg(test)]
mod skeleton;

use crate::blocks::{BlockTable, DeviceIndex, SlotId};
use crate::devices::costs::Costs;
use crate::rules::Rules;

/// What estimators see of the rest.
pub(crate) struct Scene<'a> {
    pub(crate) blocks: &'a mut BlockTable,
    pub(crate) costs: &'a Costs,
    pub(crate) rules: &'a Rules,
}

/// A reason to keep blocks; see the [module](self).
///
/// The caller guarantees that every slot it names is in the table and, but for orphans, in memory (not in
/// flight), that an estimator hears of each slot that leaves the table while it tracks it, and that values
/// are asked for again after whatever changes them: [`offer`](Self::offer), [`pick`](Self::pick),
/// [`forget`](Self::forget), [`moved`](Self::moved), and the events that the estimator itself takes in.
///
/// The estimator guarantees that what it tracks is worth at least what it declares, that it declares a
/// finite value that is not negative, and that `pick` returns what `declare` has valued.
///
/// Values are in ns of execution time for each buffer and access *of the estimator's own requests*; the
/// arbiter multiplies them by its share of all requests.
pub(crate) trait Estimator {
    /// The value of the least valuable block tracked, or `None` if none is.
    fn declare(&mut self, scene: &Scene<'_>) -> Option<f64>;

    /// Stops tracking the least valuable block, and names it.
    fn pick(&mut self, scene: &mut Scene<'_>) -> Option<SlotId>;

    /// Asked about a block that another one has picked. Tracks it, and returns true, if it is worth
    /// more than `floor` here; or if it is tracked already and worth more than that.
    fn offer(&mut self, scene: &mut Scene<'_>, slot: SlotId, floor: f64) -> bool;

    /// The slot leaves the table: stops tracking it, if it does.
    fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId);

    /// The slot would be fetched from another device than `before`; it has its new one. Where the estimator keeps what
    /// it tracks by device, it keeps it there from now on.
    fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex);

    /// Whether the block is tracked.
    fn tracks(&self, scene: &Scene<'_>, slot: SlotId) -> bool;
}
