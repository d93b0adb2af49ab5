//! One mapping of a process: which file it is of, which pages of it are present, and the order in which it is touched.
//!
//! A look scans the parts that are not known to be wholly present. A mapping in which nothing is new is looked at more and more
//! rarely.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use foretell_policy::FileId;
use foretell_protocol::AdviceKind;
use rustix::fs::{AtFlags, StatxFlags};

use super::Looker;
use crate::driver::file::file_id;
use crate::driver::residency::page_bytes;
use crate::lineage::ProcessId;
use crate::observer::Observation;
use crate::observer::maps::Mapping;
use crate::observer::order::{Order, Verdict};
use crate::observer::presence::Presence;

/// Parts that are known to be wholly present are looked at after this time: the kernel may have taken pages away.
const COMPLETE_BELIEVED: Duration = Duration::from_secs(1);

/// A mapping in which nothing was new is scanned at one look in `2^IDLE_STEP`, and later at one in `2^IDLE_MAX`: most mappings
/// of most programs are libraries that are touched at the start.
const IDLE_STEP: u32 = 2;
const IDLE_MAX: u32 = 4;

/// A mapping of a file.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) number: u64,
    pub(super) mapping: Mapping,
    /// `None` if it is not of a regular file, or the path means another file.
    pub(super) file: Option<KnownFile>,
    presence: Presence,
    pub(super) order: Order,
    /// It is scanned at one look in two to the power of this.
    pub(super) idle: u32,
    /// Whether its order was told, and not yet its end.
    pub(super) is_begun: bool,
    complete_at: Instant,
    /// When something new was seen last.
    pub(super) touched_at: Instant,
    /// Where the order begins that is to be told.
    pub(super) begins_at: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct KnownFile {
    pub(super) id: FileId,
    size_bytes: u64,
}

/// The file of a mapping, if its path means that file, and it is a regular one. It does not ask a server.
pub(super) fn identify(mapping: &Mapping) -> Option<KnownFile> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE;
    let path: &Path = &mapping.path;
    let told = rustix::fs::statx(rustix::fs::CWD, path, flags, wanted).ok()?;
    let is_regular = u32::from(told.stx_mode) & libc::S_IFMT == libc::S_IFREG;
    // The device's number may be another one here: btrfs and overlayfs show those of the file system below.
    (is_regular && told.stx_ino == mapping.inode).then(|| {
        let device = rustix::fs::makedev(told.stx_dev_major, told.stx_dev_minor);
        KnownFile { id: file_id(device, told.stx_ino), size_bytes: told.stx_size }
    })
}

/// Where in the file a mapping ends. The file may end before.
fn end_in_file(mapping: &Mapping, file: Option<KnownFile>) -> u64 {
    let end = mapping.offset_bytes.saturating_add(mapping.end - mapping.start);
    file.map_or(0, |file| end.min(file.size_bytes))
}

impl Known {
    pub(super) fn new(
        number: u64,
        mapping: Mapping,
        file: Option<KnownFile>,
        now: Instant,
    ) -> Self {
        let (presence, order) = (Presence::default(), Order::new(end_in_file(&mapping, file)));
        Known {
            number,
            mapping,
            file,
            presence,
            order,
            idle: 0,
            is_begun: false,
            complete_at: now,
            touched_at: now,
            begins_at: None,
        }
    }

    pub(super) fn is_same_as(&self, mapping: &Mapping) -> bool {
        self.mapping.start == mapping.start
            && self.mapping.offset_bytes == mapping.offset_bytes
            && self.mapping.is_of_the_same_file_as(mapping)
    }

    pub(super) fn resized(mut self, mapping: Mapping) -> Self {
        self.order.ends_at(end_in_file(&mapping, self.file));
        Known { mapping, ..self }
    }

    /// Takes what the program has said about the order in which it will touch a `part`.
    pub(super) fn take_order(
        &mut self,
        kind: AdviceKind,
        part: Range<u64>,
        process: ProcessId,
        looker: &mut Looker<'_>,
    ) {
        let mapping = self.number;
        let Some(file) = self.file else { return };
        match kind {
            AdviceKind::Sequential if self.order.said_sequential(&part) => {
                (self.is_begun, self.touched_at) = (true, looker.now);
                let (file, path) = (file.id, self.mapping.path.clone());
                looker.seen.push(Observation::Begins { process, mapping, file, path, range: part });
            }
            AdviceKind::Random if self.order.said_random(&part) => {
                self.is_begun = false;
                looker.seen.push(Observation::Ends { process, mapping });
            }
            AdviceKind::Normal => self.order.said_normal(&part),
            _ => {}
        }
    }

    /// Looks for pages that are new, and tells what they say. Returns whether there are any.
    pub(super) fn look(
        &mut self,
        pagemap: &File,
        of: (ProcessId, bool),
        looker: &mut Looker<'_>,
    ) -> bool {
        let Some(file) = self.file else { return false };
        let pages = (self.mapping.end - self.mapping.start) / page_bytes();
        let is_over = looker.now.saturating_duration_since(self.complete_at) >= COMPLETE_BELIEVED;
        let parts = if is_over {
            self.complete_at = looker.now;
            Presence::default().incomplete(pages)
        } else {
            self.presence.incomplete(pages)
        };
        let (start, mut new) = (self.mapping.start, Vec::new());
        for part in parts {
            let mut present: Vec<Range<u64>> = Vec::new();
            let address = |page: u64| (start + page * page_bytes()).min(self.mapping.end);
            let addresses = address(part.start)..address(part.end);
            let scanned = looker.scanner.scan(pagemap, addresses, |range| {
                let page = |address: u64| (address - start) / page_bytes();
                present.push(page(range.start)..page(range.end));
            });
            if scanned.is_err() {
                return false;
            }
            self.presence.update(part, &present, &mut new);
        }
        self.idle = if new.is_empty() { (self.idle + IDLE_STEP).min(IDLE_MAX) } else { 0 };
        self.tell(file, &new, of, looker);
        !new.is_empty()
    }

    fn tell(
        &mut self,
        file: KnownFile,
        new: &[Range<u64>],
        (process, waited): (ProcessId, bool),
        looker: &mut Looker<'_>,
    ) {
        let offset = |page: u64| self.mapping.offset_bytes.saturating_add(page * page_bytes());
        let ranges: Vec<Range<u64>> = new
            .iter()
            .map(|pages| offset(pages.start)..offset(pages.end).min(file.size_bytes))
            .filter(|range| !range.is_empty())
            .collect();
        if ranges.is_empty() {
            return;
        }
        self.touched_at = looker.now;
        let (file, mapping) = (file.id, self.number);
        let verdict = self.order.note(&ranges, waited);
        if looker.is_busy {
            let path = self.mapping.path.clone();
            looker.seen.push(Observation::Touched { process, file, path, ranges, waited: None });
        }
        match verdict {
            Some(Verdict::Begins(from_bytes)) => self.begins_at = Some(from_bytes),
            Some(Verdict::Ends) => {
                self.is_begun = false;
                looker.seen.push(Observation::Ends { process, mapping });
            }
            None => {}
        }
    }
}
