//! What happens on a panic, which is a fault of foretell's own. The user gets one line that says what to report, and a stack
//! trace only on request.
//!
//! * A: In the main thread it ends the command in order: mounts are unmounted, and no file is left half-written.
//! * B: In a serving thread it ends only the current request, with an error. The code that starts the threads sees to that.
//! * C: Running out of memory ends the process at once, with one line: there is no unwinding.
//!
//! A panic at one place in the code is printed once, even if several threads reach it. The manager of `foretell run` has no
//! standard error: it keeps its lines and sends them with its report.

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

/// Names the fault point at which a thread panics; for tests.
const POINT_VARIABLE: &str = "FORETELL_TEST_PANIC";
/// Names an operation that fails; for tests.
const FAILURE_VARIABLE: &str = "FORETELL_TEST_FAILURE";
/// Adds a stack trace to the line. RUST_BACKTRACE does not, because it may be set for other programs.
const TRACE_VARIABLE: &str = "FORETELL_BACKTRACE";
/// Exit code of a failed command.
const FAILED: i32 = 1;
/// Most panics that are printed.
const TOLD_MAX: usize = 16;

/// The code that this process ends with after a panic.
static EXIT_CODE: AtomicI32 = AtomicI32::new(FAILED);
/// The lines printed so far.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Installs the one-line report of panics, and arms what a test names.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(tell));
    let named = |variable| std::env::var_os(variable).and_then(|name| name.into_string().ok());
    named(POINT_VARIABLE).into_iter().for_each(foretell_fault::arm);
    named(FAILURE_VARIABLE).into_iter().for_each(foretell_fault::arm_failure);
}

/// Runs the command and returns its exit code, or that of a failure if it panics (A).
pub(crate) fn guarded(command: impl FnOnce() -> ExitCode) -> ExitCode {
    let code = || ExitCode::from(u8::try_from(EXIT_CODE.load(Ordering::Relaxed)).unwrap_or(1));
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| code())
}

/// Does `work`, on which nothing else depends: a panic in it is printed and otherwise ignored.
pub(crate) fn contained(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

/// Sets the exit code for faults of foretell's own from now on.
pub(crate) fn fail_with(code: u8) {
    EXIT_CODE.store(code.into(), Ordering::Relaxed);
}

/// The lines printed so far.
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

/// The heap; ends the process when no memory is left (C).
pub(crate) struct FiniteHeap;

/// Prints one line and ends the process. Allocates nothing.
#[cold]
fn no_memory_left(bytes: usize) -> ! {
    let mut line = [0u8; 160];
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "foretell: no memory left: {bytes} more bytes are not available; allow it more (ulimit -v, its control group), or give it less to do"
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

// SAFETY: every call is the heap's own, with the arguments it came with, and what that returns is returned, or does not return
// at all.
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
