//! Samples of one process: how much it has read, and where it is in its open files.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use foretell_policy::FileId;

use super::files::{
    Folder, delayed, descriptor_info, identity, numbers, processor_time, read_bytes, read_short,
};
use super::positions::{OpenFile, Positions};
use super::{Sighting, Times};
use crate::driver::file::file_id;

/// Open files of a process that are looked at. A process with more shows some of them.
pub(super) const FILES_MAX: usize = 512;

/// A descriptor that was no regular file open for reading is looked at again after this many looks: it may be another one by
/// then. Most such descriptors are terminals, pipes and sockets, which stay.
const OTHERS_LOOKS: u32 = 8;

/// Descriptors that a watched process takes.
pub(super) const DESCRIPTORS_EACH: usize = 4;

/// A process that is looked at; see the [module](self).
#[derive(Debug)]
pub(super) struct Watched {
    process: u64,
    counts: OwnedFd,
    descriptors: OwnedFd,
    infos: OwnedFd,
    /// What each descriptor was when it was looked at last: mount and inode, and the file if it is a regular one.
    files: HashMap<u32, ((u64, u64), Option<FileId>)>,
    positions: Positions,
    read_bytes: Option<u64>,
    schedule: Option<OwnedFd>,
    /// When it was seen to read last, and the time that it had run or waited for a processor by then.
    seen: (Instant, Duration),
    /// The processor's time that it had used at the last look.
    ran: Duration,
    looks: u32,
    /// Files that were opened since the last sighting, with their paths.
    opened: Vec<(FileId, PathBuf)>,
    buffer: Vec<u8>,
    numbers: Vec<u32>,
}

impl Watched {
    /// `None` if the process has ended, or may not be looked at.
    pub(super) fn new(process: u64, folder: &Folder) -> Option<Self> {
        Some(Watched {
            process,
            counts: folder.open("io")?,
            descriptors: folder.open("fd")?,
            infos: folder.open("fdinfo")?,
            files: HashMap::new(),
            positions: Positions::default(),
            read_bytes: None,
            schedule: folder.open("schedstat"),
            seen: (Instant::now(), Duration::ZERO),
            ran: Duration::ZERO,
            looks: 0,
            opened: Vec::new(),
            buffer: Vec::new(),
            numbers: Vec::new(),
        })
    }

    pub(super) fn process(&self) -> u64 {
        self.process
    }

    /// What has changed since the last look. `is_inside` ends it. A look at a process that has neither read anything nor run is
    /// two system calls.
    pub(super) fn look(&mut self, is_inside: bool) -> Option<Sighting> {
        let text = read_short(&self.counts, &mut self.buffer);
        let Some(read_bytes) = text.and_then(read_bytes).filter(|_| !is_inside) else {
            let (progress, time, opened) = Default::default();
            let (process, has_ended) = (self.process, true);
            return Some(Sighting { process, progress, time, opened, has_ended });
        };
        let before = self.read_bytes.replace(read_bytes);
        let ran = processor_time(self.process);
        let has_run = std::mem::replace(&mut self.ran, ran) != ran;
        let has_read = before != Some(read_bytes);
        if !has_read && !has_run {
            return None;
        }
        let open = self.open_files();
        if !has_read && self.positions.has_all(&open) {
            return None;
        }
        let progress = self.positions.advance(read_bytes, open);
        let time = self.times(before.is_none());
        let (process, opened) = (self.process, std::mem::take(&mut self.opened));
        Some(Sighting { process, progress, time, opened, has_ended: false })
    }

    /// How it has spent the time since the last call. Of several threads, only the first one's waiting for a processor is
    /// known.
    fn times(&mut self, is_first: bool) -> Times {
        let schedule = self.schedule.as_ref();
        let delayed = schedule
            .and_then(|file| read_short(file, &mut self.buffer))
            .and_then(delayed)
            .unwrap_or_default();
        let (now, busy) = (Instant::now(), self.ran + delayed);
        let (then, was_busy) = std::mem::replace(&mut self.seen, (now, busy));
        if is_first {
            return Times::default();
        }
        let span = now - then;
        Times { span, waited: span.saturating_sub(busy.saturating_sub(was_busy)) }
    }

    /// The regular files that are open for reading.
    fn open_files(&mut self) -> Vec<OpenFile> {
        numbers(&self.infos, FILES_MAX, &mut self.numbers);
        let mut open = Vec::new();
        self.looks = self.looks.wrapping_add(1);
        for &number in &self.numbers {
            let is_other = self.files.get(&number).is_some_and(|&(_, id)| id.is_none());
            if is_other && !self.looks.is_multiple_of(OTHERS_LOOKS) {
                continue;
            }
            let name = number.to_string();
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            let Ok(info) = rustix::fs::openat(&self.infos, &name, flags, rustix::fs::Mode::empty())
            else {
                continue; // It was closed.
            };
            let info = read_short(&info, &mut self.buffer).and_then(descriptor_info);
            let Some(info) = info else { continue };
            let known = self.files.get(&number);
            let known = known.filter(|&&(file, _)| Some(file) == info.file).map(|&(_, id)| id);
            let id = known.unwrap_or_else(|| {
                let known = identity(&self.descriptors, &name);
                let regular = known.filter(|(kind, ..)| kind.is_file() && info.is_read);
                let id = regular.map(|(_, device, inode)| file_id(device, inode));
                self.opened
                    .extend(id.and_then(|id| Some((id, path_of(&self.descriptors, &name)?))));
                if let Some(file) = info.file {
                    self.files.insert(number, (file, id));
                }
                id
            });
            open.extend(id.map(|file| OpenFile { number, file, position: info.position }));
        }
        if self.files.len() > FILES_MAX * 2 {
            self.files.clear();
        }
        open
    }
}

/// The path of an open file, from the kernel's memory.
fn path_of(descriptors: &OwnedFd, name: &str) -> Option<PathBuf> {
    let path = rustix::fs::readlinkat(descriptors, name, Vec::new()).ok()?.into_bytes();
    Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_reads_of_this_process_are_seen() {
        let path = std::env::temp_dir().join(format!("foretell-samples-{}", std::process::id()));
        std::fs::write(&path, [1; 50_000]).expect("written");
        let mut file = File::open(&path).expect("it is there");
        let id = file.metadata().map(|known| file_id(known.dev(), known.ino())).expect("known");
        let folder = Folder::of(std::process::id().into()).expect("it is there");
        let mut watched = Watched::new(std::process::id().into(), &folder).expect("its own");
        assert!(watched.look(false).is_some(), "the first");
        file.read_exact(&mut [0; 20_000]).expect("read");
        let sighting = watched.look(false).expect("it has read");
        let of_file: Vec<_> =
            sighting.progress.reads.iter().filter(|read| read.file == id).collect();
        assert_eq!(of_file.len(), 1, "{sighting:?}");
        assert_eq!((of_file[0].offset_bytes, of_file[0].length_bytes), (0, 20_000));
        assert!(watched.look(true).expect("the last").has_ended);
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = std::process::Command::new("true").spawn().expect("it runs");
        let folder = Folder::of(child.id().into()).expect("it is there");
        let mut watched = Watched::new(child.id().into(), &folder).expect("it is there");
        child.wait().expect("it ends");
        assert!(watched.look(false).expect("the last").has_ended);
    }
}
