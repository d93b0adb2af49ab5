//! Room `blocks`: every block in memory or on its way, and the indices by which the rooms above name blocks, streams and
//! devices.
//!
//! It knows nothing of streams and devices but their numbers. It uses [`tables`](crate::tables).

mod handles;
mod ids;
mod slot;
mod table;

pub(crate) use ids::{DeviceIndex, SlotId, Stamp, StreamIndex};
pub(crate) use slot::{Claim, POSITION_END, Queue, STREAMS_MAX, Slot};
pub(crate) use table::{BlockTable, LOADED_MAX};
