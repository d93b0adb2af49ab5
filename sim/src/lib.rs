//! Device models in virtual time: what a storage device would have taken for a request.
//!
//! No model does I/O, sleeps or reads a clock: whoever drives a model says when a request
//! starts and is told how long it takes and why. The emulated array plays the answers back in real
//! time; a simulator only adds them up. Both therefore measure the same disks.
//!
//! * [`device`]: the models themselves and their parameter files;
//! * [`mod@array`]: striping of one volume over several devices;
//! * [`layout`]: where a file's blocks, its inode and its blocks of addresses lie in the volume.
//!
//! Beside them stand the parts that need no device:
//!
//! * [`trace`]: readers of recorded reads, the one part that does I/O;
//! * [`cache`]: any policy over a recording, without a clock: what it hits and what it misses;
//! * [`replay`]: a recorded run again, on another machine;
//! * [`collective`]: processors that read striped files together;
//! * [`programs`] and [`reproduce`]: the programs of the TIP papers, and their tables and figures again;
//! * [`plot`]: lines as SVG;
//! * [`offline`]: what a policy that knows the future could at best have done.
//!
//! Everything is exactly repeatable: times are whole nanoseconds and every draw of chance comes
//! from a seed ([`random`]).

#![forbid(unsafe_code)]

pub mod array;
pub mod cache;
pub mod collective;
pub mod device;
pub mod layout;
pub mod machine;
pub mod offline;
pub mod plot;
pub mod programs;
pub mod random;
pub mod replay;
pub mod reproduce;
pub mod scenario;
pub mod trace;

/// Bytes in a sector, the unit in which every device is addressed.
pub const SECTOR_BYTES: u64 = 512;
