//! The paths that a process names, as absolute ones.
//!
//! A path begins at the working folder, at a folder that the process has opened, or at a descriptor. The working folder and
//! descriptors are read from `/proc` ([`ProcessFiles`]), later than the process has used them, so they may have changed. A
//! wrong one costs a few lookups.
//!
//! `.` and doubled slashes are taken out, and `..` with the name before it. That name may be a symbolic link, so the result may
//! be another folder's path: asking the file system would have to wait. Paths of a process with another root or other mounts
//! are left out.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use foretell_protocol::{Base, Touch};

use crate::lineage::ProcessId;
use crate::process_files::ProcessFiles;

/// Folders of a process that are known by number. The oldest are forgotten.
const FOLDERS_MAX: usize = 1024;

/// Longer paths are left out: `PATH_MAX`.
const PATH_MAX_BYTES: usize = 4096;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Names {
    working_folder: Option<Arc<[u8]>>,
    /// Taken for it if the process has ended before it was read.
    assumed: Option<Arc<[u8]>>,
    /// Whether the working folder must be read before the next path is built.
    is_stale: bool,
    /// Moves of the process, among the touches that wait, that came before its working folder was read.
    moves_before: usize,
    /// Folders that the process has opened, by their numbers.
    folders: BTreeMap<u32, Arc<[u8]>>,
    /// Descriptors that were read in this turn.
    descriptors: BTreeMap<u32, Option<Arc<[u8]>>>,
    /// It has another root or other mounts.
    is_elsewhere: bool,
    /// The path that was built last.
    path: Vec<u8>,
}

impl Default for Names {
    fn default() -> Self {
        Names {
            working_folder: None,
            assumed: None,
            is_stale: true,
            moves_before: 0,
            folders: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            is_elsewhere: false,
            path: Vec::new(),
        }
    }
}

impl Names {
    /// Forgets what may have changed while the process was not watched. Numbers of folders are never used again.
    pub(super) fn forget(&mut self) {
        self.is_stale = true;
    }

    /// The process began in this folder, which is used if it ends before its folder is read.
    pub(super) fn assume(&mut self, folder: Option<Arc<[u8]>>) {
        self.assumed = folder;
    }

    /// The working folder, as far as known.
    pub(super) fn working_folder(&self) -> Option<&Arc<[u8]>> {
        self.working_folder.as_ref().or(self.assumed.as_ref())
    }

    /// Another turn begins, with these touches. Forgets the descriptors.
    pub(super) fn begin_turn(&mut self, touches: &[Touch]) {
        self.descriptors.clear();
        // What is read now is where the last of these moves has led.
        self.moves_before = match self.is_stale {
            true => touches.iter().filter(|touch| has_moved(touch)).count(),
            false => 0,
        };
    }

    /// The folder and the name in it that `touch` names; the name is empty for `/`. Notes which folder it has opened or moved
    /// to.
    pub(super) fn place(
        &mut self,
        process: ProcessId,
        files: &ProcessFiles,
        touch: &Touch,
    ) -> Option<(&[u8], &[u8])> {
        let built = self.build(process, files, touch);
        if has_moved(touch) && self.moves_before > 0 {
            self.moves_before -= 1;
        } else if has_moved(touch) {
            self.working_folder = built.map(|_| Arc::from(&self.path[..]));
            self.is_stale = built.is_none();
        }
        let slash = built?;
        if let Some(number) = touch.opened.filter(|_| !touch.flags.is_failed()) {
            self.folders.insert(number, Arc::from(&self.path[..]));
            if self.folders.len() > FOLDERS_MAX {
                self.folders.pop_first();
            }
        }
        Some((&self.path[..slash.max(1)], &self.path[slash + 1..]))
    }

    /// Builds the absolute path. Returns the place of its last slash.
    fn build(&mut self, process: ProcessId, files: &ProcessFiles, touch: &Touch) -> Option<usize> {
        if std::mem::take(&mut self.is_stale) {
            let folder = files.working_folder(process);
            let is_gone =
                folder.is_none() && self.assumed.is_some() && ProcessFiles::is_gone(process);
            self.is_elsewhere = folder.is_none() && !is_gone;
            self.working_folder = folder.flatten().map(|path| bytes_of(&path));
            if is_gone {
                // Where it began: its moves come after that.
                (self.working_folder, self.moves_before) = (self.assumed.clone(), 0);
            }
        }
        let base = match touch.path.first() {
            _ if self.is_elsewhere => return None,
            Some(b'/') => None,
            _ => Some(self.base(process, files, touch.base)?),
        };
        self.path.clear();
        self.path.extend_from_slice(base.as_deref().unwrap_or_default());
        if self.path.ends_with(b"/") {
            self.path.pop();
        }
        for name in touch.path.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => {
                    let parent = self.path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                    self.path.truncate(parent);
                }
                name => {
                    self.path.push(b'/');
                    self.path.extend_from_slice(name);
                }
            }
        }
        if self.path.is_empty() {
            self.path.push(b'/');
        }
        let is_short = self.path.len() <= PATH_MAX_BYTES;
        self.path.iter().rposition(|&byte| byte == b'/').filter(|_| is_short)
    }

    fn base(&mut self, process: ProcessId, files: &ProcessFiles, base: Base) -> Option<Arc<[u8]>> {
        match base {
            Base::WorkingFolder if self.moves_before > 0 => None,
            Base::WorkingFolder => self.working_folder.clone(),
            Base::Folder(number) => self.folders.get(&number).cloned(),
            Base::Descriptor(number) => {
                let read = || Some(bytes_of(&files.path_of_descriptor(process, number.into())?));
                self.descriptors.entry(number).or_insert_with(read).clone()
            }
        }
    }
}

fn has_moved(touch: &Touch) -> bool {
    touch.flags.is_moved() && !touch.flags.is_failed()
}

fn bytes_of(path: &Path) -> Arc<[u8]> {
    path.as_os_str().as_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_protocol::TouchFlags;
    use foretell_protocol::layout::{TOUCH_FOLDER, TOUCH_MOVED, TOUCH_STAT};

    fn touch(base: Base, path: &str) -> Touch {
        Touch {
            flags: TouchFlags::from_bits(TOUCH_STAT),
            base,
            path: path.as_bytes().into(),
            opened: None,
            end_ns: 0,
            duration_ns: 0,
        }
    }

    fn place(names: &mut Names, touch: &Touch) -> Option<(String, String)> {
        let files = ProcessFiles::open().expect("/proc is there");
        let process = std::process::id().into();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        names.place(process, &files, touch).map(|(folder, name)| (text(folder), text(name)))
    }

    fn at(folder: &str, name: &str) -> Option<(String, String)> {
        Some((folder.to_owned(), name.to_owned()))
    }

    #[test]
    fn paths_are_absolute_and_plain() {
        let mut names = Names::default();
        let mut of = |path| place(&mut names, &touch(Base::WorkingFolder, path));
        let own = std::env::current_dir().expect("it is there");
        let own = own.to_str().expect("text");
        assert_eq!(of("x"), at(own, "x"));
        assert_eq!(of(".//a/./x/"), at(&format!("{own}/a"), "x"));
        assert_eq!(of("/x"), at("/", "x"));
        assert_eq!(of("/"), at("/", ""));
        assert_eq!(of("a/b/../../x"), at(own, "x"));
        assert_eq!(of("/a/../../../x/y"), at("/x", "y"));
        assert_eq!(of("/a/.."), at("/", ""));
        assert_eq!(of(&"x/".repeat(PATH_MAX_BYTES)), None);
    }

    #[test]
    fn folders_that_were_opened_are_bases() {
        let mut names = Names::default();
        let opened = |number| Touch {
            flags: TouchFlags::from_bits(TOUCH_FOLDER),
            opened: Some(number),
            ..touch(Base::WorkingFolder, &format!("/d/{number}"))
        };
        assert_eq!(place(&mut names, &opened(7)), at("/d", "7"));
        assert_eq!(place(&mut names, &touch(Base::Folder(7), "x")), at("/d/7", "x"));
        assert_eq!(place(&mut names, &touch(Base::Folder(7), "")), at("/d", "7"));
        assert_eq!(place(&mut names, &touch(Base::Folder(8), "x")), None);
        for number in 8..3000 {
            let _ = place(&mut names, &opened(number));
        }
        assert_eq!(names.folders.len(), FOLDERS_MAX);
        assert_eq!(place(&mut names, &touch(Base::Folder(7), "x")), None, "forgotten");
        let moved =
            Touch { flags: TouchFlags::from_bits(TOUCH_MOVED), ..touch(Base::WorkingFolder, "/d") };
        let _ = place(&mut names, &moved);
        assert_eq!(place(&mut names, &touch(Base::WorkingFolder, "x")), at("/d", "x"));
        names.forget();
        assert_ne!(place(&mut names, &touch(Base::WorkingFolder, "x")), at("/d", "x"));
    }

    #[test]
    fn a_move_before_the_working_folder_was_read_is_no_second_one() {
        let own = std::env::current_dir().expect("it is there");
        let (above, own_name) = (own.parent().expect("not the root"), own.file_name());
        let own_name = own_name.and_then(|name| name.to_str()).expect("text");
        let moved = Touch {
            flags: TouchFlags::from_bits(TOUCH_MOVED),
            ..touch(Base::WorkingFolder, own_name)
        };
        let touches = [touch(Base::WorkingFolder, "x"), moved, touch(Base::WorkingFolder, "y")];
        let mut names = Names::default();
        names.begin_turn(&touches);
        let places: Vec<_> = touches.iter().map(|touch| place(&mut names, touch)).collect();
        assert_eq!(places[0], None, "in {}, which is not known", above.display());
        assert_eq!(places[2], at(own.to_str().expect("text"), "y"));
    }

    #[test]
    fn a_process_that_has_ended_was_where_it_began() {
        let mut names = Names::default();
        names.assume(Some(Arc::from(&b"/began"[..])));
        let moved = Touch {
            flags: TouchFlags::from_bits(TOUCH_MOVED),
            ..touch(Base::WorkingFolder, "sub")
        };
        let touches = [moved, touch(Base::WorkingFolder, "x")];
        names.begin_turn(&touches);
        let files = ProcessFiles::open().expect("/proc is there");
        let mut place = |touch| {
            let (folder, name) = names.place(u64::from(u32::MAX), &files, touch)?;
            Some((folder.to_vec(), name.to_vec()))
        };
        let _ = place(&touches[0]);
        assert_eq!(place(&touches[1]), Some((b"/began/sub".to_vec(), b"x".to_vec())));
    }

    #[test]
    fn a_descriptor_is_the_folder_that_proc_tells() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().expect("a folder");
        let open = std::fs::File::open(folder.path()).expect("opened");
        let base = Base::Descriptor(open.as_raw_fd().unsigned_abs());
        let path = folder.path().canonicalize().expect("it is there");
        let found = place(&mut Names::default(), &touch(base, "x"));
        assert_eq!(found, at(path.to_str().expect("text"), "x"));
        assert_eq!(place(&mut Names::default(), &touch(Base::Descriptor(99_999), "x")), None);
    }
}
