//! Where profiles are kept: a file each, in a folder of the user.
//!
//! * The folder has mode 0700, a file 0600. A file is named after its key.
//! * A profile is written beside the old one and put in its place, so that a reader sees one or the other. A lock is held from the
//!   reading to the writing: what several runs learn at once adds up.
//! * A damaged file is set aside (`.damaged`), and its workload begins anew.
//! * The files take [`STORE_MAX_BYTES`] and are [`STORE_MAX_FILES`] at most. What was not used for longest goes first.
//!
//! Nothing is forced to the disk: a profile that a crash of the machine cuts off is found by its sum.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use crate::codec::{self, Damage, PROFILE_MAX_BYTES};
use crate::profile::Profile;

/// Bytes of all files.
pub const STORE_MAX_BYTES: u64 = 64 << 20;

/// Files.
pub const STORE_MAX_FILES: usize = 4096;

const SUFFIX: &str = "profile";
const LOCK: &str = "lock";

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// A profile in the store.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its file.
    pub path: PathBuf,
    /// Its key.
    pub key: Vec<u8>,
    /// What was learned.
    pub profile: Profile,
    /// Bytes of its file.
    pub bytes: u64,
    /// When it was used last.
    pub used_at: SystemTime,
}

/// Why the store cannot be used, or a profile of it.
#[derive(Debug)]
pub enum StoreError {
    /// A call has failed.
    Io(PathBuf, io::Error),
    /// A profile was damaged, and was set aside.
    Damaged(PathBuf, Damage),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            StoreError::Damaged(path, damage) => {
                write!(f, "{}: {damage}, and was set aside; it is learned anew", path.display())
            }
        }
    }
}

impl std::error::Error for StoreError {}

impl Store {
    /// The store in this folder, which need not be there.
    pub fn at(folder: PathBuf) -> Self {
        Store { folder }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of a key.
    fn file(&self, key: &[u8]) -> PathBuf {
        let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{name}.{SUFFIX}"))
    }

    fn io(&self, error: io::Error) -> StoreError {
        StoreError::Io(self.folder.clone(), error)
    }

    /// What was learned under `key`; `None` if nothing was.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn load(&self, key: &[u8]) -> Result<Option<Profile>, StoreError> {
        let path = self.file(key);
        let Some(bytes) = read(&path).map_err(|error| StoreError::Io(path.clone(), error))? else {
            return Ok(None);
        };
        match codec::decode(&bytes) {
            Ok((found, profile)) => Ok((found == key).then_some(profile)),
            Err(damage) => {
                let _ = fs::rename(&path, path.with_extension("damaged"));
                Err(StoreError::Damaged(path, damage))
            }
        }
    }

    /// Has `change` change what was learned under `key`, or the profile of this `name` if nothing was. A damaged one is set aside.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn update(
        &self,
        key: &[u8],
        name: &str,
        change: impl FnOnce(&mut Profile),
    ) -> Result<(), StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| self.io(error))?;
        let lock = open_own(&self.folder.join(LOCK)).map_err(|error| self.io(error))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| self.io(error.into()))?;
        let known = match self.load(key) {
            Ok(known) => known,
            Err(StoreError::Damaged(..)) => None,
            Err(error) => return Err(error),
        };
        let mut profile = known.unwrap_or_else(|| Profile::new(name.to_owned()));
        change(&mut profile);
        let bytes = codec::encode(key, &profile);
        if bytes.len() <= PROFILE_MAX_BYTES {
            let path = self.file(key);
            replace(&path, &bytes).map_err(|error| StoreError::Io(path, error))?;
        }
        self.shrink();
        Ok(())
    }

    /// Removes what was not used for longest, while there is too much.
    fn shrink(&self) {
        let mut files = self.files();
        files.sort_by_key(|(_, _, used_at)| *used_at);
        let (mut count, mut bytes) =
            (files.len(), files.iter().map(|(_, bytes, _)| bytes).sum::<u64>());
        for (path, its_bytes, _) in files {
            if count <= STORE_MAX_FILES && bytes <= STORE_MAX_BYTES {
                return;
            }
            if fs::remove_file(&path).is_ok() {
                (count, bytes) = (count - 1, bytes - its_bytes);
            }
        }
    }

    /// The files of profiles, with their bytes and their last use. Those that were set aside, or left over by a process that was
    /// killed, count too.
    fn files(&self) -> Vec<(PathBuf, u64, SystemTime)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name() != LOCK)
            .filter_map(|entry| {
                let about = entry.metadata().ok().filter(|about| about.is_file())?;
                Some((entry.path(), about.len(), about.modified().ok()?))
            })
            .collect()
    }

    /// All profiles, those that were used last first. Damaged ones are left out.
    pub fn list(&self) -> Vec<Kept> {
        let mut kept: Vec<Kept> = self
            .files()
            .into_iter()
            .filter(|(path, ..)| path.extension().is_some_and(|extension| extension == SUFFIX))
            .filter_map(|(path, bytes, used_at)| {
                let (key, profile) = codec::decode(&read(&path).ok()??).ok()?;
                Some(Kept { path, key, profile, bytes, used_at })
            })
            .collect();
        kept.sort_by_key(|kept| std::cmp::Reverse(kept.used_at));
        kept
    }

    /// Forgets what was learned under `key`. Returns whether anything was.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn forget(&self, key: &[u8]) -> Result<bool, StoreError> {
        let path = self.file(key);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::Io(path, error)),
        }
    }
}

fn open_own(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The bytes of a file; `None` if it is not there.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    let _ = file.take(PROFILE_MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Puts a file with these bytes in the place of `path`. The lock is held, so one process does it at a time.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside); // Left over by a process that was killed.
    let written = open_own(&beside).and_then(|mut file| file.write_all(bytes));
    let replaced = written.and_then(|()| fs::rename(&beside, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&beside);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::steps::{Acts, Run, Step};

    fn run(path: &str) -> Run {
        let step =
            Step { path: path.as_bytes().into(), acts: Acts::OPEN, parts: Vec::new(), at_ms: 0 };
        Run { steps: vec![step], is_cut: false }
    }

    fn learn(store: &Store, key: &[u8], path: &str) {
        store.update(key, "name", |profile| profile.learn(run(path), |_| true)).expect("written");
    }

    #[test]
    fn what_was_learned_is_found_by_its_key_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().join("a/b"));
        assert!(store.load(b"key").expect("no error").is_none() && store.list().is_empty());
        learn(&store, b"key", "/x");
        learn(&store, b"key", "/y");
        let profile = store.load(b"key").expect("no error").expect("learned");
        assert_eq!((profile.runs, profile.steps.len(), profile.name.as_str()), (2, 2, "name"));
        assert!(store.load(b"other").expect("no error").is_none());
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(store.folder()), mode(&store.list()[0].path)), (0o700, 0o600));
        assert!(store.forget(b"key").expect("removed") && !store.forget(b"key").expect("no error"));
    }

    #[test]
    fn a_damaged_profile_is_set_aside_with_a_word() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().to_owned());
        learn(&store, b"key", "/x");
        let path = store.list()[0].path.clone();
        fs::write(&path, "nonsense").expect("written");
        let error = store.load(b"key").expect_err("damaged").to_string();
        assert!(error.contains("damaged") && error.contains("set aside"), "{error}");
        assert!(!path.exists() && path.with_extension("damaged").exists());
        learn(&store, b"key", "/y");
        assert_eq!(store.load(b"key").expect("no error").expect("anew").runs, 1);
    }

    #[test]
    fn runs_that_learn_at_once_add_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().to_owned());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let store = store.clone();
                scope.spawn(move || {
                    (0..10).for_each(|at| learn(&store, b"key", &format!("/{thread}/{at}")))
                });
            }
        });
        assert_eq!(store.load(b"key").expect("no error").expect("learned").runs, 80);
    }

    #[test]
    fn the_oldest_go_when_there_is_too_much() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().to_owned());
        for number in 0..3_u8 {
            let file = File::create(folder.path().join(format!("{number}.profile"))).expect("made");
            file.set_len(STORE_MAX_BYTES / 3).expect("set");
            let age = std::time::Duration::from_secs(1000 - u64::from(number));
            file.set_modified(SystemTime::now() - age).expect("set");
        }
        learn(&store, b"key", "/x");
        let left = |number| folder.path().join(format!("{number}.profile")).exists();
        assert!(!left(0) && left(1) && left(2) && store.load(b"key").expect("read").is_some());
    }

    #[test]
    fn a_store_that_cannot_be_written_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), "").expect("written");
        let store = Store::at(folder.path().join("file/store"));
        let error = store.update(b"key", "name", |_| {}).expect_err("no folder").to_string();
        assert!(error.contains("file/store"), "{error}");
    }
}
