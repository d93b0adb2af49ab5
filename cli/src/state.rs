//! Where what was learned is kept, and what is never learned.
//!
//! `FORETELL_STATE` names the folder; if it is set and empty, nothing is learned. Otherwise it is `foretell` in the XDG state
//! folder. A file `private` in it has further patterns of paths that are not learned, one a line.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foretell_manager::learn::private::Private;
use foretell_manager::learn::store::Store;
use foretell_manager::learn::workload::Workload;
use foretell_manager::source::Setting;
use foretell_manager::{Learn, Replayed};
use serde::{Deserialize, Serialize};

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
///
/// # Errors
/// There is a file, and it cannot be read: a line that names it and says what is wrong.
pub(crate) fn private(folder: &Path) -> Result<Private, String> {
    let path = folder.join(PRIVATE);
    let problem = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    match std::fs::metadata(&path) {
        Ok(about) if about.is_file() => {}
        Ok(_) => return Err(problem(&"is no file of patterns")), // Opening a pipe would wait.
        Err(error) if is_absent(&error) => return Ok(Private::new(std::iter::empty())),
        Err(error) => return Err(problem(&error)),
    }
    let text = input_file::read_text(&path, PRIVATE_MAX_BYTES).map_err(|error| problem(&error))?;
    Ok(Private::new(text.lines()))
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// What a manager needs to learn from a run, in a form that can be given to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LearnPlan {
    folder: OsString,
    /// What the user calls the workload.
    workload: Option<String>,
    /// Folders of temporary files.
    temporary: Vec<OsString>,
}

impl LearnPlan {
    /// Under the `name` that the user has given; `None` if nothing is to be kept.
    pub(crate) fn new(name: Option<&str>) -> Option<Self> {
        let mut temporary = vec![PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
        temporary.extend(
            std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute()),
        );
        // Without slashes at their ends.
        let plain = |folder: PathBuf| folder.components().collect::<PathBuf>().into_os_string();
        Some(LearnPlan {
            folder: folder()?.into_os_string(),
            workload: name.map(str::to_owned),
            temporary: temporary.into_iter().map(plain).collect(),
        })
    }

    /// What is to be learned; `None` where the folder was removed in which the run begins.
    ///
    /// # Errors
    /// What should stay private is not known, so nothing is learned: a line.
    pub(crate) fn learn(self, setting: &Setting) -> Result<Option<Learn>, String> {
        let private = private(Path::new(&self.folder))
            .map_err(|problem| format!("nothing is learned: {problem}"))?;
        let begins_in = setting.working_folder.as_deref();
        let workload = match (self.workload, begins_in) {
            (Some(name), _) => Workload::named(&name),
            (None, Some(folder)) => Workload::of_command(&setting.command, folder, &private),
            (None, None) => return Ok(None),
        };
        let store = Some((Store::at(self.folder.into()), workload));
        let temporary = self.temporary.into_iter().map(PathBuf::from).collect();
        let folder = begins_in.unwrap_or(Path::new("")).as_os_str().as_bytes().into();
        Ok(Some(Learn { private, store, replay: None, temporary, folder }))
    }
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
