//! Room `devices`: what serves the files, how fast it is, and what is under way there.
//!
//! * [`device`]: the lookups and fetches under way at a device, and its measured speed;
//! * [`depth`]: how many fetches a device is given at once;
//! * [`flights`]: all fetches under way, by number;
//! * [`costs`]: what a hit, starting a fetch and the fetch itself cost;
//! * [`queue`]: the order in which a disk serves its requests, for drivers and device models.
//!
//! It uses [`streams`](crate::streams) for the names that wait for their lookup at a device, and the rooms below that.

pub mod costs;
pub(crate) mod depth;
pub(crate) mod device;
pub(crate) mod flights;
pub mod queue;
