//! The environment that a program is started with: the one that foretell was started with, entry by entry, and foretell's own
//! entries at its end.
//!
//! Nothing of it is looked at as text: entries of one name, and entries without `=`, stay as they are and where they are.
//! Whether the library goes along is decided as at every exec below the run, by the same code
//! (`preload/src/executable.c`). The library hides its two entries from the program; only `FORETELL_SOCKET` is seen, by which
//! programs give hints.

use std::ffi::{CStr, CString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use foretell_protocol::{PRELOAD_VARIABLE, SOCKET_VARIABLE};

/// The variable by which the dynamic linker is told of libraries. Of several entries it takes the last.
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// `struct file_identity`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

/// `struct library`.
#[repr(C)]
struct Library {
    path: *const libc::c_char,
    file: FileIdentity,
    loader: FileIdentity,
    locked: *const FileIdentity,
    locked_count: *const usize,
}

/// `struct executed`.
#[repr(C)]
struct Executed {
    folder: libc::c_int,
    path: *const libc::c_char,
    flags: libc::c_int,
    shell: bool,
    elsewhere: bool,
}

/// `struct look_room`.
#[repr(C)]
struct LookRoom([u64; 64]);

unsafe extern "C" {
    static environ: *const *const libc::c_char;
    fn foretell_goes_along(
        library: *const Library,
        executed: *const Executed,
        loader: *mut FileIdentity,
        room: *mut LookRoom,
    ) -> bool;
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

/// `entries`, for a program that lies at `program` (`None` if it was not found) and finds the manager at `address`; `interest`
/// says that its first reads matter. The library goes along if it fits the program.
pub(crate) fn block(
    mut entries: Vec<CString>,
    program: Option<&Path>,
    library: &Path,
    address: &str,
    interest: bool,
) -> Vec<CString> {
    set(&mut entries, SOCKET_VARIABLE, address);
    let fit = program.and_then(|program| fit(program, library));
    let Some((file, loader)) = fit else { return entries };
    let own = entries.iter().rev().find_map(|entry| entry.to_bytes().strip_prefix(PRELOAD));
    let mut value = PRELOAD.to_vec();
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        value.extend_from_slice(own);
        value.push(b':');
    }
    value.extend_from_slice(library.as_os_str().as_bytes());
    let private = format!(
        "{PRELOAD_VARIABLE}={:x}.{:x}.{:x}.{:x}.{:x}.{:x}.{address}",
        u8::from(interest),
        seccomp_filters(),
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

/// Whether the program of this [`block`] is executed without the library.
pub(crate) fn is_left_alone(entries: &[CString]) -> bool {
    let begins = |entry: &CString| entry.to_bytes().starts_with(PRELOAD_VARIABLE.as_bytes());
    !entries.last().is_some_and(begins)
}

/// Sets a variable where it is set already, for the first counts, or at the end.
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

/// The library, and the program's dynamic linker, if the one fits the other.
fn fit(program: &Path, library: &Path) -> Option<(FileIdentity, FileIdentity)> {
    let file = identity(&std::fs::metadata(library).ok()?);
    let library = CString::new(library.as_os_str().as_bytes()).ok()?;
    let program = CString::new(program.as_os_str().as_bytes()).ok()?;
    let library = Library {
        path: library.as_ptr(),
        file,
        loader: FileIdentity::default(),
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
    let (mut loader, mut room) = (FileIdentity::default(), LookRoom([0; 64]));
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

/// How many seccomp filters this process is under: those of a container, say, with which the library works. 0 if it is not
/// known, which it is not in the program either then.
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
        let block = |program| {
            block(entries(&text), Some(Path::new(program)), &library, "foretell/0/1", true)
        };
        let (watched, alone) = (block("/bin/sh"), block("/etc"));
        assert!(is_left_alone(&alone) && !is_left_alone(&watched));
        let expected = entries(&[&text[..], &["FORETELL_SOCKET=foretell/0/1"]].concat());
        assert_eq!(alone, expected);
        assert_eq!(watched[..expected.len()], expected);
        let preload = format!("LD_PRELOAD=/y:{}", library.display());
        assert_eq!(watched[expected.len()].to_str(), Ok(preload.as_str()));
        let private = watched[expected.len() + 1].to_str().expect("text");
        assert!(private.starts_with("FORETELL_PRELOAD=1."), "{private}");
        assert!(private.ends_with(".foretell/0/1"), "{private}");
        assert_eq!(watched.len(), expected.len() + 2);
    }

    #[test]
    fn an_address_that_is_there_is_replaced() {
        let given = entries(&["A=1", "FORETELL_SOCKET=outer", "B=2"]);
        let block = block(given, None, Path::new("/f.so"), "inner", false);
        assert_eq!(block, entries(&["A=1", "FORETELL_SOCKET=inner", "B=2"]));
    }
}
