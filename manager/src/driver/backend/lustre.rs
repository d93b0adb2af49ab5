//! Advice to the servers of Lustre, by `llapi_ladvise` of its library, and then a read.
//!
//! Lustre's client does not act on the kernel's advice (the advice paper, 2014, "POSIX Advice Integration with Lustre"), so the
//! bytes come into this machine's memory by a read. Before it, the servers that hold the range are told to read all of it from
//! their disks (`LU_LADVISE_WILLREAD`), without waiting for them: then the read's pieces wait for the network alone.
//!
//! The structure is that of llapi_ladvise(3) and of `lustre_user.h`. The end of an advice is the first byte behind it: the
//! client refuses an advice whose end is not greater than its start.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::library::Library;
use super::{Advised, Backend, BackendKind, Standing, Target};
use crate::driver::residency::Range;

/// Names of the library, with and without its version.
const NAMES: [&str; 2] = ["liblustreapi.so.1", "liblustreapi.so"];

/// Kinds of advice: the servers should read the range, or need not keep it.
const WILL_READ: u16 = 1;
const DONT_NEED: u16 = 2;

/// `LF_ASYNC`: the call does not wait for the servers' disks.
const ASYNC: u64 = 1;

/// `LLAPI_MSG_OFF`: the library prints nothing on the standard error of this process.
const SILENT: libc::c_int = 0;

/// `struct llapi_lu_ladvise`.
#[repr(C)]
struct LAdvise {
    advice: u16,
    value1: u16,
    value2: u32,
    start_bytes: u64,
    end_bytes: u64,
    value3: u32,
    value4: u32,
}

/// `llapi_ladvise`: descriptor, flags, number of advices, advices.
type LAdviseCall =
    unsafe extern "C" fn(libc::c_int, libc::c_ulonglong, libc::c_int, *mut LAdvise) -> libc::c_int;
/// `llapi_msg_set_level`.
type SetLevelCall = unsafe extern "C" fn(libc::c_int);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Lustre {
    ladvise: LAdviseCall,
    /// Its functions are called.
    _library: Library,
}

impl Lustre {
    /// Loads the library.
    ///
    /// # Errors
    /// In words, if it is not installed or lacks the function.
    pub(crate) fn load() -> Result<Self, String> {
        Lustre::of(Library::open(&NAMES)?)
    }

    /// With a library that is loaded.
    pub(crate) fn of(library: Library) -> Result<Self, String> {
        let ladvise = library.function(c"llapi_ladvise")?;
        if let Ok(set_level) = library.function(c"llapi_msg_set_level") {
            // SAFETY: the function has this type in every version, and only stores the number.
            unsafe { std::mem::transmute::<NonNull<c_void>, SetLevelCall>(set_level)(SILENT) };
        }
        // SAFETY: the library's function of this name has this type.
        let ladvise = unsafe { std::mem::transmute::<NonNull<c_void>, LAdviseCall>(ladvise) };
        Ok(Lustre { ladvise, _library: library })
    }

    /// Gives the servers one advice.
    fn advise(&self, file: &Target, advice: u16, range: Range) -> io::Result<()> {
        let end_bytes = range.offset_bytes + range.length_bytes;
        let mut advice = LAdvise {
            advice,
            value1: 0,
            value2: 0,
            start_bytes: range.offset_bytes,
            end_bytes,
            value3: 0,
            value4: 0,
        };
        // SAFETY: the one advice has the layout that the function expects, and outlives the call.
        match unsafe { (self.ladvise)(file.file().as_raw_fd(), ASYNC, 1, &raw mut advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Backend for Lustre {
    fn kind(&self) -> BackendKind {
        BackendKind::Lustre
    }

    fn fetch(&self, file: &Target, range: Range) -> Advised {
        if file.standing(range) == Standing::Cached {
            return Advised::AlreadyCached;
        }
        // Old servers know no advice. The read brings the data all the same.
        let _ = self.advise(file, WILL_READ, range);
        file.read_through(range)
    }

    fn release(&self, file: &Target, range: Range) {
        let _ = self.advise(file, DONT_NEED, range);
        file.release_pages(range);
    }

    fn release_waits(&self) -> bool {
        true
    }
}
