//! How many threads the manager may have under the limits on processes.
//!
//! Threads count as processes against a user's limit (`ulimit -u`) and a control group's. A program that can fork without
//! foretell must be able to fork with it. So each thread needs a permit from here, which is refused if the threads would take
//! more than a small share of the free processes. The free processes are counted again when a permit is asked for, but not each
//! time: counting a user's threads reads a file of every process.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, getuid};

use crate::control_groups;

/// Share of the free processes that threads may take, as a divisor.
const SHARE_DIVISOR: u64 = 8;

/// Free processes that a manager needs to start. Of fewer, its own process and first threads would be a large part.
const START_MIN: u64 = 24;

/// A count is reused for this time, and for at least this multiple of the time that counting took.
const BELIEVED: Duration = Duration::from_millis(100);
const BELIEVED_COUNTS: u32 = 50;

/// See the [module](self). Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    taken: AtomicUsize,
    counted: Mutex<Option<Counted>>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    until: Instant,
    free: Option<u64>,
}

/// The right to have a thread; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Shared>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    /// The threads of a manager that is about to start.
    ///
    /// # Errors
    /// The number of free processes, if it is too small.
    pub(crate) fn new() -> Result<Self, u64> {
        let threads = Threads { shared: Arc::default() };
        match threads.free() {
            Some(free) if free < START_MIN => Err(free),
            _ => Ok(threads),
        }
    }

    /// A permit for one more thread, if there is room for it.
    pub(crate) fn permit(&self) -> Option<Permit> {
        let taken = self.shared.taken.fetch_add(1, Ordering::Relaxed);
        let permit = Permit(Arc::clone(&self.shared)); // Given back where it is refused.
        self.free().is_none_or(|free| has_room(free, taken as u64)).then_some(permit)
    }

    /// Free processes under the limits; `None` if no limit applies.
    fn free(&self) -> Option<u64> {
        let mut counted = self.shared.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(counted) = counted.filter(|counted| counted.until > now) {
            return counted.free;
        }
        let free = free_processes();
        let until = Instant::now() + BELIEVED.max(now.elapsed() * BELIEVED_COUNTS);
        *counted = Some(Counted { until, free });
        free
    }
}

/// Whether there is room for one more thread beside `taken` threads, with `free` free processes.
fn has_room(free: u64, taken: u64) -> bool {
    taken < (free + taken) / SHARE_DIVISOR
}

fn free_processes() -> Option<u64> {
    let groups = free_in_groups(&control_groups::own(), Path::new(control_groups::ROOT));
    free_of_user().into_iter().chain(groups).min()
}

/// The free processes of the fullest control group in `table`.
fn free_in_groups(table: &str, root: &Path) -> Option<u64> {
    let groups = control_groups::groups(table, root, "pids");
    let free = |group: control_groups::Group| {
        Some(group.number("pids.max")?.saturating_sub(group.number("pids.current")?))
    };
    groups.into_iter().filter_map(free).min()
}

/// The free processes under the user's limit; root has no limit.
fn free_of_user() -> Option<u64> {
    let user = getuid();
    let limit = getrlimit(Resource::Nproc).current.filter(|_| !user.is_root())?;
    // The number for all users together is one read. If it is small, the user's own need not be counted.
    let all = std::fs::read_to_string("/proc/loadavg").ok().and_then(|line| tasks_in(&line));
    let used = match all {
        Some(all) if all <= limit / 2 => all,
        _ => threads_of(user.as_raw()),
    };
    Some(limit.saturating_sub(used))
}

/// The number of all threads in a line of `/proc/loadavg`: `0.1 0.2 0.3 RUNNING/ALL LAST`.
fn tasks_in(line: &str) -> Option<u64> {
    line.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// The threads of all visible processes of this real user.
fn threads_of(user: u32) -> u64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = processes.filter(|entry| entry.file_name().to_str().is_some_and(is_number));
    let statuses =
        numbers.filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok());
    statuses.filter_map(|status| threads_in(&status, user)).sum()
}

/// The threads of a process, from its `/proc/PID/status`, if it is of this real user.
fn threads_in(status: &str, user: u32) -> Option<u64> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let real: u32 = field("Uid:")?.split_whitespace().next()?.parse().ok()?;
    field("Threads:")?.trim().parse().ok().filter(|_| real == user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn threads_take_a_small_part_of_what_is_free() {
        let most = |limit: u64| {
            let mut taken = 0;
            while has_room(limit - taken, taken) {
                taken += 1;
            }
            taken
        };
        assert_eq!(most(1_000), 1_000 / SHARE_DIVISOR);
        assert_eq!(most(START_MIN), START_MIN / SHARE_DIVISOR);
        assert_eq!(most(SHARE_DIVISOR - 1), 0);
        // Nothing is free: no thread is added to those that run.
        assert!(!has_room(0, 3));
    }

    #[test]
    fn the_smallest_rest_of_a_control_group_counts() {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in [
            ("a/pids.max", "100\n"),
            ("a/pids.current", "90\n"),
            ("a/b/pids.max", "max\n"),
            ("a/b/pids.current", "7\n"),
            ("pids/c/pids.max", "5\n"),
            ("pids/c/pids.current", "9\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, text).expect("written");
        }
        assert_eq!(free_in_groups("0::/a/b\n", root.path()), Some(10));
        assert_eq!(free_in_groups("4:pids:/c\n0::/a/b\n", root.path()), Some(0));
        assert_eq!(free_in_groups("0::/other\n", root.path()), None);
    }

    #[test]
    fn a_users_threads_are_counted_from_what_the_kernel_tells() {
        let status = "Name:\tx\nUid:\t7\t8\t8\t8\nThreads:\t3\n";
        assert_eq!(threads_in(status, 7), Some(3));
        assert_eq!(threads_in(status, 8), None, "the real user counts");
        assert_eq!(tasks_in("0.00 0.01 0.05 1/234 5678\n"), Some(234));
        assert!(threads_of(getuid().as_raw()) >= 1, "this one");
    }

    #[test]
    fn permits_come_back() {
        let Ok(threads) = Threads::new() else { return };
        let permits: Vec<Permit> = (0..3).filter_map(|_| threads.permit()).collect();
        assert_eq!(threads.shared.taken.load(Ordering::Relaxed), permits.len());
        drop(permits);
        assert_eq!(threads.shared.taken.load(Ordering::Relaxed), 0);
    }
}
