//! What a cache has done so far.

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct Stats {
    /// Blocks that were in memory when a program asked for them.
    pub hit_blocks: u64,
    /// Blocks on their way when a program asked for them.
    pub joined_blocks: u64,
    /// Blocks that were fetched since a program asked for them.
    pub demanded_blocks: u64,
    /// Of blocks that programs asked for, those that went past the cache, since all buffers were being filled.
    pub passed_by_blocks: u64,
    /// Blocks that are in memory now, or on their way.
    pub held_blocks: u64,
    /// Blocks fetched ahead.
    pub prefetched_blocks: u64,
    /// Blocks fetched ahead, and read after they had come.
    pub useful_blocks: u64,
    /// Blocks fetched ahead, and read while they were still on their way.
    pub late_blocks: u64,
    /// Blocks fetched ahead, and given up.
    pub wasted_blocks: u64,
    /// Requests to back ends.
    pub requests: u64,
    /// Of these, ahead of programs.
    pub requests_ahead: u64,
    /// Requests that failed.
    pub requests_failed: u64,
    /// Bytes of blocks that were fetched.
    pub fetched_bytes: u64,
}
