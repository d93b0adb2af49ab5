//! The blocks of a cache in another process, mapped for reading.
//!
//! A reader has no pins. It notes the version of a frame, copies, and compares the version ([`Header`]): if the owner has
//! withdrawn the block meanwhile, what was copied is thrown away, and the block counts as absent.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use foretell_policy::Block;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::ProtFlags;

use crate::frame::Header;
use crate::geometry::Geometry;
use crate::mapping::Mapping;
use crate::slab::Frame;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct FarSlab {
    mapping: Mapping,
    geometry: Geometry,
}

impl FarSlab {
    /// Maps the files of a slab of so many frames.
    ///
    /// # Errors
    /// Those of `mmap`; `InvalidData` if a file has another size, or may be cut.
    pub(crate) fn map(
        files: [BorrowedFd<'_>; 2],
        frames: Frame,
        block_bytes: usize,
    ) -> io::Result<Self> {
        foretell_fault::failing("cache-map", libc::ENOMEM)?;
        let geometry = Geometry::new(frames, block_bytes).ok_or(io::ErrorKind::InvalidData)?;
        let [head, data] = files;
        let data_bytes = geometry.mapped_bytes - geometry.data_at;
        let parts = [(head, geometry.data_at), (data, data_bytes)];
        for (file, bytes) in parts {
            // A file that is cut would end this process by a signal when it reads.
            let is_sealed = fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
            if !is_sealed || fstat(file)?.st_size != bytes as i64 {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let mapping = Mapping::shared(parts, ProtFlags::READ)?;
        Ok(FarSlab { mapping, geometry })
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.geometry.block_bytes
    }

    /// Copies `length` bytes of a block, from its byte `from` on. Returns `None` if the block is not there or was withdrawn
    /// meanwhile; then some bytes of the destination may have been overwritten. Otherwise, whether nobody has read the block
    /// since it was prefetched.
    ///
    /// # Safety
    /// `to` is valid for writes of `length` bytes, and not part of the mapping.
    #[inline]
    pub(crate) unsafe fn copy(
        &self,
        block: Block,
        from: usize,
        to: *mut u8,
        length: usize,
    ) -> Option<bool> {
        assert!(from + length <= self.geometry.block_bytes, "beyond the block");
        let tag = Geometry::tag_of(block);
        let mut place = tag as usize & self.geometry.mask;
        // Bounded, although half of the entries are empty: they may move during the search.
        for _ in 0..=self.geometry.mask {
            let entry = self.entry(place).load(Ordering::Acquire);
            let frame = (entry as u32).checked_sub(1)?;
            if (entry >> 32) as u32 == tag && frame < self.geometry.frames {
                let header = self.header(frame);
                if let Some(seen) = header.look(block.file.0, block.index) {
                    let data =
                        self.geometry.data_at + frame as usize * self.geometry.block_bytes + from;
                    // SAFETY: within the mapping, as just checked; the caller vouches for `to`. Another process may write
                    // to the source meanwhile. No reference to it exists here, so to the compiler these are bytes of the
                    // outside world; whatever they are, `is_still` then says that they are worthless.
                    unsafe {
                        std::ptr::copy_nonoverlapping(self.mapping.base().add(data), to, length)
                    };
                    return header.is_still(seen).then_some(seen.is_unread);
                }
            }
            place = (place + 1) & self.geometry.mask;
        }
        None
    }

    #[inline]
    fn entry(&self, place: usize) -> &AtomicU64 {
        // SAFETY: within the table at the beginning of the mapping, since callers mask the place; aligned. Loads of atomics
        // may be made of memory that is mapped for reading only.
        unsafe { &*self.mapping.base().cast::<AtomicU64>().add(place) }
    }

    #[inline]
    fn header(&self, frame: Frame) -> &Header {
        // SAFETY: within the mapping, since callers check the frame; aligned; all fields are atomics, which are only loaded.
        unsafe {
            &*self.mapping.base().add(self.geometry.headers_at).cast::<Header>().add(frame as usize)
        }
    }
}
