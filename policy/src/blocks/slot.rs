//! The policy's record of one block: 32 bytes, so that two slots fill a cache line and none lies across two.
//!
//! A slot packs four facts: the block, the [claim](Claim) of the stream that will read it, the device that would fetch it, and
//! its place in a recency queue. Its state (in flight, unread, free and others) takes a bit each beside the stream, and
//! the source for which it was fetched four bits.

use super::ids::{DeviceIndex, Stamp, StreamIndex};
use crate::hint::Block;
use crate::tally::{SOURCE_BITS, SourceId};

/// The recency queue that a block lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Blocks that were read without a hint.
    Recent,
    /// Blocks that were read as hinted and have no further known use.
    Consumed,
}

/// The stream that claims a block, and the position at which it will read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) stream: StreamIndex,
    pub(crate) position: u64,
}

/// A block in memory or in flight. It is half a cache line, so that none lies across two.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Slot {
    block: Block,
    /// Position and device.
    place: u64,
    /// Stream, source and state.
    whose: u32,
    stamp: Stamp,
}

/// Positions of streams are below this. The device takes the upper bits of their word.
/// Unit: positions. Reason: layout.
pub(crate) const POSITION_END: u64 = 1 << POSITION_BITS;
/// Bits of a position in its word.
/// Unit: bits. Reason: layout.
const POSITION_BITS: u32 = 48;

/// Bits of a stream in its word. The source and the state take the upper bits.
/// Unit: bits. Reason: layout.
const STREAM_BITS: u32 = 21;
/// Bits below those of the state.
/// Unit: bits. Reason: layout.
const STATE_SHIFT: u32 = STREAM_BITS + SOURCE_BITS;
/// Stands for no stream.
/// Unit: stream. Reason: layout.
const NO_STREAM: u32 = (1 << STREAM_BITS) - 1;
/// Streams that can be open at once.
/// Unit: streams. Reason: layout.
pub(crate) const STREAMS_MAX: u32 = NO_STREAM;

/// State: the block's data has not arrived. Each state is one bit.
/// Unit: bits. Reason: layout.
const IN_FLIGHT: u32 = 1 << STATE_SHIFT;
/// State: the block was prefetched and has not been read.
/// Unit: bits. Reason: layout.
const UNREAD: u32 = 2 << STATE_SHIFT;
/// State: it was read while in flight, by a reader that did not have to wait.
/// Unit: bits. Reason: layout.
const READ_EARLY: u32 = 4 << STATE_SHIFT;
/// State: it was read while in flight without a hint, and joins the recent blocks.
/// Unit: bits. Reason: layout.
const JOINS_RECENT: u32 = 8 << STATE_SHIFT;
/// State: the slot holds no block.
/// Unit: bits. Reason: layout.
const FREE: u32 = 16 << STATE_SHIFT;
/// State: the block lies in [`Queue::Recent`].
/// Unit: bits. Reason: layout.
const RECENT: u32 = 32 << STATE_SHIFT;
/// State: the block lies in [`Queue::Consumed`].
/// Unit: bits. Reason: layout.
const CONSUMED: u32 = 64 << STATE_SHIFT;

impl Slot {
    /// The slot of a block whose fetch begins now.
    pub(crate) fn in_flight(block: Block, device: DeviceIndex, prefetched: bool) -> Self {
        let state = IN_FLIGHT | if prefetched { UNREAD } else { 0 };
        let place = u64::from(device.0) << POSITION_BITS;
        Slot { block, place, whose: NO_STREAM | state, stamp: Stamp::default() }
    }

    pub(crate) fn block(&self) -> Block {
        self.block
    }

    pub(crate) fn device(&self) -> DeviceIndex {
        DeviceIndex((self.place >> POSITION_BITS) as u16)
    }

    /// The source for whose stream its fetch began.
    #[inline]
    pub(crate) fn source(&self) -> SourceId {
        SourceId::from_bits(self.whose >> STREAM_BITS)
    }

    pub(crate) fn set_source(&mut self, source: SourceId) {
        let of_source = ((1 << SOURCE_BITS) - 1) << STREAM_BITS;
        self.whose = self.whose & !of_source | u32::from(source.number()) << STREAM_BITS;
    }

    /// Changes the device that would fetch the block. Returns the one before.
    pub(crate) fn moves_to(&mut self, device: DeviceIndex) -> DeviceIndex {
        let before = self.device();
        self.place = (self.place % POSITION_END) | (u64::from(device.0) << POSITION_BITS);
        before
    }

    pub(crate) fn claim(&self) -> Option<Claim> {
        let (stream, position) = (self.whose & NO_STREAM, self.place % POSITION_END);
        (stream != NO_STREAM).then_some(Claim { stream: StreamIndex(stream), position })
    }

    pub(crate) fn set_claim(&mut self, claim: Option<Claim>) {
        let (stream, position) =
            claim.map_or((NO_STREAM, 0), |claim| (claim.stream.0, claim.position));
        debug_assert!(stream <= NO_STREAM && position < POSITION_END, "{claim:?} has no room");
        self.whose = self.whose & !NO_STREAM | stream;
        self.place = self.place & !(POSITION_END - 1) | position;
    }

    pub(crate) fn queue(&self) -> Option<(Queue, Stamp)> {
        match self.whose & (RECENT | CONSUMED) {
            0 => None,
            RECENT => Some((Queue::Recent, self.stamp)),
            _ => Some((Queue::Consumed, self.stamp)),
        }
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.is(RECENT | CONSUMED)
    }

    pub(crate) fn set_queue(&mut self, place: Option<(Queue, Stamp)>) {
        let queue = match place {
            None => 0,
            Some((Queue::Recent, _)) => RECENT,
            Some((Queue::Consumed, _)) => CONSUMED,
        };
        self.whose = self.whose & !(RECENT | CONSUMED) | queue;
        self.stamp = place.map_or(Stamp::default(), |(_, stamp)| stamp);
    }

    /// Notes that the queue has moved the block's entry.
    pub(crate) fn restamp(&mut self, stamp: Stamp) {
        self.stamp = stamp;
    }

    /// Whether one of these states is set.
    #[inline]
    fn is(&self, state: u32) -> bool {
        self.whose & state != 0
    }

    /// Whether the block has arrived and was read.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is(IN_FLIGHT | UNREAD)
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.is(IN_FLIGHT)
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.is(UNREAD)
    }

    pub(crate) fn does_join_recent(&self) -> bool {
        self.is(JOINS_RECENT)
    }

    pub(crate) fn joins_recent(&mut self) {
        self.whose |= JOINS_RECENT;
    }

    pub(crate) fn was_read_early(&self) -> bool {
        self.is(READ_EARLY)
    }

    pub(crate) fn arrived(&mut self) {
        self.whose &= !IN_FLIGHT;
    }

    pub(crate) fn read(&mut self) {
        self.whose &= !UNREAD;
    }

    pub(crate) fn read_early(&mut self) {
        self.whose |= READ_EARLY;
    }

    /// Whether the slot holds no block.
    pub(super) fn is_free(&self) -> bool {
        self.is(FREE)
    }

    /// Frees the slot. It keeps `next` as a link in the list of free slots.
    pub(super) fn set_free(&mut self, next: u64) {
        self.place = next;
        self.whose = NO_STREAM | FREE;
    }

    /// The link of a free slot in the list of free slots.
    pub(super) fn next_free(&self) -> u64 {
        self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::FileId;

    fn block(index: u64) -> Block {
        Block { file: FileId(7), index }
    }

    #[test]
    fn what_shares_a_word_of_a_slot_does_not_disturb_the_other() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (32, 32), "half a cache line");
        let claims = [
            None,
            Some(Claim { stream: StreamIndex(0), position: 0 }),
            Some(Claim { stream: StreamIndex(STREAMS_MAX - 1), position: POSITION_END - 1 }),
        ];
        let queues = [
            None,
            Some((Queue::Recent, Stamp::default())),
            Some((Queue::Consumed, Stamp::default())),
        ];
        let devices = [0, 1, u16::MAX].map(DeviceIndex);
        let mut slot = Slot::in_flight(block(u64::MAX), DeviceIndex(u16::MAX), true);
        assert_eq!(
            (slot.claim(), slot.queue(), slot.device()),
            (None, None, DeviceIndex(u16::MAX))
        );
        assert!(slot.is_in_flight() && slot.is_unread() && !slot.was_read_early());
        slot.read_early();
        slot.joins_recent();
        let sources = [0, 15].map(SourceId::new);
        for step in 0..2 {
            for (at, (claim, queue, device)) in (0..).zip(claims.iter().flat_map(|&claim| {
                queues.iter().flat_map(move |&queue| devices.map(|device| (claim, queue, device)))
            })) {
                let source = sources[at % 2];
                slot.set_source(source);
                slot.set_claim(claim);
                slot.set_queue(queue);
                let before = slot.device();
                assert_eq!(slot.moves_to(device), before);
                assert_eq!((slot.claim(), slot.queue(), slot.device()), (claim, queue, device));
                assert_eq!(slot.source(), source);
                assert_eq!((slot.is_in_flight(), slot.is_unread()), (step == 0, step == 0));
                assert!(slot.was_read_early() && slot.does_join_recent() && !slot.is_free());
            }
            slot.arrived();
            slot.read();
            assert!(slot.is_settled());
        }
        assert_eq!(slot.block(), block(u64::MAX));
    }
}
