//! Hits of a client, on their way to the server.
//!
//! The client writes records and `head`, the server `tail` and `wants`. A full ring drops records: the policy is told of
//! less, and nothing waits.
//!
//! While records come, the server looks every few milliseconds. Otherwise it sets `wants` and sleeps. The client that adds the
//! next record finds it set and sends one message.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Records that fit.
const RECORDS: u64 = 8192;
/// Records of which one asks whether the server sleeps.
const ASK_EVERY: u64 = 16;
/// Words of the head, of the tail and of `wants`: a pair of cache lines each.
const WORDS_APART: usize = 16;
const WORDS_BEFORE: usize = 3 * WORDS_APART;
const BYTES: usize = (WORDS_BEFORE + 2 * RECORDS as usize) * size_of::<u64>();

/// A read by a client that found all of it in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The client's number of the file.
    pub(crate) handle: u32,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u32,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<AtomicU64>,
}

// SAFETY: the mapping lives as long as this, and all of its words are atomics.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring, and the file in memory that a client maps.
    ///
    /// # Errors
    /// Those of `memfd_create`, `ftruncate`, `fcntl` and `mmap`.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        foretell_fault::failing("cache-ring", libc::EMFILE)?;
        let file = memfd_create("foretell-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(file.as_fd())?, file))
    }

    /// Maps a ring.
    ///
    /// # Errors
    /// Those of `mmap`; `InvalidData` if the file has another size, or may be cut.
    pub(crate) fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        let is_sealed = fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        if !is_sealed || fstat(file)?.st_size != BYTES as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, file, 0)?
        };
        Ok(Ring { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)? })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < BYTES / size_of::<u64>());
        // SAFETY: within the mapping, which begins as zeros and is as long as this.
        unsafe { &*self.base.as_ptr().add(at) }
    }

    fn head(&self) -> &AtomicU64 {
        self.word(0)
    }

    fn tail(&self) -> &AtomicU64 {
        self.word(WORDS_APART)
    }

    fn wants(&self) -> &AtomicU64 {
        self.word(2 * WORDS_APART)
    }

    fn record(&self, number: u64) -> (&AtomicU64, &AtomicU64) {
        let at = WORDS_BEFORE + 2 * (number % RECORDS) as usize;
        (self.word(at), self.word(at + 1))
    }

    /// The client: adds a record, one thread at a time. Returns whether the server sleeps and should be told. That is asked only
    /// for every sixteenth record, since the answer takes longer than the rest, and if the record `is_news`.
    #[inline]
    pub(crate) fn push(&self, told: Told, is_news: bool) -> bool {
        let head = self.head().load(Ordering::Relaxed);
        let is_full = head.wrapping_sub(self.tail().load(Ordering::Acquire)) >= RECORDS;
        if is_full || foretell_fault::is_failing("cache-ring-full") {
            return false;
        }
        let (one, other) = self.record(head);
        one.store(u64::from(told.length_bytes) << 32 | u64::from(told.handle), Ordering::Relaxed);
        other.store(told.offset_bytes, Ordering::Relaxed);
        self.head().store(head.wrapping_add(1), Ordering::Release);
        if !is_news && !head.is_multiple_of(ASK_EVERY) {
            return false;
        }
        // Either this sees that the server is about to sleep, or the server sees the record.
        fence(Ordering::SeqCst);
        self.wants().load(Ordering::Relaxed) != 0 && self.wants().swap(0, Ordering::Relaxed) != 0
    }

    /// The server: takes all records out. Returns whether there were any. Of more records than fit, which only a broken client
    /// announces, the last ones are taken.
    pub(crate) fn take(&self, mut each: impl FnMut(Told)) -> bool {
        let head = self.head().load(Ordering::Acquire);
        let tail = self.tail().load(Ordering::Relaxed);
        let count = head.wrapping_sub(tail).min(RECORDS);
        for number in 0..count {
            let (one, other) = self.record(head.wrapping_sub(count).wrapping_add(number));
            let first = one.load(Ordering::Relaxed);
            each(Told {
                handle: first as u32,
                offset_bytes: other.load(Ordering::Relaxed),
                length_bytes: (first >> 32) as u32,
            });
        }
        self.tail().store(head, Ordering::Release);
        count > 0
    }

    /// The server: asks to be told of the next record. Returns whether there is one already.
    pub(crate) fn ask(&self) -> bool {
        self.wants().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.head().load(Ordering::Relaxed) != self.tail().load(Ordering::Relaxed)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this ring's, and no borrow of it is left. An error cannot be handled here.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(number: u64) -> Told {
        Told { handle: number as u32, offset_bytes: number << 33, length_bytes: u32::MAX }
    }

    fn taken(ring: &Ring) -> Vec<Told> {
        let mut all = Vec::new();
        let any = ring.take(|told| all.push(told));
        assert_eq!(any, !all.is_empty());
        all
    }

    #[test]
    fn records_come_in_order_until_the_ring_is_full() {
        let (server, file) = Ring::new().unwrap();
        let client = Ring::map(file.as_fd()).unwrap();
        for round in 0..3 {
            for number in 0..RECORDS + 5 {
                assert!(!client.push(told(round + number), true));
            }
            let all = taken(&server);
            assert_eq!(all, (0..RECORDS).map(|number| told(round + number)).collect::<Vec<_>>());
            assert_eq!(taken(&server), []);
        }
    }

    #[test]
    fn a_server_that_sleeps_is_told_once() {
        let (server, file) = Ring::new().unwrap();
        let client = Ring::map(file.as_fd()).unwrap();
        assert!(!server.ask());
        assert_eq!([1, 2].map(|number| client.push(told(number), true)), [true, false]);
        assert!(server.ask());
        assert_eq!(taken(&server), [told(1), told(2)]);
        // What is no news waits for others.
        assert!(!server.ask());
        let asked: Vec<u64> = (0..40).filter(|&number| client.push(told(number), false)).collect();
        assert_eq!(asked.len(), 1, "{asked:?}");
    }

    #[test]
    fn a_broken_client_costs_nothing_but_its_records() {
        let (server, file) = Ring::new().unwrap();
        let client = Ring::map(file.as_fd()).unwrap();
        client.head().store(u64::MAX - 3, Ordering::Relaxed);
        assert_eq!(taken(&server).len() as u64, RECORDS);
        client.head().store(5, Ordering::Relaxed);
        assert_eq!(taken(&server).len(), 9);
        let short = memfd_create("short", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert_eq!(Ring::map(short.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
