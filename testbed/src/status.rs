//! The state of a mounted array for other processes, in an extended attribute of its root.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// The attribute's name. Its value is a [`Status`] as JSON.
pub(crate) const ATTRIBUTE: &str = "user.foretell.array";

/// The longest value of an extended attribute, in bytes: Linux's limit.
const ATTRIBUTE_MAX_BYTES: usize = 64 * 1024;

/// The state of a mounted array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The process that serves the array.
    pub pid: u32,
    /// What its disks have done so far, without [`crate::DiskReport::busy_share`].
    pub report: Report,
}

pub(crate) fn encode(mut report: Report) -> Vec<u8> {
    for disk in &mut report.disks {
        disk.busy_share.clear();
    }
    let status = Status { pid: std::process::id(), report };
    serde_json::to_vec(&status).expect("invariant: all keys are strings")
}

/// Asks the array that is mounted at `mountpoint`. `None` if there is none, or its process is gone.
pub fn status_of(mountpoint: &Path) -> Option<Status> {
    let path = CString::new(mountpoint.as_os_str().as_bytes()).ok()?;
    let name = CString::new(ATTRIBUTE).ok()?;
    let mut value = vec![0u8; ATTRIBUTE_MAX_BYTES];
    // SAFETY: both strings are NUL-terminated, and `value` has the length that is passed.
    let length = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    serde_json::from_slice(value.get(..usize::try_from(length).ok()?)?).ok()
}
