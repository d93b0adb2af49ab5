//! How far the names of a folder may lead: anywhere by links, or only below it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::BackendError;
use super::beneath::{self, Beneath, Links};

/// How far names and links of a folder may lead.
pub(super) enum Reach {
    /// Links are followed anywhere: for a program that could open those files itself.
    Anywhere(PathBuf),
    /// Names stay below the folder; links are shown as links.
    Beneath(Beneath),
}

impl Reach {
    /// Opens what is at `place` below the folder.
    pub(super) fn open(&self, place: &Path, flags: OFlags) -> Result<OwnedFd, BackendError> {
        let opened = match self {
            Reach::Anywhere(root) => {
                rustix::fs::open(root.join(place), flags | OFlags::CLOEXEC, Mode::empty())
            }
            Reach::Beneath(folder) => {
                return folder.open(place, flags, Links::Shown).map_err(of_beneath);
            }
        };
        Ok(opened.map_err(io::Error::from)?)
    }
}

/// The error of a name that was resolved below the folder.
fn of_beneath(error: Errno) -> BackendError {
    match error {
        // A link has taken the place of a folder or file since it was found.
        Errno::LOOP => BackendError::Changed,
        beneath::REFUSED => {
            let message = "a mount of foretell cannot be shown inside another one".into();
            BackendError::Other { errno: Some(Errno::LOOP.raw_os_error()), message }
        }
        error => io::Error::from(error).into(),
    }
}
