//! What a thread opens, and how long it has slept since its open before: read from outside while it stands still.
//!
//! * The path is in the caller's memory (`process_vm_readv`). A relative one begins at its working folder or a descriptor
//!   (`/proc/TID/cwd`, `/proc/TID/fd/N`).
//! * A thread sleeps where it waits for a device. The time of which it neither ran nor waited for a processor
//!   (`/proc/TID/schedstat`) since it was answered last is the time that its open and the reads after that have waited.
//!
//! What may fail: the caller's memory cannot be read, a path is too long, the base is no folder with a name, or `openat2` gives
//! the path another root. Then nothing is seen of this open. Another thread of the program may change the path meanwhile; then
//! what is seen is a wrong guess.

use std::collections::HashMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use foretell_manager::opens::{Opened, RECORD_MAX_BYTES};

use super::filter::{Call, Flags, reads};

/// Bytes of a path that are read first. Most are shorter.
const FIRST_BYTES: usize = 256;

/// A page of memory, at least: what may be read beyond its end may not be there.
const PAGE_BYTES: u64 = 4096;

/// Threads that are known at a time, each with a descriptor. Of more, all are forgotten.
const THREADS_MAX: usize = 256;

/// The mark that the kernel adds to the name of a folder that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// See the [module](self).
#[derive(Default)]
pub(super) struct Looker {
    threads: HashMap<u32, Thread>,
    path: Vec<u8>,
}

/// What is known of a thread.
struct Thread {
    schedstat: File,
    /// The time that it ran or waited for a processor, until it was answered.
    busy_ns: u64,
    answered_at: Instant,
}

impl Looker {
    /// Looks at a thread that makes this call. `None` if it is no open for reading, or cannot be seen.
    pub(super) fn look(&mut self, thread: u32, call: Call) -> Option<Opened<'_>> {
        let slept = self.slept(thread);
        let (flags, resolve) = match call.flags {
            Flags::Given(flags) => (flags, 0),
            Flags::At(address) => read_how(thread, address)?,
        };
        if !reads(flags) || resolve & libc::RESOLVE_IN_ROOT != 0 {
            return None;
        }
        self.path.clear();
        read_text(thread, call.path, &mut self.path)?;
        if resolve & libc::RESOLVE_BENEATH != 0 && self.path.first() == Some(&b'/') {
            return None; // The kernel refuses it.
        }
        if self.path.first() != Some(&b'/') {
            let base = match call.base {
                libc::AT_FDCWD => format!("/proc/{thread}/cwd"),
                number => format!("/proc/{thread}/fd/{number}"),
            };
            let base = std::fs::read_link(base).ok()?;
            let base = base.as_os_str().as_bytes();
            if !base.starts_with(b"/") || base.ends_with(REMOVED) {
                return None;
            }
            self.path.splice(..0, base.iter().copied().chain([b'/']));
        }
        let is_folder = flags & libc::O_DIRECTORY as u64 != 0;
        Some(Opened { thread, is_folder, slept, path: &self.path })
    }

    /// The thread was answered: it runs on.
    pub(super) fn answered(&mut self, thread: u32) {
        match self.threads.get_mut(&thread) {
            Some(known) => known.answered_at = Instant::now(),
            None => self.meet(thread),
        }
    }

    fn meet(&mut self, thread: u32) {
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        let Ok(schedstat) = File::open(format!("/proc/{thread}/schedstat")) else { return };
        if let Some(busy_ns) = busy_ns(&schedstat) {
            let known = Thread { schedstat, busy_ns, answered_at: Instant::now() };
            self.threads.insert(thread, known);
        }
    }

    /// How long the thread has slept since it was answered. Zero if that is not known.
    fn slept(&mut self, thread: u32) -> Duration {
        let Some(known) = self.threads.get_mut(&thread) else { return Duration::ZERO };
        let Some(busy_ns) = busy_ns(&known.schedstat) else {
            // It has ended: this is another one with its number.
            self.threads.remove(&thread);
            return Duration::ZERO;
        };
        let busy = busy_ns.saturating_sub(std::mem::replace(&mut known.busy_ns, busy_ns));
        known.answered_at.elapsed().saturating_sub(Duration::from_nanos(busy))
    }
}

/// The time that a thread ran or waited for a processor, in ns. `None` if it has ended, or the kernel does not count.
fn busy_ns(schedstat: &File) -> Option<u64> {
    let mut text = [0; 64];
    let length = schedstat.read_at(&mut text, 0).ok()?;
    let mut words = std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace();
    let mut next = || words.next()?.parse::<u64>().ok();
    Some(next()?.saturating_add(next()?))
}

/// Reads the flags and the rules of resolving in the `struct open_how` at `address` of a thread's memory.
fn read_how(thread: u32, address: u64) -> Option<(u64, u64)> {
    const WORD: usize = size_of::<u64>();
    let mut how = [0; size_of::<libc::open_how>()];
    (read_memory(thread, address, &mut how) == how.len()).then_some(())?;
    let word = |at: usize| how[at..at + WORD].try_into().ok().map(u64::from_ne_bytes);
    let (flags, resolve) = (offset_of!(libc::open_how, flags), offset_of!(libc::open_how, resolve));
    Some((word(flags)?, word(resolve)?))
}

/// Reads the text at `address` of a thread's memory, up to its zero byte. `None` if it cannot be read or is too long.
fn read_text(thread: u32, address: u64, text: &mut Vec<u8>) -> Option<()> {
    while text.len() < RECORD_MAX_BYTES {
        let (from, known) = (address.checked_add(text.len() as u64)?, text.len());
        let most = if known == 0 { FIRST_BYTES } else { RECORD_MAX_BYTES - known };
        let in_page = PAGE_BYTES - from % PAGE_BYTES;
        text.resize(known + most.min(in_page as usize), 0);
        let read = read_memory(thread, from, &mut text[known..]);
        let end = text[known..known + read].iter().position(|&byte| byte == 0);
        text.truncate(known + end.unwrap_or(read));
        if end.is_some() {
            return (!text.is_empty()).then_some(());
        }
        if read == 0 {
            return None;
        }
    }
    None
}

/// Reads memory of another process. Returns how many bytes could be read, from the beginning of `bytes` on.
pub(super) fn read_memory(thread: u32, address: u64, bytes: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    let Ok(thread) = libc::pid_t::try_from(thread) else { return 0 };
    // SAFETY: `local` is memory of this process that may be written; the kernel checks the other process's.
    let read =
        unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> u32 {
        // SAFETY: a plain system call.
        unsafe { libc::gettid() }.unsigned_abs()
    }

    fn seen(looker: &mut Looker, base: i32, path: &std::ffi::CStr, flags: i32) -> Option<String> {
        let flags = Flags::Given(flags as u64);
        let call = Call { base, path: path.as_ptr() as u64, flags };
        let opened = looker.look(own(), call)?;
        Some(String::from_utf8(opened.path.to_vec()).expect("text"))
    }

    #[test]
    fn paths_are_absolute() {
        use std::os::fd::AsRawFd;
        let mut looker = Looker::default();
        let folder = tempfile::tempdir().expect("a folder");
        let open = File::open(folder.path()).expect("opened");
        let at = folder.path().canonicalize().expect("it is there");
        let own_folder = std::env::current_dir().expect("it is there");
        let text = |path: std::path::PathBuf| path.to_str().map(str::to_owned);
        let cwd = libc::AT_FDCWD;
        assert_eq!(seen(&mut looker, cwd, c"/a/b", 0).as_deref(), Some("/a/b"));
        assert_eq!(seen(&mut looker, cwd, c"x", 0), text(own_folder.join("x")));
        assert_eq!(seen(&mut looker, open.as_raw_fd(), c"x", 0), text(at.join("x")));
        assert_eq!(seen(&mut looker, open.as_raw_fd(), c"/x", 0).as_deref(), Some("/x"));
        assert_eq!(seen(&mut looker, 99_999, c"x", 0), None);
        assert_eq!(seen(&mut looker, cwd, c"", 0), None);
        assert_eq!(seen(&mut looker, cwd, c"/x", libc::O_WRONLY), None);
        drop(folder);
        assert_eq!(seen(&mut looker, open.as_raw_fd(), c"x", 0), None, "it was removed");
        let long = std::ffi::CString::new(vec![b'/'; RECORD_MAX_BYTES + 1]).expect("no zero byte");
        assert_eq!(seen(&mut looker, cwd, &long, 0), None);
        let nowhere = Call { base: cwd, path: 8, flags: Flags::Given(0) };
        assert_eq!(looker.look(own(), nowhere), None);
        let nowhere = Call { base: cwd, path: u64::MAX, flags: Flags::At(u64::MAX) };
        assert_eq!(looker.look(own(), nowhere), None);
    }

    #[test]
    fn a_path_with_another_root_is_not_seen() {
        let mut looker = Looker::default();
        let mut sees = |path: &std::ffi::CStr, flags: i32, resolve: u64| {
            let how = [flags as u64, 0, resolve];
            let flags = Flags::At((&raw const how).addr() as u64);
            let call = Call { base: libc::AT_FDCWD, path: path.as_ptr() as u64, flags };
            looker.look(own(), call).is_some()
        };
        for (path, beneath) in [(c"/a", false), (c"a", true)] {
            assert!(sees(path, 0, 0) && sees(path, 0, libc::RESOLVE_NO_SYMLINKS));
            assert!(!sees(path, libc::O_WRONLY, 0));
            assert!(!sees(path, 0, libc::RESOLVE_IN_ROOT));
            assert_eq!(sees(path, 0, libc::RESOLVE_BENEATH), beneath);
        }
    }
}
