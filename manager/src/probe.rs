//! `foretell probe`: what foretell would do on a file system, and what that brings, measured with one file.
//!
//! 1. The file is the one that is named, or the largest of the first ones that are found in a folder.
//! 2. Which back end would be chosen, and why (`driver/backend/choice.rs`).
//! 3. How long small reads of data take that is not in memory.
//! 4. What each back end brings of a range that is not in memory, and how soon.
//!
//! Nothing is written, and what is in memory stays there unless the caller asks for its eviction. A measurement needs a range
//! that is not in memory, so of a file in memory little can be told.
//!
//! The work is done on a thread, since a device may never answer: after [`PATIENCE`] the caller gets what is known by then.

mod cold;
mod figures;
mod pick;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, Mode, OFlags};

pub use figures::{AdviceFigures, FileSystemFigures, Observed, Probed, ReadFigures};

use crate::BackendKind;
use crate::driver::backend::{self, Advised, Backend};
use crate::driver::file::{self, Found, OpenFile};
use crate::driver::keeping::FileSystems;
use crate::driver::mounted::Mounted;
use crate::driver::residency::{Observer, Range, page_bytes};
use cold::Cold;

/// How long all of it may take.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long the data of one advice may take to arrive, and all small reads together.
const STEP_PATIENCE: Duration = Duration::from_secs(1);

/// Time between two looks for it.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// Most bytes of one advice: several times the kernel's read-ahead.
const ADVICE_MAX_BYTES: u64 = 1 << 20;

/// Small reads, and bytes of each: enough for a median on a disk that takes 10 ms.
const READS: usize = 8;
const READ_BYTES: usize = 4096;

/// Types of file systems without a device: what they hold cannot be dropped from memory. (`ramfs`'s number is in no header.)
const IN_MEMORY: [rustix::fs::FsWord; 3] = [libc::TMPFS_MAGIC, 0x8584_58f6, libc::HUGETLBFS_MAGIC];

/// Types of file systems whose files are made when they are read. They may block, too: none is read.
const GENERATED: [rustix::fs::FsWord; 7] = [
    libc::PROC_SUPER_MAGIC,
    libc::SYSFS_MAGIC,
    libc::DEBUGFS_MAGIC,
    libc::TRACEFS_MAGIC,
    libc::SECURITYFS_MAGIC,
    libc::CGROUP_SUPER_MAGIC,
    libc::CGROUP2_SUPER_MAGIC,
];

/// Stack of the thread. 256 KiB: libraries of file systems may be loaded on it.
const STACK_BYTES: usize = 256 << 10;

/// Why nothing can be told.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The path cannot be looked up, or the file not be read.
    #[error("{}: {error}; {way_out}", path.display())]
    File {
        /// What cannot be used.
        path: PathBuf,
        /// Why.
        error: io::Error,
        /// What to do about it.
        way_out: &'static str,
    },
    /// The path is neither a file nor a folder.
    #[error("{}: neither a file nor a folder; name a file", .0.display())]
    Other(PathBuf),
    /// The device does not answer.
    #[error("{}: no answer within {} s; is its device or server there?", .0.display(), PATIENCE.as_secs())]
    Silent(PathBuf),
    /// The thread could not be started, or failed.
    #[error("the measurement failed: {0}")]
    Thread(String),
}

/// What the thread tells.
enum Told {
    Doing(&'static str),
    Known(Box<Probed>),
    Ended(Result<Box<Probed>, ProbeError>),
}

/// Measures at `path`, for [`PATIENCE`] at most. With `evicts`, the file's data is dropped from memory first. `tell` hears
/// what is being done.
///
/// # Errors
/// [`ProbeError`]
pub fn probe(
    path: &Path,
    evicts: bool,
    mut tell: impl FnMut(&'static str),
) -> Result<Probed, ProbeError> {
    let (sender, told) = channel();
    let (asked, began) = (path.to_owned(), Instant::now());
    thread::Builder::new()
        .name("foretell-probe".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            foretell_fault::point("foretell-probe");
            let ended = measure(&asked, evicts, &sender);
            let _ = sender.send(Told::Ended(ended));
        })
        .map_err(|error| ProbeError::Thread(error.to_string()))?;
    let mut known = None;
    loop {
        match told.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
            Ok(Told::Doing(what)) => tell(what),
            Ok(Told::Known(probed)) => known = Some(probed),
            Ok(Told::Ended(ended)) => return ended.map(|probed| *probed),
            Err(RecvTimeoutError::Timeout) => {
                let mut probed = known.ok_or_else(|| ProbeError::Silent(path.to_owned()))?;
                probed
                    .notes
                    .push("the device did not answer in time; the rest was not measured".into());
                return Ok(*probed);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ProbeError::Thread("its thread ended".into()));
            }
        }
    }
}

fn measure(path: &Path, evicts: bool, told: &Sender<Told>) -> Result<Box<Probed>, ProbeError> {
    let failed = |path: &Path, error: io::Error| {
        let way_out = match error.kind() {
            io::ErrorKind::PermissionDenied => "name a file that you may read",
            io::ErrorKind::NotFound => "name a file or folder that is there",
            _ => "name another file",
        };
        ProbeError::File { path: path.to_owned(), error, way_out }
    };
    let _ = told.send(Told::Doing("looking it up"));
    let open = || -> io::Result<File> {
        Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?.into())
    };
    let handle = open().map_err(|error| failed(path, error))?;
    let metadata = handle.metadata().map_err(|error| failed(path, error))?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(ProbeError::Other(path.to_owned()));
    }
    let systems = FileSystems::default();
    let mut probed = Box::new(by_type(path, &handle, &systems, metadata.dev()));
    let found;
    if metadata.is_file() {
        match file::find(path.to_owned(), &systems).map_err(|error| failed(path, error))? {
            Found::File(file) => found = Some(file),
            _ => return Err(ProbeError::Other(path.to_owned())),
        }
    } else {
        let _ = told.send(Told::Doing("looking for a file"));
        let picked = pick::file_in(path, metadata.dev(), &systems);
        found = picked.file;
        if found.is_none() {
            let why =
                "nothing was measured: that needs a file with data that you may read; name one";
            probed.notes.push(why.into());
            let refused =
                picked.refused.map(|(path, error)| format!("{}: {error}", path.display()));
            probed.notes.extend(refused);
        }
    }
    if let Some(file) = found {
        measure_file(&file, &systems, evicts, &mut probed, told);
    }
    Ok(probed)
}

/// What the type of the file system tells.
fn by_type(path: &Path, handle: &File, systems: &FileSystems, device: u64) -> Probed {
    let system = systems.of(device, handle);
    let choice = system.choice(|| None);
    let mounted = Mounted::of(handle.as_fd());
    Probed {
        path: path.to_owned(),
        file: None,
        file_bytes: None,
        is_of_foretell: mounted.as_ref().is_some_and(Mounted::is_of_foretell),
        file_system: mounted.map(FileSystemFigures::from),
        backend: choice.backend.kind(),
        why: choice.why.clone(),
        keeps_pages: None,
        read_ahead_bytes: figures::read_ahead_bytes(device),
        observed: None,
        leaves_access_time: None,
        in_memory_share: None,
        reads: None,
        advice: Vec::new(),
        notes: Vec::new(),
    }
}

fn measure_file(
    file: &OpenFile,
    systems: &FileSystems,
    evicts: bool,
    probed: &mut Probed,
    told: &Sender<Told>,
) {
    let tell = |what, probed: &Probed| {
        let _ = told.send(Told::Known(Box::new(probed.clone())));
        let _ = told.send(Told::Doing(what));
    };
    let (target, size_bytes) = (file.target(), file.size_bytes());
    let whole = Range { offset_bytes: 0, length_bytes: size_bytes };
    probed.file = Some(file.path().to_owned());
    probed.file_bytes = Some(size_bytes);
    probed.leaves_access_time =
        rustix::fs::fcntl_getfl(target.file()).ok().map(|flags| flags.contains(OFlags::NOATIME));
    let system = rustix::fs::fstatfs(target.file()).map(|system| system.f_type);
    if system.is_ok_and(|system| GENERATED.contains(&system)) {
        let text = "nothing was measured: the kernel makes this file's data when it is read; such files have no cache";
        probed.notes.push(text.into());
        return;
    }
    if size_bytes == 0 {
        probed.notes.push("nothing was measured: the file is empty; name one with data".into());
        return;
    }
    probed.observed = Some(match target.observer() {
        Observer::NoWait => Observed::Reads,
        Observer::Mapping(_) => Observed::Mincore,
        Observer::Blind => Observed::Nothing,
    });
    tell("looking what is in memory", probed);
    if evicts {
        target.release_pages(whole);
    }
    probed.in_memory_share =
        target.accepted_bytes(whole).map(|bytes| bytes as f64 / size_bytes as f64);
    let mut cold = Cold::new(target, size_bytes, ADVICE_MAX_BYTES);
    if let Some(range) = cold.next() {
        let choice = file.choice(range);
        (probed.backend, probed.why) = (choice.backend.kind(), choice.why.clone());
    }
    for backend in backends(probed) {
        tell("giving advice", probed);
        if let Some(range) = cold.next() {
            probed.advice.push(try_advice(backend, file, range));
        }
    }
    tell("reading", probed);
    probed.reads = time_reads(file, systems, &mut cold);
    if cold.is_unsure() {
        let text = match target.observer() {
            Observer::Blind => {
                "what is in memory cannot be seen here, so times may be those of memory"
            }
            _ => {
                "what was in memory before is shown to root and the file's owner only, so times may be those of memory"
            }
        };
        probed.notes.push(text.into());
    } else if probed.advice.is_empty() {
        let text = match system.is_ok_and(|system| IN_MEMORY.contains(&system)) {
            true => "nothing was measured: memory is where this file system keeps its data",
            false => {
                "no part of the file could be measured: its data is in memory; --evict drops it first"
            }
        };
        probed.notes.push(text.into());
    }
    tell("opening it again", probed);
    probed.keeps_pages = file.keeps(whole);
    if probed.keeps_pages == Some(false) {
        let text = "its pages leave memory when it is opened again, so foretell run fetches none";
        probed.notes.push(text.into());
    }
}

/// The back ends to try: the chosen one first.
fn backends(probed: &Probed) -> Vec<&'static dyn Backend> {
    let mut kinds = vec![probed.backend];
    let own = probed.is_of_foretell.then_some(BackendKind::Mount);
    for kind in [BackendKind::Posix, BackendKind::Readahead, BackendKind::ReadThrough]
        .into_iter()
        .chain(own)
    {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.into_iter().filter_map(|kind| backend::of_kind(kind).ok()).collect()
}

/// What `backend` brings of `range`, which is not in memory.
fn try_advice(backend: &dyn Backend, file: &OpenFile, range: Range) -> AdviceFigures {
    let target = file.target();
    let began = Instant::now();
    let advised = backend.fetch(target, range);
    let call = began.elapsed();
    let is_started = matches!(advised, Advised::Started);
    let mut arrived_after = (!is_started).then_some(call);
    while is_started && arrived_after.is_none() && began.elapsed() < STEP_PATIENCE {
        match target.has_arrived(range) {
            Some(true) => arrived_after = Some(began.elapsed()),
            _ => thread::sleep(LOOK_INTERVAL),
        }
    }
    let arrived_bytes = match advised {
        Advised::Failed(_) => Some(0),
        Advised::Short { length_bytes } => Some(length_bytes),
        // What was read is there, or was. A page cache tells, another cache does not.
        _ if !backend.observes_arrival(target) => None,
        // Pages are told to root and the owner only, arrival to all.
        _ => target.resident_bytes(range).or(match target.has_arrived(range) {
            Some(true) => Some(range.length_bytes),
            _ => None,
        }),
    };
    AdviceFigures {
        backend: backend.kind(),
        asked_bytes: range.length_bytes,
        call_us: figures::micros(call),
        waits_in_call: !is_started,
        arrived_bytes,
        arrived_after_us: arrived_after.map(figures::micros),
    }
}

/// Times small reads of data that is not in memory, on a descriptor of its own that the kernel does not read ahead on.
fn time_reads(file: &OpenFile, systems: &FileSystems, cold: &mut Cold<'_>) -> Option<ReadFigures> {
    let Ok(Found::File(second)) = file::find(file.path().to_owned(), systems) else { return None };
    let reader = second.target().file();
    let _ = rustix::fs::fadvise(reader, 0, None, Advice::Random);
    let (began, mut times) = (Instant::now(), Vec::new());
    let mut buffer = [0u8; READ_BYTES];
    while times.len() < READS && began.elapsed() < STEP_PATIENCE {
        let Some(range) = cold.next() else { break };
        // In the middle of the range, which begins with a page.
        let pages = range.length_bytes / page_bytes();
        let offset_bytes = range.offset_bytes + pages / 2 * page_bytes();
        let began = Instant::now();
        match reader.read_at(&mut buffer, offset_bytes) {
            Ok(1..) => times.push(began.elapsed()),
            _ => break,
        }
    }
    ReadFigures::of(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_an_empty_one_and_an_empty_folder_have_no_figures() {
        let folder = tempfile::tempdir().expect("a folder");
        let probed = probe(folder.path(), false, |_| ()).expect("a folder");
        assert!(probed.file.is_none() && probed.notes[0].contains("needs a file"), "{probed:?}");
        let path = folder.path().join("file");
        std::fs::write(&path, "").expect("written");
        let probed = probe(&path, false, |_| ()).expect("a file");
        assert!(probed.reads.is_none() && probed.notes[0].contains("is empty"), "{probed:?}");
        // Not on the disk yet, so it stays in memory.
        std::fs::write(&path, vec![7; 1_000_000]).expect("written");
        let probed = probe(folder.path(), false, |_| ()).expect("a folder");
        assert_eq!(probed.file.as_deref(), Some(&*path));
        if probed.in_memory_share.is_some() {
            assert!(probed.advice.is_empty() && probed.reads.is_none(), "{probed:?}");
            assert!(probed.notes[0].contains("in memory"), "{probed:?}");
        }
        assert_eq!(probed.keeps_pages, Some(true));
    }

    #[test]
    fn a_path_that_is_missing_or_no_file_is_an_error_with_a_way_out() {
        let error = probe(Path::new("/no/such/file"), false, |_| ()).expect_err("missing");
        assert!(error.to_string().contains("name a file or folder that is there"), "{error}");
        let error = probe(Path::new("/dev/null"), false, |_| ()).expect_err("no file");
        assert_eq!(error.to_string(), "/dev/null: neither a file nor a folder; name a file");
    }

    #[test]
    fn every_back_end_is_tried_once_and_the_chosen_one_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut probed = probe(folder.path(), false, |_| ()).expect("a folder");
        probed.backend = BackendKind::ReadThrough;
        let kinds: Vec<_> = backends(&probed).into_iter().map(Backend::kind).collect();
        assert_eq!(kinds, [BackendKind::ReadThrough, BackendKind::Posix, BackendKind::Readahead]);
    }
}
