//! The limit of open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit to the most that this user may have, for a mount: each connection, and each file of a folder, takes a
/// descriptor.
pub(crate) fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit); // On failure the old limit stays.
}
