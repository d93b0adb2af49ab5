//! How many looked-up hints a stream may have that are not past. They may all be unread.
//!
//! A looked-up hint takes a file descriptor and memory, so their number is bounded per device. The last eighth of the bound is
//! reserved for streams and hinters that have few or none, because a stream that reads nothing keeps its share for long.

use crate::hint::HinterId;

/// A stream that has read nothing may hold this part, as a divisor, of the looked-up hints that its device may have.
/// Unit: ratio. Reason: judgement.
const FIRST_DIVISOR: usize = 4;
/// It may hold at least this many.
/// Unit: hints. Reason: judgement.
const FIRST_MIN: usize = 32;

/// The reserve for streams and hinters that have few is the device's bound divided by this. Without a reserve, streams that
/// read nothing could hold all lookups, and no other stream would ever get one.
/// Unit: ratio. Reason: bound.
const KEPT_DIVISOR: usize = 8;

/// A hinter has few while it has less than the reserve divided by this. So one hinter cannot take the whole reserve, however
/// many streams it opens.
/// Unit: ratio. Reason: bound.
const FEW_DIVISOR: usize = 4;

/// Bounds on looked-up hints that are not past: of a device (`most`), of a new stream (`first`), and of a hinter that has
/// `few`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    most: usize,
    first: u64,
    few: u64,
}

/// How many lookups a device has left. The first half of the reserve is for streams that have none and for hinters that have
/// few. The second half is for hinters that have few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// More than the reserve: any stream may have another one within its own bound.
    Enough,
    /// More than half of the reserve.
    HalfOfTheLast,
    /// Half of the reserve or less.
    LessOfTheLast,
}

/// What a stream's number of looked-up hints permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether it may have another one if the device has enough left.
    pub(super) may: bool,
    pub(super) has_none: bool,
}

impl Standing {
    /// The standing of a stream without looked-up hints.
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
    /// The bounds for devices that may have `most` looked-up hints.
    pub(crate) fn new(most: usize) -> Self {
        let first = (most / FIRST_DIVISOR).max(FIRST_MIN).min(most) as u64;
        Shares { most, first, few: (most / KEPT_DIVISOR / FEW_DIVISOR).max(1) as u64 }
    }

    /// What is left at a device when `taken` are in use; `None` if nothing is. With a single stream there is no reserve.
    pub(crate) fn left(&self, taken: usize, has_many_streams: bool) -> Option<Left> {
        let kept = if has_many_streams { self.most / KEPT_DIVISOR } else { 0 };
        match taken {
            taken if taken < self.most - kept => Some(Left::Enough),
            taken if taken < self.most - kept / 2 => Some(Left::HalfOfTheLast),
            taken if taken < self.most => Some(Left::LessOfTheLast),
            _ => None,
        }
    }

    /// The standing of a stream that `has` this many. Its `balance` is the number of blocks it read, less those wasted.
    pub(crate) fn standing(&self, has: u64, balance: i64) -> Standing {
        let may = has < self.first.saturating_add_signed(balance).max(1);
        Standing { may, has_none: has == 0 }
    }

    /// Whether a hinter that has this many looked-up hints has few.
    pub(crate) fn is_few(&self, has: u64) -> bool {
        has < self.few
    }
}

impl Left {
    /// Whether a stream may have another one.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn allows(self, standing: Standing, hinter_has_few: bool) -> bool {
        match self {
            Left::Enough => standing.may,
            Left::HalfOfTheLast => standing.has_none || hinter_has_few,
            Left::LessOfTheLast => hinter_has_few,
        }
    }
}
