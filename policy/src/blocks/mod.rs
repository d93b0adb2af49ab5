//! The module `blocks`: every block in memory or in flight, and the indices by which higher modules name blocks, streams and
//! devices.
//!
//! It knows streams and devices only by number. It uses [`tables`](crate::tables).

mod handles;
mod ids;
mod slot;
mod table;

pub(crate) use ids::{DeviceIndex, SlotId, Stamp, StreamIndex};
pub(crate) use slot::{Claim, POSITION_END, Queue, STREAMS_MAX, Slot};
pub(crate) use table::{BlockTable, LOADED_MAX};
