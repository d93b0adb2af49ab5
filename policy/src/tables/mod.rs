//! The module `tables`: containers and hashing that know nothing of prefetching.
//!
//! It uses nothing of the crate except [`Block`](crate::hint::Block), which [`hash`] hashes.

pub mod hash;
pub(crate) mod heap;
pub(crate) mod line;
pub(crate) mod shrinking;
pub(crate) mod walk;
