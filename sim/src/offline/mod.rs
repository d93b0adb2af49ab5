//! Off-line algorithms: they see all reads before the first, and say what could at best be done.
//!
//! What belongs here is what no policy can be, because it needs the future exactly, or too much time:
//! bounds and optima that policies are measured against. Each is computed from its published
//! definition over plain sequences, apart from the policies and their code, so that it can be the
//! judge of both. A new one is a file of its own here, under its published name, and an arm of
//! [`CachePolicy`](crate::cache::CachePolicy) if it is to be run beside the policies.
//!
//! * [`belady`]: the fewest misses of a cache that fetches on demand.

pub mod belady;
