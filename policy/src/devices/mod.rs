//! The module `devices`: the devices that serve files, their speed, and their work in flight.
//!
//! * [`device`]: the lookups and fetches in flight at a device, and its measured speed;
//! * [`depth`]: how many fetches a device is given at once;
//! * [`flights`]: all fetches in flight, by number;
//! * [`costs`]: what a hit, the start of a fetch, and the fetch itself cost;
//! * [`queue`]: the order in which a disk serves its requests, for drivers and device models.
//!
//! This module uses [`streams`](crate::streams) for the names that wait for their lookup at a device, and the modules below
//! that.

pub mod costs;
pub(crate) mod depth;
pub(crate) mod device;
pub(crate) mod flights;
pub mod queue;
