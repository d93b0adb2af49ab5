//! Counts of a cache.

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct Stats {
    /// Blocks that were in memory when a program asked for them.
    pub hit_blocks: u64,
    /// Blocks that were in flight when a program asked for them.
    pub joined_blocks: u64,
    /// Blocks that were fetched because a program asked for them.
    pub demanded_blocks: u64,
    /// Blocks that bypassed the cache, because no buffer was available when a program asked for them.
    pub passed_by_blocks: u64,
    /// Blocks that are in memory or in flight now.
    pub held_blocks: u64,
    /// Blocks that were prefetched.
    pub prefetched_blocks: u64,
    /// Prefetched blocks that were read after they had arrived.
    pub useful_blocks: u64,
    /// Prefetched blocks that were read while they were in flight.
    pub late_blocks: u64,
    /// Prefetched blocks that were given up unread.
    pub wasted_blocks: u64,
    /// Requests to back ends.
    pub requests: u64,
    /// Requests that were prefetches.
    pub requests_ahead: u64,
    /// Requests that failed.
    pub requests_failed: u64,
    /// Bytes that were fetched.
    pub fetched_bytes: u64,
}
