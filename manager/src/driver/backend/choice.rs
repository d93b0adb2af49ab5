//! Which back end serves a file system, and why.
//!
//! A. Lustre and GPFS are known by their type. Without its library, each is treated as unknown.
//! B. File systems of the kernel that read through the page cache take advice.
//!    Foretell's own mounts are among them: hints bring random reads as soon, and a sequential read a fifth later.
//! C. On any other file system, advice is tried with its first file. Where it has no effect, data is read.

use std::thread;
use std::time::{Duration, Instant};

use super::{Advised, Backend, BackendKind, POSIX, READ_THROUGH, Standing, Target};
use crate::driver::residency::{Range, page_bytes};

/// Numbers of file systems in `statfs`, which the C library does not name.
const LUSTRE: u32 = 0x0bd0_0bd0;
const GPFS: u32 = 0x4750_4653;
/// `FUSE_SUPER_MAGIC` of `linux/magic.h`.
pub(crate) const FUSE: u32 = 0x6573_5546;

/// B: file systems of the kernel whose reads go through the page cache.
const TAKE_ADVICE: [u32; 28] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    FUSE,
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x00c3_6400, // Ceph
    0x0102_1997, // 9p
    0x5346_414f, // AFS
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // EROFS
    0x9660,      // ISO 9660
    0x1501_3346, // UDF
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0x3153_464a, // JFS
    0x3434,      // NILFS2
    0xf15f,      // eCryptfs
];

/// How long advice for a page may take to have an effect.
const EFFECT_PATIENCE: Duration = Duration::from_millis(250);

/// Time between two looks meanwhile.
const EFFECT_INTERVAL: Duration = Duration::from_micros(300);

/// A read that takes less than this part of that time tells that the device would have answered.
const EFFECT_FACTOR: u32 = 4;

/// A back end, and why it was chosen.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) backend: &'static dyn Backend,
    pub(crate) why: String,
}

impl Choice {
    fn new(backend: &'static dyn Backend, why: impl Into<String>) -> Self {
        Choice { backend, why: why.into() }
    }

    /// What a measurement has told.
    pub(crate) fn measured(takes_advice: bool) -> Self {
        match takes_advice {
            true => Choice::new(&POSIX, "advice had an effect on a file of it"),
            false => Choice::new(&READ_THROUGH, "advice had no effect on a file of it"),
        }
    }
}

/// What the type of a file system tells.
pub(crate) enum ByType {
    Chosen(Choice),
    /// Nothing: a measurement must tell. Until then it is as this choice says.
    Unknown(Choice),
}

/// Chooses by the number of the file system that `statfs` tells.
pub(crate) fn by_type(magic: u32) -> ByType {
    let of_library = |name: &str, kind| match super::of_kind(kind) {
        Ok(backend) => ByType::Chosen(Choice::new(backend, format!("it is {name}"))),
        Err(why) => ByType::Unknown(Choice::new(&POSIX, format!("it is {name}, but {why}"))),
    };
    match magic {
        LUSTRE => of_library("Lustre", BackendKind::Lustre),
        GPFS => of_library("GPFS", BackendKind::Gpfs),
        _ if TAKE_ADVICE.contains(&magic) => {
            ByType::Chosen(Choice::new(&POSIX, "the kernel takes advice for it"))
        }
        _ => ByType::Unknown(Choice::new(&POSIX, "it has not been tried yet")),
    }
}

/// C: whether advice for the first page of `range` has an effect. `None` if this file cannot tell, because the page is in
/// memory, its arrival cannot be observed, or the device is slow. Reads the page if advice does not bring it.
pub(crate) fn takes_advice(file: &Target, range: Range) -> Option<bool> {
    let first = Range { length_bytes: range.length_bytes.min(page_bytes()), ..range };
    if file.standing(first) != Standing::Missing {
        return None;
    }
    let began = Instant::now();
    let advised = POSIX.fetch(file, first);
    while matches!(advised, Advised::Started) && began.elapsed() < EFFECT_PATIENCE {
        if file.has_arrived(first) == Some(true) {
            return Some(true);
        }
        thread::sleep(EFFECT_INTERVAL);
    }
    let (waited, began) = (began.elapsed(), Instant::now());
    match advised {
        // The kernel has accepted nothing.
        Advised::Fetched => Some(false),
        Advised::Started if matches!(file.read_through(first), Advised::Fetched) => {
            is_ignored(waited, began.elapsed()).then_some(false)
        }
        _ => None,
    }
}

/// Whether advice that had no effect for the time `waited` was ignored, given how long a read then `took`.
fn is_ignored(waited: Duration, took: Duration) -> bool {
    took.saturating_mul(EFFECT_FACTOR) < waited
}

#[cfg(test)]
mod tests {
    use super::super::of_kind;
    use super::*;

    #[test]
    fn a_file_system_is_known_by_its_number() {
        let chosen = |magic| match by_type(magic) {
            ByType::Chosen(choice) => choice.backend.kind(),
            ByType::Unknown(choice) => {
                assert_eq!(choice.backend.kind(), BackendKind::Posix, "until it is measured");
                BackendKind::Auto
            }
        };
        let known = [0xef53, FUSE, 0x1234_5678].map(chosen);
        assert_eq!(known, [BackendKind::Posix, BackendKind::Posix, BackendKind::Auto]);
        for (magic, kind) in [(LUSTRE, BackendKind::Lustre), (GPFS, BackendKind::Gpfs)] {
            let expected = if of_kind(kind).is_ok() { kind } else { BackendKind::Auto };
            assert_eq!(chosen(magic), expected);
        }
    }

    #[test]
    fn a_device_that_is_slow_has_not_ignored_advice() {
        let ms = Duration::from_millis;
        assert!(is_ignored(ms(250), ms(10)));
        assert!(!is_ignored(ms(250), ms(100)) && !is_ignored(ms(250), Duration::MAX));
    }

    #[test]
    fn pages_in_memory_do_not_tell_whether_advice_has_an_effect() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        std::io::Write::write_all(&mut file, &[7; 10_000]).expect("room for it");
        let owner_uid = rustix::process::geteuid().as_raw();
        let target = Target::new(file, 10_000, owner_uid);
        let range = Range { offset_bytes: 0, length_bytes: 10_000 };
        assert_eq!(takes_advice(&target, range), None);
    }
}
