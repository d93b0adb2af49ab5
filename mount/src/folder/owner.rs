//! Doing things for whoever asks for them, where root serves a mount to others.
//!
//! The kernel has checked what the asker may, but by what it was told last: who owns a file, and what a name stands for, may have
//! changed since. So what depends on the owner is done with the asker's number and without the rights by which root is above that;
//! then the folder's own system checks it again, at the moment at which it is done. What depends on groups cannot be checked again,
//! since an asker's other groups are not known here: that is left to the kernel.
//!
//! What is made belongs to the asker from the moment it is there. To make something and to give it away then would be two steps.

use std::cell::Cell;

use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Who makes a request: user and group.
pub(crate) type Owner = (u32, u32);

/// What the system takes for the number of nobody, and so changes nothing by.
const NOBODY: u32 = u32::MAX;

/// What root has and a user has not: files of others are as his own, he gives them away, what he writes keeps its set-user bits, and
/// has no quota.
const ABOVE_OWNERS: CapabilitySet = CapabilitySet::FOWNER
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SYS_RESOURCE);

/// As long as it is there, this thread is another where files are concerned.
struct Acting {
    before: Owner,
    capabilities: CapabilitySets,
}

/// Says who this thread is where files are concerned from now on; and who it was before.
fn set_owner((user, group): Owner) -> Owner {
    // SAFETY: both have no conditions, and are of this thread alone. What they return is the number from before.
    unsafe { (libc::setfsuid(user) as u32, libc::setfsgid(group) as u32) }
}

/// This thread has root's own groups no longer, which it does not need: by them a user would give his programs a group of root's.
fn leave_groups() -> Result<()> {
    thread_local! {
        static HAS_LEFT: Cell<bool> = const { Cell::new(false) };
    }
    if HAS_LEFT.replace(true) {
        return Ok(());
    }
    // SAFETY: no groups are read from there. Of this thread alone, which the library's own function is not.
    match unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) } {
        0 => Ok(()),
        _ if rustix::process::getgroups().is_ok_and(|groups| groups.is_empty()) => Ok(()),
        _ => {
            HAS_LEFT.set(false);
            Err(Errno::PERM)
        }
    }
}

/// Whether this process may act for others at all.
pub(crate) fn can_act_for_others() -> bool {
    act_for(Some((65_534, 65_534)), || Ok(())).is_ok()
}

impl Acting {
    fn begin(owner: Owner, above: CapabilitySet) -> Result<Self> {
        leave_groups()?;
        let capabilities = capabilities(None)?;
        let acting = Acting { before: set_owner(owner), capabilities };
        // They do not say whether they did it.
        if set_owner((NOBODY, NOBODY)) != owner {
            return Err(Errno::PERM);
        }
        // With root's number the thread has lost what lets it use others' folders, which it needs: the kernel has found that the asker may.
        let mut kept = capabilities;
        if owner.0 != 0 {
            kept.effective.remove(above);
        }
        set_capabilities(None, kept)?;
        Ok(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        let before = self.before;
        set_owner(before);
        let is_back = set_owner((NOBODY, NOBODY)) == before
            && set_capabilities(None, self.capabilities).is_ok();
        if !is_back {
            // The system lets everybody have his own number back. A thread that has another would do things for the wrong ones.
            std::process::abort();
        }
    }
}

/// Does something as `owner`; or as whoever this process is.
pub(super) fn act_for<T>(owner: Option<Owner>, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let _acting = owner.map(|owner| Acting::begin(owner, ABOVE_OWNERS)).transpose()?;
    act()
}

/// Writes as `owner` what came by a mapping, which takes no set-user bits away on any file system; or as whoever this process is.
pub(super) fn write_mapped_for<T>(
    owner: Option<Owner>,
    write: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let above = ABOVE_OWNERS.difference(CapabilitySet::FSETID);
    let _acting = owner.map(|owner| Acting::begin(owner, above)).transpose()?;
    write()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_itself_again_whatever_happens() {
        let me = set_owner((NOBODY, NOBODY));
        let before = capabilities(None).unwrap();
        assert_eq!(act_for(None, || Ok(set_owner((NOBODY, NOBODY)))), Ok(me));
        if !rustix::process::geteuid().is_root() {
            assert_eq!(act_for(Some((me.0 + 1, me.1)), || Ok(())), Err(Errno::PERM));
        } else {
            let other = (65_534, 65_534);
            assert_eq!(act_for(Some(other), || Ok(set_owner((NOBODY, NOBODY)))), Ok(other));
            let inside = act_for(Some(other), || Ok(capabilities(None).unwrap())).unwrap();
            assert_eq!(inside.effective | ABOVE_OWNERS, before.effective | ABOVE_OWNERS);
            assert!(!inside.effective.intersects(ABOVE_OWNERS));
            let inside = act_for(Some((0, 65_534)), || Ok(capabilities(None).unwrap()));
            assert_eq!(inside, Ok(before), "root of another group");
            assert_eq!(act_for::<()>(Some(other), || Err(Errno::NOSPC)), Err(Errno::NOSPC));
        }
        assert_eq!(set_owner((NOBODY, NOBODY)), me);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
