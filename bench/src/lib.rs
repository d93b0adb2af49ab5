//! What the policy costs, apart from all devices: the workloads and the driver that `make bench` times.
//!
//! A [`Driver`] does for the policy what every driver of memory of its own has to do, with a device of
//! constant latency and no data. A [`Workload`] decides which block is read next, by whom, and what is
//! disclosed. One [`Bench::step`] is one read and all that follows from it: completions that are due,
//! fetches to be begun, evictions to be taken note of.
//!
//! * `src/bin/cache.rs` (`cache-speed`): what a read of the managed cache costs that hits, and what memory a process takes.
//! * `benches/policy.rs` (`cargo bench`): reads a second, with their spread.
//! * `src/bin/scale.rs` (`policy-scale`): how the cost of a read grows with the number of blocks.
//! * `src/bin/memory.rs` (`policy-memory`): bytes that the policy takes.
//! * `src/bin/speed.rs` (`policy-speed`): nanoseconds a read, in a hurry; for work on the policy.
//! * `src/bin/sim_speed.rs` (`sim-speed`): accesses a second of the simulated machine, with modelled disks, for the
//!   workloads of [`Simulation`].

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
