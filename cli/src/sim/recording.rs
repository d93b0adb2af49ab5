//! A recording as the command line names it: where it is, its name in messages, its block size.

use std::path::Path;

use foretell_sim::SECTOR_BYTES;
use foretell_sim::trace::TraceError;

use crate::failure::{Failure, without_controls};
use crate::{signals, size};

/// Parses a block size, in bytes.
pub(super) fn block_bytes(text: &str) -> Result<u64, String> {
    whole_sectors(text, "a block")
}

/// The largest block of a recording, in bytes: a larger one would be read in too many pieces.
pub(super) const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// Parses the block size of a recording, in bytes: at most [`BLOCK_BYTES_MAX`].
pub(super) fn recorded_block_bytes(text: &str) -> Result<u64, String> {
    let bytes = block_bytes(text)?;
    let most = size::display(BLOCK_BYTES_MAX);
    (bytes <= BLOCK_BYTES_MAX).then_some(bytes).ok_or_else(|| format!("more than {most}"))
}

/// The way out for a recording of too many blocks: blocks `factor` times as large, if there is such a factor.
pub(super) fn larger_blocks(block_bytes: u64, factor: Option<u64>) -> String {
    match factor.and_then(|factor| block_bytes.checked_mul(factor)) {
        Some(bytes) => format!("take larger blocks (--block {}), or a part of it", exact(bytes)),
        None => "take a part of it".into(),
    }
}

/// A size in bytes, written so that an option reads the same value.
fn exact(bytes: u64) -> String {
    [("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find(|(_, shift)| bytes.is_multiple_of(1 << shift))
        .map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// Parses the size of `what`, in bytes: whole sectors, at least one.
pub(super) fn whole_sectors(text: &str, what: &str) -> Result<u64, String> {
    match size::parse(text)? {
        bytes if bytes > 0 && bytes % SECTOR_BYTES == 0 => Ok(bytes),
        _ => Err(format!("{what} is a multiple of {SECTOR_BYTES} bytes")),
    }
}

const STANDARD_INPUT: &str = "/dev/stdin";

/// The path of the recording called `name`; `-` is standard input.
pub(super) fn recorded_at(name: &Path) -> Result<&Path, Failure> {
    if name.as_os_str() != "-" {
        return Ok(name);
    }
    let closed = |error| Failure::failed(format!("standard input: {error}"));
    signals::was_open(0).map_err(closed)?;
    Ok(Path::new(STANDARD_INPUT))
}

/// The recording's name in messages.
pub(super) fn shown(name: &Path) -> String {
    match name.as_os_str() == "-" {
        true => "standard input".into(),
        false => without_controls(&name.to_string_lossy()),
    }
}

/// The failure of a recording that cannot be read as one of the `formats` that `--format` takes.
pub(super) fn not_a_recording(error: &TraceError, formats: &str) -> Failure {
    let mut line = error.to_string();
    if let Some(what) = line.strip_prefix(STANDARD_INPUT).filter(|what| what.starts_with(':')) {
        line = format!("{}{what}", shown(Path::new("-")));
    }
    if error.may_be_of_another_format() {
        line += &format!("; --format takes {formats}");
    }
    Failure::failed(line)
}
