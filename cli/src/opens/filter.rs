//! The seccomp filter that has opens told: which calls stop for the guard, and how the filter is installed.
//!
//! A. `open` and `openat` that only read, and make nothing: no `O_WRONLY`, `O_RDWR`, `O_CREAT`, `O_PATH` or `O_TMPFILE`.
//! B. `openat2`: a filter cannot read the caller's memory, where its flags are.
//!
//! All else passes at once, and so do calls of another architecture (32-bit programs, x32). The kernel knows by itself for
//! which calls the filter says yes whatever their arguments are, and does not ask it for these.
//!
//! The filter stays until the process and all its descendants have ended. So nothing may be installed that is not answered.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::{c_ulong, c_void, sock_filter, sock_fprog};

/// The flags of an open, in the lower half of its argument, that make it none for reading.
const OTHER: u32 =
    (libc::O_ACCMODE | libc::O_CREAT | libc::O_PATH | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// `AUDIT_ARCH_…` of linux/audit.h; `None` where opens are not watched.
const AUDIT: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};

/// `open`, where it is a call of its own. There is none with the other number.
const OPEN: u32 = if cfg!(target_arch = "x86_64") { 2 } else { u32::MAX };
const OPENAT: u32 = libc::SYS_openat as u32;
const OPENAT2: u32 = libc::SYS_openat2 as u32;

/// What is installed with the filter: a listener; waits that only a fatal signal ends, once the guard has seen the call; and no
/// change of the process's protection against speculation.
const FLAGS: c_ulong = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
    | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
    | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;

/// An open that stops for the guard, told from the number and the arguments of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The descriptor at which a relative path begins; `AT_FDCWD` for the working folder.
    pub(super) base: i32,
    /// Where the path is, in the caller's memory.
    pub(super) path: u64,
    pub(super) flags: Flags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flags {
    Given(u64),
    /// They are the first word at this address of the caller's.
    At(u64),
}

impl Call {
    /// `None` if it is none.
    pub(super) fn of(number: i32, arguments: &[u64; 6]) -> Option<Self> {
        let [first, second, third, ..] = *arguments;
        let at = |flags| Call { base: first as i32, path: second, flags };
        match number as u32 {
            OPEN => Some(Call {
                base: libc::AT_FDCWD,
                path: first,
                flags: Flags::Given(second as u32 as u64),
            }),
            OPENAT => Some(at(Flags::Given(third as u32 as u64))),
            OPENAT2 => Some(at(Flags::At(third))),
            _ => None,
        }
    }
}

/// Whether an open with these flags reads, and makes nothing.
pub(super) fn reads(flags: u64) -> bool {
    flags & u64::from(OTHER) == 0
}

/// The instructions; `None` on another architecture.
fn program() -> Option<[sock_filter; 13]> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const JUMP: u32 = libc::BPF_JMP | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, (jt, jf), k| sock_filter { code: code as u16, jt, jf, k };
    let is = |value, (jt, jf)| step(JUMP | libc::BPF_JEQ, (jt, jf), value);
    Some([
        step(LOAD, (0, 0), ARCHITECTURE),
        is(AUDIT?, (0, 4)),
        step(LOAD, (0, 0), NUMBER),
        is(OPENAT, (3, 0)),
        is(OPEN, (4, 0)),
        is(OPENAT2, (5, 0)),
        step(RETURN, (0, 0), libc::SECCOMP_RET_ALLOW),
        step(LOAD, (0, 0), ARGUMENTS + 2 * 8),
        step(JUMP | libc::BPF_JA, (0, 0), 1),
        step(LOAD, (0, 0), ARGUMENTS + 8),
        step(JUMP | libc::BPF_JSET, (1, 0), OTHER),
        step(RETURN, (0, 0), libc::SECCOMP_RET_USER_NOTIF),
        step(RETURN, (0, 0), libc::SECCOMP_RET_ALLOW),
    ])
}

/// Whether the kernel can let a call go on after a look (Linux 5.5) and let only fatal signals interrupt it meanwhile (5.19),
/// and has structures of the sizes known here.
pub(super) fn is_known_to_kernel() -> bool {
    let (action, mut sizes) = (
        libc::SECCOMP_RET_USER_NOTIF,
        libc::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 },
    );
    let has_action = seccomp(libc::SECCOMP_GET_ACTION_AVAIL, 0, (&raw const action).cast()).is_ok();
    let has_sizes = seccomp(libc::SECCOMP_GET_NOTIF_SIZES, 0, (&raw mut sizes).cast_const().cast());
    // Without instructions nothing is installed: the error tells whether the flags are known.
    let install = seccomp(libc::SECCOMP_SET_MODE_FILTER, FLAGS, std::ptr::null());
    let knows = install.is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT));
    AUDIT.is_some()
        && has_action
        && has_sizes.is_ok()
        && usize::from(sizes.seccomp_notif) == size_of::<libc::seccomp_notif>()
        && usize::from(sizes.seccomp_notif_resp) == size_of::<libc::seccomp_notif_resp>()
        && knows
}

/// Whether this process may install a filter: by its rights, or since its programs get no further rights anyway.
pub(super) fn is_allowed() -> bool {
    // SAFETY: a plain system call.
    let gets_none = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) } == 1;
    let capabilities = rustix::thread::capabilities(None);
    let has_right = capabilities
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN));
    gets_none || has_right
}

/// Installs the filter for this process and its descendants. Returns the listener, which closes on exec.
///
/// # Errors
/// It is not installed: there is a listener already, or what [`is_known_to_kernel`] and [`is_allowed`] cannot know.
pub(super) fn install() -> io::Result<OwnedFd> {
    let mut program = program().ok_or(io::ErrorKind::Unsupported)?;
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let listener =
        seccomp(libc::SECCOMP_SET_MODE_FILTER, FLAGS, (&raw const program).cast())? as RawFd;
    // SAFETY: the call has returned a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

fn seccomp(operation: u32, flags: c_ulong, argument: *const c_void) -> io::Result<i64> {
    // SAFETY: `argument` is null or of the type that the operation takes, and outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says to a call.
    fn judge(architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let program = program().expect("instructions");
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let jump = |is: bool| usize::from(if is { jt } else { jf });
            match u32::from(code) {
                0x20 => {
                    value = match k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        _ => arguments[(k - ARGUMENTS) as usize / 8] as u32,
                    }
                }
                0x15 => at += jump(value == k),
                0x45 => at += jump(value & k != 0),
                0x05 => at += k as usize,
                0x06 => return k,
                code => panic!("unknown instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn opens_for_reading_stop_and_nothing_else() {
        let Some(own) = AUDIT else { return };
        let stops = |number, arguments| match judge(own, number, arguments) {
            libc::SECCOMP_RET_USER_NOTIF => true,
            other => {
                assert_eq!(other, libc::SECCOMP_RET_ALLOW);
                false
            }
        };
        let cases = [
            (libc::O_RDONLY, true),
            (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK, true),
            (libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_DIRECT, true),
            (libc::O_WRONLY, false),
            (libc::O_RDWR, false),
            (libc::O_RDONLY | libc::O_CREAT, false),
            (libc::O_PATH | libc::O_DIRECTORY, false),
            (libc::O_TMPFILE | libc::O_RDWR, false),
        ];
        for (flags, expected) in cases {
            let flags = flags as u64;
            assert_eq!(stops(OPENAT, [9, 9, flags, 0, 0, 0]), expected, "{flags:#o}");
            assert_eq!(reads(flags), expected, "{flags:#o}");
            if OPEN != u32::MAX {
                assert_eq!(stops(OPEN, [9, flags, 1, 0, 0, 0]), expected, "{flags:#o}");
            }
            assert!(stops(OPENAT2, [0, 0, flags, 0, 0, 0]));
            assert!(!stops(OPENAT | 0x4000_0000, [0, 0, flags, 0, 0, 0]), "x32");
            assert_eq!(judge(0x4000_0003, OPENAT, [0; 6]), libc::SECCOMP_RET_ALLOW, "i386");
        }
        for number in (0..500).filter(|number| ![OPEN, OPENAT, OPENAT2].contains(number)) {
            assert!(!stops(number, [0; 6]), "{number}");
            assert_eq!(Call::of(number as i32, &[0; 6]), None);
        }
    }
}
