//! The effect of one call, and its consequences for later calls.

use foretell_policy::ReaderId;

use super::super::recording::{PathIndex, What, Whom};
use super::line::{self, Done};
use super::tables::{Paths, Process};

/// Whether this call returns the id of a new process or thread.
pub(super) fn makes_process(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone2" | b"clone3" | b"fork" | b"vfork")
}

/// Whether the parent waits until the child executes a program or ends; `text` has the call's arguments.
pub(super) fn waits_for_child(name: &[u8], text: &[u8]) -> bool {
    name == b"vfork" || has(text, b"CLONE_VFORK")
}

/// Whether this call only ends its thread.
pub(super) fn is_exit(name: &[u8]) -> bool {
    matches!(name, b"exit" | b"exit_group" | b"_exit")
}

/// Whether this call reads at a given offset, and so from a file.
pub(super) fn reads_at_offset(name: &[u8]) -> bool {
    matches!(name, b"pread64" | b"pread" | b"preadv" | b"preadv2")
}

/// Whether this call, with these arguments, opens a file for reading.
pub(super) fn opens(name: &[u8], text: &[u8]) -> bool {
    matches!(name, b"open" | b"openat" | b"openat2")
        && !has(text, b"O_WRONLY")
        && !has(text, b"O_DIRECTORY")
}

/// Whether this call may read by io_uring or aio.
pub(super) fn is_of_ring(name: &[u8]) -> bool {
    matches!(name, b"io_uring_enter" | b"io_submit" | b"io_getevents" | b"io_pgetevents")
}

/// Returns the effect of a call, and records in `process` what it changes. `text` has all its arguments.
pub(super) fn what(
    paths: &mut Paths,
    process: &mut Process,
    name: &[u8],
    done: &Done,
    text: &[u8],
) -> What {
    let waits = whom(paths, process, name, done, text).map_or(What::Other, What::Wait);
    let Some(returned) = done.returned else {
        let missing = if done.is_interrupted { None } else { named(paths, process, name, done) };
        return missing.map_or(waits, What::Missing);
    };
    let [first, second, third, fourth, ..] = done.arguments;
    let what = match name {
        b"open" => open(paths, process, None, first, done, has(second, b"O_CLOEXEC")),
        b"creat" => open(paths, process, None, first, done, false),
        b"openat" | b"openat2" => {
            open(paths, process, Some(first), second, done, has(third, b"O_CLOEXEC"))
        }
        b"execve" | b"execveat" => {
            let what = named(paths, process, name, done).map(What::Look);
            process.execute();
            what
        }
        b"chdir" => named(paths, process, name, done).map(|folder| {
            process.enter(folder);
            What::Look(folder)
        }),
        b"read" | b"readv" => read(paths, process, first, At::Position, returned),
        b"pread64" | b"pread" | b"preadv" => line::decimal(fourth).and_then(|offset_bytes| {
            read(paths, process, first, At::Offset(offset_bytes), returned)
        }),
        b"preadv2" => {
            let at = line::decimal(fourth).map_or(At::Position, At::Offset);
            read(paths, process, first, at, returned)
        }
        b"sendfile" | b"sendfile64" => {
            written(paths, process, first, returned);
            read(paths, process, second, At::pointed_to(third), returned)
        }
        b"copy_file_range" | b"splice" => {
            if let At::Position = At::pointed_to(fourth) {
                written(paths, process, third, returned);
            }
            read(paths, process, first, At::pointed_to(second), returned)
        }
        b"fadvise64" if has(text, b"POSIX_FADV_WILLNEED") => {
            advise(paths, process, first, second, third)
        }
        b"readahead" => advise(paths, process, first, second, third),
        b"getdents64" | b"getdents" => {
            let folder = line::descriptor(first).and_then(|of| process.file(paths, &of));
            folder.map(if returned > 0 { What::List } else { What::End })
        }
        _ => {
            change(paths, process, name, done, text);
            named(paths, process, name, done).map(What::Look)
        }
    };
    match what {
        Some(What::End(_)) if waits != What::Other => waits,
        what => what.unwrap_or(waits),
    }
}

/// The name that a call resolves, if any.
fn named(paths: &mut Paths, process: &Process, name: &[u8], done: &Done) -> Option<PathIndex> {
    let [first, second, ..] = done.arguments;
    match name {
        b"open" | b"creat" | b"stat" | b"stat64" | b"lstat" | b"lstat64" | b"access"
        | b"readlink" | b"execve" | b"chdir" => process.resolve(paths, None, first),
        b"openat" | b"openat2" | b"newfstatat" | b"fstatat64" | b"statx" | b"faccessat"
        | b"faccessat2" | b"readlinkat" | b"execveat" => {
            process.resolve(paths, Some(first), second)
        }
        _ => None,
    }
}

/// The process that a waiting call waits for. A call that a signal interrupted is a wait; one that timed out is
/// not.
fn whom(
    paths: &mut Paths,
    process: &Process,
    name: &[u8],
    done: &Done,
    text: &[u8],
) -> Option<Whom> {
    let bytes = done.returned.unwrap_or(0);
    let has_something = bytes > 0;
    if !done.is_interrupted && done.returned.is_none() {
        return None;
    }
    let [first, second, third, ..] = done.arguments;
    let anybody_if = |waits: bool| waits.then_some(Whom::Unknown);
    match name {
        b"wait4" | b"waitpid" => match done.returned {
            Some(child) => (child > 0).then_some(Whom::Child(ReaderId(child))),
            None => Some(Whom::Unknown),
        },
        b"waitid" => {
            let child = line::number_behind(text, b"si_pid=").filter(|child| *child > 0);
            Some(child.map_or(Whom::Unknown, |child| Whom::Child(ReaderId(child))))
        }
        b"poll" | b"ppoll" | b"ppoll_time64" | b"select" | b"_newselect" | b"pselect6"
        | b"pselect6_time64" | b"epoll_wait" | b"epoll_pwait" | b"epoll_pwait2" => {
            anybody_if(has_something || done.is_interrupted)
        }
        b"rt_sigsuspend" | b"sigsuspend" | b"msgrcv" | b"semop" | b"flock" => Some(Whom::Unknown),
        b"futex" | b"futex_time64" => {
            anybody_if(has(second, b"FUTEX_WAIT") || has(second, b"FUTEX_LOCK_PI"))
        }
        b"fcntl" | b"fcntl64" => {
            anybody_if(matches!(second, b"F_SETLKW" | b"F_SETLKW64" | b"F_OFD_SETLKW"))
        }
        b"read" | b"readv" | b"splice" if has_something && pipe(first).is_some() => {
            pipe(first).map(|pipe| Whom::Writer { pipe, bytes })
        }
        b"write" | b"writev" => pipe(first).map(|pipe| Whom::Reader { pipe, bytes }),
        b"splice" if pipe(third).is_some() => pipe(third).map(|pipe| Whom::Reader { pipe, bytes }),
        b"read" | b"readv" | b"splice" | b"recv" | b"recvfrom" | b"recvmsg" | b"recvmmsg"
        | b"accept" | b"accept4" => {
            // A timer belongs to no other process.
            anybody_if(!has(first, b"[timerfd]") && is_of_others(paths, process, first))
        }
        _ => None,
    }
}

/// The number of the pipe in a descriptor's annotation.
fn pipe(argument: &[u8]) -> Option<u64> {
    let annotation = line::descriptor(argument)?.annotation?;
    if annotation.starts_with(b"pipe:[") { line::number_behind(annotation, b"[") } else { None }
}

/// Whether a descriptor is no file: a pipe, a socket, an eventfd, or unknown.
fn is_of_others(paths: &mut Paths, process: &Process, argument: &[u8]) -> bool {
    let of = line::descriptor(argument).filter(|of| of.number.is_some());
    of.is_some_and(|of| process.file(paths, &of).is_none())
}

/// The file and the number of bytes that a call maps into memory. Programs and libraries are left out: they are
/// mapped as executable, or marked by the loader.
pub(super) fn mapped(
    paths: &mut Paths,
    process: &Process,
    name: &[u8],
    done: &Done,
) -> Option<(PathIndex, u64)> {
    let [_, length_bytes, protection, flags, of, ..] = done.arguments;
    let is_loaded = has(protection, b"PROT_EXEC") || has(flags, b"MAP_DENYWRITE");
    if !matches!(name, b"mmap" | b"mmap2") || is_loaded {
        return None;
    }
    let of = line::descriptor(of).filter(|of| of.number.is_some())?;
    Some((process.file(paths, &of)?, line::decimal(length_bytes)?))
}

/// Applies calls that concern no names but change the meaning of later calls.
fn change(paths: &mut Paths, process: &mut Process, name: &[u8], done: &Done, text: &[u8]) {
    let [first, second, third, ..] = done.arguments;
    let returned = done.returned.unwrap_or_default();
    match name {
        b"write" | b"writev" => written(paths, process, first, returned),
        b"lseek" => {
            if let Some((_, description)) = process.opened(paths, first) {
                description.seek(returned);
            }
        }
        b"close" => {
            if let Some(fd) = line::descriptor(first).and_then(|of| of.number) {
                process.close(fd);
            }
        }
        b"close_range" => close_range(process, first, second, third),
        b"dup" | b"dup2" | b"dup3" => {
            // dup2 of a descriptor to itself changes nothing.
            let to_itself = line::descriptor(first).and_then(|of| of.number).map(u64::from);
            if to_itself != Some(returned) {
                duplicate(paths, process, done, has(third, b"O_CLOEXEC"));
            }
        }
        b"fcntl" | b"fcntl64" => match second {
            b"F_DUPFD" => duplicate(paths, process, done, false),
            b"F_DUPFD_CLOEXEC" => duplicate(paths, process, done, true),
            b"F_SETFD" => {
                if let Some(fd) = line::descriptor(first).and_then(|of| of.number) {
                    let fd = u64::from(fd);
                    process.set_closes_on_exec(fd, fd, has(third, b"FD_CLOEXEC"));
                }
            }
            _ => {}
        },
        b"fchdir" => {
            let folder = line::descriptor(first).and_then(|of| process.file(paths, &of));
            if let Some(folder) = folder {
                process.enter(folder);
            }
        }
        b"unshare" if has(text, b"CLONE_FILES") => process.unshare_slots(),
        _ => {}
    }
}

fn open(
    paths: &mut Paths,
    process: &Process,
    from: Option<&[u8]>,
    name: &[u8],
    done: &Done,
    closes_on_exec: bool,
) -> Option<What> {
    let fd = u32::try_from(done.returned?).ok()?;
    // The descriptor is a new one, whether or not its file is known.
    process.close(fd);
    let named = process.resolve(paths, from, name);
    let file = done.annotation.and_then(|annotation| paths.annotated(annotation)).or(named)?;
    process.open(fd, file, closes_on_exec);
    Some(What::Open(file))
}

/// The offset at which a call reads.
enum At {
    /// At the descriptor's position, which advances.
    Position,
    Offset(u64),
}

impl At {
    /// `NULL` or a number in brackets.
    fn pointed_to(argument: &[u8]) -> At {
        line::pointed_to(argument).map_or(At::Position, At::Offset)
    }
}

fn read(
    paths: &mut Paths,
    process: &Process,
    from: &[u8],
    at: At,
    length_bytes: u64,
) -> Option<What> {
    let (file, description) = process.opened(paths, from)?;
    let offset_bytes = match at {
        At::Position => {
            let is_guess = description.take_guess() && !paths.is_on_no_disk(file);
            paths.guessed += u64::from(is_guess);
            description.advance(length_bytes)
        }
        At::Offset(offset_bytes) => offset_bytes,
    };
    Some(match length_bytes {
        0 => What::End(file),
        _ => What::Read { file, offset_bytes, length_bytes },
    })
}

fn advise(
    paths: &mut Paths,
    process: &Process,
    of: &[u8],
    offset_bytes: &[u8],
    length_bytes: &[u8],
) -> Option<What> {
    let (file, _) = process.opened(paths, of)?;
    let (offset_bytes, length_bytes) = (line::decimal(offset_bytes)?, line::decimal(length_bytes)?);
    offset_bytes.checked_add(length_bytes)?;
    Some(What::Advise { file, offset_bytes, length_bytes })
}

fn written(paths: &mut Paths, process: &Process, to: &[u8], length_bytes: u64) {
    if let Some((_, description)) = process.opened(paths, to) {
        description.advance(length_bytes);
    }
}

/// Makes the returned descriptor a duplicate of the first argument.
fn duplicate(paths: &mut Paths, process: &Process, done: &Done, closes_on_exec: bool) {
    let Some(fd) = done.returned.and_then(|returned| u32::try_from(returned).ok()) else {
        return;
    };
    match process.opened(paths, done.arguments[0]) {
        Some((_, description)) => process.share(fd, description, closes_on_exec),
        None => process.close(fd),
    }
}

fn close_range(process: &mut Process, first: &[u8], last: &[u8], flags: &[u8]) {
    if has(flags, b"CLOSE_RANGE_UNSHARE") {
        process.unshare_slots();
    }
    let Some(first) = line::descriptor(first).and_then(|of| of.number).map(u64::from) else {
        return;
    };
    // Mostly `~0U`: all descriptors above.
    let last = line::descriptor(last).and_then(|of| of.number).map_or(u64::MAX, u64::from);
    if has(flags, b"CLOSE_RANGE_CLOEXEC") {
        process.set_closes_on_exec(first, last, true);
    } else {
        process.close_range(first, last);
    }
}

fn has(argument: &[u8], flag: &[u8]) -> bool {
    line::find(argument, flag).is_some()
}
