//! Off-line algorithms: they know all reads in advance, and show what could be achieved at best.
//!
//! They give the bounds and optima that policies are measured against. None of them could run as a policy, since they need the
//! exact future, or too much time. Each is computed from its published definition over plain sequences of reads and shares no
//! code with the policies, so that a mistake in either shows. A new algorithm gets its own file here, under its published name.
//! To run beside the policies, it also needs an arm of [`CachePolicy`](crate::cache::CachePolicy). Algorithms that decide
//! *when* to fetch cannot run there, since fetches take no time; their names go into [`NEED_A_CLOCK`].
//!
//! * [`belady`]: the fewest misses of a cache that fetches on demand;
//! * [`unit_time`]: the model of the following two, in which a fetch takes as long as a fixed number of reads;
//! * [`forward`]: Aggressive and Fixed Horizon;
//! * [`reverse_aggressive`]: near-optimal on several disks.

pub mod belady;
pub mod forward;
pub mod reverse_aggressive;
pub mod unit_time;

/// Algorithms that a cache without a clock cannot run.
pub const NEED_A_CLOCK: [&str; 1] = ["reverse-aggressive"];
