//! Hints from a folder: every regular file below it.
//!
//! In the order in which the folders list them, a subfolder where it is listed, which is the order of
//! programs that walk without sorting (`grep -r`, `tar c`). Symbolic links are not followed. What
//! cannot be listed is left out: the program will meet the same error and say so itself.

use std::fs::{self, ReadDir};
use std::path::PathBuf;

use super::{Certainty, Disclosure};

/// An iterator over the files below a folder; holds one open folder a level.
#[derive(Debug)]
pub struct Walk {
    root: Option<PathBuf>,
    open: Vec<ReadDir>,
}

/// All files below `folder`.
pub fn disclosures(folder: PathBuf) -> Walk {
    Walk { root: Some(folder), open: Vec::new() }
}

impl Iterator for Walk {
    type Item = Disclosure;

    fn next(&mut self) -> Option<Disclosure> {
        if let Some(root) = self.root.take() {
            self.open.extend(fs::read_dir(root));
        }
        loop {
            let Some(Ok(entry)) = self.open.last_mut()?.next() else {
                self.open.pop();
                continue;
            };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.open.extend(fs::read_dir(entry.path())),
                Ok(kind) if kind.is_file() => {
                    return Some(Disclosure::whole_file(entry.path(), Certainty::File));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_below_comes_once_and_a_missing_folder_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        for name in ["a", "sub/b", "sub/deeper/c", "z"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, name).expect("written");
        }
        std::os::unix::fs::symlink(root, root.join("loop")).expect("linked");
        let found: Vec<PathBuf> = disclosures(root.into()).map(|found| found.path).collect();
        let expected = ["a", "sub/b", "sub/deeper/c", "z"].map(|name| root.join(name));
        assert_eq!(found.len(), 4);
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(expected));
        assert_eq!(disclosures(root.join("missing")).count(), 0);
    }
}
