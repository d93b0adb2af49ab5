//! What both file systems of this crate share: the cache, open handles, ioctls, and the folder `.foretell`.
//!
//! `.foretell` is in the root, is no part of the source, and is not listed. Its file `control` takes hints by ioctl,
//! and its file `stats` has the mount's counts.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use foretell_cache::tier::{Tiers, TiersStats};
use foretell_cache::{Cache, CachedFor, File, Order, Segment, Session, Stats, Store};
use foretell_protocol::{Ioctl, IoctlError, IoctlHint};
use fuser::{Errno, FileAttr, FileType, INodeNo, InitFlags, KernelConfig};
use serde::Serialize;

use crate::handles::{Handle, Handles};
use crate::hints::{Found, OpenControl};
use crate::inodes::{BLOCK_BYTES, CONTROL, OWN_FOLDER, STATS_FILE};
use crate::pool::Pool;
use crate::programs::Processes;
use crate::trouble::Troubles;

/// The name of the mount's own folder.
pub(crate) const OWN_NAME: &str = ".foretell";
/// Extended attributes that say what is cached of a file begin so.
pub(crate) const ATTRIBUTE_PREFIX: &str = "user.foretell.";
pub(crate) const CACHED_BYTES: &str = "cached_bytes";
pub(crate) const CACHED_RANGES: &str = "cached_ranges";
const CACHED_FOR: &str = "cached_for";
pub(crate) const OWN_NAMES: [(&str, u64); 2] = [("control", CONTROL), ("stats", STATS_FILE)];

/// How long the kernel may keep what never changes: a day.
pub(crate) const FOREVER: Duration = Duration::from_secs(24 * 3600);
/// Requests that the kernel may have in flight without a program waiting for each, mostly reads by `posix_fadvise`. Its
/// default is 12.
const BACKGROUND_MAX: u16 = 256;
/// The largest read, in bytes: the kernel's own limit for FUSE.
const READ_MAX_BYTES: u32 = 1 << 20;
/// Read buffers that are kept for use again, and the largest that is kept, in bytes: the size of the kernel's
/// read-ahead.
const BUFFERS_KEPT: usize = 32;
const BUFFER_KEPT_BYTES: usize = 128 << 10;
/// The longest value of an extended attribute, in bytes: Linux's limit.
pub(crate) const ATTRIBUTE_MAX_BYTES: usize = 64 << 10;

/// See the [module](self).
pub(crate) struct Service {
    pub(crate) cache: Cache,
    pub(crate) processes: Processes,
    pub(crate) troubles: Arc<Troubles>,
    pub(crate) handles: Handles,
    /// How long a name is believed to stand for the same object.
    pub(crate) ttl: Duration,
    tiers: Tiers,
    source: String,
    budget_bytes: u64,
    block_bytes: usize,
    began: Instant,
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// The content of `.foretell/stats`.
#[derive(Serialize)]
struct Report<'a> {
    source: &'a str,
    /// The process that serves the mount.
    pid: u32,
    uptime_s: f64,
    budget_bytes: u64,
    block_bytes: usize,
    open_handles: usize,
    known_inodes: usize,
    /// Names in listed folders that no file can have.
    names_left_out: u64,
    #[serde(flatten)]
    cache: Stats,
    #[serde(flatten)]
    tiers: TiersStats,
    troubles: Vec<Trouble>,
}

#[derive(Serialize)]
struct Trouble {
    seconds_ago: f64,
    what: String,
}

impl Service {
    pub(crate) fn new(
        (cache, store, tiers): (Cache, Store, Tiers),
        troubles: Arc<Troubles>,
        (source, ttl): (String, Duration),
        (budget_bytes, block_bytes): (u64, usize),
    ) -> Self {
        Service {
            cache,
            processes: Processes::new(store),
            troubles,
            handles: Handles::default(),
            ttl,
            tiers,
            source,
            budget_bytes,
            block_bytes,
            began: Instant::now(),
            buffers: Mutex::default(),
        }
    }

    /// The content of `.foretell/stats`: JSON and a line feed.
    pub(crate) fn report(&self, known_inodes: usize) -> Vec<u8> {
        let troubles = self.troubles.last().into_iter();
        let report = Report {
            source: &self.source,
            pid: std::process::id(),
            uptime_s: self.began.elapsed().as_secs_f64(),
            budget_bytes: self.budget_bytes,
            block_bytes: self.block_bytes,
            open_handles: self.handles.count(),
            known_inodes,
            names_left_out: self.troubles.names_left_out(),
            cache: self.cache.stats(),
            tiers: self.tiers.stats(),
            troubles: troubles.map(|(seconds_ago, what)| Trouble { seconds_ago, what }).collect(),
        };
        let mut text = serde_json::to_vec_pretty(&report).expect("invariant: all keys are strings");
        text.push(b'\n');
        text
    }

    pub(crate) fn buffer(&self, length: usize) -> Vec<u8> {
        let kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = kept.unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    pub(crate) fn keep(&self, buffer: Vec<u8>) {
        let mut kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < BUFFERS_KEPT && buffer.capacity() <= BUFFER_KEPT_BYTES {
            kept.push(buffer);
        }
    }

    /// Asks the kernel for settings, and for the capabilities `more`. The kernel replaces a setting that it refuses by
    /// the nearest possible one; none is vital.
    pub(crate) fn configure(config: &mut KernelConfig, more: InitFlags) {
        config.set_max_background(BACKGROUND_MAX).ok();
        config.set_congestion_threshold(BACKGROUND_MAX).ok();
        config.set_max_write(READ_MAX_BYTES).ok();
        for wish in (InitFlags::FUSE_PARALLEL_DIROPS | more).iter() {
            config.add_capabilities(wish).ok();
        }
    }

    /// Looks up `name` if it is `.foretell` in the root, or in the folder `.foretell`. `None` for all other names.
    pub(crate) fn find_own(
        parent: u64,
        is_root: bool,
        name: &OsStr,
    ) -> Option<Result<FileAttr, Errno>> {
        if is_root && name == OWN_NAME {
            return Self::own_attributes(OWN_FOLDER).map(Ok);
        }
        if parent != OWN_FOLDER {
            return None;
        }
        let found = OWN_NAMES.iter().find(|(own, _)| name == *own);
        let attributes = found.and_then(|&(_, number)| Self::own_attributes(number));
        Some(attributes.ok_or(Errno::ENOENT))
    }

    /// Attributes of `.foretell` and its files.
    pub(crate) fn own_attributes(number: u64) -> Option<FileAttr> {
        let (kind, perm) = match number {
            OWN_FOLDER => (FileType::Directory, 0o555),
            CONTROL | STATS_FILE => (FileType::RegularFile, 0o444),
            _ => return None,
        };
        let time = SystemTime::now();
        Some(FileAttr {
            ino: INodeNo(number),
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }

    /// Opens a file of `.foretell` for a thread of a program.
    pub(crate) fn open_own(&self, number: u64, thread: u32, known_inodes: usize) -> Option<Handle> {
        match number {
            STATS_FILE => Some(Handle::Text(self.report(known_inodes))),
            CONTROL => {
                let control = OpenControl::new(self.processes.program(thread));
                Some(Handle::Control(Arc::new(control)))
            }
            _ => None,
        }
    }

    /// Carries out an ioctl on a handle. For a hint by name, `open_path` opens the file, on a thread of `pool`.
    pub(crate) fn ioctl(
        &self,
        handle: &Handle,
        (command, bytes): (u32, &[u8]),
        pool: &Pool,
        open_path: impl FnOnce(&str, &Session) -> Option<Arc<File>> + Send + 'static,
    ) -> Result<(), Errno> {
        match (Ioctl::decode(command, bytes), handle.open_file(), handle) {
            (Ok(Ioctl::Hint(hint)), ..) => self.hint(handle, hint, pool, open_path),
            (Ok(Ioctl::Cancel), Some(open), _) => {
                open.cancel();
                Ok(())
            }
            (Ok(Ioctl::Cancel), None, Handle::Control(control)) => {
                control.cancel();
                Ok(())
            }
            (Ok(Ioctl::Cancel), ..) | (Err(IoctlError::Unknown), ..) => Err(Errno::ENOTTY),
            (Err(IoctlError::Malformed), ..) => Err(Errno::EINVAL),
        }
    }

    fn hint(
        &self,
        handle: &Handle,
        hint: IoctlHint,
        pool: &Pool,
        open_path: impl FnOnce(&str, &Session) -> Option<Arc<File>> + Send + 'static,
    ) -> Result<(), Errno> {
        let segment = |segment: &foretell_protocol::Segment| Segment {
            offset_bytes: segment.offset_bytes,
            length_bytes: segment.length_bytes,
        };
        let segments: Vec<Segment> = hint.segments.iter().map(segment).collect();
        let order = if hint.any_order { Order::Any } else { Order::Given };
        match (handle.open_file(), handle) {
            (Some(open), _) if hint.path.is_empty() => {
                open.hint(&segments, order).then_some(()).ok_or(Errno::EAGAIN)?;
            }
            (None, Handle::Control(control)) if !hint.path.is_empty() => {
                let path = String::from_utf8(hint.path).map_err(|_| Errno::ENOENT)?;
                let control = Arc::clone(control);
                let (place, queued) = control.place(&path, &segments).ok_or(Errno::EAGAIN)?;
                pool.run_later(move || {
                    if control.is_wanted(place) {
                        let file = open_path(&path, &control.program.session);
                        control.found(place, Found { file, segments, order, queued });
                    }
                });
            }
            (Some(_), _) | (None, Handle::Control(_)) => return Err(Errno::EINVAL),
            (None, _) => return Err(Errno::ENOTTY),
        }
        Ok(())
    }
}

/// The value of an extended attribute that says what is cached of a file, and why. `None` if there is no such
/// attribute.
pub(crate) fn text_of_cached(name: &str, file: &File) -> Option<String> {
    let cached = file.cached();
    match name {
        CACHED_FOR => {
            let CachedFor { expected_bytes, recent_bytes, consumed_bytes } = file.cached_for();
            Some(format!("expected={expected_bytes} recent={recent_bytes} read={consumed_bytes}"))
        }
        CACHED_BYTES => {
            Some(cached.iter().map(|range| range.end - range.start).sum::<u64>().to_string())
        }
        CACHED_RANGES => {
            let mut text = String::new();
            for range in cached {
                let next = format!("{}-{}", range.start, range.end);
                if text.len() + 1 + next.len() + 4 > ATTRIBUTE_MAX_BYTES {
                    text.push_str(" ...");
                    break;
                }
                text.push_str(if text.is_empty() { "" } else { " " });
                text.push_str(&next);
            }
            Some(text)
        }
        _ => None,
    }
}

/// The name of an attribute that says what is cached, without the common prefix.
pub(crate) fn name_of_cached(name: &OsStr) -> Option<&str> {
    let name = name.to_str().and_then(|name| name.strip_prefix(ATTRIBUTE_PREFIX))?;
    matches!(name, CACHED_BYTES | CACHED_RANGES | CACHED_FOR).then_some(name)
}
