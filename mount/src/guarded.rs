//! A file system in which a panic costs only the request in which it happens.
//!
//! Without this, a panic would end a thread of the session, and the last one to end would end the mount. Here the
//! request's reply is dropped as the stack unwinds, which gives the program EIO. Locks that were held are taken over as
//! they are, as everywhere in this crate.

use std::ffi::OsStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::SystemTime;

use foretell_fault::point;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};

/// See the [module](self).
pub(crate) struct Guarded<F>(pub(crate) F);

/// Each method calls the file system's own and catches its panics.
macro_rules! guarded {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(fn $name(&self, $($argument: $type),*) {
            // The panic hook has reported it, and the reply was dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                point("mount-session");
                self.0.$name($($argument),*);
            }));
        })*
    };
}

#[rustfmt::skip]
impl<F: Filesystem> Filesystem for Guarded<F> {
    fn init(&mut self, request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.0.init(request, config)
    }

    fn destroy(&mut self) {
        self.0.destroy();
    }

    guarded! {
        lookup(req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry);
        forget(req: &Request, ino: INodeNo, nlookup: u64);
        getattr(req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr);
        setattr(req: &Request, ino: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>, atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>, ctime: Option<SystemTime>, fh: Option<FileHandle>, crtime: Option<SystemTime>, chgtime: Option<SystemTime>, bkuptime: Option<SystemTime>, flags: Option<BsdFileFlags>, reply: ReplyAttr);
        readlink(req: &Request, ino: INodeNo, reply: ReplyData);
        mknod(req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32, reply: ReplyEntry);
        mkdir(req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry);
        unlink(req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
        rmdir(req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
        symlink(req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry);
        rename(req: &Request, parent: INodeNo, name: &OsStr, newparent: INodeNo, newname: &OsStr, flags: RenameFlags, reply: ReplyEmpty);
        link(req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry);
        open(req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);
        read(req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, size: u32, flags: OpenFlags, lock_owner: Option<LockOwner>, reply: ReplyData);
        write(req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, data: &[u8], write_flags: WriteFlags, flags: OpenFlags, lock_owner: Option<LockOwner>, reply: ReplyWrite);
        flush(req: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty);
        release(req: &Request, ino: INodeNo, fh: FileHandle, flags: OpenFlags, lock_owner: Option<LockOwner>, flush: bool, reply: ReplyEmpty);
        fsync(req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty);
        opendir(req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);
        readdir(req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory);
        readdirplus(req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus);
        releasedir(req: &Request, ino: INodeNo, fh: FileHandle, flags: OpenFlags, reply: ReplyEmpty);
        fsyncdir(req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty);
        statfs(req: &Request, ino: INodeNo, reply: ReplyStatfs);
        setxattr(req: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, position: u32, reply: ReplyEmpty);
        getxattr(req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr);
        listxattr(req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr);
        removexattr(req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty);
        access(req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty);
        create(req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32, reply: ReplyCreate);
        getlk(req: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, start: u64, end: u64, typ: i32, pid: u32, reply: ReplyLock);
        setlk(req: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, start: u64, end: u64, typ: i32, pid: u32, sleep: bool, reply: ReplyEmpty);
        bmap(req: &Request, ino: INodeNo, blocksize: u32, idx: u64, reply: ReplyBmap);
        ioctl(req: &Request, ino: INodeNo, fh: FileHandle, flags: IoctlFlags, cmd: u32, in_data: &[u8], out_size: u32, reply: ReplyIoctl);
        poll(req: &Request, ino: INodeNo, fh: FileHandle, ph: PollNotifier, events: PollEvents, flags: PollFlags, reply: ReplyPoll);
        fallocate(req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32, reply: ReplyEmpty);
        lseek(req: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek);
        copy_file_range(req: &Request, ino_in: INodeNo, fh_in: FileHandle, offset_in: u64, ino_out: INodeNo, fh_out: FileHandle, offset_out: u64, len: u64, flags: CopyFileRangeFlags, reply: ReplyWrite);
    }
}
