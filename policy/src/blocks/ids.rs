//! Indices by which the policy's modules name shared things: streams, devices, slots of blocks, and places in a queue.

/// Index of a stream in the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamIndex(pub(crate) u32);

/// Index of a device in the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeviceIndex(pub(crate) u16);

/// The slot of a block in the [table](super::table::BlockTable). It is below 2³¹, because recency queues use one bit of the
/// word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(pub(crate) u32);

/// The place of a block's entry in its recency queue: the position in the queue's log, modulo 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) u32);
