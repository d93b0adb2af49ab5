//! The secret of a user that names of families are made with, and the folder of a user's daemon.
//!
//! Names of sockets are public, and credentials are part of what is hashed.

#[expect(deprecated, reason = "the hasher that takes its place has a fixed key")]
use std::hash::{Hasher, SipHasher};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The user's secret.
#[derive(Clone, Copy)]
pub(crate) struct Secret(u128);

/// The folder for what lasts while the user is logged in.
fn run_folder() -> PathBuf {
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|at| at.is_absolute());
    let user = effective_user();
    runtime.map_or_else(|| format!("/tmp/foretell-{user}").into(), |at| at.join("foretell"))
}

/// The folder of the user's daemon; `None` if there is to be none. As the daemon itself finds it.
pub(crate) fn daemon_folder() -> Option<PathBuf> {
    match std::env::var_os("FORETELL_DAEMON") {
        Some(folder) if folder.is_empty() => None,
        Some(folder) => std::path::absolute(folder).ok(),
        None => Some(run_folder()),
    }
}

/// Whether it is a folder of this user, to which nobody else may write.
pub(crate) fn is_own_folder(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder).is_ok_and(|about| {
        about.is_dir() && about.uid() == effective_user() && about.mode() & 0o022 == 0
    })
}

fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Secret {
    /// The user's secret, made at its first use; `None` without a folder for it.
    pub(crate) fn find() -> Option<Self> {
        let folder = run_folder();
        let _ = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        if !is_own_folder(&folder) {
            return None;
        }
        let (at, new) =
            (folder.join("share.key"), folder.join(format!("share.key.{}", std::process::id())));
        let read = || {
            let about = std::fs::symlink_metadata(&at).ok()?;
            let is_own =
                about.is_file() && about.uid() == effective_user() && about.mode() & 0o077 == 0;
            let bytes = std::fs::read(&at).ok().filter(|_| is_own)?;
            Some(Secret(u128::from_ne_bytes(bytes.try_into().ok()?)))
        };
        read().or_else(|| {
            let mut bytes = [0; 16];
            std::fs::File::open("/dev/urandom").ok()?.read_exact(&mut bytes).ok()?;
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&new).ok()?;
            // A link, so that of several processes one makes it, and all of it is there.
            let _ = file.write_all(&bytes).and_then(|()| std::fs::hard_link(&new, &at));
            let _ = std::fs::remove_file(&new);
            read()
        })
    }

    /// A hash of a family that says nothing of what is in it. Each use has hashes of its own.
    pub(crate) fn hash_of(self, family: &[u8], use_of: u8) -> u128 {
        let half = |number: u8| {
            #[expect(deprecated, reason = "the hasher that takes its place has a fixed key")]
            let mut hasher = SipHasher::new_with_keys(self.0 as u64, (self.0 >> 64) as u64);
            hasher.write(&[use_of, number]);
            hasher.write(family);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }
}
