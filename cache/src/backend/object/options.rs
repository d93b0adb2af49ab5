//! How an object store is used.

use std::time::Duration;

/// How an object store is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectOptions {
    /// Number of prefetch requests at once, as long as the store does not answer that it is busy.
    pub depth: usize,
    /// How long a demand read, an open or a listing is retried before it fails.
    pub deadline: Duration,
    /// How long a server may be silent before the request is given up and retried.
    pub silence: Duration,
}

impl Default for ObjectOptions {
    /// 128 requests; a minute; ten seconds.
    fn default() -> Self {
        ObjectOptions {
            depth: 128,
            deadline: Duration::from_secs(60),
            silence: Duration::from_secs(10),
        }
    }
}

impl ObjectOptions {
    /// The defaults, with this depth (if any) and deadline, and silence never longer than `silence`, or than the deadline.
    pub(super) fn with(
        depth: Option<usize>,
        deadline: Duration,
        silence: Option<Duration>,
    ) -> Self {
        let standard = ObjectOptions::default();
        let depth = depth.unwrap_or(standard.depth);
        ObjectOptions {
            depth,
            deadline,
            silence: standard.silence.min(silence.unwrap_or(deadline)),
        }
    }
}
