//! The environment that a program is started with: foretell's own, entry by entry, followed by the entries for the
//! interposing library.
//!
//! Entries are not interpreted: duplicates, and entries without `=`, keep their contents and places. The same C code as at
//! every later exec decides whether the program gets the library (`preload/src/executable.c`). The library hides its own two
//! entries from the program. `FORETELL_SOCKET` stays visible, because programs give hints through it.

use std::ffi::{CStr, CString, OsStr};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use foretell_protocol::layout::INTEREST_MPI;
use foretell_protocol::{PRELOAD_VARIABLE, SOCKET_VARIABLE};

use crate::library;

/// The dynamic linker's list of libraries to preload. Of several entries it takes the last.
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// `struct file_identity` of `executable.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

/// `struct library` of `executable.h`.
#[repr(C)]
struct Library {
    path: *const libc::c_char,
    file: FileIdentity,
    loader: FileIdentity,
    loaded: bool,
    locked: *const FileIdentity,
    locked_count: *const usize,
}

/// `struct executed` of `executable.h`.
#[repr(C)]
struct Executed {
    folder: libc::c_int,
    path: *const libc::c_char,
    flags: libc::c_int,
    shell: bool,
    elsewhere: bool,
}

/// `struct look_room` of `executable.h`: scratch memory.
#[repr(C)]
struct LookRoom([u64; LOOK_WORDS]);

/// As many words as `struct look_room` has.
const LOOK_WORDS: usize = 384;

unsafe extern "C" {
    static environ: *const *const libc::c_char;
    fn foretell_goes_along(
        library: *const Library,
        executed: *const Executed,
        loader: *mut FileIdentity,
        room: *mut LookRoom,
    ) -> bool;
    fn foretell_is_mpi_launcher(path: *const libc::c_char) -> bool;
}

/// The entries that this process was started with, in their order.
pub(crate) fn inherited() -> Vec<CString> {
    let mut entries = Vec::new();
    // SAFETY: the C library keeps `environ` as an array of strings that ends with a null pointer, or as null; nothing in
    // this process changes it.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

/// What the library is told of its setting.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// The manager's address.
    pub(crate) address: &'a str,
    /// What of the program matters from its start: bits `INTEREST_…`.
    pub(crate) interest: u32,
    /// Seccomp filters that foretell itself puts on the program.
    pub(crate) own_filters: u32,
}

/// `entries` with those for the program added: the manager's address and, if the library fits the program, the library.
/// `program` is its path (`None` if it was not found).
pub(crate) fn block(
    mut entries: Vec<CString>,
    program: Option<&Path>,
    library: &Path,
    setting: Setting<'_>,
) -> Vec<CString> {
    let Setting { address, interest, own_filters } = setting;
    set(&mut entries, SOCKET_VARIABLE, address);
    let fit = program.and_then(|program| fit(program, library));
    let Some((file, loader)) = fit else { return entries };
    let own = entries.iter().rev().find_map(|entry| entry.to_bytes().strip_prefix(PRELOAD));
    let mut value = PRELOAD.to_vec();
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        value.extend_from_slice(own);
        value.push(b':');
    }
    if interest & INTEREST_MPI != 0 {
        value.extend_from_slice(library::for_mpi(library).as_os_str().as_bytes());
        value.push(b':');
    }
    value.extend_from_slice(library.as_os_str().as_bytes());
    let private = format!(
        "{PRELOAD_VARIABLE}={:x}.{:x}.{:x}.{:x}.{:x}.{:x}.{address}",
        interest,
        seccomp_filters() + own_filters,
        file.device,
        file.inode,
        loader.device,
        loader.inode,
    );
    // Neither a path nor an address holds a zero byte.
    let ours = [value, private.into_bytes()].map(CString::new);
    entries.extend(ours.into_iter().flatten());
    entries
}

/// Whether a program with these [`block`] entries is executed without the library.
pub(crate) fn is_left_alone(entries: &[CString]) -> bool {
    let begins = |entry: &CString| entry.to_bytes().starts_with(PRELOAD_VARIABLE.as_bytes());
    !entries.last().is_some_and(begins)
}

/// Sets a variable: in its first entry, which is the one that counts, or in a new entry at the end.
fn set(entries: &mut Vec<CString>, name: &str, value: &str) {
    let is_of_name = |entry: &CString| {
        entry.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    };
    let Ok(entry) = CString::new(format!("{name}={value}")) else { return };
    match entries.iter().position(is_of_name) {
        Some(at) => entries[at] = entry,
        None => entries.push(entry),
    }
}

/// Whether `program` starts the ranks of an MPI program: `mpiexec`, `mpirun.openmpi`, …
pub(crate) fn is_mpi_launcher(program: &OsStr) -> bool {
    let Ok(program) = CString::new(program.as_bytes()) else { return false };
    // SAFETY: the argument is a string that outlives the call, which only reads it.
    unsafe { foretell_is_mpi_launcher(program.as_ptr()) }
}

/// Whether `program` gets the library when it is executed.
pub(crate) fn goes_along(program: &Path, library: &Path) -> bool {
    fit(program, library).is_some()
}

/// The library and the program's dynamic linker, if the library works in the program.
fn fit(program: &Path, library: &Path) -> Option<(FileIdentity, FileIdentity)> {
    let file = identity(&std::fs::metadata(library).ok()?);
    let library = CString::new(library.as_os_str().as_bytes()).ok()?;
    let program = CString::new(program.as_os_str().as_bytes()).ok()?;
    let library = Library {
        path: library.as_ptr(),
        file,
        loader: FileIdentity::default(),
        loaded: false,
        locked: std::ptr::null(),
        locked_count: std::ptr::null(),
    };
    let executed = Executed {
        folder: libc::AT_FDCWD,
        path: program.as_ptr(),
        flags: 0,
        shell: true,
        elsewhere: false,
    };
    let (mut loader, mut room) = (FileIdentity::default(), LookRoom([0; LOOK_WORDS]));
    // SAFETY: the structures are those of `executable.h`, their strings end with a zero byte, and all outlive the call,
    // which keeps none of them.
    let goes = unsafe {
        foretell_goes_along(&raw const library, &raw const executed, &raw mut loader, &raw mut room)
    };
    goes.then_some((file, loader))
}

fn identity(metadata: &Metadata) -> FileIdentity {
    FileIdentity { device: metadata.dev(), inode: metadata.ino() }
}

/// Number of seccomp filters on this process, for instance a container's, with which the library works. 0 if unknown; then the
/// program cannot find out either.
fn seccomp_filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &[&str]) -> Vec<CString> {
        text.iter().map(|entry| CString::new(*entry).expect("no zero byte")).collect()
    }

    #[test]
    fn every_entry_stays_in_its_place_and_ours_come_last() {
        // The tests lie in a folder below the binary's.
        let test = std::env::current_exe().expect("a name");
        let library = test.ancestors().nth(2).expect("two folders").join("libforetell_preload.so");
        let text =
            ["Z=1", "A=2", "no value", "A=3", "LD_PRELOAD=/x", "=", "LD_PRELOAD=/y", "LAST="];
        let setting = Setting { address: "foretell/0/1", interest: 3, own_filters: 0 };
        let block = |program| block(entries(&text), Some(Path::new(program)), &library, setting);
        let (watched, alone) = (block("/bin/sh"), block("/etc"));
        assert!(is_left_alone(&alone) && !is_left_alone(&watched));
        let expected = entries(&[&text[..], &["FORETELL_SOCKET=foretell/0/1"]].concat());
        assert_eq!(alone, expected);
        assert_eq!(watched[..expected.len()], expected);
        let preload = format!("LD_PRELOAD=/y:{}", library.display());
        assert_eq!(watched[expected.len()].to_str(), Ok(preload.as_str()));
        let private = watched[expected.len() + 1].to_str().expect("text");
        assert!(private.starts_with("FORETELL_PRELOAD=3."), "{private}");
        assert!(private.ends_with(".foretell/0/1"), "{private}");
        assert_eq!(watched.len(), expected.len() + 2);
    }

    #[test]
    fn an_address_that_is_there_is_replaced() {
        let given = entries(&["A=1", "FORETELL_SOCKET=outer", "B=2"]);
        let setting = Setting { address: "inner", interest: 0, own_filters: 0 };
        let block = block(given, None, Path::new("/f.so"), setting);
        assert_eq!(block, entries(&["A=1", "FORETELL_SOCKET=inner", "B=2"]));
    }
}
