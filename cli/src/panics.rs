//! A panic is a fault of foretell's own. The user gets one line that says what to report, and never a stack trace unasked.
//!
//! * A: In the main thread it ends the command, in order: what is mounted is unmounted, and no file is left half-written.
//! * B: In a thread that serves, it ends the request that it happens in, with an error of its own. Threads see to that where they
//!   are started.
//! * C: No memory left ends the process at once, with a line too: there is no unwinding from there.
//!
//! The same panic at the same place is told once: several threads may come upon it. The manager of `foretell run` has no
//! standard error. It keeps its lines, and sends them with its report.

use std::alloc::{GlobalAlloc, Layout};
use std::backtrace::Backtrace;
use std::io::Write;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use foretell_heap::Heap;

use crate::failure::note;

/// Names the point at which a thread shall panic; for tests.
const POINT_VARIABLE: &str = "FORETELL_TEST_PANIC";
/// Has a stack trace follow the line. RUST_BACKTRACE does not: it may be set for programs of others.
const TRACE_VARIABLE: &str = "FORETELL_BACKTRACE";
/// The code of a command that has failed.
const FAILED: i32 = 1;
/// Different panics that are told, at most.
const TOLD_MAX: usize = 16;

/// The code that this process ends with.
static EXIT_CODE: AtomicI32 = AtomicI32::new(FAILED);
/// What has been told.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has panics told in a line from now on, and arms the point that a test names.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(tell));
    if let Some(point) = std::env::var_os(POINT_VARIABLE).and_then(|name| name.into_string().ok()) {
        foretell_fault::arm(point);
    }
}

/// What the command comes to; if it panics, that it failed (A).
pub(crate) fn guarded(command: impl FnOnce() -> ExitCode) -> ExitCode {
    let code = || ExitCode::from(u8::try_from(EXIT_CODE.load(Ordering::Relaxed)).unwrap_or(1));
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| code())
}

/// Does `work`, which the rest does not depend on: a panic in it is told, and nothing else.
pub(crate) fn contained(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

/// The code that a command ends with which fails from now on by a fault of foretell.
pub(crate) fn fail_with(code: u8) {
    EXIT_CODE.store(code.into(), Ordering::Relaxed);
}

/// What has been told so far.
pub(crate) fn told() -> Vec<String> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn tell(panic: &PanicHookInfo) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("without a name");
    let (file, line) = panic.location().map_or(("", 0), |place| (place.file(), place.line()));
    let text = panic.payload_as_str().unwrap_or("no reason given");
    let line = format!(
        "internal error in thread {name} ({file}:{line}): {text}; please report this line, the command, and that it is foretell {}",
        env!("CARGO_PKG_VERSION")
    );
    {
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |line: &String| line.split_once('(').map(|(_, rest)| rest.to_owned());
        if told.len() == TOLD_MAX || told.iter().any(|before| place(before) == place(&line)) {
            return;
        }
        told.push(line.clone());
    }
    note(line);
    if std::env::var_os(TRACE_VARIABLE).is_some() {
        let _ = write!(std::io::stderr(), "{}", Backtrace::force_capture());
    }
}

/// The heap, with the end of a process that has none left (C).
pub(crate) struct FiniteHeap;

/// One line and the end. Nothing here allocates.
#[cold]
fn no_memory_left(bytes: usize) -> ! {
    let mut line = [0u8; 160];
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "foretell: no memory left: {bytes} bytes more cannot be had; allow it more (ulimit -v, its control group), or give it less to do"
    );
    let left = rest.len();
    let length = line.len() - left;
    // SAFETY: the bytes are `line`'s; `_exit` runs nothing of this process any more.
    unsafe {
        libc::write(2, line.as_ptr().cast(), length);
        libc::_exit(EXIT_CODE.load(Ordering::Relaxed))
    }
}

#[inline]
fn checked(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() { no_memory_left(bytes) } else { block }
}

// SAFETY: every call is the heap's own, with the arguments it came with, and what that returns is returned, or does not return at all.
unsafe impl GlobalAlloc for FiniteHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller has made sure of what `alloc` asks for.
        checked(unsafe { Heap.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        checked(unsafe { Heap.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller has made sure of what `realloc` asks for.
        checked(unsafe { Heap.realloc(block, layout, bytes) }, bytes)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from `Heap`, by one of the calls above.
        unsafe { Heap.dealloc(block, layout) }
    }
}
