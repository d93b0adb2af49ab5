//! One process, as it is seen from outside.
//!
//! A look at a process reads `/proc/PID/stat`. Its counts of page faults say whether there is anything to see: pages become
//! present by faults alone. Only if there is are the mappings of files scanned. The list of mappings is read again when the
//! size of the process's memory has changed, and now and then.
//!
//! Advice of the process about its memory has the list of mappings read at once, since addresses mean what they meant then for
//! a short time only.
//!
//! A process is known by its number and the time of its start, so that a later process with the number is not taken for it. All
//! files of a look are opened from one descriptor of `/proc/PID`, which stays with the process.

mod known;

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use foretell_protocol::AdviceKind;
use rustix::fs::{Mode, OFlags};

use self::known::{Known, identify};
use super::maps::mappings;
use super::pages::Scanner;
use super::told::{MemoryAdvice, Parts};
use super::waits::{Scheduled, Since, Stat, Waits};
use super::{HELD_MAX, Observation, processor_time};
use crate::lineage::ProcessId;
use crate::process_files::ProcessFiles;

/// Mappings of a process that are looked at. Linux allows 65,530 by default.
const MAPPINGS_MAX: usize = 4096;

/// Bytes of the list of mappings that are read.
const LIST_MAX_BYTES: u64 = 16 << 20;

/// The list is read again after this time if there are faults, although nothing hints at a change.
const LIST_BELIEVED: Duration = Duration::from_secs(1);

/// If the size of memory has changed, the list is read again after this multiple of the time that reading it took: a list of
/// 200 mappings takes 0.2 ms.
const LIST_REST: u32 = 100;

/// The same if the process waits for pages and no known mapping has new ones.
const LIST_REST_MISSING: u32 = 20;

/// An order ends if nothing was touched for this time. Then the program may have turned to something else.
const ORDER_IDLE_MAX: Duration = Duration::from_secs(10);

/// A process whose mappings cannot be listed so many times is not watched any more: it may be another user's.
const FAILURES_MAX: u32 = 3;

/// Room for `/proc/PID/stat`: 52 numbers, and a name of 64 bytes at most.
const STAT_MAX_BYTES: usize = 2048;

/// A process that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) id: ProcessId,
    /// When it is to be looked at next, and the interval before that.
    pub(crate) due: Instant,
    pub(crate) interval: Duration,
    waits: Waits,
    listed: Option<Listed>,
    /// Times that its mappings could not be listed at all.
    failures: u32,
    looks: u64,
    next_mapping: u64,
}

/// The mappings of a process as of the last list.
#[derive(Debug)]
struct Listed {
    at: Instant,
    /// Processor time that reading the list took.
    took: Duration,
    memory_bytes: u64,
    /// At the last look the process had waited for pages, and none was found.
    is_missing_some: bool,
    mappings: Vec<Known>,
}

/// What a look at a process found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It has ended.
    Ended,
    /// Nothing has changed.
    Still,
    /// It has touched pages that were not in its memory.
    Moves,
}

/// What looks share.
pub(crate) struct Looker<'a> {
    pub(crate) scanner: &'a mut Scanner,
    pub(crate) files: &'a ProcessFiles,
    /// Whether hints are being worked off. If so all touches are told. If not, those of a process that waits serve to find an
    /// order.
    pub(crate) is_busy: bool,
    /// Whether orders are looked for.
    pub(crate) finds_orders: bool,
    pub(crate) now: Instant,
    /// Gets what is seen.
    pub(crate) seen: &'a mut Vec<Observation>,
}

impl Watched {
    pub(crate) fn new(id: ProcessId, due: Instant, interval: Duration) -> Self {
        Watched {
            id,
            due,
            interval,
            waits: Waits::default(),
            listed: None,
            failures: 0,
            looks: 0,
            next_mapping: 0,
        }
    }

    /// Looks at the process. May wait for a lock of its memory.
    pub(crate) fn look(&mut self, looker: &mut Looker<'_>) -> Look {
        let Some((folder, stat)) = self.open() else { return Look::Ended };
        if self.waits.started().is_some_and(|started| started != stat.started) {
            return Look::Ended; // The number is another process's.
        }
        let scheduled = stat.has_one_thread().then(|| read_in(&folder, "schedstat")).flatten();
        let scheduled = scheduled.and_then(|line| Scheduled::of(&line));
        let since = self.waits.note(stat, scheduled, looker.now);
        let Since { has_touched, waited, .. } = since;
        self.end_idle_orders(looker);
        let matters = looker.is_busy || (looker.finds_orders && waited.is_some());
        if !has_touched || !matters {
            return Look::Still;
        }
        self.looks += 1;
        match self.look_at_mappings(&folder, stat, since, looker) {
            Some(true) => Look::Moves,
            Some(false) => Look::Still,
            None if self.listed.is_none() => {
                // It may have been about to execute a program.
                self.failures += 1;
                if self.failures >= FAILURES_MAX { Look::Ended } else { Look::Still }
            }
            None => Look::Still,
        }
    }

    /// Ends the orders of mappings in which nothing was touched for long. The fetched blocks do not bind memory of the budget
    /// for ever, and reads need not be watched.
    fn end_idle_orders(&mut self, looker: &mut Looker<'_>) {
        let process = self.id;
        let is_over = |known: &Known| {
            known.is_begun
                && looker.now.saturating_duration_since(known.touched_at) >= ORDER_IDLE_MAX
        };
        for known in self.listed.iter_mut().flat_map(|listed| &mut listed.mappings) {
            if is_over(known) {
                known.is_begun = false;
                known.order.forget();
                looker.seen.push(Observation::Ends { process, mapping: known.number });
            }
        }
    }

    fn open(&self) -> Option<(OwnedFd, Stat)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(format!("/proc/{}", self.id), flags, Mode::empty()).ok()?;
        let stat = Stat::of(&read_in(&folder, "stat")?)?;
        Some((folder, stat))
    }

    /// Returns whether there are new pages. `None` if the process may not be looked at, or has ended.
    fn look_at_mappings(
        &mut self,
        folder: &OwnedFd,
        stat: Stat,
        since: Since,
        looker: &mut Looker<'_>,
    ) -> Option<bool> {
        let waited = since.waited;
        let (mut is_fresh, first) = (false, looker.seen.len());
        if self.needs_list(stat, looker.now) {
            if self.listed.is_none() && !looker.files.shares_paths(self.id) {
                return None;
            }
            self.list(folder, stat, looker)?;
            is_fresh = true;
        }
        let pagemap = open_in(folder, "pagemap")?;
        let (mut has_new, mut has_begun) = (false, false);
        let listed = self.listed.as_mut()?;
        for known in &mut listed.mappings {
            if self.looks.is_multiple_of(1 << known.idle) {
                // Programs wait for much else while they touch their libraries.
                let waits = waited.is_some() && (since.is_for_pages || !known.mapping.is_code);
                has_new |= known.look(&pagemap, (self.id, waits), looker);
                has_begun |= known.begins_at.is_some();
            }
        }
        listed.is_missing_some = !has_new && waited.is_some();
        attribute(waited, &mut looker.seen[first..]);
        if has_begun && !is_fresh {
            // What was touched may be another mapping at the same address.
            self.list(folder, stat, looker)?;
        }
        self.tell_begun(looker.seen);
        Some(has_new)
    }

    /// Finds the mappings that the process has given advice about. `None` if it may not be looked at, or has ended.
    pub(crate) fn take_advice<'a>(
        &mut self,
        advice: impl Iterator<Item = &'a MemoryAdvice>,
        looker: &mut Looker<'_>,
    ) -> Option<()> {
        let (folder, stat) = self.open()?;
        let is_it = self.waits.started().is_none_or(|started| started == stat.started);
        let may_look = self.listed.is_some() || looker.files.shares_paths(self.id);
        (is_it && may_look).then_some(())?;
        self.list(&folder, stat, looker)?;
        let (process, mut needed, mut has_room) = (self.id, Parts::default(), true);
        let mappings = &mut self.listed.as_mut()?.mappings;
        for MemoryAdvice { kind, addresses } in advice {
            // In the order of their addresses, and without overlap.
            let first = mappings.partition_point(|known| known.mapping.end <= addresses.start);
            if looker.seen.len() >= HELD_MAX {
                break;
            }
            for known in &mut mappings[first..] {
                let Some(part) = known.mapping.part_at(addresses) else { break };
                let part = part.start..part.end.min(known.order.end());
                let Some(file) = known.file.filter(|_| !part.is_empty()) else { continue };
                match kind {
                    AdviceKind::Needed if has_room => {
                        has_room = needed.add(file.id, &known.mapping.path, part);
                    }
                    AdviceKind::Needed => {}
                    _ => known.take_order(*kind, part, process, looker),
                }
            }
        }
        let needs = needed.into_files().into_iter();
        looker.seen.extend(needs.map(|needed| Observation::Needs { process, needed }));
        Some(())
    }

    /// Whether the list of mappings may have changed, and the last one has been used for long enough to pay.
    fn needs_list(&self, stat: Stat, now: Instant) -> bool {
        let Some(listed) = &self.listed else { return true };
        let age = now.saturating_duration_since(listed.at);
        let pays_after = match listed.is_missing_some {
            true => listed.took * LIST_REST_MISSING,
            false => listed.took * LIST_REST,
        };
        let may_differ = listed.memory_bytes != stat.memory_bytes || listed.is_missing_some;
        (may_differ && age >= pays_after) || age >= LIST_BELIEVED.max(listed.took * LIST_REST)
    }

    /// Tells of the mappings whose order begins.
    fn tell_begun(&mut self, seen: &mut Vec<Observation>) {
        let process = self.id;
        for known in self.listed.iter_mut().flat_map(|listed| &mut listed.mappings) {
            if let (Some(from_bytes), Some(file)) = (known.begins_at.take(), known.file) {
                known.is_begun = true;
                seen.push(Observation::Begins {
                    process,
                    mapping: known.number,
                    file: file.id,
                    path: known.mapping.path.clone(),
                    range: from_bytes..known.order.end(),
                });
            }
        }
    }

    /// Reads the list of mappings. What is known of those that are still there stays.
    fn list(&mut self, folder: &OwnedFd, stat: Stat, looker: &mut Looker<'_>) -> Option<()> {
        let began = processor_time();
        let mut text = Vec::new();
        open_in(folder, "maps")?.take(LIST_MAX_BYTES).read_to_end(&mut text).ok()?;
        let before = self.listed.take().map(|listed| listed.mappings).unwrap_or_default();
        let mut before = before.into_iter().peekable();
        let process = self.id;
        let mut gone = |known: Known| {
            let end = Observation::Ends { process, mapping: known.number };
            looker.seen.extend(known.is_begun.then_some(end));
        };
        let mut known_mappings: Vec<Known> = Vec::new();
        for mapping in mappings(&text, MAPPINGS_MAX) {
            // Both are in the order of their addresses.
            while let Some(other) = before.next_if(|other| other.mapping.start < mapping.start) {
                gone(other);
            }
            let same = before.next_if(|other| other.is_same_as(&mapping));
            let known = match same {
                Some(known) => known.resized(mapping),
                None => {
                    let beside = known_mappings.last();
                    let file = match beside {
                        Some(beside) if beside.mapping.is_of_the_same_file_as(&mapping) => {
                            beside.file
                        }
                        _ => identify(&mapping),
                    };
                    self.next_mapping += 1;
                    Known::new(self.next_mapping, mapping, file, looker.now)
                }
            };
            known_mappings.push(known);
        }
        before.for_each(gone);
        self.listed = Some(Listed {
            at: looker.now,
            took: processor_time().saturating_sub(began),
            memory_bytes: stat.memory_bytes,
            is_missing_some: false,
            mappings: known_mappings,
        });
        Some(())
    }
}

/// Says of the file of which most was touched that the process waited for it.
fn attribute(waited: Option<Duration>, seen: &mut [Observation]) {
    let length = |range: &Range<u64>| range.end - range.start;
    let most = seen.iter_mut().filter_map(|observation| match observation {
        Observation::Touched { ranges, waited, .. } => {
            Some((ranges.iter().map(length).sum::<u64>(), waited))
        }
        _ => None,
    });
    if let Some((_, of_file)) = most.max_by_key(|(bytes, _)| *bytes) {
        *of_file = waited;
    }
}

fn open_in(folder: &OwnedFd, name: &str) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty()).ok().map(File::from)
}

/// The contents of a short file.
fn read_in(folder: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    let mut line = vec![0; STAT_MAX_BYTES];
    let length = open_in(folder, name)?.read_at(&mut line, 0).ok()?;
    line.truncate(length);
    Some(line)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use foretell_policy::FileId;

    use super::*;
    use crate::driver::file::file_id;

    const BYTES: usize = 1 << 20;

    /// What advice about a part of a mapping of this process is taken for: of `kinds`, about the addresses from `from` to `to`
    /// after its start. The file ends in the middle of the mapping.
    fn told(kinds: &[AdviceKind], from: i64, to: i64) -> (FileId, Vec<Observation>) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(BYTES as u64 / 2).expect("a sparse file");
        // SAFETY: a new mapping at an address of the kernel's choice, of which nothing is read.
        let base = unsafe {
            let (read, shared) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
            rustix::mm::mmap(std::ptr::null_mut(), BYTES, read, shared, &file, 0)
        };
        let base = base.expect("it is mapped");
        let start = base.addr() as u64;
        let addresses = start.saturating_add_signed(from)..start.saturating_add_signed(to);
        let advice: Vec<_> =
            kinds.iter().map(|&kind| MemoryAdvice { kind, addresses: addresses.clone() }).collect();
        let (now, mut seen) = (Instant::now(), Vec::new());
        let mut looker = Looker {
            scanner: &mut Scanner::new(),
            files: &ProcessFiles::open().expect("/proc is there"),
            is_busy: true,
            finds_orders: true,
            now,
            seen: &mut seen,
        };
        let mut watched = Watched::new(u64::from(std::process::id()), now, Duration::ZERO);
        assert!(watched.take_advice(advice.iter(), &mut looker).is_some());
        // SAFETY: nothing refers to it.
        unsafe { rustix::mm::munmap(base, BYTES) }.expect("it was mapped");
        let known = file.as_file().metadata().expect("it is open");
        (file_id(known.dev(), known.ino()), seen)
    }

    #[test]
    fn advice_about_memory_is_about_the_file_that_is_mapped_there() {
        let half = BYTES as u64 / 2;
        for (from, to, expected) in [
            (0, BYTES as i64, Some(0..half)),
            (8192, 12288, Some(8192..12288)),
            (BYTES as i64 / 2, BYTES as i64, None),
            (i64::MIN, -(1 << 40), None),
        ] {
            let (file, seen) = told(&[AdviceKind::Needed], from, to);
            let ranges: Vec<_> = seen
                .iter()
                .filter_map(|seen| match seen {
                    Observation::Needs { needed, .. } if needed.file == file => {
                        Some(needed.ranges.clone())
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(ranges, expected.map(|range| vec![range]).into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn advice_begins_and_ends_an_order() {
        let is_of = |file, seen: &[Observation]| {
            let of_file = |seen: &&Observation| matches!(seen, Observation::Begins { file: of, .. } if *of == file);
            let ends = |seen: &&Observation| matches!(seen, Observation::Ends { .. });
            (seen.iter().filter(of_file).count(), seen.iter().filter(ends).count())
        };
        let (sequential, random) = (AdviceKind::Sequential, AdviceKind::Random);
        for (kinds, expected) in [
            (&[sequential, sequential][..], (1, 0)),
            (&[random], (0, 0)),
            (&[sequential, random], (1, 1)),
            (&[random, sequential], (1, 0)),
            (&[AdviceKind::Normal, AdviceKind::Once], (0, 0)),
        ] {
            let (file, seen) = told(kinds, 4096, BYTES as i64);
            assert_eq!(is_of(file, &seen), expected, "{kinds:?}: {seen:?}");
        }
    }
}
