//! How a fetch of a range of a file is carried out: one [`Backend`] for each way of asking a file system for data.
//!
//! | back end | asks by | file systems |
//! |---|---|---|
//! | [`posix`] | `posix_fadvise(WILLNEED)` | those that read through the kernel's page cache |
//!
//! They share [`Target`], the open file, and the rule that a fetch counts only when the bytes are seen in memory.

mod posix;
mod target;

use std::fmt::Debug;
use std::fs::File;
use std::io;

pub(crate) use posix::POSIX;
pub(crate) use target::{Standing, Target};

use super::residency::Range;

/// A way to have ranges of files fetched. Its methods run on a device's threads, several at a time, and may wait for the device.
///
/// The caller guarantees that a range is not empty and lay within the file just now. The file may have become shorter since.
pub(crate) trait Backend: Debug + Send + Sync {
    /// Has `range` fetched. Beyond the variants of [`Advised`], an implementation guarantees:
    ///
    /// * `AlreadyCached`, `Fetched` and `Short` mean that the bytes that exist are in memory. Advice that may have had no effect is
    ///   followed by a read.
    /// * `Started` is the answer only if [`Target::has_arrived`] will tell the arrival.
    /// * A file system that refuses advice is no failure: the range is read. Only an error of that read is `Failed`.
    fn fetch(&self, file: &Target, range: Range) -> Advised;

    /// Has the file system let go of what is clean and not in use of `range`. Does not wait for the device. Data that stays in
    /// memory does no harm.
    fn release(&self, file: &Target, range: Range) {
        file.release_pages(range);
    }
}

/// How a fetch went.
#[derive(Debug)]
pub(crate) enum Advised {
    /// All of it was in memory already.
    AlreadyCached,
    /// The kernel is fetching it; [`Handle::state`](super::file::Handle::state) tells when it has arrived.
    Started,
    /// The data is in memory now.
    Fetched,
    /// The file ends before `range` does; what exists of it, `length_bytes`, is in memory now.
    Short { length_bytes: u64 },
    /// The data cannot be fetched.
    Failed(io::Error),
}

/// Has the kernel fetch `range`, in as many calls of `ask` as it takes to have all of it accepted: the kernel silently cuts an
/// advice to the device's read-ahead limit. Reads what it does not accept.
fn ask_in_pieces(
    file: &Target,
    range: Range,
    ask: impl Fn(&File, Range) -> io::Result<()>,
) -> Advised {
    match file.standing(range) {
        Standing::Cached => return Advised::AlreadyCached,
        Standing::Unknown => return file.read_through(range),
        Standing::Missing => {}
    }
    let mut rest = range;
    while rest.length_bytes > 0 {
        if ask(file.file(), rest).is_err() {
            return file.read_through(rest);
        }
        let accepted_bytes = match file.accepted_bytes(rest) {
            None => break,
            Some(0) => return file.read_through(rest),
            Some(accepted_bytes) => accepted_bytes,
        };
        rest.offset_bytes += accepted_bytes;
        rest.length_bytes -= accepted_bytes;
    }
    Advised::Started
}
