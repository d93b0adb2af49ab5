//! Points and spans of time, in whole nanoseconds.
//!
//! The policy never reads a clock. Its driver passes the time to every call, from a real monotonic clock or a simulator's
//! virtual one. Integers make a simulation exact and repeatable.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// A point in time or a span of it, in nanoseconds. The origin is the driver's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// A span of zero, and the origin of a driver's clock.
    /// Unit: ns. Reason: layout.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than any event.
    /// Unit: ns. Reason: layout.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// `milliseconds` rounded to the nearest nanosecond; negative values and NaN become zero.
    pub fn from_millis(milliseconds: f64) -> Self {
        Nanos((milliseconds * 1e6).round().max(0.0) as u64)
    }

    /// `seconds` rounded to the nearest nanosecond; negative values and NaN become zero.
    pub fn from_secs(seconds: f64) -> Self {
        Nanos((seconds * 1e9).round().max(0.0) as u64)
    }

    /// The span in milliseconds.
    pub fn as_millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The span in seconds.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - earlier`, or zero if `earlier` is the later one.
    pub fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at [`Nanos::MAX`].
impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(iter: I) -> Nanos {
        iter.fold(Nanos::ZERO, Add::add)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.as_millis())
    }
}
