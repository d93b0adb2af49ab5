//! A file that a command writes at its end, checked at its beginning.
//!
//! A wrong path shows before the work is done, and a file that is there keeps its content until the new
//! one is complete.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

/// See the [module](self).
pub(crate) struct OutputFile {
    path: PathBuf,
    file: File,
    /// It was made by us and nothing is in it yet.
    is_new: bool,
    /// What is in it goes.
    replaces: bool,
}

impl OutputFile {
    /// Opens `path` for writing and leaves what is in it; `-` is standard output.
    ///
    /// # Errors
    /// In words: it cannot be written.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        if path.as_os_str() == "-" {
            let file = io::stdout().as_fd().try_clone_to_owned();
            let file = file.map_err(|error| format!("standard output: {error}"))?;
            let path = "standard output".into();
            return Ok(OutputFile { path, file: file.into(), is_new: false, replaces: false });
        }
        let existed = path.exists();
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(OutputFile { path: path.to_owned(), file, is_new: !existed, replaces: true })
    }

    /// Replaces what is in the file; on standard output, what is there stays.
    ///
    /// # Errors
    /// In words: it could not be written.
    pub(crate) fn write(mut self, content: &[u8]) -> Result<(), String> {
        self.is_new = false;
        self.replace(content).map_err(|error| format!("{}: {error}", self.path.display()))
    }

    /// As [`write`](Self::write), with `figures` as JSON.
    pub(crate) fn write_json(self, figures: &impl Serialize) -> Result<(), String> {
        let mut text = serde_json::to_vec(figures).map_err(|error| error.to_string())?;
        text.push(b'\n');
        self.write(&text)
    }

    fn replace(&mut self, content: &[u8]) -> io::Result<()> {
        // A pipe or a terminal has no length and no position.
        if !self.replaces || !self.file.metadata()?.is_file() {
            return self.file.write_all(content);
        }
        // The disk may be full: what is there stays until the new is complete, and in its place where there
        // is no making a file beside it.
        if let Some(beside) = self.beside() {
            let written = beside.as_file().write_all(content);
            return written.and_then(|()| Ok(beside.persist(&self.path).map(drop)?));
        }
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(content)
    }

    /// A file to take the place of this one, if that has a content, no other name, and a folder to do so in.
    fn beside(&self) -> Option<NamedTempFile> {
        let metadata = fs::symlink_metadata(&self.path).ok()?;
        if !metadata.is_file() || metadata.len() == 0 || metadata.nlink() > 1 {
            return None;
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let beside = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).ok()?;
        let (owner, group) = (metadata.uid(), metadata.gid());
        std::os::unix::fs::fchown(beside.as_file(), Some(owner), Some(group)).ok()?;
        beside.as_file().set_permissions(metadata.permissions()).ok()?;
        Some(beside)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nothing_changes_until_it_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "as it was").expect("written");
        for path in [&old, &new] {
            drop(OutputFile::open(path).expect("it can be written"));
        }
        assert_eq!(fs::read_to_string(&old).expect("there"), "as it was");
        assert!(!new.exists());
        for path in [&old, &new] {
            let file = OutputFile::open(path).expect("it can be written");
            file.write(b"now").expect("written");
            assert_eq!(fs::read_to_string(path).expect("there"), "now");
        }
        assert!(OutputFile::open(folder.path()).is_err());
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_mode_and_a_link_its_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "a longer text than the next one").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).expect("changed");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        for path in [&file, &link] {
            OutputFile::open(path).and_then(|file| file.write(b"now")).expect("written");
            assert_eq!(fs::read_to_string(&file).expect("there"), "now");
            assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o604);
            fs::write(&file, "before").expect("written");
        }
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing is left");
    }
}
