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

use crate::layout::{self, RawRecord, RawRingHeader};

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
    /// Where the call read.
    pub offset_bytes: u64,
    /// Number of bytes that it returned; 0 at the end of the file.
    pub length_bytes: u64,
    /// CLOCK_MONOTONIC at return; 0 if the call was not timed.
    pub end_ns: u64,
    /// How long the call took; 0 if it was not timed.
    pub duration_ns: u64,
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
    /// Bytes read through hooked calls from pipes, terminals, sockets and devices, and from descriptors
    /// whose kind was never looked up.
    pub other_read_bytes: u64,
    /// Records lost because the ring was full.
    pub dropped_records: u64,
    /// Programs executed without the library, by this process or by a forked child without a ring.
    pub programs_left_alone: u64,
    /// Records whose writer never finished them, skipped by this reader.
    pub abandoned_records: u64,
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
        Ok(reader)
    }

    /// Takes the waiting records, oldest first, at most one capacity. Returns their number.
    pub fn drain(&mut self, mut each: impl FnMut(Record)) -> usize {
        self.drain_while(false, |record| {
            each(record);
            true
        })
    }

    /// As [`drain`](Self::drain), for a program that is known to be dead: unfinished records are skipped at once.
    pub fn drain_to_end(&mut self, mut each: impl FnMut(Record)) -> usize {
        self.drain_while(true, |record| {
            each(record);
            true
        })
    }

    /// As [`drain`](Self::drain), until `each` returns false; the other records stay. `ended` says whether the program is known
    /// to be dead.
    pub fn drain_while(&mut self, ended: bool, each: impl FnMut(Record) -> bool) -> usize {
        self.take(each, if ended { Duration::ZERO } else { HOLE_PATIENCE })
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
            other_read_bytes: counter(offset_of!(RawRingHeader, other_read_bytes)),
            dropped_records: counter(offset_of!(RawRingHeader, dropped_records)),
            programs_left_alone: counter(offset_of!(RawRingHeader, programs_left_alone)),
            abandoned_records: self.abandoned_records,
        }
    }

    /// Asks the program for records, or for counters only.
    pub fn set_interest(&self, wanted: bool) {
        self.u32_ref(offset_of!(RawRingHeader, interest)).store(wanted.into(), Ordering::Relaxed);
    }

    /// Tells the program that the manager has ended. The program then hands nothing of foretell on to the programs it executes.
    pub fn tell_end(&self) {
        self.u32_ref(offset_of!(RawRingHeader, manager_ended)).store(1, Ordering::Relaxed);
    }

    /// Marks the ring as full, as if its reader had never emptied it. For tests.
    pub fn fill(&self) {
        let head = self.u64_ref(offset_of!(RawRingHeader, head));
        head.store(self.tail + u64::from(layout::RING_CAPACITY_RECORDS), Ordering::Release);
    }

    fn take(&mut self, mut each: impl FnMut(Record) -> bool, patience: Duration) -> usize {
        let capacity = u64::from(layout::RING_CAPACITY_RECORDS);
        let head = self.u64_ref(offset_of!(RawRingHeader, head)).load(Ordering::Acquire);
        // B: never more than one lap, whatever the program stores.
        let waiting = head.wrapping_sub(self.tail).min(capacity);
        let mut taken = 0;
        let mut goes_on = true;
        for _ in 0..waiting {
            if !goes_on {
                break;
            }
            if let Some(raw) = self.slot(self.tail) {
                self.hole_since = None;
                if let Some(record) = decode(&raw) {
                    goes_on = each(record);
                    taken += 1;
                }
            } else if !self.may_skip(patience) {
                break;
            } else {
                self.abandoned_records += 1; // C
            }
            self.tail = self.tail.wrapping_add(1);
            self.u64_ref(offset_of!(RawRingHeader, tail)).store(self.tail, Ordering::Release);
        }
        taken
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

    /// A copy of the slot of this ticket, if its writer has finished.
    fn slot(&self, ticket: u64) -> Option<RawRecord> {
        let index = ticket % u64::from(layout::RING_CAPACITY_RECORDS);
        let at =
            layout::RING_HEADER_BYTES as usize + index as usize * layout::RECORD_BYTES as usize;
        let sequence = self.u64_ref(at).load(Ordering::Acquire);
        if sequence != ticket.wrapping_add(1) {
            return None;
        }
        let word = |offset| self.u64_ref(at + offset).load(Ordering::Relaxed);
        let half = |offset| self.u32_ref(at + offset).load(Ordering::Relaxed);
        Some(RawRecord {
            sequence,
            kind: half(offset_of!(RawRecord, kind)),
            flags: half(offset_of!(RawRecord, flags)),
            device: word(offset_of!(RawRecord, device)),
            inode: word(offset_of!(RawRecord, inode)),
            offset_bytes: word(offset_of!(RawRecord, offset_bytes)),
            length_bytes: word(offset_of!(RawRecord, length_bytes)),
            end_ns: word(offset_of!(RawRecord, end_ns)),
            duration_ns: word(offset_of!(RawRecord, duration_ns)),
        })
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

/// A kind from a newer or a hostile program is ignored.
fn decode(raw: &RawRecord) -> Option<Record> {
    let kind = match raw.kind {
        layout::RECORD_READ => RecordKind::Read,
        layout::RECORD_OPEN => RecordKind::Open,
        _ => return None,
    };
    Some(Record {
        kind,
        flags: RecordFlags(raw.flags),
        device: raw.device,
        inode: raw.inode,
        offset_bytes: raw.offset_bytes,
        length_bytes: raw.length_bytes,
        end_ns: raw.end_ns,
        duration_ns: raw.duration_ns,
    })
}
