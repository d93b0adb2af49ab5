//! The manager's side of a program's ring.
//!
//! Decides which contents of a program's shared memory are trusted. The program may die or be stopped
//! in the middle of a record, or may be hostile. The manager must neither crash nor spin.
//!
//! How:
//! * A. Before mapping: the memory must be a memfd of exactly the right size, sealed against
//!   shrinking. So no access can raise SIGBUS.
//! * B. The consumer keeps its own tail. It takes `head` only as "at most `capacity` more records",
//!   and a call of [`RingReader::drain`] ends after that many.
//! * C. A slot whose ticket was taken but which was never completed would block the ring. A thread
//!   that leaves a signal handler by `longjmp` or a killed process leaves such a slot. It is skipped
//!   after [`HOLE_PATIENCE`], or at once by [`RingReader::drain_to_end`] when the program is known to
//!   be dead.
//!
//! Invariants: every access is an atomic load or store of an aligned word inside the mapping; values
//! are data, never indices or lengths of memory.
//!
//! After a skip, the late writer may fill a slot together with the writer of the next lap. That can mix
//! the fields of two records. It reports a read that did not happen, and never affects memory safety.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::layout::{self, RawAdvice, RawPathPart, RawRecord, RawRingHeader, RawTouch};

/// How long an unfinished record may hold up later ones. A writer needs some 50 ns; one that takes a second was stopped or
/// killed.
const HOLE_PATIENCE: Duration = Duration::from_secs(1);

/// Why a ring was refused.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// A system call on the descriptor failed.
    #[error("ring memory: {0}")]
    Io(#[from] io::Error),
    /// The program could still shrink it, and the manager would get SIGBUS.
    #[error("ring memory is not sealed against shrinking")]
    NotSealed,
    /// The ring's size is not the protocol's.
    #[error("ring of {0} bytes, expected {expected}", expected = layout::RING_BYTES)]
    Size(i64),
    /// The header does not belong to a ring of this version.
    #[error("not a ring of protocol version {version}", version = layout::PROTOCOL_VERSION)]
    Header,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Bytes were read.
    Read,
    /// A file was opened.
    Open,
}

/// Flags of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFlags(u32);

impl RecordFlags {
    /// The offset is the descriptor's, ahead of the program by the stdio buffer.
    pub fn is_stdio(self) -> bool {
        self.0 & layout::FLAG_STDIO != 0
    }

    /// The call named its own offset (`pread` and its kin).
    pub fn is_positioned(self) -> bool {
        self.0 & layout::FLAG_POSITIONED != 0
    }

    /// The offset was asked from the kernel after the call; another reader may have moved it.
    pub fn is_shared(self) -> bool {
        self.0 & layout::FLAG_SHARED != 0
    }

    /// The open failed.
    pub fn is_failed(self) -> bool {
        self.0 & layout::FLAG_FAILED != 0
    }
}

/// One call of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the call did.
    pub kind: RecordKind,
    /// How the offset was found, and whether an open failed.
    pub flags: RecordFlags,
    /// The file's `st_dev`; 0 if not known (open records).
    pub device: u64,
    /// The file's `st_ino`; 0 if not known (open records).
    pub inode: u64,
    /// Where the call read; no offset if it is an open.
    pub offset_bytes: u64,
    /// Number of bytes that it returned; 0 at the end of the file; no length if it is an open.
    pub length_bytes: u64,
    /// CLOCK_MONOTONIC at return; 0 if the call was not timed.
    pub end_ns: u64,
    /// How long the call took; 0 if it was not timed.
    pub duration_ns: u64,
}

/// How a file was when it was opened: two openings with the same version found the same contents, as far as sizes and times
/// tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its time of modification in nanoseconds since 1970.
    pub modified_ns: i64,
}

impl Record {
    /// How the file was that this call opened. `None` for a read, for an open that failed, that was not for reading alone, or
    /// of which the program knew no more than its time. On a network file system, it is what this machine last heard of the
    /// file.
    #[must_use]
    pub fn opened_version(&self) -> Option<FileVersion> {
        let is_told = self.kind == RecordKind::Open && self.flags.0 & layout::FLAG_SIZED != 0;
        is_told.then_some(FileVersion {
            size_bytes: self.length_bytes,
            modified_ns: self.offset_bytes.cast_signed(),
        })
    }
}

/// What the program wrote to its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It read or opened a file.
    Call(Record),
    /// It named a path.
    Touch(Touch),
    /// It gave advice.
    Advice(Advice),
}

/// What a call did with a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TouchFlags(u32);

impl TouchFlags {
    /// With the bits `TOUCH_…` of the [layout].
    pub fn from_bits(bits: u32) -> Self {
        TouchFlags(bits)
    }

    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// It asked for attributes (the `stat` family, `access`).
    pub fn is_stat(self) -> bool {
        self.has(layout::TOUCH_STAT)
    }

    /// It read a symbolic link.
    pub fn is_link(self) -> bool {
        self.has(layout::TOUCH_LINK)
    }

    /// It opened something other than a folder for reading.
    pub fn is_open(self) -> bool {
        self.has(layout::TOUCH_OPEN)
    }

    /// It opened a folder.
    pub fn is_folder(self) -> bool {
        self.has(layout::TOUCH_FOLDER)
    }

    /// It made it the working folder.
    pub fn is_moved(self) -> bool {
        self.has(layout::TOUCH_MOVED)
    }

    /// It failed.
    pub fn is_failed(self) -> bool {
        self.has(layout::TOUCH_FAILED)
    }
}

/// What a relative path of a [`Touch`] begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The process's working folder.
    WorkingFolder,
    /// The folder with this number, which an earlier touch has opened.
    Folder(u32),
    /// This descriptor, whose opening is not known.
    Descriptor(u32),
}

/// One call of the program that named a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// What the call did.
    pub flags: TouchFlags,
    /// Where a relative path begins.
    pub base: Base,
    /// The path, as the program gave it.
    pub path: Box<[u8]>,
    /// The number of the folder that was opened.
    pub opened: Option<u32>,
    /// CLOCK_MONOTONIC at return.
    pub end_ns: u64,
    /// How long the call took.
    pub duration_ns: u64,
}

/// A kind of [`Advice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdviceKind {
    /// The range will be read soon.
    Needed,
    /// The range will be read in order.
    Sequential,
    /// The range will be read in no order.
    Random,
    /// The range will be read once.
    Once,
    /// No advice any more.
    Normal,
}

/// What a program's [`Advice`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advised {
    /// An open file.
    File {
        /// Its `st_dev`.
        device: u64,
        /// Its `st_ino`.
        inode: u64,
        /// The descriptor.
        descriptor: u64,
    },
    /// Memory of the process.
    Memory,
}

/// The program's own advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What the program said.
    pub kind: AdviceKind,
    /// About what.
    pub of: Advised,
    /// Where in the file, or the address of the memory.
    pub offset_bytes: u64,
    /// Length of the range; 0: up to the end of the file.
    pub length_bytes: u64,
}

/// Counters of a program. They never decrease, unless the program tampers with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads of regular files.
    pub read_calls: u64,
    /// Bytes they returned.
    pub read_bytes: u64,
    /// Time of the reads that took longer than [`layout::stall_threshold_ns`].
    pub read_stall_ns: u64,
    /// Number of these reads.
    pub read_stalls: u64,
    /// Opens, failed ones included.
    pub open_calls: u64,
    /// Time of the opens that took longer than [`layout::STALL_THRESHOLD_NS`].
    pub open_stall_ns: u64,
    /// Number of these opens.
    pub open_stalls: u64,
    /// Calls that asked about names, as far as there was interest in them.
    pub name_calls: u64,
    /// Time of those calls that took longer than [`layout::STALL_THRESHOLD_NS`].
    pub name_stall_ns: u64,
    /// Number of these calls.
    pub name_stalls: u64,
    /// Bytes read through hooked calls from pipes, terminals, sockets and devices, and from descriptors
    /// whose kind was never looked up.
    pub other_read_bytes: u64,
    /// Records lost because the ring was full.
    pub dropped_records: u64,
    /// Programs executed without the library, by this process or by a forked child without a ring.
    pub programs_left_alone: u64,
    /// Those of them that were skipped; see [`RingReader::skip_repeated`].
    pub programs_skipped: u64,
    /// Programs executed with the library.
    pub programs_followed: u64,
    /// Records whose writer never finished them, skipped by this reader.
    pub abandoned_records: u64,
}

impl Counters {
    /// Time of the calls of all kinds that took long, in ns.
    #[must_use]
    pub fn stall_ns(&self) -> u64 {
        self.open_stall_ns.wrapping_add(self.name_stall_ns).wrapping_add(self.read_stall_ns)
    }

    /// Number of calls of all kinds that took long.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.open_stalls.wrapping_add(self.name_stalls).wrapping_add(self.read_stalls)
    }
}

/// A mapped ring. Unmapped on drop.
#[derive(Debug)]
pub struct RingReader {
    base: NonNull<u8>,
    tail: u64,
    /// Since when the slot at `tail` is known to be taken and unfinished.
    hole_since: Option<Instant>,
    abandoned_records: u64,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread; all access to it is
// atomic.
unsafe impl Send for RingReader {}

impl RingReader {
    /// Checks and maps a program's ring. The descriptor is closed.
    ///
    /// # Errors
    /// [`RingError`]: the memory is not a sealed ring of this version.
    pub fn map(fd: OwnedFd) -> Result<Self, RingError> {
        check_memory(&fd)?;
        // SAFETY: a fresh shared mapping of a descriptor we own; no existing memory is replaced.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                layout::RING_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(RingError::Header)?;
        let mut reader = Self { base, tail: 0, hole_since: None, abandoned_records: 0 };
        let valid = reader.header_u64(offset_of!(RawRingHeader, magic)) == layout::RING_MAGIC
            && reader.header_u32(offset_of!(RawRingHeader, version)) == layout::PROTOCOL_VERSION
            && reader.header_u32(offset_of!(RawRingHeader, capacity_records))
                == layout::RING_CAPACITY_RECORDS
            && reader.header_u32(offset_of!(RawRingHeader, record_bytes)) == layout::RECORD_BYTES
            && reader.header_u32(offset_of!(RawRingHeader, header_bytes))
                == layout::RING_HEADER_BYTES;
        if !valid {
            return Err(RingError::Header);
        }
        reader.tail = reader.header_u64(offset_of!(RawRingHeader, tail));
        reader.set_hears(1);
        Ok(reader)
    }

    /// Takes what waits, oldest first, at most one capacity, and passes on the calls. Returns their number.
    pub fn drain(&mut self, mut each: impl FnMut(Record)) -> usize {
        self.drain_calls(false, &mut each)
    }

    /// As [`drain`](Self::drain), for a program that is known to be dead: unfinished records are skipped at once.
    pub fn drain_to_end(&mut self, mut each: impl FnMut(Record)) -> usize {
        self.drain_calls(true, &mut each)
    }

    fn drain_calls(&mut self, ended: bool, each: &mut impl FnMut(Record)) -> usize {
        let mut calls = 0;
        self.drain_while(ended, |event| {
            if let Event::Call(record) = event {
                calls += 1;
                each(record);
            }
            true
        });
        calls
    }

    /// Takes events, oldest first, at most one capacity, until `each` returns false; the others stay. `ended` says whether the
    /// program is known to be dead.
    pub fn drain_while(&mut self, ended: bool, each: impl FnMut(Event) -> bool) {
        self.take(each, if ended { Duration::ZERO } else { HOLE_PATIENCE });
    }

    /// Whether something waits to be taken.
    pub fn has_events(&self) -> bool {
        self.header_u64(offset_of!(RawRingHeader, head)) != self.tail
    }

    /// The program's counters.
    pub fn counters(&self) -> Counters {
        let counter = |offset| self.header_u64(offset);
        Counters {
            read_calls: counter(offset_of!(RawRingHeader, read_calls)),
            read_bytes: counter(offset_of!(RawRingHeader, read_bytes)),
            read_stall_ns: counter(offset_of!(RawRingHeader, read_stall_ns)),
            read_stalls: counter(offset_of!(RawRingHeader, read_stalls)),
            open_calls: counter(offset_of!(RawRingHeader, open_calls)),
            open_stall_ns: counter(offset_of!(RawRingHeader, open_stall_ns)),
            open_stalls: counter(offset_of!(RawRingHeader, open_stalls)),
            name_calls: counter(offset_of!(RawRingHeader, name_calls)),
            name_stall_ns: counter(offset_of!(RawRingHeader, name_stall_ns)),
            name_stalls: counter(offset_of!(RawRingHeader, name_stalls)),
            other_read_bytes: counter(offset_of!(RawRingHeader, other_read_bytes)),
            dropped_records: counter(offset_of!(RawRingHeader, dropped_records)),
            programs_left_alone: counter(offset_of!(RawRingHeader, programs_left_alone)),
            programs_skipped: counter(offset_of!(RawRingHeader, programs_skipped)),
            programs_followed: counter(offset_of!(RawRingHeader, programs_followed)),
            abandoned_records: self.abandoned_records,
        }
    }

    /// Tells the program what is of interest: bits `INTEREST_…` of the [layout].
    pub fn set_interest(&self, wanted: u32) {
        self.u32_ref(offset_of!(RawRingHeader, interest)).store(wanted, Ordering::Relaxed);
    }

    /// Tells the processes with the ring whether its reader would tell them about the manager's end.
    fn set_hears(&self, hears: u32) {
        self.u32_ref(offset_of!(RawRingHeader, manager_hears)).store(hears, Ordering::Relaxed);
    }

    /// Tells the program whether to execute most times without the library what it executes again and again.
    pub fn skip_repeated(&self, skips: bool) {
        self.u32_ref(offset_of!(RawRingHeader, skips_repeated))
            .store(skips.into(), Ordering::Relaxed);
    }

    /// Tells the program that the manager has ended. The program then hands nothing of foretell on to the programs it executes.
    pub fn tell_end(&self) {
        self.u32_ref(offset_of!(RawRingHeader, manager_ended)).store(1, Ordering::Relaxed);
    }

    /// Whether the process tells no more: its library has switched itself off, or it executes a program without the library.
    pub fn is_silent(&self) -> bool {
        self.header_u32(offset_of!(RawRingHeader, silent)) != 0
    }

    /// Marks the ring as full, as if its reader had never emptied it. For tests.
    pub fn fill(&self) {
        let head = self.u64_ref(offset_of!(RawRingHeader, head));
        head.store(self.tail + u64::from(layout::RING_CAPACITY_RECORDS), Ordering::Release);
    }

    fn take(&mut self, mut each: impl FnMut(Event) -> bool, patience: Duration) {
        let capacity = u64::from(layout::RING_CAPACITY_RECORDS);
        let head = self.u64_ref(offset_of!(RawRingHeader, head)).load(Ordering::Acquire);
        // B: never more than one lap, whatever the program stores.
        let mut waiting = head.wrapping_sub(self.tail).min(capacity);
        let mut goes_on = true;
        while waiting > 0 && goes_on {
            let slots = if let Some(slots) = self.finished_slots(waiting) {
                self.hole_since = None;
                if let Some(event) = self.decode(slots) {
                    goes_on = each(event);
                }
                slots
            } else if !self.may_skip(patience) {
                break;
            } else {
                self.abandoned_records += 1; // C
                1
            };
            waiting -= slots;
            self.tail = self.tail.wrapping_add(slots);
            self.u64_ref(offset_of!(RawRingHeader, tail)).store(self.tail, Ordering::Release);
        }
    }

    /// The number of slots of the record at the tail, if all of them are among the `waiting` ones and finished.
    fn finished_slots(&self, waiting: u64) -> Option<u64> {
        let first = self.slot(self.tail)?;
        if self.u32_ref(first + offset_of!(RawTouch, kind)).load(Ordering::Relaxed)
            != layout::RECORD_TOUCH
        {
            return Some(1);
        }
        let path_bytes =
            self.u32_ref(first + offset_of!(RawTouch, path_bytes)).load(Ordering::Relaxed);
        if path_bytes > layout::TOUCHED_PATH_MAX_BYTES {
            return Some(1); // It is not decoded either.
        }
        let parts =
            path_bytes.saturating_sub(layout::TOUCH_PATH_BYTES).div_ceil(layout::PART_PATH_BYTES);
        let slots = 1 + u64::from(parts);
        let is_finished = |part| self.slot(self.tail.wrapping_add(part)).is_some();
        (slots <= waiting && (1..slots).all(is_finished)).then_some(slots)
    }

    /// C: whether the unfinished slot at the tail has held the ring up for long enough.
    fn may_skip(&mut self, patience: Duration) -> bool {
        if patience.is_zero() {
            return true;
        }
        let since = *self.hole_since.get_or_insert_with(Instant::now);
        let skip = since.elapsed() >= patience;
        if skip {
            self.hole_since = None;
        }
        skip
    }

    /// The place of the slot of this ticket, if its writer has finished.
    fn slot(&self, ticket: u64) -> Option<usize> {
        let index = ticket % u64::from(layout::RING_CAPACITY_RECORDS);
        let at =
            layout::RING_HEADER_BYTES as usize + index as usize * layout::RECORD_BYTES as usize;
        let sequence = self.u64_ref(at).load(Ordering::Acquire);
        (sequence == ticket.wrapping_add(1)).then_some(at)
    }

    /// The event in the `slots` finished slots at the tail. A kind from a newer or a hostile program is ignored, and so are
    /// parts of a path without their beginning.
    fn decode(&self, slots: u64) -> Option<Event> {
        let at = self.slot(self.tail)?;
        let word = |offset| self.u64_ref(at + offset).load(Ordering::Relaxed);
        let half = |offset| self.u32_ref(at + offset).load(Ordering::Relaxed);
        match half(offset_of!(RawRecord, kind)) {
            layout::RECORD_READ | layout::RECORD_OPEN => {
                let is_read = half(offset_of!(RawRecord, kind)) == layout::RECORD_READ;
                Some(Event::Call(Record {
                    kind: if is_read { RecordKind::Read } else { RecordKind::Open },
                    flags: RecordFlags(half(offset_of!(RawRecord, flags))),
                    device: word(offset_of!(RawRecord, device)),
                    inode: word(offset_of!(RawRecord, inode)),
                    offset_bytes: word(offset_of!(RawRecord, offset_bytes)),
                    length_bytes: word(offset_of!(RawRecord, length_bytes)),
                    end_ns: word(offset_of!(RawRecord, end_ns)),
                    duration_ns: word(offset_of!(RawRecord, duration_ns)),
                }))
            }
            layout::RECORD_TOUCH => {
                let flags = TouchFlags(half(offset_of!(RawTouch, flags)));
                let base = half(offset_of!(RawTouch, base));
                let base = match base {
                    _ if flags.has(layout::TOUCH_DESCRIPTOR) => Base::Descriptor(base),
                    layout::BASE_WORKING_FOLDER => Base::WorkingFolder,
                    folder => Base::Folder(folder),
                };
                let opened = half(offset_of!(RawTouch, opened));
                Some(Event::Touch(Touch {
                    flags,
                    base,
                    path: self.path(at, half(offset_of!(RawTouch, path_bytes)), slots)?,
                    opened: (opened != 0).then_some(opened),
                    end_ns: word(offset_of!(RawTouch, end_ns)),
                    duration_ns: word(offset_of!(RawTouch, duration_ns)),
                }))
            }
            layout::RECORD_ADVICE => {
                let kind = match half(offset_of!(RawAdvice, advice)) {
                    layout::ADVICE_NEEDED => AdviceKind::Needed,
                    layout::ADVICE_SEQUENTIAL => AdviceKind::Sequential,
                    layout::ADVICE_RANDOM => AdviceKind::Random,
                    layout::ADVICE_ONCE => AdviceKind::Once,
                    layout::ADVICE_NORMAL => AdviceKind::Normal,
                    _ => return None,
                };
                let of = match word(offset_of!(RawAdvice, descriptor)) {
                    layout::NO_DESCRIPTOR => Advised::Memory,
                    descriptor => Advised::File {
                        device: word(offset_of!(RawAdvice, device)),
                        inode: word(offset_of!(RawAdvice, inode)),
                        descriptor,
                    },
                };
                Some(Event::Advice(Advice {
                    kind,
                    of,
                    offset_bytes: word(offset_of!(RawAdvice, offset_bytes)),
                    length_bytes: word(offset_of!(RawAdvice, length_bytes)),
                }))
            }
            _ => None,
        }
    }

    /// The path of a touch whose first slot is at `at`. `None` if its length does not fit its slots or it has a NUL byte.
    fn path(&self, at: usize, path_bytes: u32, slots: u64) -> Option<Box<[u8]>> {
        let (first, part) = (layout::TOUCH_PATH_BYTES as usize, layout::PART_PATH_BYTES as usize);
        let bytes = path_bytes as usize;
        if bytes > first + (slots as usize - 1) * part {
            return None;
        }
        let mut path = Vec::with_capacity(first + (slots as usize - 1) * part);
        self.append(&mut path, at + offset_of!(RawTouch, path), first);
        for number in 1..slots {
            let at = self.slot(self.tail.wrapping_add(number))?;
            let kind = self.u32_ref(at + offset_of!(RawPathPart, kind)).load(Ordering::Relaxed);
            if kind != layout::RECORD_PATH {
                return None;
            }
            self.append(&mut path, at + offset_of!(RawPathPart, path), part);
        }
        path.truncate(bytes);
        (!path.contains(&0)).then(|| path.into())
    }

    /// Appends `bytes` bytes, a multiple of 4, from the offset `at`.
    fn append(&self, path: &mut Vec<u8>, at: usize, bytes: usize) {
        for offset in (0..bytes).step_by(4) {
            let word = self.u32_ref(at + offset).load(Ordering::Relaxed);
            path.extend_from_slice(&word.to_ne_bytes());
        }
    }

    fn header_u64(&self, offset: usize) -> u64 {
        self.u64_ref(offset).load(Ordering::Relaxed)
    }

    fn header_u32(&self, offset: usize) -> u32 {
        self.u32_ref(offset).load(Ordering::Relaxed)
    }

    fn u64_ref(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= layout::RING_BYTES as usize);
        // SAFETY: aligned and inside the mapping (asserted; the mapping is page-aligned and
        // RING_BYTES long), which lives as long as `self` and cannot shrink (sealed).
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn u32_ref(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= layout::RING_BYTES as usize);
        // SAFETY: as in `u64_ref`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        self.set_hears(0);
        // SAFETY: the mapping was made in `map` with this length, and no reference outlives `self`.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), layout::RING_BYTES as usize);
        }
    }
}

/// A: size and seals, before the memory is mapped.
fn check_memory(fd: &OwnedFd) -> Result<(), RingError> {
    // SAFETY: F_GET_SEALS takes no argument and touches no memory.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return Err(RingError::NotSealed);
    }
    // SAFETY: all-zero is a valid `stat`, a plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writing.
    if unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    if stat.st_size != i64::from(layout::RING_BYTES) {
        return Err(RingError::Size(stat.st_size));
    }
    Ok(())
}
