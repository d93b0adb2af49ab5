//! The control groups of this process, in both versions of the kernel's interface.

use std::path::{Path, PathBuf};

/// Where the hierarchies are mounted.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";

/// A group that limits this process, or one above such a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) folder: PathBuf,
    /// Whether it belongs to the unified hierarchy (version 2), where files have other names.
    pub(crate) is_unified: bool,
}

impl Group {
    /// The number in a file of the group; `None` for `max`, and where there is no such file.
    pub(crate) fn number(&self, file: &str) -> Option<u64> {
        std::fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }
}

/// The groups of this process: the text of `/proc/self/cgroup`.
pub(crate) fn own() -> String {
    std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// The groups in `table` (the text of `/proc/self/cgroup`) that `controller` limits, and their ancestors. The hierarchies are
/// mounted below `root` in the usual places.
pub(crate) fn groups(table: &str, root: &Path, controller: &str) -> Vec<Group> {
    table.lines().filter_map(|line| of_line(line, root, controller)).flatten().collect()
}

fn of_line(line: &str, root: &Path, controller: &str) -> Option<Vec<Group>> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let is_unified = controllers.is_empty();
    let hierarchy: PathBuf = if is_unified {
        root.into()
    } else if controllers.split(',').any(|name| name == controller) {
        root.join(controller)
    } else {
        return None;
    };
    let group = hierarchy.join(path.trim_start_matches('/'));
    let above = group.ancestors().take_while(|ancestor| ancestor.starts_with(&hierarchy));
    Some(above.map(|folder| Group { folder: folder.into(), is_unified }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_and_all_above_it_count_in_both_versions() {
        let folders = |table: &str| -> Vec<PathBuf> {
            groups(table, Path::new("/r"), "pids").into_iter().map(|group| group.folder).collect()
        };
        let expected: Vec<PathBuf> = ["/r/a/b", "/r/a", "/r"].map(PathBuf::from).into();
        assert_eq!(folders("0::/a/b\n"), expected);
        let expected: Vec<PathBuf> = ["/r/pids/c", "/r/pids"].map(PathBuf::from).into();
        assert_eq!(folders("5:cpu:/x\n3:hugetlb,pids:/c\nnonsense\n"), expected);
    }
}
