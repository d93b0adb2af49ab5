//! Where what was learned is kept, and what is never learned.
//!
//! `FORETELL_STATE` names the folder; if it is set and empty, nothing is learned. Otherwise it is `foretell` in the XDG state
//! folder. A file `private` in it has further patterns of paths that are not learned, one a line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foretell_manager::learn::private::Private;
use foretell_manager::learn::store::Store;
use foretell_manager::learn::workload::Workload;
use foretell_manager::{Learn, Replayed};

use crate::input_file;

const VARIABLE: &str = "FORETELL_STATE";

/// The file of further patterns.
const PRIVATE: &str = "private";

/// Bytes of it that are allowed.
const PRIVATE_MAX_BYTES: u64 = 1 << 20;

/// The folder; `None` if nothing is to be kept, or there is no home.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match std::env::var_os(VARIABLE) {
        Some(folder) if folder.is_empty() => None,
        Some(folder) => std::path::absolute(folder).ok(),
        None => absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .map(|folder| folder.join("foretell")),
    }
}

/// Why there is no folder.
pub(crate) fn why_none() -> &'static str {
    match std::env::var_os(VARIABLE) {
        Some(_) => {
            "learning is off, for FORETELL_STATE is set and empty: unset it, or name a folder in it"
        }
        None => {
            "nothing is learned, for neither FORETELL_STATE nor XDG_STATE_HOME nor HOME names a folder"
        }
    }
}

/// Which paths are never learned, as the file of patterns in `folder` says beside what is fixed.
pub(crate) fn private(folder: &Path) -> Private {
    let path = folder.join(PRIVATE);
    let is_file = std::fs::metadata(&path).is_ok_and(|about| about.is_file());
    let text = is_file.then(|| input_file::read(&path, PRIVATE_MAX_BYTES).ok()).flatten();
    Private::new(String::from_utf8_lossy(&text.unwrap_or_default()).lines())
}

/// What the manager needs to learn from a run of `command`, under the `name` that the user has given.
pub(crate) fn learn(command: &[OsString], name: Option<&str>) -> Option<Learn> {
    let folder = folder()?;
    let workload = match name {
        Some(name) => Workload::named(name),
        None => Workload::of_command(command, &std::env::current_dir().ok()?),
    };
    let mut temporary = vec![PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    temporary
        .extend(std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute()));
    let store = Some((Store::at(folder.clone()), workload));
    let private = private(&folder);
    Some(Learn { private, store, replay: None, temporary, folder: begins_in() })
}

/// The folder in which the run begins; empty if it was removed.
fn begins_in() -> Arc<[u8]> {
    std::env::current_dir().unwrap_or_default().as_os_str().as_bytes().into()
}

/// The same with a recording in place of a profile; if nothing is to be learned, only the recording is used.
pub(crate) fn with_replay(learn: Option<Learn>, replay: Option<Replayed>) -> Option<Learn> {
    if replay.is_none() {
        return learn;
    }
    let nothing = || Learn {
        store: None,
        replay: None,
        private: Private::new(std::iter::empty()),
        temporary: Vec::new(),
        folder: begins_in(),
    };
    Some(Learn { replay, ..learn.unwrap_or_else(nothing) })
}
