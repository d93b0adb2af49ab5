//! Making things for somebody else: they belong to him from the moment they are there.
//!
//! To make something and to give it away then would be two steps, between which the name may come to stand for another thing.

use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities};

/// Who makes a request: user and group.
pub(crate) type Owner = (u32, u32);

/// What the system takes for the number of nobody, and so changes nothing by.
const NOBODY: u32 = u32::MAX;

/// As long as it is there, what this thread makes belongs to another.
struct Acting {
    before: Owner,
    capabilities: CapabilitySets,
}

/// Says which user and group files are made for by this thread from now on; and who it was before.
fn set_owner((user, group): Owner) -> Owner {
    // SAFETY: both have no conditions, and are of this thread alone. What they return is the number from before.
    unsafe { (libc::setfsuid(user) as u32, libc::setfsgid(group) as u32) }
}

impl Acting {
    fn begin(owner: Owner) -> Result<Self> {
        let capabilities = capabilities(None)?;
        let acting = Acting { before: set_owner(owner), capabilities };
        // They do not say whether they did it.
        if set_owner((NOBODY, NOBODY)) != owner {
            return Err(Errno::OVERFLOW);
        }
        // The kernel has found that he may, by groups too that are not known here: what a user loses with root's number, stays.
        set_capabilities(None, capabilities)?;
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
            // The system lets everybody have his own number back. A thread that has another would make things for the wrong ones.
            std::process::abort();
        }
    }
}

/// Makes something that belongs to `owner`, if this process may; otherwise as whoever it is.
pub(super) fn make_for<T>(owner: Option<Owner>, make: impl FnOnce() -> Result<T>) -> Result<T> {
    let _acting = owner.map(Acting::begin).transpose()?;
    make()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_itself_again_whatever_happens() {
        let me = set_owner((NOBODY, NOBODY));
        let before = capabilities(None).unwrap();
        assert_eq!(make_for(None, || Ok(set_owner((NOBODY, NOBODY)))), Ok(me));
        if !rustix::process::geteuid().is_root() {
            assert_eq!(make_for(Some((me.0 + 1, me.1)), || Ok(())), Err(Errno::OVERFLOW));
        } else {
            let other = (65_534, 65_534);
            assert_eq!(make_for(Some(other), || Ok(set_owner((NOBODY, NOBODY)))), Ok(other));
            assert_eq!(make_for(Some(other), || Ok(capabilities(None).unwrap())), Ok(before));
            assert_eq!(make_for::<()>(Some(other), || Err(Errno::NOSPC)), Err(Errno::NOSPC));
        }
        assert_eq!(set_owner((NOBODY, NOBODY)), me);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
