//! Faults on purpose: panics, operations that fail, and damaged inputs ([`damage`]). Tests make each kind of thread of a
//! command panic once, and check that the command goes on or ends in order.
//!
//! Each kind of thread passes a [`point`] with its name where it works. A test gives the command a name, and the command
//! [`arm`]s it. The first thread that passes a point of that name panics, and no later one does. If nothing is armed, a point
//! costs one load.
//!
//! Operations that seldom fail, such as those that need memory, ask first whether they are to: [`failing`].

pub mod damage;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a panic is armed and has not happened yet.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
/// The name of the armed point.
static NAME: OnceLock<String> = OnceLock::new();

/// Makes the first thread panic that passes the point `name` from now on. Only the first call in a process counts.
pub fn arm(name: String) {
    if NAME.set(name).is_ok() {
        IS_ARMED.store(true, Ordering::Release);
    }
}

/// The name of the operation that fails.
static FAILING: OnceLock<String> = OnceLock::new();
/// Whether one does.
static FAILS: AtomicBool = AtomicBool::new(false);

/// Makes the operation `name` fail from now on, always. Only the first call in a process counts.
pub fn arm_failure(name: String) {
    if FAILING.set(name).is_ok() {
        FAILS.store(true, Ordering::Release);
    }
}

/// Whether the operation `name` is to fail.
#[inline]
#[must_use]
pub fn is_failing(name: &str) -> bool {
    FAILS.load(Ordering::Acquire) && FAILING.get().is_some_and(|armed| armed == name)
}

/// The error `errno` if the operation `name` is to fail.
///
/// # Errors
/// That one.
#[inline]
pub fn failing(name: &str, errno: i32) -> std::io::Result<()> {
    if is_failing(name) { Err(std::io::Error::from_raw_os_error(errno)) } else { Ok(()) }
}

/// Panics if the point `name` is armed and no thread has passed it yet.
#[inline]
#[track_caller]
pub fn point(name: &str) {
    if IS_ARMED.load(Ordering::Relaxed) {
        strike(name);
    }
}

#[cold]
#[track_caller]
fn strike(name: &str) {
    let is_here = NAME.get().is_some_and(|armed| armed == name);
    // Another thread may have been first.
    if is_here && IS_ARMED.swap(false, Ordering::AcqRel) {
        panic!("a test asked for it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_armed_operation_fails_always_and_no_other() {
        assert!(failing("memory", 12).is_ok());
        arm_failure("memory".to_owned());
        arm_failure("thread".to_owned());
        for _ in 0..2 {
            let error = failing("memory", 12).expect_err("it fails");
            assert_eq!(error.raw_os_error(), Some(12));
            assert!(!is_failing("thread"));
        }
    }

    #[test]
    fn the_first_who_passes_the_armed_point_panics_and_no_other() {
        point("one");
        arm("one".to_owned());
        arm("two".to_owned());
        point("two");
        assert!(std::panic::catch_unwind(|| point("one")).is_err());
        point("one");
    }
}
