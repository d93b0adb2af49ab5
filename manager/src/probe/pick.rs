//! A file to measure with, in a folder.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::driver::file::{self, Found, OpenFile};
use crate::driver::keeping::FileSystems;

/// How long the search may take: each lookup may wait for the device.
const SEARCH_TIME: Duration = Duration::from_millis(500);

/// Most entries that are looked at.
const ENTRIES_MAX: usize = 2_000;

/// A file of this length is large enough for all measurements.
const ENOUGH_BYTES: u64 = 64 << 20;

/// The largest files that are tried, if some cannot be read.
const TRIED_MAX: usize = 8;

/// What a search has found.
#[derive(Debug, Default)]
pub(super) struct Picked {
    /// `None` if no file has data and can be read.
    pub(super) file: Option<OpenFile>,
    /// The first folder or file that cannot be read, and why.
    pub(super) refused: Option<(PathBuf, io::Error)>,
}

/// The largest of the first files on `device` in `folder` and below that can be read.
pub(super) fn file_in(folder: &Path, device: u64, systems: &FileSystems) -> Picked {
    let mut picked = Picked::default();
    let mut files = files_in(folder, device, &mut picked.refused);
    files.sort_unstable_by(|a, b| b.cmp(a));
    for (_, path) in files.into_iter().take(TRIED_MAX) {
        match file::find(path.clone(), systems) {
            Ok(Found::File(file)) => {
                picked.file = Some(file);
                break;
            }
            Ok(_) => {}
            Err(error) => drop(picked.refused.get_or_insert((path, error))),
        }
    }
    picked
}

/// The lengths and paths of files with data.
fn files_in(
    folder: &Path,
    device: u64,
    refused: &mut Option<(PathBuf, io::Error)>,
) -> Vec<(u64, PathBuf)> {
    let began = Instant::now();
    let (mut folders, mut files, mut seen) = (VecDeque::from([folder.to_owned()]), Vec::new(), 0);
    while let Some(folder) = folders.pop_front() {
        let entries = fs::read_dir(&folder).map_err(|error| {
            refused.get_or_insert((folder, error));
        });
        for entry in entries.into_iter().flatten().flatten() {
            seen += 1;
            if seen > ENTRIES_MAX || began.elapsed() > SEARCH_TIME {
                return files;
            }
            // Links are not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.dev() != device {
                continue;
            }
            if metadata.is_dir() {
                folders.push_back(entry.path());
            } else if metadata.is_file() && metadata.len() > 0 {
                files.push((metadata.len(), entry.path()));
                if metadata.len() >= ENOUGH_BYTES {
                    return files;
                }
            }
        }
    }
    files
}
