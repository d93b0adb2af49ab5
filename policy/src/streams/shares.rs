//! How many hints a stream may have that were looked up, are not past, and may be unread yet.
//!
//! What is looked up binds descriptors and memory, so its number is bounded for each device. The last eighth of the bound is
//! kept for streams and hinters that have few or none: a stream that reads nothing keeps its share for long.

use crate::hint::HinterId;

/// Share of a device's lookups for a stream that has read nothing yet, as a divisor, and the least number.
const FIRST_DIVISOR: usize = 4;
const FIRST_MIN: usize = 32;

/// Share of a device's lookups kept for streams and hinters that have few, as a divisor.
const KEPT_DIVISOR: usize = 8;

/// A hinter has few while it has less than this share of the kept lookups, as a divisor.
const FEW_DIVISOR: usize = 4;

/// The bounds on looked-up hints that are not past: of a device, of a new stream, and of a hinter that has few.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    most: usize,
    first: u64,
    few: u64,
}

/// How many lookups a device has left. Of the kept ones, half are for streams that have none, and all for hinters that have few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// More than the kept ones.
    Enough,
    /// More than half of the kept ones.
    HalfOfTheLast,
    /// Less than that.
    LessOfTheLast,
}

/// A stream's number of looked-up hints, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether it may have one more, where the device has enough left.
    pub(super) may: bool,
    pub(super) has_none: bool,
}

impl Standing {
    /// The standing of a stream that has none.
    pub(crate) const OF_NONE: Standing = Standing { may: true, has_none: true };
}

/// A stream's hinter, and the standing of both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HinterStanding {
    pub(crate) hinter: HinterId,
    pub(crate) standing: Standing,
    pub(crate) hinter_has_few: bool,
}

impl Shares {
    /// The bounds where a device may have `most` looked up.
    pub(crate) fn new(most: usize) -> Self {
        let first = (most / FIRST_DIVISOR).max(FIRST_MIN).min(most) as u64;
        Shares { most, first, few: (most / KEPT_DIVISOR / FEW_DIVISOR).max(1) as u64 }
    }

    /// What a device has left of which so many are `taken`; with one stream nothing is kept for others.
    pub(crate) fn left(&self, taken: usize, has_many_streams: bool) -> Option<Left> {
        let kept = if has_many_streams { self.most / KEPT_DIVISOR } else { 0 };
        match taken {
            taken if taken < self.most - kept => Some(Left::Enough),
            taken if taken < self.most - kept / 2 => Some(Left::HalfOfTheLast),
            taken if taken < self.most => Some(Left::LessOfTheLast),
            _ => None,
        }
    }

    /// The standing of a stream that `has` so many. Its `balance` is the blocks that it read, less those fetched for nothing.
    pub(crate) fn standing(&self, has: u64, balance: i64) -> Standing {
        let may = has < self.first.saturating_add_signed(balance).max(1);
        Standing { may, has_none: has == 0 }
    }

    /// Whether a hinter that `has` so many has few.
    pub(crate) fn is_few(&self, has: u64) -> bool {
        has < self.few
    }
}

impl Left {
    /// Whether a stream may have one more.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn allows(self, standing: Standing, hinter_has_few: bool) -> bool {
        match self {
            Left::Enough => standing.may,
            Left::HalfOfTheLast => standing.has_none || hinter_has_few,
            Left::LessOfTheLast => hinter_has_few,
        }
    }
}
