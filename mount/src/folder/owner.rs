//! Acts as the user who makes a request, where root serves a mount to others.
//!
//! The kernel has checked permissions, but by what it was told last. Meanwhile a file may have another owner, and a
//! name may stand for another file. So requests that depend on the owner are made with the asker's user and group, and
//! without the capabilities that put root above owners. The folder's own file system then checks them again, at that
//! moment.
//!
//! Permissions that depend on the asker's supplementary groups cannot be checked again, since FUSE does not tell these
//! groups. The kernel's check stands for them.
//!
//! What a request makes belongs to the asker from its first moment. Making it as root and changing the owner afterwards
//! would be two steps, between which the name can come to stand for another file.

use std::cell::Cell;

use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// The user and group that make a request.
pub type Owner = (u32, u32);

/// An invalid user or group: setting it changes nothing.
const NOBODY: u32 = u32::MAX;

/// The capabilities that put root above owners: to use others' files as their owner, to give files away, to keep
/// set-user bits when writing, and to exceed quotas.
const ABOVE_OWNERS: CapabilitySet = CapabilitySet::FOWNER
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SYS_RESOURCE);

/// While this value lives, this thread acts on files as another user.
struct Acting {
    before: Owner,
    capabilities: CapabilitySets,
}

/// Sets the user and group that this thread acts on files as. Returns the ones before.
fn set_owner((user, group): Owner) -> Owner {
    // SAFETY: neither call has conditions, and both change this thread only. They return the number that was set
    // before.
    unsafe { (libc::setfsuid(user) as u32, libc::setfsgid(group) as u32) }
}

/// Drops root's supplementary groups for this thread. With them, a user could give programs a set-group bit for a group
/// of root's.
fn leave_groups() -> Result<()> {
    thread_local! {
        static HAS_LEFT: Cell<bool> = const { Cell::new(false) };
    }
    if HAS_LEFT.replace(true) {
        return Ok(());
    }
    // SAFETY: with a count of 0 no memory is read. The system call changes this thread only; the C library's function
    // changes all.
    match unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) } {
        0 => Ok(()),
        _ if rustix::process::getgroups().is_ok_and(|groups| groups.is_empty()) => Ok(()),
        _ => {
            HAS_LEFT.set(false);
            Err(Errno::PERM)
        }
    }
}

/// Whether this process can act as other users, for [`act_for`].
pub fn can_act_for_others() -> bool {
    act_for(Some((65_534, 65_534)), || Ok(())).is_ok()
}

impl Acting {
    fn begin(owner: Owner, above: CapabilitySet) -> Result<Self> {
        leave_groups()?;
        let capabilities = capabilities(None)?;
        let acting = Acting { before: set_owner(owner), capabilities };
        // `setfsuid` and `setfsgid` do not report failures.
        if set_owner((NOBODY, NOBODY)) != owner {
            return Err(Errno::PERM);
        }
        // Giving up root's user also drops the capabilities for using others' files. They are set again: the kernel has
        // checked access.
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
            // Going back to its own user is always allowed. If it fails all the same, this thread must not go on as
            // somebody else.
            std::process::abort();
        }
    }
}

/// Does something as `owner`, or as this process if there is none.
///
/// # Errors
/// The error of `act`, and `EPERM` if this process cannot act as others.
pub fn act_for<T>(owner: Option<Owner>, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let _acting = owner.map(|owner| Acting::begin(owner, ABOVE_OWNERS)).transpose()?;
    act()
}

/// Writes data from a mapping as `owner`, or as this process if there is none. Set-user bits stay, as no file system
/// takes them away for a mapping.
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
            assert_eq!(inside, Ok(before), "root with another group");
            assert_eq!(act_for::<()>(Some(other), || Err(Errno::NOSPC)), Err(Errno::NOSPC));
        }
        assert_eq!(set_owner((NOBODY, NOBODY)), me);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
