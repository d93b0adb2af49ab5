//! Memory pressure: the kernel wakes the daemon when tasks have waited for memory.
//!
//! The first file that can be watched is: that of the daemon's control group (version 2), or that of the machine. Without
//! either, the budget keeps to the limits that held at the start.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// Some task has waited for memory for 100 ms within 2 s. Others than root may ask for windows of whole multiples of 2 s.
const TRIGGER: &[u8] = b"some 100000 2000000\0";

/// A file that has urgent data (`POLLPRI`) at each new pressure.
pub(super) fn watch() -> Option<File> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let of_group =
        own.map(|group| PathBuf::from("/sys/fs/cgroup").join(group).join("memory.pressure"));
    let of_machine = PathBuf::from("/proc/pressure/memory");
    of_group.into_iter().chain([of_machine]).find_map(|path| {
        let mut file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        file.write_all(TRIGGER).ok()?;
        Some(file)
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
