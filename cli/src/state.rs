//! Where what was learned is kept, and what is never learned.
//!
//! `FORETELL_STATE` names the folder; if it is set and empty, nothing is learned. Otherwise it is `foretell` in the XDG state
//! folder. A file `private` in it has further patterns of paths that are not learned, one a line.

use std::ffi::OsString;
use std::path::PathBuf;

use foretell_manager::Learn;
use foretell_manager::learn::private::Private;
use foretell_manager::learn::store::Store;
use foretell_manager::learn::workload::Workload;

const VARIABLE: &str = "FORETELL_STATE";

/// The file of further patterns.
const PRIVATE: &str = "private";

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

/// What the manager needs to learn from a run of `command`, under the `name` that the user has given.
pub(crate) fn learn(command: &[OsString], name: Option<&str>) -> Option<Learn> {
    let folder = folder()?;
    let workload = match name {
        Some(name) => Workload::named(name),
        None => Workload::of_command(command, &std::env::current_dir().ok()?),
    };
    let more = std::fs::read_to_string(folder.join(PRIVATE)).unwrap_or_default();
    let mut temporary = vec![PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    temporary
        .extend(std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute()));
    Some(Learn {
        store: Store::at(folder),
        workload,
        private: Private::new(more.lines()),
        temporary,
    })
}
