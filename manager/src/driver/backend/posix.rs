//! Advice by `posix_fadvise(WILLNEED)`, in pieces that the kernel accepts.

use std::num::NonZeroU64;

use rustix::fs::Advice;

use super::{Advised, Backend, BackendKind, Target, ask_in_pieces};
use crate::driver::residency::Range;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Posix;

/// It has no state.
pub(crate) static POSIX: Posix = Posix;

impl Backend for Posix {
    fn kind(&self) -> BackendKind {
        BackendKind::Posix
    }

    fn fetch(&self, file: &Target, range: Range) -> Advised {
        ask_in_pieces(file, range, |file, rest| {
            let length = NonZeroU64::new(rest.length_bytes);
            Ok(rustix::fs::fadvise(file, rest.offset_bytes, length, Advice::WillNeed)?)
        })
    }
}
