//! Hints to GPFS (IBM Storage Scale), by `gpfs_fcntl` of its library, and then a read.
//!
//! GPFS keeps data in a page pool of its own. Neither `cachestat` nor `mincore` sees it, so arrival cannot be observed, and
//! every fetch ends with a read. The hint before it lets GPFS read the blocks of the range at the same time:
//!
//! A. A range of few blocks is a *multiple access range*, which names each block. GPFS answers how many of them it takes. Those
//!    are given back after the read, because GPFS stops prefetching for a file whose hints stay open.
//! B. A longer range is an *access range*.
//! C. A release is a *free range*, or for all of a file *clear file cache*.
//!
//! The structures are those that `gpfs_fcntl.h` and the product's documentation describe ("gpfs_fcntl() subroutine"): a header
//! and one hint behind it. All lengths are multiples of 8, so nothing is padded.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;

use super::library::Library;
use super::{Advised, Backend, BackendKind, Target};
use crate::driver::residency::Range;

/// Names of the library: by the search path, and where the product is installed.
const NAMES: [&str; 2] = ["libgpfs.so", "/usr/lpp/mmfs/lib/libgpfs.so"];

/// Version of the interface.
const VERSION: libc::c_int = 1;

/// Kinds of hints.
const ACCESS_RANGE: libc::c_int = 1001;
const FREE_RANGE: libc::c_int = 1002;
const MULTIPLE_ACCESS_RANGE: libc::c_int = 1003;
const CLEAR_FILE_CACHE: libc::c_int = 1004;

/// Most blocks of one multiple access range.
const BLOCKS_MAX: usize = 8;

/// `gpfsFcntlHeader_t`.
#[repr(C)]
struct Header {
    total_bytes: libc::c_int,
    version: libc::c_int,
    /// Where in the argument an error lies; set by GPFS.
    error_offset: libc::c_int,
    reserved: libc::c_int,
}

/// A header with its hint.
#[repr(C)]
struct Argument<Hint> {
    header: Header,
    hint: Hint,
}

/// `gpfsAccessRange_t`.
#[repr(C)]
struct AccessRange {
    bytes: libc::c_int,
    kind: libc::c_int,
    start_bytes: i64,
    /// 0 means to the end of the file.
    length_bytes: i64,
    is_write: libc::c_int,
    padding: [u8; 4],
}

/// `gpfsFreeRange_t`.
#[repr(C)]
struct FreeRange {
    bytes: libc::c_int,
    kind: libc::c_int,
    start_bytes: i64,
    length_bytes: i64,
}

/// `gpfsRangeArray_t`: a part of one block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    block: i64,
    start_bytes: libc::c_int,
    length_bytes: libc::c_int,
    is_write: libc::c_int,
    padding: [u8; 4],
}

/// `gpfsMultipleAccessRange_t`.
#[repr(C)]
struct MultipleAccessRange {
    bytes: libc::c_int,
    kind: libc::c_int,
    /// GPFS puts the number of parts there that it has taken, which are the first ones.
    wanted_count: libc::c_int,
    released_count: libc::c_int,
    wanted: [Part; BLOCKS_MAX],
    released: [Part; BLOCKS_MAX],
}

/// `gpfsClearFileCache_t`.
#[repr(C)]
struct ClearFileCache {
    bytes: libc::c_int,
    kind: libc::c_int,
}

/// `gpfs_fcntl`: descriptor and argument.
type FcntlCall = unsafe extern "C" fn(libc::c_int, *mut c_void) -> libc::c_int;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Gpfs {
    fcntl: FcntlCall,
    /// Its function is called.
    _library: Library,
}

impl Gpfs {
    /// Loads the library.
    ///
    /// # Errors
    /// In words, if it is not installed or lacks the function.
    pub(crate) fn load() -> Result<Self, String> {
        Gpfs::of(Library::open(&NAMES)?)
    }

    /// With a library that is loaded.
    pub(crate) fn of(library: Library) -> Result<Self, String> {
        let fcntl = library.function(c"gpfs_fcntl")?;
        // SAFETY: the library's function of this name has this type.
        let fcntl = unsafe { std::mem::transmute::<NonNull<c_void>, FcntlCall>(fcntl) };
        Ok(Gpfs { fcntl, _library: library })
    }

    /// Gives one hint. GPFS may write its answer into it.
    fn give<Hint>(&self, file: &Target, hint: Hint) -> io::Result<Hint> {
        let total_bytes = size_of::<Argument<Hint>>() as libc::c_int;
        let header = Header { total_bytes, version: VERSION, error_offset: 0, reserved: 0 };
        let mut argument = Argument { header, hint };
        let address = (&raw mut argument).cast::<c_void>();
        // SAFETY: the argument has the layout and length that its header says, and outlives the call. Hints are plain numbers,
        // so whatever GPFS writes into them is valid.
        match unsafe { (self.fcntl)(file.file().as_raw_fd(), address) } {
            0 => Ok(argument.hint),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A: asks for `wanted`, and gives `released` back. Returns how many parts GPFS takes.
    fn exchange(&self, file: &Target, wanted: &[Part], released: &[Part]) -> io::Result<usize> {
        let mut hint = MultipleAccessRange {
            bytes: size_of::<MultipleAccessRange>() as libc::c_int,
            kind: MULTIPLE_ACCESS_RANGE,
            wanted_count: wanted.len() as libc::c_int,
            released_count: released.len() as libc::c_int,
            wanted: [Part::default(); BLOCKS_MAX],
            released: [Part::default(); BLOCKS_MAX],
        };
        hint.wanted[..wanted.len()].copy_from_slice(wanted);
        hint.released[..released.len()].copy_from_slice(released);
        let taken = self.give(file, hint)?.wanted_count;
        Ok(usize::try_from(taken).unwrap_or(0).min(wanted.len()))
    }

    /// B.
    fn announce(&self, file: &Target, range: Range) -> io::Result<()> {
        let hint = AccessRange {
            bytes: size_of::<AccessRange>() as libc::c_int,
            kind: ACCESS_RANGE,
            start_bytes: range.offset_bytes.cast_signed(),
            length_bytes: range.length_bytes.cast_signed(),
            is_write: 0,
            padding: [0; 4],
        };
        self.give(file, hint).map(drop)
    }

    /// C.
    fn free(&self, file: &Target, range: Range) -> io::Result<()> {
        if range.offset_bytes == 0 && range.length_bytes >= file.size_bytes() {
            let bytes = size_of::<ClearFileCache>() as libc::c_int;
            return self.give(file, ClearFileCache { bytes, kind: CLEAR_FILE_CACHE }).map(drop);
        }
        let hint = FreeRange {
            bytes: size_of::<FreeRange>() as libc::c_int,
            kind: FREE_RANGE,
            start_bytes: range.offset_bytes.cast_signed(),
            length_bytes: range.length_bytes.cast_signed(),
        };
        self.give(file, hint).map(drop)
    }
}

impl Backend for Gpfs {
    fn kind(&self) -> BackendKind {
        BackendKind::Gpfs
    }

    fn fetch(&self, file: &Target, range: Range) -> Advised {
        // A hint that is refused costs speed alone: the read brings the data.
        let block_bytes = file.file().metadata().map_or(0, |metadata| metadata.blksize());
        let Some(parts) = parts(range, block_bytes) else {
            let _ = self.announce(file, range);
            return file.read_through(range);
        };
        let taken = self.exchange(file, &parts, &[]).unwrap_or(0);
        let advised = file.read_through(range);
        if taken > 0 {
            let _ = self.exchange(file, &[], &parts[..taken]);
        }
        advised
    }

    fn release(&self, file: &Target, range: Range) {
        let _ = self.free(file, range);
        file.release_pages(range);
    }

    fn observes_arrival(&self, _: &Target) -> bool {
        false
    }

    fn release_waits(&self) -> bool {
        true
    }
}

/// The parts of blocks that `range` is made of; `None` if they are more than a hint can have.
fn parts(range: Range, block_bytes: u64) -> Option<Vec<Part>> {
    let is_usable = block_bytes > 0 && block_bytes <= libc::c_int::MAX as u64;
    let end_bytes = range.offset_bytes + range.length_bytes;
    let blocks = if is_usable {
        range.offset_bytes / block_bytes..end_bytes.div_ceil(block_bytes)
    } else {
        return None;
    };
    if blocks.end - blocks.start > BLOCKS_MAX as u64 {
        return None;
    }
    let part = |block: u64| {
        let begins_at = block * block_bytes;
        let start_bytes = range.offset_bytes.saturating_sub(begins_at);
        let length_bytes = (end_bytes - begins_at).min(block_bytes) - start_bytes;
        Part {
            block: block.cast_signed(),
            start_bytes: start_bytes as libc::c_int,
            length_bytes: length_bytes as libc::c_int,
            ..Part::default()
        }
    };
    Some(blocks.map(part).collect())
}
