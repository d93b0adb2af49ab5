//! How much memory prefetched and unread data may take.
//!
//! The kernel charges a page to the control group of the process that brings it in, which is foretell.
//! A budget above the group's limit would push out the program's own pages. So the budget is at most
//! a part of the smallest limit that applies to this process.

use std::fs;
use std::path::Path;

use crate::control_groups::{self, Group};

/// Eighths of a control group's limit that prefetched data may take where the kernel decides what leaves the cache.
const LIMIT_EIGHTHS: u64 = 4;

/// Eighths of the limit that the budget may take where foretell releases data. With seven eighths the kernel reclaimed pages
/// all the same, for the program's own memory and its read-ahead.
const LIMIT_EIGHTHS_RELEASING: u64 = 6;

/// `asked_bytes`, reduced to the share that this process's control groups allow. `releasing` says whether foretell releases
/// data that was read, rather than leaving it to the kernel.
pub(crate) fn within_limits(asked_bytes: u64, releasing: bool) -> u64 {
    let eighths = if releasing { LIMIT_EIGHTHS_RELEASING } else { LIMIT_EIGHTHS };
    match smallest_limit_bytes(&control_groups::own(), Path::new(control_groups::ROOT)) {
        Some(limit_bytes) => asked_bytes.min(limit_bytes / 8 * eighths),
        None => asked_bytes,
    }
}

/// The memory of this machine in bytes, if /proc/meminfo says.
pub fn machine_memory_bytes() -> Option<u64> {
    memory_bytes("MemTotal:")
}

/// The memory in bytes that is free or that the kernel can reclaim, if /proc/meminfo says.
pub fn available_memory_bytes() -> Option<u64> {
    memory_bytes("MemAvailable:")
}

fn memory_bytes(row: &str) -> Option<u64> {
    let table = fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix(row))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// The smallest memory limit of the groups in `groups` (the text of `/proc/self/cgroup`) and of the
/// groups above them, with the hierarchies mounted at `root` in the usual places.
fn smallest_limit_bytes(groups: &str, root: &Path) -> Option<u64> {
    let limit_bytes = |group: Group| {
        group.number(if group.is_unified { "memory.max" } else { "memory.limit_in_bytes" })
    };
    control_groups::groups(groups, root, "memory").into_iter().filter_map(limit_bytes).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_on_the_way_up_counts_in_both_versions() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("a/memory.max", "4000\n");
        write("a/b/memory.max", "max\n");
        write("memory/c/memory.limit_in_bytes", "3000\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        let limit = |groups: &str| smallest_limit_bytes(groups, root.path());
        assert_eq!(limit("0::/a/b\n"), Some(4000));
        assert_eq!(limit("5:cpu:/x\n3:memory:/c\n0::/a/b\n"), Some(3000));
        assert_eq!(limit("3:memory:/\n"), Some(9_223_372_036_854_771_712));
        assert_eq!(limit("1:cpu:/x\nnonsense\n"), None);
    }

    #[test]
    fn the_budget_never_grows() {
        assert!(within_limits(1 << 20, false) <= 1 << 20);
        assert!(machine_memory_bytes() >= available_memory_bytes());
    }
}
