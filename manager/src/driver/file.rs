//! Files that are being prefetched: looked up, opened, advised, observed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use foretell_policy::FileId;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::backend::choice::{self, Choice};
use super::backend::{Advised, Backend, BackendKind, Target};
use super::keeping::{self, FileSystem, FileSystems};
use super::residency::{self, Range};

/// A file that is open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    target: Target,
    path: PathBuf,
    id: FileId,
    system: Arc<FileSystem>,
    /// How long the lookup and open of the file took.
    opened_in: Duration,
}

/// A file to be prefetched. If it is closed, its first use opens it again, on a device thread.
#[derive(Debug)]
pub(crate) struct Handle {
    path: PathBuf,
    id: FileId,
    systems: Arc<FileSystems>,
    open: OnceLock<Result<OpenFile, io::ErrorKind>>,
}

/// What a name turned out to be.
#[derive(Debug)]
pub(crate) enum Found {
    /// A regular file.
    File(OpenFile),
    /// A folder.
    Folder,
    /// A pipe, a socket, a device: nothing to prefetch.
    Other,
}

/// Where a started fetch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// On its way, as far as can be told.
    Waiting,
    /// All of it is in memory.
    Arrived,
    /// The file has become shorter; `length_bytes` of the range still exist.
    Short { length_bytes: u64 },
}

/// The policy's name for the file of these numbers.
///
/// Programs report reads by device and inode number. A hash of the two into 64 bits needs no table that would have to be
/// pruned. Two files with the same hash (one chance in 2⁶⁴ for a pair) share their accounting, and nothing else.
pub(crate) fn file_id(device: u64, inode: u64) -> FileId {
    // The finalizer of SplitMix64, once a word.
    fn mix(mut word: u64) -> u64 {
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
    FileId(mix(mix(device).wrapping_add(0x9e37_79b9_7f4a_7c15) ^ inode))
}

/// Looks `path` up and opens it if it is a regular file.
///
/// The name is opened with `O_PATH` first, since opening a pipe or a device for reading has effects. The file is then opened
/// for reading through that descriptor. Another file may have taken the name meanwhile.
///
/// # Errors
/// * The error of the lookup.
/// * `Unsupported` where /proc is missing, since a descriptor cannot be opened again without it.
/// * An error for a file on a file system that is known to [forget](super::keeping).
pub(crate) fn find(path: PathBuf, systems: &FileSystems) -> io::Result<Found> {
    let began = Instant::now();
    let handle =
        File::from(rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    let metadata = handle.metadata()?;
    if metadata.is_dir() {
        return Ok(Found::Folder);
    }
    if !metadata.is_file() {
        return Ok(Found::Other);
    }
    let system = systems.of(metadata.dev(), &handle);
    if system.forgets() {
        return Err(keeping::forgotten());
    }
    let owner_uid = metadata.uid();
    let target = Target::new(open_again(&handle, owner_uid)?, metadata.len(), owner_uid);
    let id = file_id(metadata.dev(), metadata.ino());
    Ok(Found::File(OpenFile { target, path, id, system, opened_in: began.elapsed() }))
}

/// Opens the file behind `handle` for reading, whatever its name means by now. For root and the file's owner, reading it leaves
/// its access time alone; others may not ask for that.
fn open_again(handle: &File, owner_uid: u32) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let descriptors = descriptors().ok_or(io::ErrorKind::Unsupported)?;
    let number = handle.as_raw_fd().to_string();
    let open = |flags| rustix::fs::openat(descriptors, &number, flags, Mode::empty());
    let user = rustix::process::geteuid();
    if user.is_root() || user.as_raw() == owner_uid {
        match open(flags | OFlags::NOATIME) {
            // Root does not have all rights on every file system, and a file system may not know the flag.
            Err(Errno::PERM | Errno::INVAL) => {}
            file => return Ok(File::from(file?)),
        }
    }
    Ok(File::from(open(flags)?))
}

/// The folder in which each descriptor of this process has a link to its file.
fn descriptors() -> Option<BorrowedFd<'static>> {
    static FOLDER: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let open = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok()?;
        // Another folder, with any links in it, may be mounted in its place.
        let kind = rustix::fs::fstatfs(&folder).ok()?.f_type;
        (kind == libc::PROC_SUPER_MAGIC).then_some(folder)
    };
    FOLDER.get_or_init(open).as_ref().map(AsFd::as_fd)
}

impl Handle {
    /// A handle of an open file.
    pub(crate) fn opened(file: OpenFile, systems: Arc<FileSystems>) -> Self {
        Handle { path: file.path.clone(), id: file.id, systems, open: OnceLock::from(Ok(file)) }
    }

    /// A handle of a file that is not open.
    pub(crate) fn closed(path: PathBuf, id: FileId, systems: Arc<FileSystems>) -> Self {
        Handle { path, id, systems, open: OnceLock::new() }
    }

    /// The file, opened if it is not. May wait for the device. If another file has taken the name meanwhile, that one is not
    /// opened.
    fn open(&self) -> io::Result<&OpenFile> {
        let open = || match find(self.path.clone(), &self.systems).map_err(|error| error.kind())? {
            Found::File(file) if file.id == self.id => Ok(file),
            _ => Err(io::ErrorKind::NotFound),
        };
        self.open.get_or_init(open).as_ref().map_err(|&kind| kind.into())
    }

    fn if_open(&self) -> Option<&OpenFile> {
        self.open.get()?.as_ref().ok()
    }

    /// Whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.if_open().is_some()
    }

    /// How long opening it took, if it is open and may be wanted again.
    pub(crate) fn opened_in(&self) -> Option<Duration> {
        self.if_open().filter(|file| !file.system.forgets()).map(|file| file.opened_in)
    }

    /// Whether the kernel says that it has dropped a part of `range` whose fetch it had begun. Does not wait.
    pub(crate) fn has_lost(&self, range: Range) -> bool {
        let file = self.if_open();
        let accepted_bytes = file.and_then(|file| file.target.accepted_bytes(range));
        accepted_bytes.is_some_and(|accepted_bytes| accepted_bytes < range.length_bytes)
    }

    /// See [`OpenFile::advise`].
    pub(crate) fn advise(&self, range: Range, asked: BackendKind) -> Advised {
        self.open().map_or_else(Advised::Failed, |file| file.advise(range, asked))
    }

    /// See [`OpenFile::state`]. A file that is not open counts as waiting.
    pub(crate) fn state(&self, range: Range) -> State {
        self.if_open().map_or(State::Waiting, |file| file.state(range))
    }

    /// Whether a release needs no waiting.
    pub(crate) fn releases_at_once(&self, asked: BackendKind) -> bool {
        self.if_open().is_some_and(|file| !file.releases_by(asked).release_waits())
    }

    /// See [`Backend::release`]. May wait for the device unless it [releases at once](Self::releases_at_once).
    pub(crate) fn release(&self, range: Range, asked: BackendKind) {
        if let Ok(file) = self.open() {
            file.releases_by(asked).release(&file.target, range);
        }
    }
}

impl OpenFile {
    /// The name by which it was found.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The policy's name for it.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// How long its lookup and open took.
    pub(crate) fn opened_in(&self) -> Duration {
        self.opened_in
    }

    /// Its size when it was opened.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.target.size_bytes()
    }

    /// The open file itself.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Its file system's own back end, with the reason. It may be tried with `range`.
    pub(crate) fn choice(&self, range: Range) -> &Choice {
        self.system.choice(|| choice::takes_advice(&self.target, range))
    }

    /// Whether its pages stay in memory when it is opened again, tried with the first page of `range` if its file system is
    /// one that may drop them. `None` if this file cannot tell.
    pub(crate) fn keeps(&self, range: Range) -> Option<bool> {
        let mut told = Some(true);
        let keeps = self.system.keeps(|| {
            told = self.probe(range);
            told
        });
        told.map(|_| keeps)
    }

    /// Has `range` fetched by the back end that is `asked` for. May wait for the device's queue. Where the kernel takes no
    /// advice or arrival cannot be observed, it waits for the data itself.
    fn advise(&self, range: Range, asked: BackendKind) -> Advised {
        match self.target.clip(range, AtFlags::STATX_SYNC_AS_STAT) {
            Err(error) => Advised::Failed(error),
            // Nothing is asked for: a back end may take a length of 0 for all of the file.
            Ok(existing) if existing == range && range.length_bytes == 0 => Advised::AlreadyCached,
            Ok(existing) if existing == range => self.advise_existing(range, asked),
            Ok(existing) if existing.length_bytes == 0 => Advised::Short { length_bytes: 0 },
            Ok(existing) => match self.target.read_through(existing) {
                Advised::Fetched => Advised::Short { length_bytes: existing.length_bytes },
                other => other,
            },
        }
    }

    /// Where the fetch of `range` stands. Never waits.
    fn state(&self, range: Range) -> State {
        // The size first: pages beyond a new end may linger in a large folio.
        match self.target.clip(range, AtFlags::STATX_DONT_SYNC) {
            Ok(existing) if existing != range => {
                State::Short { length_bytes: existing.length_bytes }
            }
            _ if self.target.has_arrived(range) == Some(true) => State::Arrived,
            _ => State::Waiting,
        }
    }

    fn advise_existing(&self, range: Range, asked: BackendKind) -> Advised {
        if !self.system.keeps(|| self.probe(range)) {
            return Advised::Failed(keeping::forgotten());
        }
        let backend = self.system.backend(asked, || choice::takes_advice(&self.target, range));
        backend.fetch(&self.target, range)
    }

    /// What carries out its releases.
    fn releases_by(&self, asked: BackendKind) -> &'static dyn Backend {
        self.system.backend_so_far(asked)
    }

    /// Whether this file's pages stay in memory when it is opened again, tried with the first page of `range`. `None` if
    /// residency cannot be observed, or the file system keeps no pages at all.
    fn probe(&self, range: Range) -> Option<bool> {
        let first =
            Range { length_bytes: range.length_bytes.min(residency::page_bytes()), ..range };
        let _ = self.target.read_through(first);
        self.target.has_arrived(first).filter(|&arrived| arrived)?;
        let _second = open_again(self.target.file(), self.target.owner_uid()).ok()?;
        self.target.has_arrived(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset_bytes: u64, length_bytes: u64) -> Range {
        Range { offset_bytes, length_bytes }
    }

    fn found(path: &Path) -> OpenFile {
        match find(path.into(), &FileSystems::default()).expect("it can be opened") {
            Found::File(file) => file,
            other => panic!("{other:?} is no file"),
        }
    }

    #[test]
    fn pages_in_memory_need_no_fetch_and_a_shorter_file_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1u8; 50_000]).expect("written");
        let file = found(&path);
        assert_eq!(file.size_bytes(), 50_000);
        assert!(matches!(file.advise(range(0, 50_000), BackendKind::Auto), Advised::AlreadyCached));
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|writer| writer.set_len(10_000))
            .expect("truncated");
        assert!(matches!(
            file.advise(range(0, 50_000), BackendKind::Auto),
            Advised::Short { length_bytes: 10_000 }
        ));
        assert!(matches!(
            file.advise(range(20_000, 10), BackendKind::Auto),
            Advised::Short { length_bytes: 0 }
        ));
        assert_eq!(file.state(range(8_192, 8_192)), State::Short { length_bytes: 1_808 });
    }

    #[test]
    fn the_access_time_of_an_own_file_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1u8; 50_000]).expect("written");
        // Older than the last change: a read sets it, unless reads leave access times alone.
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let times = std::fs::FileTimes::new().set_accessed(long_ago);
        let writer = File::options().write(true).open(&path).expect("opened");
        writer.set_times(times).expect("set");
        let file = found(&path);
        assert!(matches!(file.advise(range(0, 50_000), BackendKind::Auto), Advised::AlreadyCached));
        assert!(matches!(file.target.read_through(range(0, 50_000)), Advised::Fetched));
        let metadata = writer.metadata().expect("its owner asks");
        assert_eq!(metadata.accessed().expect("known"), long_ago);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let systems = FileSystems::default();
        let folder = tempfile::tempdir().expect("a folder");
        assert!(matches!(find(folder.path().into(), &systems), Ok(Found::Folder)));
        assert!(matches!(find("/dev/null".into(), &systems), Ok(Found::Other)));
        let missing = find(folder.path().join("missing"), &systems).expect_err("there is none");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_opened_again_only_as_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1u8; 50_000]).expect("written");
        let id = found(&path).id();
        let same = Handle::closed(path.clone(), id, Arc::default());
        assert!(!same.is_open());
        assert!(matches!(same.advise(range(0, 50_000), BackendKind::Auto), Advised::AlreadyCached));
        assert!(same.is_open() && same.opened_in().is_some_and(|time| time > Duration::ZERO));
        let other = folder.path().join("other");
        std::fs::write(&other, vec![2u8; 50_000]).expect("written");
        std::fs::rename(&other, &path).expect("renamed");
        let replaced = Handle::closed(path, id, Arc::default());
        let Advised::Failed(error) = replaced.advise(range(0, 50_000), BackendKind::Auto) else {
            panic!("opened")
        };
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    /// A name alternates between a file and a pipe while it is looked up. The pipe is never opened for reading: opening it for
    /// writing never succeeds.
    #[test]
    fn what_was_looked_at_is_what_is_opened() {
        use rustix::fs::{CWD, FileType, RenameFlags};
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().expect("a folder");
        let [name, pipe] = ["name", "pipe"].map(|name| folder.path().join(name));
        std::fs::write(&name, "data").expect("written");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
        let (turns, opened) = (AtomicBool::new(true), AtomicBool::new(false));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while turns.load(Ordering::Relaxed) {
                    let _ =
                        rustix::fs::renameat_with(CWD, &name, CWD, &pipe, RenameFlags::EXCHANGE);
                }
            });
            // Opening a pipe to write, without waiting, succeeds only while it is open to be read.
            let (turns, opened) = (&turns, &opened);
            for path in [&name, &pipe] {
                threads.spawn(move || {
                    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    while turns.load(Ordering::Relaxed) {
                        let writer = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
                        let metadata = writer.ok().and_then(|writer| writer.metadata().ok());
                        let is_pipe = metadata.is_some_and(|metadata| !metadata.is_file());
                        opened.fetch_or(is_pipe, Ordering::Relaxed);
                    }
                });
            }
            let (systems, mut kinds) = (FileSystems::default(), [0, 0]);
            for _ in 0..200_000 {
                match find(name.clone(), &systems) {
                    Ok(Found::File(_)) => kinds[0] += 1,
                    _ => kinds[1] += 1,
                }
            }
            turns.store(false, Ordering::Relaxed);
            assert!(kinds.iter().all(|&times| times > 0), "{kinds:?}: it has never changed");
        });
        assert!(!opened.load(Ordering::Relaxed), "the pipe was opened for reading");
    }

    #[test]
    fn every_name_of_a_file_gives_one_identity() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, "x").expect("written");
        std::fs::hard_link(&one, &two).expect("linked");
        assert_eq!(found(&one).id(), found(&two).id());
        assert_ne!(file_id(1, 2), file_id(2, 1));
    }
}
