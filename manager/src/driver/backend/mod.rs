//! How a fetch of a range of a file is carried out: one [`Backend`] for each way of asking a file system for data.
//!
//! | back end | asks by | file systems |
//! |---|---|---|
//! | [`posix`] | `posix_fadvise(WILLNEED)` | those that read through the kernel's page cache |
//! | [`readahead`] | `readahead(2)` | the same, when asked for |
//! | [`read_through`] | reading | those on which advice has no effect |
//! | [`lustre`] | `llapi_ladvise`, then reading | Lustre |
//! | [`gpfs`] | `gpfs_fcntl`, then reading | GPFS |
//! | [`mount`] | the ioctl of `foretell mount`, then advice | foretell's mounts |
//!
//! They share [`Target`], the open file, and the rule that a fetch counts only when the bytes are seen in memory. [`choice`]
//! tells which one serves a file system.

pub(crate) mod choice;
#[cfg(test)]
mod conformance;
mod gpfs;
mod library;
mod lustre;
mod mount;
mod posix;
mod read_through;
mod readahead;
mod target;

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::OnceLock;

pub use foretell_rules::BackendKind;
use gpfs::Gpfs;
use lustre::Lustre;
pub(crate) use mount::MOUNT;
pub(crate) use posix::POSIX;
pub(crate) use read_through::READ_THROUGH;
pub(crate) use readahead::READAHEAD;
pub(crate) use target::{Standing, Target};

use super::residency::{Range, page_bytes};

/// A way to have ranges of files fetched. Its methods run on a device's threads, several at a time, and may wait for the
/// device.
///
/// The caller guarantees that a range is not empty and lay within the file just now. The file may have become shorter since.
pub(crate) trait Backend: Debug + Send + Sync {
    /// What it is called.
    fn kind(&self) -> BackendKind;

    /// Has `range` fetched. Beyond the variants of [`Advised`], an implementation guarantees:
    ///
    /// * `AlreadyCached`, `Fetched` and `Short` mean that the bytes that exist are in memory. Advice that may have had no
    ///   effect is followed by a read.
    /// * `Started` is the answer only if [`Target::has_arrived`] will tell the arrival.
    /// * A file system that refuses advice is no failure: the range is read. Only an error of that read is `Failed`.
    fn fetch(&self, file: &Target, range: Range) -> Advised;

    /// Has the file system let go of what is clean and not in use of `range`. Data that stays in memory does no harm.
    fn release(&self, file: &Target, range: Range) {
        file.release_pages(range);
    }

    /// Whether [`release`](Self::release) may wait for a device or a server, so that the session must not call it.
    fn release_waits(&self) -> bool {
        false
    }

    /// Whether the arrival of data of `file` can be observed, rather than waited for in a read.
    fn observes_arrival(&self, file: &Target) -> bool {
        file.is_observable()
    }
}

/// The back end of this kind.
///
/// # Errors
/// In words, if it has a library and that is not here, or none is meant.
pub(crate) fn of_kind(kind: BackendKind) -> Result<&'static dyn Backend, String> {
    static LUSTRE: OnceLock<Result<Lustre, String>> = OnceLock::new();
    static GPFS: OnceLock<Result<Gpfs, String>> = OnceLock::new();
    fn loaded<B: Backend>(
        found: &'static Result<B, String>,
    ) -> Result<&'static dyn Backend, String> {
        found.as_ref().map(|backend| backend as &dyn Backend).map_err(Clone::clone)
    }
    match kind {
        BackendKind::Auto => Err("no back end is named".into()),
        BackendKind::Posix => Ok(&POSIX),
        BackendKind::Readahead => Ok(&READAHEAD),
        BackendKind::ReadThrough => Ok(&READ_THROUGH),
        BackendKind::Lustre => loaded(LUSTRE.get_or_init(Lustre::load)),
        BackendKind::Gpfs => loaded(GPFS.get_or_init(Gpfs::load)),
        BackendKind::Mount => Ok(&MOUNT),
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
            return read_rest(file, range, rest);
        }
        let accepted_bytes = match file.accepted_bytes(rest) {
            None => break,
            Some(0) => return read_rest(file, range, rest),
            Some(accepted_bytes) => accepted_first(file, rest, accepted_bytes),
        };
        rest.offset_bytes += accepted_bytes;
        rest.length_bytes -= accepted_bytes;
    }
    Advised::Started
}

/// How much of the beginning of `range` the kernel has accepted, of which it has accepted `accepted_bytes` in all. The two
/// differ where parts of the range were in memory before. At least a page, so that the next advice is for less.
fn accepted_first(file: &Target, range: Range, accepted_bytes: u64) -> u64 {
    let is_accepted = |pages: u64| {
        let first = Range { length_bytes: pages * page_bytes(), ..range };
        file.accepted_bytes(first).is_none_or(|accepted_bytes| accepted_bytes == first.length_bytes)
    };
    if accepted_bytes == range.length_bytes || is_accepted(accepted_bytes / page_bytes()) {
        return accepted_bytes;
    }
    let (mut low, mut high) = (1, accepted_bytes / page_bytes());
    while low + 1 < high {
        let middle = low.midpoint(high);
        if is_accepted(middle) { low = middle } else { high = middle }
    }
    (low * page_bytes()).min(range.length_bytes)
}

/// Reads `rest`, the end of `range`, whose beginning the kernel has accepted.
fn read_rest(file: &Target, range: Range, rest: Range) -> Advised {
    match file.read_through(rest) {
        Advised::Fetched if rest != range => Advised::Started,
        // The beginning may be in flight, or have gone too.
        Advised::Short { .. } if rest != range => file.read_through(range),
        advised => advised,
    }
}
