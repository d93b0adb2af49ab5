//! The simulator: device models in virtual time, and everything that runs the policy on them.
//!
//! A device model answers how long a request takes, and why. It does no I/O, never sleeps and never reads a
//! clock: its caller says when a request starts. The emulated array waits for the modelled time to pass; the
//! simulator only adds it up. Both therefore measure the same disks.
//!
//! * [`device`]: the models and their parameter files;
//! * [`mod@array`]: striping of one volume over several devices;
//! * [`layout`]: the place of each file's blocks, inode and indirect blocks in the volume.
//!
//! These parts need no device:
//!
//! * [`trace`]: readers of recordings, the only part that does I/O;
//! * [`cache`]: the hits and misses of any policy over a recording, without a clock;
//! * [`offline`]: optimal policies, which know all future reads;
//! * [`plot`]: line charts as SVG.
//!
//! These run programs on a modelled machine:
//!
//! * [`machine`]: the event-driven machine: processors, programs, caches and disks;
//! * [`programs`] and [`reproduce`]: the programs of the TIP papers, and the papers' tables and figures;
//! * [`replay`]: a recorded run on another machine;
//! * [`scenario`]: experiments on shared caches, and on devices of different speed;
//! * [`predict`]: predictive caching over recorded opens;
//! * [`collective`]: processors that read striped files together;
//! * [`fleet`]: nodes that read one data set of an object store.
//!
//! Every run is exactly repeatable: times are whole nanoseconds, and every random draw comes from a seed
//! ([`random`]).

#![forbid(unsafe_code)]

pub mod array;
pub mod cache;
pub mod collective;
pub mod device;
pub mod fleet;
pub mod layout;
pub mod machine;
pub mod offline;
pub mod plot;
pub mod predict;
pub mod programs;
pub mod random;
pub mod replay;
pub mod reproduce;
pub mod scenario;
pub mod trace;

/// Bytes of a sector, in which every device is addressed.
pub const SECTOR_BYTES: u64 = 512;
