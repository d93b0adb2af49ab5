//! Shared parts of the tests of mounts.
#![allow(dead_code, reason = "each test uses some of it")]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use foretell_cache::CacheOptions;
pub(crate) use foretell_cache::backend::conformance::content;
use foretell_cache::backend::memory::MemoryBackend;
use foretell_cache::backend::{
    Backend, BackendError, Entry, FileInfo, Found, Listing, Object, Opened, Request,
};
use foretell_mount::{MountError, StoreMount, StoreMountOptions};

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A mount in a folder of its own.
pub(crate) struct Mounted {
    mount: Option<StoreMount>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Mounted {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn unmount(mut self) -> Result<bool, MountError> {
        self.mount.take().expect("it is mounted").unmount()
    }
}

/// Whether there is FUSE; prints a message if not.
fn have_fuse() -> bool {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &opened {
        skipped(&format!("/dev/fuse: {error}"));
    }
    opened.is_ok()
}

pub(crate) fn mount_at(path: &Path, backend: Arc<dyn Backend>) -> Result<StoreMount, MountError> {
    mount_with(path, backend, (8 << 20, Duration::from_secs(1)), None)
}

fn mount_with(
    path: &Path,
    backend: Arc<dyn Backend>,
    (budget_bytes, ttl): (u64, Duration),
    timeout: Option<Duration>,
) -> Result<StoreMount, MountError> {
    let options = StoreMountOptions {
        source: "memory".into(),
        cache: CacheOptions { budget_bytes, block_bytes: 8192 },
        ttl,
        is_for_all: false,
        timeout,
        are_numbers_small: false,
    };
    StoreMount::mount(backend, path, &options, |_| {})
}

/// `None` without FUSE: the test is skipped.
pub(crate) fn mounted(backend: impl Backend) -> Option<Mounted> {
    mounted_with(Arc::new(backend), 8 << 20, Duration::from_secs(1))
}

pub(crate) fn mounted_with(
    backend: Arc<dyn Backend>,
    budget_bytes: u64,
    ttl: Duration,
) -> Option<Mounted> {
    mounted_within(backend, (budget_bytes, ttl), None)
}

/// With `timeout`, requests fail after it.
pub(crate) fn mounted_within(
    backend: Arc<dyn Backend>,
    how: (u64, Duration),
    timeout: Option<Duration>,
) -> Option<Mounted> {
    if !have_fuse() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("it is there");
    let mount = mount_with(&path, backend, how, timeout).expect("it can be mounted");
    Some(Mounted { mount: Some(mount), path, _folder: folder })
}

/// A mount of a folder for writing.
pub(crate) struct Writable {
    mount: StoreMount,
    /// The folder that is mounted.
    pub(crate) folder: PathBuf,
    _folders: [tempfile::TempDir; 2],
}

impl Writable {
    pub(crate) fn path(&self) -> &Path {
        self.mount.mountpoint()
    }
}

/// Mounts `folder`, or a new one. `None` without FUSE.
pub(crate) fn writable_of(
    folder: Option<&Path>,
    (budget_bytes, ttl): (u64, Duration),
    is_for_all: bool,
) -> Option<Writable> {
    if !have_fuse() {
        return None;
    }
    rustix::process::umask(rustix::fs::Mode::empty());
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let folder = folder.unwrap_or(folders[0].path()).canonicalize().expect("it is there");
    let options = StoreMountOptions {
        source: folder.to_string_lossy().into_owned(),
        cache: CacheOptions { budget_bytes, block_bytes: 8192 },
        ttl,
        is_for_all,
        timeout: None,
        are_numbers_small: false,
    };
    let mount = StoreMount::mount_writable((&folder, Some(4)), folders[1].path(), &options, |_| {});
    Some(Writable { mount: mount.expect("it can be mounted"), folder, _folders: folders })
}

pub(crate) fn writable(budget_bytes: u64, ttl: Duration) -> Option<Writable> {
    writable_of(None, (budget_bytes, ttl), false)
}

/// Prints that a test is skipped, bypassing the test runner, which hides the output of passing tests.
pub(crate) fn skipped(why: &str) {
    let _ = io::stderr().write_all(format!("skipped: {why}\n").as_bytes());
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A store that lists seven names at a time.
pub(crate) struct PagedBackend(pub(crate) MemoryBackend);

struct Paged(Vec<Entry>);

impl Listing for Paged {
    fn next_entries(&mut self) -> Result<Vec<Entry>, BackendError> {
        Ok(self.0.split_off(self.0.len().saturating_sub(7)))
    }
}

impl Backend for PagedBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        self.0.open(path)
    }

    fn open_found(&self, path: &str, file: &FileInfo) -> Result<Opened, BackendError> {
        self.0.open_found(path, file)
    }

    fn find(&self, path: &str) -> Result<Found, BackendError> {
        self.0.find(path)
    }

    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        let mut entries = self.0.list(path)?.next_entries()?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Box::new(Paged(entries)))
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }
}

/// A store with one file of nines, `file`. Its reads wait behind a gate.
#[derive(Clone)]
pub(crate) struct HeldBackend {
    size_bytes: u64,
    asked_bytes: Arc<AtomicU64>,
    held: Arc<(Mutex<Held>, Condvar)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Closed,
}

struct Held {
    /// Whether lookups of names other than `file` block.
    holds_names: bool,
    /// How many are blocked now.
    names_held: usize,
    /// How many there have been.
    names_asked: usize,
    gate: Gate,
    requests: Vec<HeldRequest>,
}

pub(crate) struct HeldRequest {
    pub(crate) is_demand: bool,
    request: Option<Request>,
}

impl HeldBackend {
    pub(crate) fn new(size_bytes: u64, gate: Gate) -> Self {
        let held = Arc::new((
            Mutex::new(Held {
                holds_names: false,
                names_held: 0,
                names_asked: 0,
                gate,
                requests: Vec::new(),
            }),
            Condvar::new(),
        ));
        HeldBackend { size_bytes, asked_bytes: Arc::default(), held }
    }

    pub(crate) fn asked_bytes(&self) -> u64 {
        self.asked_bytes.load(Ordering::Relaxed)
    }

    /// Waits until the held requests are as `are_so` wants them.
    pub(crate) fn wait_until(&self, are_so: impl Fn(&[HeldRequest]) -> bool) {
        let (held, changed) = &*self.held;
        let held = held.lock().unwrap();
        let (held, waited) =
            changed.wait_timeout_while(held, PATIENCE, |held| !are_so(&held.requests)).unwrap();
        assert!(!waited.timed_out(), "{} requests are held", held.requests.len());
    }

    /// Makes lookups of `absent` wait from now on.
    pub(crate) fn hold_names(&self) {
        self.held.0.lock().unwrap().holds_names = true;
    }

    pub(crate) fn names_held(&self) -> usize {
        self.held.0.lock().unwrap().names_held
    }

    /// Lets these lookups go on. Returns how many there were.
    pub(crate) fn let_names_go(&self) -> usize {
        let mut held = self.held.0.lock().unwrap();
        held.holds_names = false;
        self.held.1.notify_all();
        held.names_asked
    }

    pub(crate) fn close(&self) {
        self.held.0.lock().unwrap().gate = Gate::Closed;
    }

    pub(crate) fn open(&self) {
        loop {
            let mut held = self.held.0.lock().unwrap();
            held.gate = Gate::Open;
            let requests = std::mem::take(&mut held.requests);
            drop(held);
            self.held.1.notify_all();
            if requests.is_empty() {
                return;
            }
            for held in requests {
                serve(held.request.expect("it has not been served"));
            }
        }
    }
}

fn serve(mut request: Request) {
    request.fill(&vec![9; request.length()]);
    request.complete(Ok(()));
}

impl Backend for HeldBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        if path != "file" {
            return Err(BackendError::NotFound);
        }
        Ok(Opened {
            version: Arc::from(*b"1"),
            is_exact: true,
            size_bytes: self.size_bytes,
            object: Arc::new(self.clone()),
        })
    }

    fn find(&self, path: &str) -> Result<Found, BackendError> {
        match path {
            "" => Ok(Found::Folder),
            "file" => {
                Ok(Found::File(FileInfo { size_bytes: self.size_bytes, modified: None, tag: None }))
            }
            _ => {
                let (held, changed) = &*self.held;
                let mut held = held.lock().unwrap();
                held.names_asked += 1;
                held.names_held += 1;
                let mut held = changed.wait_while(held, |held| held.holds_names).unwrap();
                held.names_held -= 1;
                Err(BackendError::NotFound)
            }
        }
    }

    fn depth(&self) -> usize {
        16
    }
}

impl Object for HeldBackend {
    fn start(self: Arc<Self>, request: Request) {
        self.asked_bytes.fetch_add(request.length() as u64, Ordering::Relaxed);
        let (held, changed) = &*self.held;
        let mut held = held.lock().unwrap();
        if held.gate == Gate::Open {
            drop(held);
            return serve(request);
        }
        let is_demand = request.is_demand();
        held.requests.push(HeldRequest { is_demand, request: Some(request) });
        changed.notify_all();
    }
}

/// Gives a hint as `foretell_ioctl.h` does.
pub(crate) fn ioctl_hint(file: &File, ranges: &[(u64, u64)], path: &str) -> io::Result<()> {
    let words = [ranges.len() as u32, 0, path.len() as u32, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    for (offset, length) in ranges {
        bytes.extend(offset.to_ne_bytes());
        bytes.extend(length.to_ne_bytes());
    }
    bytes.extend(path.as_bytes());
    let command = 1 << 30 | (bytes.len() as u64) << 16 | 0xF7 << 8 | 1;
    // SAFETY: the command says how many bytes there are to be read.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), command, bytes.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn ioctl_cancel(file: &File) -> io::Result<()> {
    // SAFETY: the command takes no bytes.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), 0xF702) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn attribute(path: &Path, name: &str) -> io::Result<String> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, &mut value[..])?;
    Ok(String::from_utf8_lossy(&value[..length]).into_owned())
}
