//! How long a response waits before its first byte.

use std::time::Duration;

/// How long a response waits before its first byte, counted from the arrival of the request's head.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstByte {
    /// The usual wait. If `sigma` is not 0, it is the median.
    pub usual: Duration,
    /// Standard deviation of the wait's logarithm (a log-normal distribution). 0 gives the same wait always.
    pub sigma: f64,
    /// Shares of the responses that have another wait. They add up to at most 1.
    pub tail: Vec<Tail>,
}

/// A share of responses with a wait of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// The share of all responses, from 0 to 1.
    pub share: f64,
    /// The wait of these responses.
    pub wait: Duration,
}

impl FirstByte {
    /// The same wait for all responses.
    pub fn fixed(usual: Duration) -> Self {
        FirstByte { usual, sigma: 0.0, tail: Vec::new() }
    }
}
