//! Shared by the tests of recordings: finds real recordings, and reports missing ones.

#![allow(dead_code, reason = "each test crate uses its own part")]

use std::io::Write;
use std::path::{Path, PathBuf};

use foretell_policy::{Block, FileId};

/// The path of a real recording, in `../shared/traces` beside the workspace or in the folder that
/// `FORETELL_TRACES` names. If it is missing, reports that the test is skipped.
pub(crate) fn shared_trace(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = std::env::var_os("FORETELL_TRACES").map_or(beside, PathBuf::from);
    let path = folder.join(name);
    if !path.exists() {
        skipped(&format!("no {}", path.display()));
        return None;
    }
    Some(path)
}

/// Reports it where a test runner shows it: on the terminal, past the captured output.
fn skipped(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}

/// Blocks of file 0.
pub(crate) fn blocks(indices: impl IntoIterator<Item = u64>) -> Vec<Block> {
    indices.into_iter().map(|index| Block { file: FileId(0), index }).collect()
}
