//! Which processes a daemon may work for.
//!
//! A manager opens files on behalf of a run. It must open none that the run could not open itself, and a path must mean the
//! same to both. So the daemon takes runs of processes that have the same user, the same files, and no fewer rights than
//! itself; others have managers of their own.

use std::path::PathBuf;
use std::sync::OnceLock;

/// What a process may do, and what paths mean to it.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    /// Real, effective, saved and file-system user.
    users: Vec<u32>,
    groups: Vec<u32>,
    capabilities: u64,
    /// Namespaces of mounts, processes and users.
    spaces: [PathBuf; 3],
    root: PathBuf,
    /// `no_new_privs`, which Landlock needs without further rights, and the mode of seccomp.
    confined: [Vec<u32>; 2],
    /// The label of a security module, if there is one.
    label: Vec<u8>,
    /// Of the processor and of devices.
    priorities: (i32, i64),
}

impl Rights {
    fn of(process: &str) -> Option<Self> {
        let folder = PathBuf::from("/proc").join(process);
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let numbers = |text: &str| -> Option<Vec<u32>> {
            text.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
        };
        let mut groups = [numbers(line("Groups:")?)?, numbers(line("Gid:")?)?].concat();
        groups.sort_unstable();
        groups.dedup();
        let space = |name: &str| std::fs::read_link(folder.join("ns").join(name)).ok();
        Some(Rights {
            users: numbers(line("Uid:")?)?,
            groups,
            capabilities: u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?,
            spaces: [space("mnt")?, space("pid")?, space("user")?],
            root: std::fs::read_link(folder.join("root")).ok()?,
            confined: [numbers(line("NoNewPrivs:")?)?, numbers(line("Seccomp:")?)?],
            label: std::fs::read(folder.join("attr/current")).unwrap_or_default(),
            priorities: priorities(process.parse().unwrap_or(0)),
        })
    }

    /// Why a process with the rights `self` must not open files for one with the rights `other`.
    fn refuses(&self, other: &Rights) -> Option<&'static str> {
        let has_more = |group: &u32| !other.groups.contains(group);
        if self.users != other.users {
            Some("it has another user")
        } else if self.spaces != other.spaces || self.root != other.root {
            Some("it has other mounts, another root or other process numbers")
        } else if self.capabilities & !other.capabilities != 0
            || self.groups.iter().any(has_more)
            || self.confined != other.confined
            || self.label != other.label
        {
            Some("it has fewer rights")
        } else if self.priorities != other.priorities {
            Some("it has another priority")
        } else {
            None
        }
    }
}

/// The nice value and the I/O priority of a process; 0 is this one.
fn priorities(process: i32) -> (i32, i64) {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: plain system calls without memory. A process that has ended has the same answer as any other without one.
    unsafe {
        (
            libc::getpriority(libc::PRIO_PROCESS, process.unsigned_abs()),
            libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, process),
        )
    }
}

/// Why the daemon must not work for this process of this user; `None` if it may.
pub(super) fn refusal((pid, uid): (i32, u32)) -> Option<&'static str> {
    if uid != rustix::process::geteuid().as_raw() {
        return Some("it has another user");
    }
    static OWN: OnceLock<Option<Rights>> = OnceLock::new();
    let own = OWN.get_or_init(|| Rights::of("self")).as_ref();
    let Some(own) = own else { return Some("/proc is not there") };
    match Rights::of(&pid.to_string()) {
        Some(of_peer) => own.refuses(&of_peer),
        None => Some("it has ended, or has no number here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights() -> Rights {
        Rights::of("self").expect("/proc is there")
    }

    #[test]
    fn a_process_like_this_one_is_served_and_one_with_less_is_not() {
        assert_eq!(rights().refuses(&rights()), None);
        let weaker: [fn(&mut Rights); 9] = [
            |rights| rights.confined[1] = vec![2],
            |rights| rights.label.push(b'x'),
            |rights| rights.priorities.0 += 1,
            |rights| rights.users[3] += 1,
            |rights| rights.groups.clear(),
            |rights| rights.capabilities = 0,
            |rights| rights.spaces[0] = "mnt:[1]".into(),
            |rights| rights.root = "/jail".into(),
            |rights| rights.spaces[1] = "pid:[1]".into(),
        ];
        for weaken in weaker {
            let (own, mut other) = (Rights { capabilities: 1, ..rights() }, rights());
            other.capabilities |= 1;
            assert_eq!(own.refuses(&other), None);
            weaken(&mut other);
            assert!(own.refuses(&other).is_some(), "{other:?}");
        }
        let more = Rights {
            capabilities: u64::MAX,
            groups: [rights().groups, vec![9]].concat(),
            ..rights()
        };
        assert_eq!(rights().refuses(&more), None);
    }
}
