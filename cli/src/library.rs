//! Finds the interposing library.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The library's file name.
pub(crate) const FILE_NAME: &str = "libforetell_preload.so";

/// The file name of the library for MPI-IO, which lies in the same folder.
const MPI_FILE_NAME: &str = "libforetell_mpi.so";

/// Folders of what belongs to the binary, relative to its own: the same in a build, one below `lib` when installed.
pub(crate) const PLACES: [&str; 2] = ["", "../lib/foretell"];

/// Finds the library.
///
/// # Errors
/// It is not found, or its path cannot be written in `LD_PRELOAD`.
pub(crate) fn find() -> Result<PathBuf, String> {
    let folder = own_folder()?;
    let found = PLACES
        .iter()
        .filter_map(|place| folder.join(place).join(FILE_NAME).canonicalize().ok())
        .next();
    let path = found.ok_or_else(|| {
        format!(
            "{FILE_NAME} is not in {} nor in ../lib/foretell; build or install again",
            folder.display()
        )
    })?;
    let text = path.to_string_lossy();
    if text.contains([' ', ':', '\t', '\n']) || text.contains('\u{fffd}') {
        // The dynamic linker takes these as separators and knows no escape.
        return Err(format!(
            "{text:?} cannot be preloaded: its path has a space, a colon or a byte that is not UTF-8; install foretell elsewhere"
        ));
    }
    Ok(path)
}

/// The library for MPI-IO that belongs to the interposing `library`.
pub(crate) fn for_mpi(library: &Path) -> PathBuf {
    library.with_file_name(MPI_FILE_NAME)
}

/// The folder of this process's binary.
///
/// # Errors
/// In words, if it cannot be found.
pub(crate) fn own_folder() -> Result<PathBuf, String> {
    let binary = std::env::current_exe()
        .or_else(|error| executed().ok_or(error))
        .map_err(|error| format!("cannot find foretell's own binary: {error}; mount /proc"))?;
    Ok(binary.parent().unwrap_or(Path::new("/")).to_owned())
}

/// The path by which this process was executed. Does not need /proc.
fn executed() -> Option<PathBuf> {
    // SAFETY: the kernel gives each process the address of a string that lasts as long as the process.
    let name = unsafe {
        let address = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        (!address.is_null()).then(|| CStr::from_ptr(address))
    }?;
    std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}
