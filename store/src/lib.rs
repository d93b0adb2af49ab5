//! The C interface of stores. `protocol/include/foretell_store.h` says what each function promises.
//!
//! Here is only the border: pointers become values, errors become `errno` and a line, and panics end here. What a store is and
//! where its cache is, `foretell-family` decides.
//!
//! A store and a file belong to the process that made them ([`OfProcess`]). A forked child makes the store anew from its recipe;
//! it cannot make a file anew, since that may have changed.

mod errors;
mod options;

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foretell_cache::share::{EitherFile, EitherStream};
use foretell_cache::{Lent, ReadError, Segment};
use foretell_family::{CacheOf, OfProcess, Recipe, Source, Way};

use crate::errors::{Problem, guarded};
use crate::options::{Options, recipe_of};

/// The way to a store's cache, once it is known. It is sought again when it is lost.
type Live = OfProcess<Mutex<Option<Way>>>;

/// A store.
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Debug)]
pub struct foretell_store {
    recipe: Recipe,
    /// Never NULL; made by `Box::into_raw`. A child puts its own here: it must not wait for a lock of its parent's.
    live: AtomicPtr<Live>,
}

/// An open file.
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Debug)]
pub struct foretell_store_file(OfProcess<Open>);

#[derive(Debug)]
struct Open {
    file: EitherFile,
    way: Way,
    /// Made by the first hint.
    stream: Mutex<Option<EitherStream>>,
}

fn way_of(recipe: &Recipe) -> Result<Way, Problem> {
    let source = Source::of(recipe, None).map_err(|error| Problem::of_source(recipe, &error))?;
    source.tell_troubles();
    let from = source.clone();
    let open = Arc::new(move |path: &OsStr| from.open(path));
    Way::new(recipe, source.backend(), open).map_err(|error| Problem::of_cache(&error))
}

fn new_live(way: Option<Way>) -> *mut Live {
    Box::into_raw(Box::new(OfProcess::new(Mutex::new(way))))
}

impl foretell_store {
    fn new(recipe: Recipe) -> Result<Self, Problem> {
        let live = AtomicPtr::new(new_live(Some(way_of(&recipe)?)));
        Ok(foretell_store { recipe, live })
    }

    /// The way to the cache.
    fn way(&self) -> Result<Way, Problem> {
        loop {
            let live = self.live.load(Ordering::Acquire);
            // SAFETY: it is freed only with the store.
            if let Some(live) = unsafe { &*live }.get() {
                let mut way = live.lock().unwrap_or_else(PoisonError::into_inner);
                return match &mut *way {
                    Some(way) if !way.is_lost() => Ok(way.clone()),
                    lost => Ok(lost.insert(way_of(&self.recipe)?).clone()),
                };
            }
            // The parent's stays where it is: another thread may look at it at this moment.
            let own = new_live(None);
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if self.live.compare_exchange(live, own, order.0, order.1).is_err() {
                // SAFETY: just made, and nobody else has it.
                drop(unsafe { Box::from_raw(own) });
            }
        }
    }
}

impl Drop for foretell_store {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, and nobody uses the store any more.
        drop(unsafe { Box::from_raw(*self.live.get_mut()) });
    }
}

impl Open {
    /// Reads into memory of `length` bytes at `start`.
    ///
    /// # Safety
    /// It is valid for writes until this returns, and nothing else uses it.
    unsafe fn read(
        &self,
        start: *mut u8,
        length: usize,
        offset_bytes: u64,
    ) -> Result<usize, ReadError> {
        // SAFETY: the caller's promise.
        let partly = match unsafe { self.file.read_now(start, length, offset_bytes) } {
            Ok(count) => return Ok(count),
            Err(partly) => partly,
        };
        // SAFETY: the caller's promise; the read is not given up before it has ended.
        let lent = unsafe { Lent::new(start, length, Arc::new(())) };
        Ok(self.file.read_rest(lent, partly, &mut || false)?.unwrap_or_default())
    }

    fn hint(&self, segments: Option<&[Segment]>, is_ordered: bool) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = stream.get_or_insert_with(|| self.way.stream());
        stream.hint(&self.file, segments, is_ordered);
    }
}

/// The text of a C string.
///
/// # Safety
/// `text` is NULL or a C string.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Problem> {
    if text.is_null() {
        return Err(Problem::wrong(format!("{what} is NULL")));
    }
    // SAFETY: it is a C string, as the caller promises.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// # Safety
/// `file` is NULL or an open file.
unsafe fn open<'a>(file: *const foretell_store_file) -> Result<&'a Open, Problem> {
    // SAFETY: the caller's promise.
    let file = unsafe { file.as_ref() }.ok_or_else(|| Problem::wrong("the file is NULL".into()))?;
    file.0.get().ok_or_else(Problem::forked)
}

/// See `foretell_store.h`.
///
/// # Safety
/// The arguments are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foretell_store_open(
    url: *const c_char,
    options: *const Options,
) -> *mut foretell_store {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let url = unsafe { text(url, "the address")? };
        // SAFETY: the caller's promise.
        let recipe = unsafe { recipe_of(OsStr::from_bytes(url.to_bytes()), options)? };
        Ok(Box::into_raw(Box::new(foretell_store::new(recipe)?)))
    })
}

/// See `foretell_store.h`.
///
/// # Safety
/// `store` is NULL, or was opened and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foretell_store_close(store: *mut foretell_store) {
    guarded((), || {
        if !store.is_null() {
            // SAFETY: it was made by `Box::into_raw`, and is not used again.
            drop(unsafe { Box::from_raw(store) });
        }
        Ok(())
    });
}

/// See `foretell_store.h`.
///
/// # Safety
/// `store` is NULL or an open store, and `why` NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foretell_store_cache(
    store: *mut foretell_store,
    why: *mut *const c_char,
) -> c_int {
    guarded(-1, || {
        // SAFETY: the caller's promise.
        let store = unsafe { store.as_ref() };
        let way = store.ok_or_else(|| Problem::wrong("the store is NULL".into()))?.way()?;
        let sharing = way.sharing();
        let line = sharing.refusal.as_ref().map_or("", |refusal| &refusal.why);
        // SAFETY: the caller's promise.
        if let Some(why) = unsafe { why.as_mut() } {
            *why = errors::kept_line(line);
        }
        Ok(match sharing.cache {
            CacheOf::Alone => 0,
            CacheOf::Here => 1,
            CacheOf::Other => 2,
            CacheOf::Daemon => 3,
        })
    })
}

/// See `foretell_store.h`.
///
/// # Safety
/// `store` is NULL or an open store, and `path` NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foretell_store_file_open(
    store: *mut foretell_store,
    path: *const c_char,
) -> *mut foretell_store_file {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (store, path) = unsafe { (store.as_ref(), text(path, "the path")?) };
        let store = store.ok_or_else(|| Problem::wrong("the store is NULL".into()))?;
        let way = store.way()?;
        let file = way.open(OsStr::from_bytes(path.to_bytes()));
        let file = file.map_err(|error| Problem::of(&error.cause, error.to_string()))?;
        let open = Open { file, way, stream: Mutex::default() };
        Ok(Box::into_raw(Box::new(foretell_store_file(OfProcess::new(open)))))
    })
}

/// See `foretell_store.h`.
///
/// # Safety
/// `file` is NULL, or was opened and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foretell_store_file_close(file: *mut foretell_store_file) {
    guarded((), || {
        if !file.is_null() {
            // SAFETY: it was made by `Box::into_raw`, and is not used again.
            drop(unsafe { Box::from_raw(file) });
        }
        Ok(())
    });
}

/// See `foretell_store.h`.
///
/// # Safety
/// `file` is NULL or an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foretell_store_size(file: *const foretell_store_file) -> u64 {
    // SAFETY: the caller's promise.
    guarded(u64::MAX, || unsafe { open(file) }.map(|open| open.file.size_bytes()))
}

/// See `foretell_store.h`.
///
/// # Safety
/// `file` is NULL or an open file; `buffer` is valid for writes of `length_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foretell_store_pread(
    file: *const foretell_store_file,
    buffer: *mut c_void,
    length_bytes: usize,
    offset_bytes: u64,
) -> isize {
    guarded(-1, || {
        // SAFETY: the caller's promise.
        let open = unsafe { open(file)? };
        if buffer.is_null() && length_bytes > 0 {
            return Err(Problem::wrong("the buffer is NULL".into()));
        }
        // The count must fit into the answer.
        let length = length_bytes.min(isize::MAX.unsigned_abs());
        // SAFETY: the caller's promise.
        let count = unsafe { open.read(buffer.cast(), length, offset_bytes) };
        let count = count.map_err(|error| Problem::of(&error.cause, error.to_string()))?;
        Ok(count.cast_signed())
    })
}

/// See `foretell_store.h`.
///
/// # Safety
/// `file` is NULL or an open file; `segments` has as many parts as `segment_count` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foretell_store_hint(
    file: *const foretell_store_file,
    segments: *const options::Part,
    segment_count: usize,
    flags: u32,
) -> c_int {
    guarded(-1, || {
        // SAFETY: the caller's promise.
        let open = unsafe { open(file)? };
        // SAFETY: the caller's promise.
        let segments = unsafe { options::segments_of(segments, segment_count)? };
        if flags & !options::ANY_ORDER != 0 {
            return Err(Problem::wrong("flags are 0 or FORETELL_ANY_ORDER".into()));
        }
        open.hint(segments.as_deref(), flags & options::ANY_ORDER == 0);
        Ok(0)
    })
}

/// See `foretell_store.h`.
///
/// # Safety
/// `file` is NULL or an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foretell_store_cancel(file: *const foretell_store_file) -> c_int {
    guarded(-1, || {
        // SAFETY: the caller's promise.
        let open = unsafe { open(file)? };
        if let Some(stream) = &*open.stream.lock().unwrap_or_else(PoisonError::into_inner) {
            stream.cancel();
        }
        Ok(0)
    })
}

/// See `foretell_store.h`.
#[unsafe(no_mangle)]
pub extern "C" fn foretell_store_error() -> *const c_char {
    errors::last()
}
