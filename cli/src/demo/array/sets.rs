//! The four sets of text files that the demo searches, gathered from this machine.
//!
//! The papers searched X11 headers, mail, source code and manual pages (TIP 1994, table 1). Real text
//! of the same numbers and sizes is taken from the system's headers, documentation and manual pages,
//! and, where there are too few, from the sources of Rust crates. Files are *copied* into a folder of
//! the demo's own, so that the array serves nothing else and the machine's files stay untouched.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a block, in which the papers count sizes.
pub(super) const BLOCK_BYTES: u64 = 8 * 1024;

/// The number of files and blocks that a set should have.
struct Wanted {
    name: &'static str,
    files: usize,
    blocks: u64,
}

/// Files and blocks as in the sets of TIP 1994, table 1, with names after these. The content is text of this machine.
const WANTED: [Wanted; 4] = [
    Wanted { name: "x11-like", files: 139, blocks: 198 },
    Wanted { name: "mail-like", files: 158, blocks: 218 },
    Wanted { name: "source-like", files: 57, blocks: 152 },
    Wanted { name: "man-like", files: 834, blocks: 892 },
];

/// Larger files are left out: the sets are of small files.
const FILE_BLOCKS_MAX: u64 = 16;

/// Most candidates that are collected; enough to choose from.
const CANDIDATES_MAX: usize = 20_000;

/// A set of files as gathered.
#[derive(Clone, Debug)]
pub(super) struct FileSet {
    pub(super) name: &'static str,
    /// Relative to the folder that they were gathered in, in the order in which they are searched.
    pub(super) files: Vec<PathBuf>,
    pub(super) blocks: u64,
}

/// Gathers the sets into `folder`.
///
/// # Errors
/// The machine has too little text, or the folder cannot be written.
pub(super) fn gather(folder: &Path) -> Result<Vec<FileSet>, String> {
    let mut candidates = candidates();
    let enough = WANTED.iter().map(|wanted| wanted.files).sum::<usize>();
    if candidates.len() < enough {
        return Err(format!(
            "found {} small text files where {enough} are needed; install some documentation or \
             headers (on Debian: libc6-dev, manpages-dev)",
            candidates.len(),
        ));
    }
    WANTED.iter().map(|wanted| gather_set(folder, wanted, &mut candidates)).collect()
}

fn gather_set(
    folder: &Path,
    wanted: &Wanted,
    candidates: &mut Vec<Candidate>,
) -> Result<FileSet, String> {
    let set_folder = folder.join(wanted.name);
    let failed = |error: io::Error| {
        let folder = folder.display();
        format!("cannot copy files to {folder}: {error}; set TMPDIR to another place")
    };
    fs::create_dir(&set_folder).map_err(failed)?;
    let mut set = FileSet { name: wanted.name, files: Vec::new(), blocks: 0 };
    while set.files.len() < wanted.files {
        let files_left = (wanted.files - set.files.len()) as u64;
        let blocks_left = wanted.blocks.saturating_sub(set.blocks).max(files_left);
        // The largest file that leaves a block for each of the others, up to twice the mean.
        let most = (blocks_left - (files_left - 1)).min((2 * blocks_left).div_ceil(files_left));
        let fits = candidates.iter().position(|candidate| candidate.blocks <= most);
        // If none fits, the smallest.
        let smallest = || (0..candidates.len()).min_by_key(|&index| candidates[index].blocks);
        let Some(index) = fits.or_else(smallest) else { break };
        let candidate = candidates.remove(index);
        let base = candidate.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("{:03}-{base}", set.files.len());
        match fs::copy(&candidate.path, set_folder.join(&name)) {
            Ok(_) => {}
            Err(error) if is_of_the_disk(&error) => return Err(failed(error)),
            Err(_) => continue, // Unreadable or gone; another will do.
        }
        set.blocks += candidate.blocks;
        set.files.push(set_folder.strip_prefix(folder).unwrap_or(&set_folder).join(name));
    }
    if set.files.len() < wanted.files {
        return Err(format!("too few readable text files for the set {:?}", wanted.name));
    }
    Ok(set)
}

/// Whether the error is the target disk's, so that copying any other file would fail too.
fn is_of_the_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
}

#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    blocks: u64,
}

/// Small text files of this machine, in the order of their paths.
fn candidates() -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for root in roots() {
        collect(&root, 0, &mut |path, bytes| {
            let blocks = bytes.div_ceil(BLOCK_BYTES);
            if (1..=FILE_BLOCKS_MAX).contains(&blocks) && seen.insert(path.clone()) {
                found.push(Candidate { path, blocks });
            }
            found.len() < CANDIDATES_MAX
        });
    }
    found
}

fn roots() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| home.map(|home| home.join(".cargo")));
    let system = ["/usr/include", "/usr/share/doc", "/usr/share/man", "/usr/share/perl"];
    let mut roots: Vec<PathBuf> = system.into_iter().map(PathBuf::from).collect();
    roots.extend(cargo.map(|cargo| cargo.join("registry/src")));
    roots
}

/// Calls `each` with every regular file below `folder` and its size, until it answers `false`.
fn collect(folder: &Path, depth: usize, each: &mut impl FnMut(PathBuf, u64) -> bool) -> bool {
    const DEPTH_MAX: usize = 12;
    let Ok(listing) = fs::read_dir(folder) else { return true };
    let mut entries: Vec<_> = listing.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    entries.into_iter().all(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => collect(&entry.path(), depth + 1, each),
        Ok(kind) if kind.is_file() => {
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            each(entry.path(), bytes)
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates_of(blocks: impl IntoIterator<Item = u64>, folder: &Path) -> Vec<Candidate> {
        let make = |(index, blocks): (usize, u64)| {
            let path = folder.join(format!("{index}.txt"));
            fs::write(&path, "text").expect("written");
            Candidate { path, blocks }
        };
        blocks.into_iter().enumerate().map(make).collect()
    }

    #[test]
    fn a_set_has_the_files_and_about_the_blocks_that_are_wanted() {
        let from = tempfile::tempdir().expect("a folder");
        let into = tempfile::tempdir().expect("a folder");
        let mut candidates = candidates_of((0..2000).map(|index| 1 + index % 5), from.path());
        for wanted in &WANTED[..3] {
            let set = gather_set(into.path(), wanted, &mut candidates).expect("enough files");
            assert_eq!(set.files.len(), wanted.files);
            assert!(set.blocks.abs_diff(wanted.blocks) * 10 <= wanted.blocks, "{set:?}");
            assert!(set.files.iter().all(|file| into.path().join(file).is_file()));
        }
    }

    #[test]
    fn too_few_files_are_said_to_be_too_few() {
        let from = tempfile::tempdir().expect("a folder");
        let into = tempfile::tempdir().expect("a folder");
        let mut candidates = candidates_of([1, 2, 3], from.path());
        let error = gather_set(into.path(), &WANTED[0], &mut candidates).expect_err("three files");
        assert!(error.contains("x11-like"), "{error}");
    }
}
