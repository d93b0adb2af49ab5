//! Where profiles are kept: a file each, in a folder of the user.
//!
//! * The folder has mode 0700, a file 0600. A file is named after its key. A folder of another user, or one that others may
//!   write into, is not used.
//! * A profile is written beside the old one and put in its place, so that a reader sees one or the other. A lock is held from
//!   the reading to the writing: what several runs learn at once adds up.
//! * A damaged file is set aside (`.damaged`), and its workload begins anew.
//! * The files take [`STORE_MAX_BYTES`] and are [`STORE_MAX_FILES`] at most. What was not used for longest goes first. Files
//!   whose names are not the store's are neither counted nor removed: the folder may be a wrong one.
//!
//! * What is forgotten goes from the [history](crate::across) too: paths that no profile left has.
//!
//! Nothing is forced to the disk: a profile that a crash of the machine cuts off is found by its sum.

mod changing;
mod folder;

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::codec::{self, Damage};
use crate::profile::Profile;
pub use changing::{Changing, Stamp};
use folder::{Content, Folder};

/// Bytes of all files.
pub const STORE_MAX_BYTES: u64 = 64 << 20;

/// Files.
pub const STORE_MAX_FILES: usize = 4096;

/// Bytes of a key, as far as its file may be called after it.
const KEY_MAX_BYTES: usize = 32;

/// Endings of the store's files: a profile, one that was set aside, and one that is being written.
const SUFFIX: &str = "profile";
const DAMAGED: &str = "damaged";
const NEW: &str = "new";

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

/// What is in the store beside the profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Damaged files: those that were set aside, and those that will be.
    pub damaged: usize,
    /// Bytes of all files, profiles too.
    pub bytes: u64,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Profiles.
    pub profiles: usize,
    /// Files that were removed from the history.
    pub of_history: usize,
}

/// Why the store cannot be used, or a profile of it.
#[derive(Debug)]
pub enum StoreError {
    /// A call has failed.
    Io(PathBuf, io::Error),
    /// A profile was damaged, and was set aside.
    Damaged(PathBuf, Damage),
    /// The folder belongs to another user.
    Foreign(PathBuf),
    /// Others may write into the folder.
    Writable(PathBuf),
    /// Another process does not release the lock.
    Busy(PathBuf),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            StoreError::Damaged(path, damage) => {
                write!(f, "{}: {damage}, and was set aside; it is learned anew", path.display())
            }
            StoreError::Foreign(path) => {
                let path = path.display();
                write!(
                    f,
                    "{path}: belongs to another user and is not used; FORETELL_STATE may name a folder of yours"
                )
            }
            StoreError::Writable(path) => {
                let path = path.display();
                write!(f, "{path}: others may write into it, so it is not used; chmod go-w {path}")
            }
            StoreError::Busy(path) => {
                write!(
                    f,
                    "{}: another process keeps it locked; nothing was changed",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// A file of the store.
struct Own {
    name: String,
    ending: &'static str,
    bytes: u64,
    used_at: SystemTime,
}

impl Store {
    /// The store in this folder, which need not be there.
    pub fn at(folder: PathBuf) -> Self {
        Store { folder }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn made(&self) -> Result<Folder, StoreError> {
        if let Some(folder) = Folder::open(&self.folder)? {
            return Ok(folder);
        }
        folder::make(&self.folder)?;
        let gone = || StoreError::Io(self.folder.clone(), io::ErrorKind::NotFound.into());
        Folder::open(&self.folder)?.ok_or_else(gone)
    }

    /// What was learned under `key`; `None` if nothing was. A damaged one is set aside.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn load(&self, key: &[u8]) -> Result<Option<Profile>, StoreError> {
        let Some(folder) = Folder::open(&self.folder)? else { return Ok(None) };
        let damage = match known(&folder, key, true)? {
            Ok(profile) => return Ok(profile),
            Err(damage) => damage,
        };
        // Another process may have written it anew by now, so it is looked at again under the lock.
        if let Ok(_lock) = folder.lock() {
            if let Ok(profile) = known(&folder, key, false)? {
                return Ok(profile);
            }
            set_aside(&folder, key);
        }
        Err(StoreError::Damaged(folder.path_of(&file(key, SUFFIX)), damage))
    }

    /// Locks the store for changes, and makes its folder if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn change(&self) -> Result<Changing, StoreError> {
        Changing::new(self.made()?)
    }

    /// Has `change` change what was learned under `key`, or the profile of this `name` if nothing was. A damaged one is set
    /// aside.
    ///
    /// # Errors
    /// [`StoreError`], but not [`Damaged`](StoreError::Damaged).
    pub fn update(
        &self,
        key: &[u8],
        name: &str,
        change: impl FnOnce(&mut Profile),
    ) -> Result<(), StoreError> {
        let changing = self.change()?;
        let known = changing.read(key)?.map(|(profile, _)| profile);
        let mut profile = known.unwrap_or_else(|| Profile::new(name.to_owned()));
        change(&mut profile);
        changing.write(key, &profile)?;
        changing.finish()
    }

    /// Shows all profiles to `see`, those that were used last first, one at a time. Returns what else there is. Nothing is
    /// changed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn survey(&self, mut see: impl FnMut(Kept)) -> Result<Rest, StoreError> {
        let Some(folder) = Folder::open(&self.folder)? else { return Ok(Rest::default()) };
        let mut files = own_files(&folder)?;
        files.sort_by_key(|file| std::cmp::Reverse(file.used_at));
        let mut rest = Rest::default();
        for Own { name, ending, bytes, used_at } in files {
            rest.bytes += bytes;
            let read = match ending {
                SUFFIX => folder.read(&name, false)?,
                DAMAGED => Content::Other,
                _ => Content::Missing,
            };
            let profile = match read {
                Content::Bytes(bytes) => codec::decode(&bytes).ok(),
                Content::Other => None,
                Content::Missing => continue,
            };
            // A file of another key is not found by its own.
            match profile.filter(|(key, _)| file(key, SUFFIX) == name) {
                Some((key, profile)) => {
                    see(Kept { path: folder.path_of(&name), key, profile, bytes, used_at });
                }
                None => rest.damaged += 1,
            }
        }
        Ok(rest)
    }

    /// All profiles, those that were used last first. Damaged ones are left out.
    pub fn list(&self) -> Vec<Kept> {
        let mut all = Vec::new();
        let _ = self.survey(|kept| all.push(kept));
        all
    }

    /// Forgets what was learned under `key`, what is left over of it, and the paths of the history that no other profile has.
    /// Returns whether anything was known.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.forget_all(&[key])?.profiles > 0)
    }

    /// As [`forget`](Self::forget), of several.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_all(&self, keys: &[&[u8]]) -> Result<Forgotten, StoreError> {
        let Some(folder) = Folder::open(&self.folder)? else { return Ok(Forgotten::default()) };
        // Without the lock, a run that has read it would write it again.
        Changing::new(folder)?.forget(keys)
    }

    /// Removes the files that were damaged, or left over by processes that were killed. Returns how many.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn clean(&self) -> Result<usize, StoreError> {
        let Some(folder) = Folder::open(&self.folder)? else { return Ok(0) };
        let _lock = folder.lock()?;
        let mut removed = 0;
        for Own { name, ending, .. } in own_files(&folder)? {
            let is_profile = ending == SUFFIX
                && matches!(folder.read(&name, false)?, Content::Bytes(bytes) if codec::decode(&bytes).is_ok());
            removed += usize::from(!is_profile && folder.remove(&name)?);
        }
        Ok(removed)
    }
}

/// The name of the file of a key.
fn file(key: &[u8], ending: &str) -> String {
    let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}.{ending}")
}

/// What the file of a key has. One of another key is as good as none.
fn known(
    folder: &Folder,
    key: &[u8],
    is_used: bool,
) -> Result<Result<Option<Profile>, Damage>, StoreError> {
    Ok(match folder.read(&file(key, SUFFIX), is_used)? {
        Content::Bytes(bytes) => {
            codec::decode(&bytes).map(|(found, profile)| (found == key).then_some(profile))
        }
        Content::Missing => Ok(None),
        Content::Other => Err(Damage::Broken),
    })
}

/// Sets a damaged file aside. The lock is held.
fn set_aside(folder: &Folder, key: &[u8]) {
    let name = file(key, SUFFIX);
    if folder.rename(&name, &file(key, DAMAGED)).is_err() {
        let _ = folder.remove(&name);
    }
}

/// The files whose names are the store's.
fn own_files(folder: &Folder) -> Result<Vec<Own>, StoreError> {
    let own = folder.names()?.into_iter().filter_map(|name| {
        let (key, ending) = name.split_once('.')?;
        let ending = [SUFFIX, DAMAGED, NEW].into_iter().find(|known| *known == ending)?;
        let is_digit = |letter: u8| letter.is_ascii_digit() || (b'a'..=b'f').contains(&letter);
        let is_key = key.len() % 2 == 0 && (1..=2 * KEY_MAX_BYTES).contains(&key.len());
        let (bytes, used_at) =
            folder.about(&name).filter(|_| is_key && key.bytes().all(is_digit))?;
        Some(Own { name, ending, bytes, used_at })
    });
    Ok(own.collect())
}

/// Removes what was not used for longest, while there is too much, and what was left over by processes that were killed. The
/// lock is held, so nothing is being written.
fn shrink(folder: &Folder) -> Result<(), StoreError> {
    let mut files = own_files(folder)?;
    files.sort_by_key(|file| file.used_at);
    let (mut count, mut bytes) = (files.len(), files.iter().map(|file| file.bytes).sum::<u64>());
    for file in files {
        let is_much = count > STORE_MAX_FILES || bytes > STORE_MAX_BYTES;
        if (is_much || file.ending == NEW) && folder.remove(&file.name).unwrap_or(false) {
            (count, bytes) = (count - 1, bytes - file.bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::steps::{Acts, Run, Step};

    fn run(path: &str) -> Run {
        let step =
            Step { path: path.as_bytes().into(), acts: Acts::OPEN, parts: Vec::new(), at_ms: 0 };
        Run { steps: vec![step], is_cut: false }
    }

    fn learn(store: &Store, key: &[u8], path: &str) {
        store
            .update(key, "name", |profile| profile.learn(run(path), |_, _| true, true))
            .expect("written");
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

    fn paths(profile: &Profile) -> Vec<String> {
        profile.steps.iter().map(|step| String::from_utf8_lossy(&step.path).into_owned()).collect()
    }

    /// A store in which three workloads have read these files, and which has them in its history.
    fn store_with_history(folder: &Path, workloads: &[(&[u8], &[&str])]) -> Store {
        let store = Store::at(folder.to_owned());
        for (key, names) in workloads {
            let read = |name: &&str| Step {
                path: name.as_bytes().into(),
                acts: Acts::OPEN | Acts::READ,
                parts: vec![crate::steps::Part { start: 0, end: 8192 }],
                at_ms: 0,
            };
            let run = Run { steps: names.iter().map(read).collect(), is_cut: false };
            let across = crate::across::workload();
            let add = |history: &mut Profile| {
                let _ = crate::across::add(history, &run);
            };
            store.update(&across.exact, &across.name, add).expect("written");
            let learn = |profile: &mut Profile| profile.learn(run.clone(), |_, _| true, true);
            store.update(key, "name", learn).expect("written");
        }
        store
    }

    #[test]
    fn what_is_forgotten_goes_from_the_history_unless_another_profile_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let all: [(&[u8], &[&str]); 3] =
            [(b"one", &["/lib", "/a"]), (b"two", &["/lib", "/b"]), (b"three", &["/c"])];
        let store = store_with_history(folder.path(), &all);
        let across = crate::across::workload().exact;
        let history = || store.load(&across).expect("read").map(|profile| paths(&profile));
        let forgotten = store.forget_all(&[b"one"]).expect("forgotten");
        assert_eq!(forgotten, Forgotten { profiles: 1, of_history: 1 });
        assert_eq!(history().expect("kept"), ["/lib", "/lib", "/b", "/c"]);
        assert_eq!(store.forget_all(&[b"one"]).expect("nothing"), Forgotten::default());
        assert_eq!(store.forget_all(&[b"two", b"three"]).expect("forgotten").of_history, 3);
        assert!(history().is_none(), "nothing is left of it");
    }

    #[test]
    fn a_history_that_cannot_be_read_or_written_is_forgotten_as_a_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let all: [(&[u8], &[&str]); 2] = [(b"one", &["/a"]), (b"two", &["/b"])];
        let store = store_with_history(folder.path(), &all);
        let across = crate::across::workload().exact;
        let history = folder.path().join(file(&across, SUFFIX));
        fs::write(&history, "with /a in it").expect("written");
        assert_eq!(store.forget_all(&[b"one"]).expect("forgotten").profiles, 1);
        assert!(!history.exists());
        let store = store_with_history(folder.path(), &all);
        fs::create_dir(folder.path().join(file(&across, NEW))).expect("nothing can be written");
        assert_eq!(store.forget_all(&[b"one"]).expect("forgotten").profiles, 1);
        assert!(!history.exists());
    }

    #[test]
    fn what_is_left_over_of_a_key_is_forgotten_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().to_owned());
        learn(&store, b"key", "/x");
        let across = crate::across::workload().exact;
        let left: Vec<PathBuf> = [&b"key"[..], &across]
            .into_iter()
            .flat_map(|key| [DAMAGED, NEW].map(|ending| folder.path().join(file(key, ending))))
            .collect();
        left.iter().for_each(|path| fs::write(path, "/x").expect("written"));
        let other = folder.path().join(file(b"other", DAMAGED));
        fs::write(&other, "/y").expect("written");
        assert!(store.forget(b"key").expect("removed"));
        assert!(left.iter().all(|path| !path.exists()) && other.exists());
    }

    #[test]
    fn what_does_not_change_is_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().to_owned());
        learn(&store, b"key", "/x");
        let number = || {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(folder.path().join(file(b"key", SUFFIX))).expect("there").ino()
        };
        let before = number();
        store.update(b"key", "name", |_| {}).expect("nothing to write");
        assert_eq!(number(), before);
        let stamp =
            || store.change().expect("locked").read(b"key").expect("read").expect("known").1;
        let first = stamp();
        assert_eq!(stamp(), first);
        learn(&store, b"key", "/x");
        assert!(number() != before && stamp() != first);
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
            let file =
                File::create(folder.path().join(format!("0{number}.profile"))).expect("made");
            file.set_len(STORE_MAX_BYTES / 3).expect("set");
            let age = std::time::Duration::from_secs(1000 - u64::from(number));
            file.set_modified(SystemTime::now() - age).expect("set");
        }
        learn(&store, b"key", "/x");
        let left = |number| folder.path().join(format!("0{number}.profile")).exists();
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
