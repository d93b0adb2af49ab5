//! Hints to a mount of `foretell mount`, by its ioctl, and then advice to the kernel.
//!
//! The hint tells the mount of the whole range before the kernel asks for it in pieces of its read-ahead. The mount counts the
//! kernel's requests as reads of the hinter, so no hint stays unread. The bytes arrive in the page cache, as on other file
//! systems.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use foretell_protocol::{Ioctl, IoctlHint, Segment};

use super::{Advised, Backend, BackendKind, POSIX, Standing, Target};
use crate::driver::residency::Range;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Mount;

/// It has no state.
pub(crate) static MOUNT: Mount = Mount;

impl Backend for Mount {
    fn kind(&self) -> BackendKind {
        BackendKind::Mount
    }

    fn fetch(&self, file: &Target, range: Range) -> Advised {
        if file.standing(range) == Standing::Cached {
            return Advised::AlreadyCached;
        }
        // Elsewhere, or with too many hints, it is refused; the advice brings the data all the same.
        let _ = hint(file.file(), range);
        POSIX.fetch(file, range)
    }
}

/// Tells the mount that `range` will be read.
pub(crate) fn hint(file: &File, range: Range) -> io::Result<()> {
    let segment = Segment { offset_bytes: range.offset_bytes, length_bytes: range.length_bytes };
    let hint = IoctlHint { path: Vec::new(), segments: vec![segment], any_order: false };
    let too_long = io::ErrorKind::InvalidInput;
    let (command, bytes) = Ioctl::Hint(hint).encode().ok_or(too_long)?;
    // SAFETY: the kernel copies as many bytes from `bytes` as the command's number says, which `encode` has put there.
    match unsafe { libc::ioctl(file.as_raw_fd(), libc::c_ulong::from(command), bytes.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
