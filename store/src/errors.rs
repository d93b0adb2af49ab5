//! Which error becomes which `errno`, and the line that says more.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use foretell_cache::CacheError;
use foretell_cache::backend::{BackendError, without_secrets};
use foretell_family::{Recipe, SourceError};

/// An error, and what is wrong.
#[derive(Debug)]
pub(crate) struct Problem {
    errno: i32,
    line: String,
}

fn errno_of(cause: &BackendError) -> i32 {
    match cause {
        BackendError::NotFound => libc::ENOENT,
        BackendError::Denied(_) => libc::EACCES,
        BackendError::Busy(_) => libc::EAGAIN,
        BackendError::Changed => libc::ESTALE,
        BackendError::Timeout(_) => libc::ETIMEDOUT,
        BackendError::Lost => libc::EIO,
        BackendError::Other { errno, .. } => errno.unwrap_or(libc::EIO),
    }
}

impl Problem {
    pub(crate) fn of(cause: &BackendError, line: String) -> Self {
        Problem { errno: errno_of(cause), line }
    }

    /// A wrong argument.
    pub(crate) fn wrong(line: String) -> Self {
        Problem { errno: libc::EINVAL, line }
    }

    pub(crate) fn forked() -> Self {
        let line = "the file was opened before the process forked: open it again".to_owned();
        Problem { errno: libc::EBADF, line }
    }

    pub(crate) fn of_source(recipe: &Recipe, error: &SourceError) -> Self {
        let place = recipe.place.as_os_str().to_string_lossy();
        match error {
            SourceError::Folder(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::ENOTDIR);
                Problem { errno, line: format!("{}: {error}", without_secrets(&place)) }
            }
            SourceError::Address(error) => Problem::wrong(error.to_string()),
        }
    }

    pub(crate) fn of_cache(error: &CacheError) -> Self {
        let errno = match error {
            CacheError::Memory { .. } => libc::ENOMEM,
            _ => libc::EINVAL,
        };
        Problem { errno, line: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A line that is no problem, good until the thread asks for the next one.
pub(crate) fn kept_line(line: &str) -> *const c_char {
    thread_local! {
        static KEPT: RefCell<CString> = RefCell::default();
    }
    let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
    // At the end of a thread there is none any more.
    let kept = KEPT.try_with(|kept| {
        kept.replace(line);
        kept.borrow().as_ptr()
    });
    kept.unwrap_or(c"".as_ptr())
}

/// The line of the last problem of this thread.
pub(crate) fn last() -> *const c_char {
    // At the end of a thread there is none any more.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Calls `work`. A problem, or a panic, becomes `failed` and `errno`.
#[inline]
pub(crate) fn guarded<T>(failed: T, work: impl FnOnce() -> Result<T, Problem>) -> T {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(problem)) => told(failed, problem),
        Err(_) => {
            let line = "a mistake in foretell; the lines on standard error say where".to_owned();
            told(failed, Problem { errno: libc::EIO, line })
        }
    }
}

#[cold]
fn told<T>(failed: T, problem: Problem) -> T {
    let Problem { errno, line } = problem;
    let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
    let _ = LAST.try_with(|last| *last.borrow_mut() = line);
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = errno };
    failed
}
