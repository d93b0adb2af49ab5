//! Memory pressure: the kernel wakes the daemon when tasks have waited for memory.
//!
//! The first file that can be watched is: that of the daemon's control group (version 2), or that of the machine. Without
//! either, the budget keeps to the limits that held at the start.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Some task has waited for memory for 100 ms within 2 s. Others than root may ask for windows of whole multiples of 2 s.
const TRIGGER: &[u8] = b"some 100000 2000000\0";

/// Less waiting than half of that is none.
const LEAST_US: u64 = 50_000;

/// A file that has urgent data (`POLLPRI`) at each new pressure.
#[derive(Debug)]
pub(super) struct Pressure {
    file: File,
    /// How long tasks had waited when this was looked at last.
    waited_us: u64,
}

impl Pressure {
    /// Whether tasks have waited for memory since this was asked last. A new trigger also fires for what was before it.
    pub(super) fn is_new(&mut self) -> bool {
        let waited_us = waited_us(&self.file).unwrap_or(u64::MAX);
        waited_us - std::mem::replace(&mut self.waited_us, waited_us).min(waited_us) >= LEAST_US
    }
}

impl AsFd for Pressure {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// How long some task has waited for memory since the start of the group or of the machine.
fn waited_us(file: &File) -> Option<u64> {
    let mut text = [0; 256];
    let length = file.read_at(&mut text, 0).ok()?;
    total_of(std::str::from_utf8(&text[..length]).ok()?)
}

fn total_of(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Watches for pressure; `None` where the kernel does not tell it.
pub(super) fn watch() -> Option<Pressure> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let of_group =
        own.map(|group| PathBuf::from("/sys/fs/cgroup").join(group).join("memory.pressure"));
    let of_machine = PathBuf::from("/proc/pressure/memory");
    of_group.into_iter().chain([of_machine]).find_map(|path| {
        let mut file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let waited_us = waited_us(&file)?;
        file.write_all(TRIGGER).ok()?;
        Some(Pressure { file, waited_us })
    })
}

/// How the budget follows pressure: halved by each new pressure, down to a sixteenth, and doubled after each quiet period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Squeezed {
    pub(super) full_bytes: u64,
    pub(super) now_bytes: u64,
}

impl Squeezed {
    pub(super) fn new(full_bytes: u64) -> Self {
        Squeezed { full_bytes, now_bytes: full_bytes }
    }

    pub(super) fn press(&mut self) {
        self.now_bytes = (self.now_bytes / 2).max(self.full_bytes / 16);
    }

    pub(super) fn relax(&mut self) {
        self.now_bytes = self.now_bytes.saturating_mul(2).min(self.full_bytes);
    }

    pub(super) fn is_squeezed(&self) -> bool {
        self.now_bytes < self.full_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_tasks_have_waited_is_read() {
        let text =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=7380458\nfull avg10=0.00 total=5\n";
        assert_eq!(total_of(text), Some(7_380_458));
        assert_eq!(total_of("full total=5\n"), None);
    }

    #[test]
    fn a_new_trigger_alone_is_no_pressure() {
        let file = tempfile::tempfile().expect("a file");
        let tell = |total: u64| {
            file.write_all_at(format!("some total={total}\n").as_bytes(), 0).expect("written")
        };
        let mut pressure =
            Pressure { file: file.try_clone().expect("a file"), waited_us: 1_000_000 };
        tell(1_000_500);
        assert!(!pressure.is_new());
        tell(1_200_500);
        assert!(pressure.is_new() && !pressure.is_new());
    }

    #[test]
    fn a_budget_is_halved_down_to_a_sixteenth_and_comes_back() {
        let mut budget = Squeezed::new(1600);
        budget.press();
        assert_eq!((budget.now_bytes, budget.is_squeezed()), (800, true));
        (0..9).for_each(|_| budget.press());
        assert_eq!(budget.now_bytes, 100);
        (0..4).for_each(|_| budget.relax());
        assert_eq!((budget.now_bytes, budget.is_squeezed()), (1600, false));
    }
}
