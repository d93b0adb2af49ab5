//! Advice by `readahead(2)`, in pieces that the kernel accepts.
//!
//! On today's kernels it does the same as `posix_fadvise(WILLNEED)`. It is for file systems that treat the two differently.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::{Advised, Backend, BackendKind, Target, ask_in_pieces};
use crate::driver::residency::Range;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Readahead;

/// It has no state.
pub(crate) static READAHEAD: Readahead = Readahead;

impl Backend for Readahead {
    fn kind(&self) -> BackendKind {
        BackendKind::Readahead
    }

    fn fetch(&self, file: &Target, range: Range) -> Advised {
        ask_in_pieces(file, range, readahead)
    }
}

fn readahead(file: &File, range: Range) -> io::Result<()> {
    let offset = i64::try_from(range.offset_bytes).map_err(io::Error::other)?;
    let length = usize::try_from(range.length_bytes).map_err(io::Error::other)?;
    // SAFETY: the call takes an open descriptor and numbers, and touches no memory of this process.
    match unsafe { libc::readahead(file.as_raw_fd(), offset, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
