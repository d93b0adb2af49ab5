//! Off-line algorithms: they see all reads before the first, and say what could at best be done.
//!
//! What belongs here is what no policy can be, because it needs the future exactly, or too much time:
//! bounds and optima that policies are measured against. Each is computed from its published
//! definition over plain sequences, apart from the policies and their code, so that it can be the
//! judge of both. A new one is a file of its own here, under its published name, and an arm of
//! [`CachePolicy`](crate::cache::CachePolicy) if it is to be run beside the policies. One whose question
//! is *when* to fetch has nothing to say there, where fetches take no time: its name goes into
//! [`NEED_A_CLOCK`].
//!
//! * [`belady`]: the fewest misses of a cache that fetches on demand;
//! * [`unit_time`]: the model of the following, in which a fetch takes as long as so many reads;
//! * [`forward`]: Aggressive and Fixed Horizon;
//! * [`reverse_aggressive`]: near-optimal on several disks.

pub mod belady;
pub mod forward;
pub mod reverse_aggressive;
pub mod unit_time;

/// Algorithms that a cache without a clock cannot run.
pub const NEED_A_CLOCK: [&str; 1] = ["reverse-aggressive"];
