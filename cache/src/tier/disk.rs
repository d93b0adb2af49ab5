//! The two files, and the folder's lock.
//!
//! Data bypass the page cache (`O_DIRECT`). A second copy of the data there would evict other programs' pages, and
//! dirty pages would pile up until the kernel makes writers wait. On a file system without direct I/O the page cache is
//! used, and pages are dropped after a read or write where possible (`POSIX_FADV_DONTNEED`). The index is small and
//! goes through the page cache.
//!
//! Reads and writes of data are whole *units* of [`UNIT`] bytes, at multiples of it, in memory and on disk.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::buffer::UNIT;

/// The storage of blocks: the two files, or a disk with faults in tests.
///
/// The caller reads and writes data in whole units. A read may be short only at the end of the file. A write that
/// fails may have been done in part.
pub(crate) trait Disk: Send + Sync + 'static {
    /// Reads data from `offset_bytes` on. Returns the number of bytes.
    fn read_data(&self, into: &mut [IoSliceMut<'_>], offset_bytes: u64) -> io::Result<usize>;
    /// Writes all of the data.
    fn write_data(&self, from: &[&[u8]], offset_bytes: u64) -> io::Result<()>;
    /// Reads a part of the index. Returns the number of bytes.
    fn read_index(&self, into: &mut [u8], offset_bytes: u64) -> io::Result<usize>;
    /// Writes a part of the index.
    fn write_index(&self, from: &[u8], offset_bytes: u64) -> io::Result<()>;
    /// Cuts both files to these lengths, if they are longer.
    fn cut(&self, index_bytes: u64, data_bytes: u64) -> io::Result<()>;
}

/// Names of the files.
pub(crate) const DATA: &str = "foretell-tier.data";
pub(crate) const INDEX: &str = "foretell-tier.index";

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Files {
    data: File,
    index: File,
    is_direct: AtomicBool,
    /// Holds the folder's lock while it is open.
    _folder: OwnedFd,
}

/// Why the files could not be opened.
pub(crate) enum NoFiles {
    /// Another tier has locked the folder.
    InUse,
    Io(io::Error),
}

impl<E: Into<io::Error>> From<E> for NoFiles {
    fn from(error: E) -> Self {
        NoFiles::Io(error.into())
    }
}

impl Files {
    /// Opens the files in `folder`, and creates what is missing. Without `keep` the files are new and have no name, so they
    /// disappear when the process ends, however that happens.
    pub(crate) fn open(folder: &Path, keep: bool) -> Result<Self, NoFiles> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let locked = rustix::fs::open(folder, flags, Mode::empty())?;
        match rustix::fs::flock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(NoFiles::InUse),
            other => other?,
        }
        if !keep {
            remove(folder)?;
        }
        let open = |name: &str, flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.custom_flags((flags | OFlags::NOFOLLOW).bits() as i32);
            options.open(folder.join(name))
        };
        let (data, is_direct) = match open(DATA, OFlags::DIRECT) {
            Ok(data) => (data, true),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                (open(DATA, OFlags::empty())?, false)
            }
            Err(error) => return Err(error.into()),
        };
        let index = open(INDEX, OFlags::empty())?;
        if !keep {
            remove(folder)?;
        }
        let is_direct = AtomicBool::new(is_direct);
        Ok(Files { data, index, is_direct, _folder: locked })
    }

    /// Runs an operation on the data. If direct I/O turns out to be impossible, this and all later operations use the page
    /// cache.
    fn with_data<R>(&self, act: impl Fn(&File) -> io::Result<R>) -> io::Result<R> {
        loop {
            match act(&self.data) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == io::ErrorKind::InvalidInput
                        && self.is_direct.swap(false, Ordering::Relaxed) =>
                {
                    let flags = rustix::fs::fcntl_getfl(&self.data)?;
                    rustix::fs::fcntl_setfl(&self.data, flags - OFlags::DIRECT)?;
                }
                other => return other,
            }
        }
    }

    /// Drops a range from the page cache, unless I/O is direct.
    fn let_go(&self, offset_bytes: u64, length: u64) {
        if !self.is_direct.load(Ordering::Relaxed) {
            let length = std::num::NonZeroU64::new(length);
            // An error does not matter: this is advice. Dirty pages stay.
            let _ = rustix::fs::fadvise(&self.data, offset_bytes, length, Advice::DontNeed);
        }
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    for name in [INDEX, DATA] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Disk for Files {
    fn read_data(&self, into: &mut [IoSliceMut<'_>], offset_bytes: u64) -> io::Result<usize> {
        let total: usize = into.iter().map(|piece| piece.len()).sum();
        let mut into = into;
        let mut done = 0;
        // The kernel may stop between any two units.
        while done < total {
            let at = offset_bytes + done as u64;
            let some = {
                let pieces = std::cell::RefCell::new(&mut *into);
                self.with_data(|data| Ok(rustix::io::preadv(data, &mut pieces.borrow_mut(), at)?))?
            };
            if some == 0 {
                break;
            }
            done += some;
            if done < total && !some.is_multiple_of(UNIT) {
                break; // The end of the file.
            }
            IoSliceMut::advance_slices(&mut into, some);
        }
        self.let_go(offset_bytes, total as u64);
        Ok(done)
    }

    fn write_data(&self, from: &[&[u8]], offset_bytes: u64) -> io::Result<()> {
        let total: usize = from.iter().map(|piece| piece.len()).sum();
        let mut pieces: Vec<IoSlice<'_>> = from.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut pieces = pieces.as_mut_slice();
        let mut done = 0;
        while done < total {
            let at = offset_bytes + done as u64;
            let some = self.with_data(|data| Ok(rustix::io::pwritev(data, pieces, at)?))?;
            if some == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += some;
            IoSlice::advance_slices(&mut pieces, some);
        }
        self.let_go(offset_bytes, total as u64);
        Ok(())
    }

    fn read_index(&self, into: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.index.read_at(&mut into[done..], offset_bytes + done as u64) {
                Ok(0) => break,
                Ok(some) => done += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_index(&self, from: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.index.write_all_at(from, offset_bytes)
    }

    fn cut(&self, index_bytes: u64, data_bytes: u64) -> io::Result<()> {
        for (file, bytes) in [(&self.index, index_bytes), (&self.data, data_bytes)] {
            if file.metadata()?.len() > bytes {
                file.set_len(bytes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    fn files(folder: &Path) -> Files {
        Files::open(folder, true).ok().expect("they can be opened")
    }

    #[test]
    fn what_was_written_in_pieces_is_read_in_others() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let mut buffer = Buffer::new(5 * UNIT);
        for (at, byte) in buffer.bytes_mut().iter_mut().enumerate() {
            *byte = (at / 7) as u8;
        }
        let (one, other) = buffer.bytes().split_at(2 * UNIT);
        files.write_data(&[one, other], 3 * UNIT as u64).unwrap();
        let mut found = Buffer::new(8 * UNIT);
        let (head, rest) = found.bytes_mut().split_at_mut(UNIT);
        let mut pieces = [IoSliceMut::new(head), IoSliceMut::new(rest)];
        // The file has fewer bytes than are asked for.
        let length = files.read_data(&mut pieces, 4 * UNIT as u64).unwrap();
        assert_eq!(length, 4 * UNIT);
        assert!(found.bytes()[..length] == buffer.bytes()[UNIT..]);
        assert_eq!(files.read_data(&mut [IoSliceMut::new(found.bytes_mut())], 1 << 30).unwrap(), 0);
        files.cut(0, 4 * UNIT as u64).unwrap();
        let length = files.read_data(&mut [IoSliceMut::new(found.bytes_mut())], 0).unwrap();
        assert_eq!(length, 4 * UNIT);
    }

    #[test]
    fn where_there_is_no_direct_i_o_the_page_cache_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        // Memory that is not aligned as direct I/O requires: the system refuses the request, or does it all the same.
        let bytes: Vec<u8> = (0..2 * UNIT + 1).map(|at| (at / 3) as u8).collect();
        files.write_data(&[&bytes[1..]], 0).unwrap();
        let mut found = vec![0; 2 * UNIT + 1];
        let read = files.read_data(&mut [IoSliceMut::new(&mut found[1..])], 0).unwrap();
        assert_eq!(read, 2 * UNIT);
        assert!(found[1..] == bytes[1..]);
        let mut buffer = Buffer::new(UNIT);
        files.read_data(&mut [IoSliceMut::new(buffer.bytes_mut())], UNIT as u64).unwrap();
        assert!(buffer.bytes() == &bytes[1 + UNIT..]);
    }
}
