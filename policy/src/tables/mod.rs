//! Room `tables`: containers and hashing that know nothing of prefetching.
//!
//! Nothing of the crate is used here but [`Block`](crate::hint::Block), which [`hash`] hashes.

pub mod hash;
pub(crate) mod heap;
pub(crate) mod line;
pub(crate) mod shrinking;
pub(crate) mod walk;
