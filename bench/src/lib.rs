//! The cost of the policy without any device: the workloads and the driver that `make bench` times.
//!
//! A [`Driver`] does for the policy what every driver with its own memory has to do, with a device of constant
//! latency and no data. A [`Workload`] decides the next read, its reader and the disclosures. One
//! [`Bench::step`] is one read and its consequences: due completions, fetches to begin, and evictions to
//! record.
//!
//! * `src/bin/cache.rs` (`cache-speed`): the cost of a hit in the managed cache, and the memory of a process.
//! * `benches/policy.rs` (`cargo bench`): reads a second, with their spread.
//! * `src/bin/scale.rs` (`policy-scale`): how the cost of a read grows with the number of blocks.
//! * `src/bin/memory.rs` (`policy-memory`): bytes that the policy takes.
//! * `src/bin/speed.rs` (`policy-speed`): a quick measurement of nanoseconds a read, for work on the policy.
//! * `src/bin/sim_speed.rs` (`sim-speed`): accesses a second of the simulated machine, with modelled disks, for
//!   the workloads of [`Simulation`].

#![forbid(unsafe_code)]

pub mod driver;
pub mod machine;
pub mod random;
pub mod simulation;
pub mod workload;

pub use driver::Driver;
pub use machine::{HugePages, Machine};
pub use simulation::Simulation;
pub use workload::{Bench, Workload};
