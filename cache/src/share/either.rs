//! A file, and hints, in the cache of this process or of another one.
//!
//! If the other process ends, files of its cache are opened here, and reads go on. Hints that it had are lost.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Builder;

use foretell_policy::Segment;

use super::client::{FarFile, FarStream};
use crate::cache::Stream;
use crate::error::{BackendError, OpenError, ReadError};
use crate::file::{File, Lent, Partly};

/// Opens a file in a cache of this process, and waits.
pub type Reopen = Arc<dyn Fn() -> Result<Arc<File>, OpenError> + Send + Sync>;

/// One version of a file, open. Its methods are those of [`File`].
#[derive(Clone, Debug)]
pub enum EitherFile {
    /// In the cache of this process.
    Here(Arc<File>),
    /// In that of another one.
    There(Arc<There>),
}

/// A file in the cache of another process.
pub struct There {
    file: Arc<FarFile>,
    reopen: Reopen,
    /// The same file in a cache of this process, once the other process has ended.
    again: OnceLock<Arc<File>>,
    /// A read has found another version.
    is_stale: AtomicBool,
}

impl fmt::Debug for There {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("There").field("file", &self.file).finish_non_exhaustive()
    }
}

impl There {
    /// Whether the other process has ended while it was asked.
    fn is_lost(&self, error: &ReadError) -> bool {
        error.cause == BackendError::Lost && self.file.is_lost()
    }

    /// Notes it if a read has found another version.
    fn note<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        if result.as_ref().is_err_and(|error| error.cause == BackendError::Changed) {
            self.is_stale.store(true, Ordering::Relaxed);
        }
        result
    }

    /// The file here. Fails if it is another version by now.
    fn again(&self) -> Result<&Arc<File>, ReadError> {
        if let Some(file) = self.again.get() {
            return Ok(file);
        }
        let failed = |path, cause| ReadError { path, offset_bytes: 0, cause };
        let file = (self.reopen)().map_err(|OpenError { path, cause }| failed(path, cause))?;
        if file.version() != self.file.version() {
            return Err(failed(self.file.path(), BackendError::Changed));
        }
        Ok(self.again.get_or_init(|| file))
    }
}

impl EitherFile {
    /// A file in the cache of another process; `reopen` opens it here if that process ends.
    pub fn there(file: Arc<FarFile>, reopen: Reopen) -> Self {
        let (again, is_stale) = (OnceLock::new(), AtomicBool::new(false));
        EitherFile::There(Arc::new(There { file, reopen, again, is_stale }))
    }

    /// Another handle on this version, as [`File::another`].
    pub fn another(&self) -> Self {
        match self {
            EitherFile::Here(file) => EitherFile::Here(Arc::new(file.another())),
            // Read-ahead is the other process's, which has one handle of this one.
            EitherFile::There(there) => EitherFile::There(Arc::clone(there)),
        }
    }

    /// Whether it is in the cache of another process, which has ended. It can be read, but takes no hints.
    pub fn is_lost(&self) -> bool {
        matches!(self, EitherFile::There(there) if there.file.is_lost())
    }

    /// As [`File::is_stale`].
    pub fn is_stale(&self) -> bool {
        match self {
            EitherFile::Here(file) => file.is_stale(),
            EitherFile::There(there) => there.is_stale.load(Ordering::Relaxed),
        }
    }

    /// The version that was opened, as the back end names it.
    pub fn version(&self) -> &[u8] {
        match self {
            EitherFile::Here(file) => file.version(),
            EitherFile::There(there) => there.file.version(),
        }
    }

    /// Its size in bytes when it was opened.
    pub fn size_bytes(&self) -> u64 {
        match self {
            EitherFile::Here(file) => file.size_bytes(),
            EitherFile::There(there) => there.file.size_bytes(),
        }
    }

    /// As [`File::read_now`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn read_now(
        &self,
        start: *mut u8,
        length: usize,
        offset_bytes: u64,
    ) -> Result<usize, Partly> {
        // SAFETY: the caller's promise is that of both.
        unsafe {
            match self {
                EitherFile::Here(file) => file.read_now(start, length, offset_bytes),
                EitherFile::There(there) => match there.again.get() {
                    Some(file) => file.read_now(start, length, offset_bytes),
                    None => there.file.read_now(start, length, offset_bytes),
                },
            }
        }
    }

    /// As [`File::read_rest`].
    ///
    /// # Errors
    /// As there; [`Changed`](BackendError::Changed) if the file had to be opened anew and is another version by now.
    ///
    /// # Panics
    /// As there.
    pub fn read_rest(
        &self,
        lent: Lent,
        partly: Partly,
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<Option<usize>, ReadError> {
        let there = match self {
            EitherFile::Here(file) => return file.read_rest(lent, partly, is_given_up),
            EitherFile::There(there) => there,
        };
        if there.again.get().is_none() {
            match there.file.read_rest(lent.again(), partly, is_given_up) {
                Err(error) if there.is_lost(&error) => {}
                result => return there.note(result),
            }
        }
        let file = there.note(there.again())?;
        there.note(file.read_rest(lent, partly, is_given_up))
    }

    /// As [`File::read_then`].
    pub fn read_then(
        &self,
        lent: Lent,
        offset_bytes: u64,
        done: impl FnOnce(Result<usize, ReadError>) + Send + 'static,
    ) {
        let there = match self {
            EitherFile::Here(file) => return file.read_then(lent, offset_bytes, done),
            EitherFile::There(there) => there,
        };
        let kept = Arc::clone(there);
        let done = move |result| done(kept.note(result));
        if let Some(file) = there.again.get() {
            return file.read_then(lent, offset_bytes, done);
        }
        let (kept, again) = (Arc::clone(there), lent.again());
        there.file.read_then(lent, offset_bytes, move |result| match result {
            Err(error) if kept.is_lost(&error) => {
                // Opening waits, and this must not.
                let go_on = move |done: Done| match kept.again() {
                    Ok(file) => file.read_then(again, offset_bytes, done),
                    Err(error) => done(Err(error)),
                };
                let thread = Builder::new().name("foretell-reopen".to_owned());
                in_thread(thread, Box::new(done), go_on, error);
            }
            result => done(result),
        });
    }
}

type Done = Box<dyn FnOnce(Result<usize, ReadError>) + Send>;

/// Calls `act` with `done` in a new thread. If none can be started, `done` gets the error.
fn in_thread(
    thread: Builder,
    done: Done,
    act: impl FnOnce(Done) + Send + 'static,
    error: ReadError,
) {
    let done = Arc::new(Mutex::new(Some(done)));
    let take = |done: &Mutex<Option<Done>>| {
        done.lock().unwrap_or_else(PoisonError::into_inner).take().expect("taken once")
    };
    let of_thread = Arc::clone(&done);
    if thread.spawn(move || act(take(&of_thread))).is_err() {
        take(&done)(Err(error));
    }
}

/// A stream of hints, as [`Stream`].
#[derive(Debug)]
pub enum EitherStream {
    /// In the cache of this process.
    Here(Stream),
    /// In that of another one.
    There(FarStream),
}

impl EitherStream {
    /// Discloses ranges of a file, or all of it. Does nothing for a file that is elsewhere than the stream.
    pub fn hint(&self, file: &EitherFile, segments: Option<&[Segment]>, is_ordered: bool) {
        match (self, file) {
            (EitherStream::Here(stream), EitherFile::Here(file)) => match segments {
                None => stream.hint_file(file),
                Some([]) => {}
                Some(segments) if is_ordered => stream.hint_segments(file, segments),
                Some(segments) => stream.hint_set(file, segments),
            },
            (EitherStream::There(stream), EitherFile::There(there)) => match segments {
                None => stream.hint_file(&there.file),
                Some(segments) if is_ordered => stream.hint_segments(&there.file, segments),
                Some(segments) => stream.hint_set(&there.file, segments),
            },
            _ => {}
        }
    }

    /// Whether it is in the cache of another process, which has ended: then nobody takes its hints.
    pub fn is_lost(&self) -> bool {
        matches!(self, EitherStream::There(stream) if stream.is_lost())
    }

    /// Gives up all unread hints. The stream can disclose more afterwards.
    pub fn cancel(&self) {
        match self {
            EitherStream::Here(stream) => stream.cancel(),
            EitherStream::There(stream) => stream.cancel(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_waits_is_told_when_no_thread_can_be_started() {
        for (stack_bytes, started) in [(1 << 20, true), (1 << 50, false)] {
            let (sender, receiver) = channel();
            let done: Done = Box::new(move |result| sender.send(result).unwrap());
            let error = ReadError { path: "a".into(), offset_bytes: 0, cause: BackendError::Lost };
            let thread = Builder::new().stack_size(stack_bytes);
            in_thread(thread, done, |done| done(Ok(7)), error);
            let told = receiver.recv().expect("it is told");
            assert_eq!(told.is_ok(), started, "{told:?}");
        }
    }
}
