//! Frames: the memory of the blocks, and a table that finds them without a lock.
//!
//! One mapping holds a table, a header for each frame, and the data. Table and headers are atomics at fixed offsets, without
//! pointers. It is private, or files in memory that other processes [map](crate::share) for reading.
//!
//! * **A. The owner** is one thread at a time: the engine, under its lock. It takes frames, fills them through a back end,
//!   [publishes](Slab::publish) and [evicts](Slab::evict) them.
//! * **B. Readers**, at any time, [pin](Slab::pin) a block's frame, copy out of it and unpin it.
//! * **C. Readers of other processes** cannot write, so they have no pins. They copy first and check afterwards
//!   ([`FarSlab`](crate::share::far::FarSlab)).
//!
//! **Pins.** A reader first adds its pin and then checks that the frame is valid and has its block. An eviction clears
//! *valid*; if the frame is pinned then, it is in limbo until it has no pin. Both are read-modify-write operations on
//! one word, so one of them is first: either the reader sees that the frame is not valid, or the owner sees the pin.
//! Data is written only while the frame is not valid and no reader that saw it valid has it pinned.
//!
//! **Table.** Open addressing with linear probing. A removal closes the gap by moving entries, so a concurrent search
//! may miss its block. It never finds a wrong one, since the header is compared under the pin. The owner's own searches
//! ([`Slab::holds`]) are exact, since only the owner moves entries.
//!
//! **Versions.** An eviction counts up the frame's version before anything writes to its data. A reader of another process
//! notes the version, finds the frame valid and of its block, copies, and compares the version. It is a sequence lock whose
//! "odd" state is *not valid*.
//!
//! May fail: [`Slab::new`], if there is no memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use foretell_policy::{Block, FileId};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::mm::ProtFlags;

use crate::frame::{Header, PIN, UNREAD, VALID};
use crate::geometry::Geometry;
use crate::mapping::Mapping;

/// The number of a frame.
pub(crate) type Frame = u32;

/// A frame that may be copied out of until [`Slab::unpin`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Pinned {
    pub(crate) frame: Frame,
    /// Whether this is the first pin since the block was prefetched.
    pub(crate) is_first: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Slab {
    mapping: Mapping,
    geometry: Geometry,
    /// The files in memory, if other processes may map them.
    files: Option<Files>,
    /// Whether the owner waits for a frame in limbo. Readers then call it after they unpin one.
    is_starving: AtomicBool,
    /// Frames up to this one have been used, all or nearly all: the search for free ones goes upwards.
    frames_used: AtomicU32,
}

/// What other processes map.
#[derive(Debug)]
struct Files {
    /// Table and headers.
    head: OwnedFd,
    data: OwnedFd,
    gives_back: bool,
}

/// A file in memory of so many bytes.
fn file_of(bytes: usize) -> io::Result<OwnedFd> {
    let file = memfd_create("foretell-cache", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// Cache lines of data to load before the pin.
const LINES: usize = 8;

/// Prefetches a cache line, where the processor can. The address need not be valid.
#[inline]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is not a read to the language, and does not fault at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

impl Slab {
    /// Frames of `block_bytes`, all of them free, in memory of this process alone.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub(crate) fn new(frames: Frame, block_bytes: usize) -> io::Result<Self> {
        let geometry = Geometry::new(frames, block_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self::at(Mapping::private(geometry.mapped_bytes)?, geometry, None))
    }

    /// The same in memory that other processes may map for reading: files without names, whose sizes nobody can change, and
    /// whose contents nobody else can.
    ///
    /// If it `gives_back` [memory](Slab::give_back), other processes of the user could write to the data, if they opened it
    /// anew for that: the kernel has no seal against writing that lets the owner punch holes. Table and headers are sealed.
    ///
    /// # Errors
    /// Those of `memfd_create`, `ftruncate`, `fcntl` and `mmap`.
    pub(crate) fn shared(frames: Frame, block_bytes: usize, gives_back: bool) -> io::Result<Self> {
        let geometry = Geometry::new(frames, block_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        foretell_fault::failing("cache-memory", libc::ENOMEM)?;
        let data_bytes = geometry.mapped_bytes - geometry.data_at;
        let (head, data) = (file_of(geometry.data_at)?, file_of(data_bytes)?);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let parts = [(head.as_fd(), geometry.data_at), (data.as_fd(), data_bytes)];
        let mapping = Mapping::shared(parts, protection)?;
        let sizes = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        // Only this mapping can write from now on.
        let all = sizes | SealFlags::FUTURE_WRITE;
        fcntl_add_seals(&head, all)?;
        fcntl_add_seals(&data, if gives_back { sizes } else { all })?;
        Ok(Self::at(mapping, geometry, Some(Files { head, data, gives_back })))
    }

    fn at(mapping: Mapping, geometry: Geometry, files: Option<Files>) -> Self {
        let (is_starving, frames_used) = (AtomicBool::new(false), AtomicU32::new(0));
        Slab { mapping, geometry, files, is_starving, frames_used }
    }

    /// Whether [`give_back`](Slab::give_back) has an effect.
    pub(crate) fn gives_back(&self) -> bool {
        self.files.as_ref().is_some_and(|files| files.gives_back)
    }

    /// A. Gives the memory of adjacent frames back to the system. They are free, and nobody gets them meanwhile. Whoever reads
    /// them still, in another process, finds that their versions have changed, as after any eviction.
    pub(crate) fn give_back(&self, frames: std::ops::Range<Frame>) {
        let Some(Files { data, gives_back: true, .. }) = &self.files else { return };
        let block_bytes = self.geometry.block_bytes as u64;
        let (at, length) =
            (u64::from(frames.start) * block_bytes, frames.len() as u64 * block_bytes);
        // A failure costs memory alone.
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(data, how, at, length);
    }

    /// Frames from this one on have not been used, as far as they are free.
    pub(crate) fn frames_used(&self) -> Frame {
        self.frames_used.load(Ordering::Relaxed)
    }

    /// Where its parts are in its memory.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The files in memory, if other processes may map them: table with headers, and data.
    pub(crate) fn files(&self) -> Option<[BorrowedFd<'_>; 2]> {
        self.files.as_ref().map(|files| [files.head.as_fd(), files.data.as_fd()])
    }

    /// Bytes of its memory that have been used, from the first on: all or nearly all of them.
    pub(crate) fn used_bytes(&self) -> usize {
        match self.frames_used.load(Ordering::Relaxed) as usize {
            0 => 0,
            frames => self.geometry.data_at + frames * self.geometry.block_bytes,
        }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Number of frames.
    pub(crate) fn frames(&self) -> Frame {
        self.geometry.frames
    }

    /// B. Finds and pins the frame of `block`. May miss a block that is there.
    #[inline]
    pub(crate) fn pin(&self, block: Block) -> Option<Pinned> {
        // A pin added in vain may have kept the owner from a free frame. Then the reader gives up and goes to the owner.
        self.find_and_pin(block, || self.is_starving.load(Ordering::SeqCst))
    }

    /// A. As `pin`, for the owner: a block that is there is always found.
    pub(crate) fn pin_own(&self, block: Block) -> Option<Pinned> {
        self.find_and_pin(block, || false)
    }

    #[inline]
    fn find_and_pin(&self, block: Block, gives_up: impl Fn() -> bool) -> Option<Pinned> {
        let tag = Geometry::tag_of(block);
        let mut place = tag as usize & self.geometry.mask;
        // Bounded, although half of the entries are empty: they may move during the search.
        for _ in 0..=self.geometry.mask {
            let entry = self.entry(place).load(Ordering::Acquire);
            if entry == 0 {
                return None;
            }
            if (entry >> 32) as u32 == tag {
                match self.pin_frame((entry as u32) - 1, block) {
                    Some(pinned) => return Some(pinned),
                    None if gives_up() => return None,
                    None => {}
                }
            }
            place = (place + 1) & self.geometry.mask;
        }
        None
    }

    /// B. Prefetches, all at once, the headers that [`pin`](Slab::pin) will read for `count` blocks from `first` on,
    /// and the data at `from` of the first. Otherwise each pin would wait for the one before it, and the copy for its
    /// pin.
    #[inline]
    pub(crate) fn load(&self, first: Block, count: u64, from: usize) {
        for index in first.index..first.index + count {
            let tag = Geometry::tag_of(Block { index, ..first });
            // An entry is mostly at its block's home. If not, some lines are loaded in vain.
            let entry = self.entry(tag as usize & self.geometry.mask).load(Ordering::Relaxed);
            let Some(frame) = (entry as u32).checked_sub(1) else { continue };
            prefetch(std::ptr::from_ref(self.header(frame)).cast());
            if index == first.index {
                for line in 0..LINES {
                    prefetch(self.data(frame).wrapping_add(from + line * 64));
                }
            }
        }
    }

    fn pin_frame(&self, frame: Frame, block: Block) -> Option<Pinned> {
        let header = self.header(frame);
        let before = header.state.fetch_add(PIN, Ordering::Acquire);
        // File and index of a header change only while it is not valid, and no reader that saw it valid has it pinned.
        if before & VALID == 0 || !header.is_of(block.file.0, block.index) {
            self.unpin(frame);
            return None;
        }
        let is_first = before & UNREAD != 0
            && header.state.fetch_and(!UNREAD, Ordering::Relaxed) & UNREAD != 0;
        Some(Pinned { frame, is_first })
    }

    /// A. Pins a frame that the owner knows, valid or not.
    pub(crate) fn pin_known(&self, frame: Frame) -> Pinned {
        let header = self.header(frame);
        header.state.fetch_add(PIN, Ordering::Acquire);
        let is_first = header.state.fetch_and(!UNREAD, Ordering::Relaxed) & UNREAD != 0;
        Pinned { frame, is_first }
    }

    /// B. Ends a pin. Returns whether the owner waits for frames and should be called.
    #[inline]
    pub(crate) fn unpin(&self, frame: Frame) -> bool {
        // Sequentially consistent, as in `starve`: either the owner finds the frame free, or this finds the owner waiting.
        self.header(frame).state.fetch_sub(PIN, Ordering::SeqCst);
        self.is_starving.load(Ordering::SeqCst)
    }

    /// B. As [`unpin`](Slab::unpin), for adjacent frames.
    #[inline]
    pub(crate) fn unpin_run(&self, frames: std::ops::Range<Frame>) -> bool {
        for frame in frames {
            self.header(frame).state.fetch_sub(PIN, Ordering::SeqCst);
        }
        self.is_starving.load(Ordering::SeqCst)
    }

    /// Copies `length` bytes out of adjacent frames, beginning at byte `from` of the first.
    ///
    /// # Safety
    /// All of the frames are pinned. `to` is valid for writes of `length` bytes and not part of the slab.
    #[inline]
    pub(crate) unsafe fn copy_out(
        &self,
        frames: std::ops::Range<Frame>,
        from: usize,
        to: *mut u8,
        length: usize,
    ) {
        assert!(from + length <= frames.len() * self.geometry.block_bytes, "beyond the blocks");
        assert!(frames.end <= self.geometry.frames);
        let data = self.data(frames.start);
        // SAFETY: within the frames, as just asserted. While they are pinned nothing writes to them. The caller vouches
        // for `to`.
        unsafe { std::ptr::copy_nonoverlapping(data.add(from), to, length) }
    }

    /// The blocks of a file of `blocks` blocks that are in frames, ascending. For reports: blocks may come and go
    /// during the search.
    pub(crate) fn blocks_of(&self, file: FileId, blocks: u64) -> Vec<u64> {
        let mut found: Vec<u64> = if blocks <= u64::from(self.frames()) {
            (0..blocks).filter(|&index| self.holds(Block { file, index })).collect()
        } else {
            let of_frame = |frame: Frame| {
                let header = self.header(frame);
                let is_valid = || header.state.load(Ordering::Acquire) & VALID != 0;
                let index = is_valid().then(|| header.index.load(Ordering::Acquire))?;
                let is_its = header.file.load(Ordering::Acquire) == file.0 && is_valid();
                (is_its && index < blocks).then_some(index)
            };
            (0..self.frames()).filter_map(of_frame).collect()
        };
        found.sort_unstable();
        found.dedup();
        found
    }

    /// A. Whether `block` has a frame.
    pub(crate) fn holds(&self, block: Block) -> bool {
        self.place_of(block).is_some()
    }

    /// A. Whether a frame is neither valid nor pinned.
    pub(crate) fn is_free(&self, frame: Frame) -> bool {
        self.header(frame).state.load(Ordering::SeqCst) == 0
    }

    /// A. Sets whether readers should call the owner when they unpin a frame.
    pub(crate) fn starve(&self, is_starving: bool) {
        self.is_starving.store(is_starving, Ordering::SeqCst);
    }

    /// A frame's data. Only the owner of a frame may write there: the frame is not valid, was [free](Slab::is_free),
    /// and has been given to no other request.
    pub(crate) fn data(&self, frame: Frame) -> *mut u8 {
        assert!(frame < self.geometry.frames);
        // SAFETY: within the mapping.
        unsafe {
            self.mapping
                .base()
                .add(self.geometry.data_at + frame as usize * self.geometry.block_bytes)
        }
    }

    /// A. Zeroes the data of a free frame from byte `from` on.
    pub(crate) fn clear_from(&self, frame: Frame, from: usize) {
        let (data, length) = (self.data(frame), self.geometry.block_bytes - from);
        // SAFETY: within the frame's data. The frame is free, so the owner may write.
        unsafe { data.add(from).write_bytes(0, length) }
    }

    /// A. Publishes a frame that has the data of `block`. The block must not have a frame yet.
    pub(crate) fn publish(&self, block: Block, frame: Frame, is_unread: bool) {
        debug_assert!(!self.holds(block), "{block:?} twice");
        self.header(frame).publish(block.file.0, block.index, is_unread);
        self.frames_used.fetch_max(frame + 1, Ordering::Relaxed);
        let tag = Geometry::tag_of(block);
        let mut place = tag as usize & self.geometry.mask;
        while self.entry(place).load(Ordering::Relaxed) != 0 {
            place = (place + 1) & self.geometry.mask;
        }
        let entry = u64::from(tag) << 32 | u64::from(frame + 1);
        self.entry(place).store(entry, Ordering::Release);
    }

    /// A. Takes the frame away from `block`. The frame may still be pinned.
    pub(crate) fn evict(&self, block: Block) -> Option<Frame> {
        let mut gap = self.place_of(block)?;
        let frame = self.entry(gap).load(Ordering::Relaxed) as u32 - 1;
        self.header(frame).withdraw();
        // Entries after the gap move up if the gap lies between them and their home.
        let mut place = gap;
        loop {
            place = (place + 1) & self.geometry.mask;
            let entry = self.entry(place).load(Ordering::Relaxed);
            if entry == 0 {
                break;
            }
            let home = (entry >> 32) as usize & self.geometry.mask;
            let from_home = place.wrapping_sub(home) & self.geometry.mask;
            if from_home >= (place.wrapping_sub(gap) & self.geometry.mask) {
                self.entry(gap).store(entry, Ordering::Release);
                gap = place;
            }
        }
        self.entry(gap).store(0, Ordering::Release);
        Some(frame)
    }

    fn place_of(&self, block: Block) -> Option<usize> {
        let tag = Geometry::tag_of(block);
        let mut place = tag as usize & self.geometry.mask;
        loop {
            let entry = self.entry(place).load(Ordering::Relaxed);
            if entry == 0 {
                return None;
            }
            if (entry >> 32) as u32 == tag {
                let header = self.header(entry as u32 - 1);
                let known = Block {
                    file: FileId(header.file.load(Ordering::Relaxed)),
                    index: header.index.load(Ordering::Relaxed),
                };
                if known == block {
                    return Some(place);
                }
            }
            place = (place + 1) & self.geometry.mask;
        }
    }

    #[inline]
    fn entry(&self, place: usize) -> &AtomicU64 {
        debug_assert!(place <= self.geometry.mask);
        // SAFETY: within the table at the beginning of the mapping; aligned, and accessed only as atomics. The mapping
        // begins as zeros, which are empty entries.
        unsafe { &*self.mapping.base().cast::<AtomicU64>().add(place) }
    }

    #[inline]
    fn header(&self, frame: Frame) -> &Header {
        assert!(frame < self.geometry.frames);
        // SAFETY: within the mapping; `headers_at` is a multiple of 64; all fields are atomics and begin as zeros.
        unsafe {
            &*self.mapping.base().add(self.geometry.headers_at).cast::<Header>().add(frame as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn block(index: u64) -> Block {
        Block { file: FileId(index % 3), index }
    }

    fn fill(slab: &Slab, frame: Frame, with: u64) {
        for word in 0..slab.geometry.block_bytes / 8 {
            // SAFETY: a free frame, of this test's one owner.
            unsafe { slab.data(frame).cast::<u64>().add(word).write(with) }
        }
    }

    #[test]
    fn blocks_are_found_until_they_are_evicted() {
        let slab = Slab::new(100, 64).unwrap();
        let mut rng: u64 = 1;
        let mut held: Vec<(u64, Frame)> = Vec::new();
        let mut free: Vec<Frame> = (0..100).collect();
        for step in 0..100_000u64 {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if let Some(frame) = free.pop().filter(|_| !rng.is_multiple_of(3)) {
                fill(&slab, frame, step);
                slab.publish(block(step), frame, step % 2 == 0);
                held.push((step, frame));
            } else if !held.is_empty() {
                let (index, frame) = held.swap_remove((rng >> 33) as usize % held.len());
                assert_eq!(slab.evict(block(index)), Some(frame));
                assert!(slab.is_free(frame) && slab.pin(block(index)).is_none());
                free.push(frame);
            }
            if free.len() + held.len() < 100 {
                free = (0..100).filter(|frame| held.iter().all(|held| held.1 != *frame)).collect();
            }
            if step % 1000 == 0 {
                for &(index, frame) in &held {
                    assert!(slab.holds(block(index)));
                    let pinned = slab.pin(block(index)).unwrap();
                    assert_eq!(pinned.frame, frame);
                    slab.unpin(frame);
                }
            }
        }
    }

    #[test]
    fn the_first_to_read_what_was_fetched_ahead_is_told() {
        let slab = Slab::new(1, 64).unwrap();
        slab.publish(block(1), 0, true);
        let (one, other) = (slab.pin(block(1)).unwrap(), slab.pin(block(1)).unwrap());
        assert_eq!((one.is_first, other.is_first), (true, false));
        slab.evict(block(1));
        assert!(!slab.is_free(0));
        slab.starve(true);
        assert!(slab.unpin(one.frame));
        assert!(!slab.is_free(0));
        slab.unpin(other.frame);
        assert!(slab.is_free(0));
    }

    /// Readers copy whole blocks, each of one value, while the owner evicts and fills.
    #[test]
    fn readers_never_see_half_of_a_block() {
        const BLOCKS: u64 = 64;
        const WORDS: usize = 64;
        let slab = Slab::new(24, WORDS * 8).unwrap();
        let stop = AtomicBool::new(false);
        let hits = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (slab, stop, hits) = (&slab, &stop, &hits);
                scope.spawn(move || {
                    let mut index = reader;
                    while !stop.load(Ordering::Relaxed) {
                        index = (index * 5 + 1) % BLOCKS;
                        let Some(pinned) = slab.pin(block(index)) else { continue };
                        let mut copy = [0u64; WORDS];
                        // SAFETY: the copy has as many bytes.
                        unsafe {
                            slab.copy_out(
                                pinned.frame..pinned.frame + 1,
                                0,
                                copy.as_mut_ptr().cast(),
                                WORDS * 8,
                            );
                        }
                        slab.unpin(pinned.frame);
                        assert!(copy.iter().all(|&word| word == copy[0]), "{copy:?}");
                        assert_eq!(copy[0] % BLOCKS, index);
                        hits.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let (mut free, mut limbo): (Vec<Frame>, Vec<Frame>) = ((0..24).collect(), Vec::new());
            let mut held = std::collections::VecDeque::new();
            for step in 0..60_000u64 {
                if let Some(at) = limbo.iter().position(|&frame| slab.is_free(frame)) {
                    free.push(limbo.swap_remove(at));
                }
                match free.pop() {
                    Some(frame) if !slab.holds(block(step % BLOCKS)) => {
                        fill(&slab, frame, step);
                        slab.publish(block(step % BLOCKS), frame, true);
                        held.push_back(step % BLOCKS);
                    }
                    other => {
                        free.extend(other);
                        if let Some(index) = held.pop_front() {
                            limbo.extend(slab.evict(block(index)));
                        }
                    }
                }
            }
            // On one processor readers may not have had a turn.
            while hits.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
