//! `foretell hint`: hints from a shell script to a running manager.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use foretell_protocol::{Client, ClientError, Extent, Hint, STREAM_EXTERNAL, Segment};

use crate::failure::Failure;
use crate::size;

pub(crate) const HELP: &str = "\
Inside `foretell run` the hints go to its manager, which FORETELL_SOCKET names. Elsewhere they go to \
the only manager of this user in the same network namespace.

Examples:
  foretell hint next.dat
  foretell hint notes.txt data.bin:64KiB+4096     all of one file, then 4096 bytes of another

Exit codes: 0 all hints are given; 1 a file is missing or a folder, which a line names, and the other \
hints are given; 1 too if there is no manager; 2 wrong usage.";

#[derive(Args)]
pub(crate) struct HintArgs {
    /// Files that will be read, in this order: each as a whole, or LENGTH bytes from OFFSET on
    #[arg(required = true, value_name = "PATH[:OFFSET+LENGTH]")]
    paths: Vec<OsString>,
}

pub(crate) fn hint(args: &HintArgs) -> Result<ExitCode, Failure> {
    let client = Client::discover().map_err(not_reached)?;
    let working_folder = std::env::current_dir()
        .map_err(|error| Failure::failed(format!("the working folder: {error}")))?;
    let mut first_failure = None;
    for argument in &args.paths {
        let (path, extent) = parse(argument);
        let path = working_folder.join(path);
        // A file that is missing does not keep the others from being hinted.
        if let Err(failure) = check(argument, &path) {
            let code = failure.report();
            first_failure.get_or_insert(code);
            continue;
        }
        let hint = Hint { stream: STREAM_EXTERNAL, path, extent, repeat: 1, any_order: false };
        client.hint(&hint).map_err(Failure::failed)?;
    }
    Ok(first_failure.unwrap_or(ExitCode::SUCCESS))
}

/// Says why there is no connection. A manager's socket is named within its network namespace and cannot be reached from
/// outside.
fn not_reached(error: ClientError) -> Failure {
    match error {
        ClientError::NoManager => Failure::failed(
            "no manager of this user runs in this network namespace, and hints do not reach another: start the program \
             with `foretell run` here",
        ),
        ClientError::Connect { address, source }
            if source.kind() == io::ErrorKind::ConnectionRefused =>
        {
            Failure::failed(format!(
                "manager {address} has ended, or runs in another network namespace, which hints do not reach"
            ))
        }
        error => Failure::failed(error),
    }
}

/// Checks that the argument names a file.
fn check(argument: &OsStr, path: &Path) -> Result<(), Failure> {
    let named = argument.display();
    match std::fs::metadata(path) {
        _ if argument.is_empty() => Err(Failure::usage("an empty name is no file")),
        Ok(metadata) if metadata.is_dir() => {
            Err(Failure::failed(format!("{named}: is a folder; name its files")))
        }
        Ok(_) => Ok(()),
        Err(_) if has_range(argument) => Err(Failure::usage(format!(
            "{named}: no such file, and behind the colon is no OFFSET+LENGTH of at least one byte, such as 64KiB+4096"
        ))),
        Err(error) => Err(Failure::failed(format!("{named}: {error}"))),
    }
}

/// Whether the part before the last colon names a file.
fn has_range(argument: &OsStr) -> bool {
    let bytes = argument.as_bytes();
    let colon = bytes.iter().rposition(|&byte| byte == b':');
    colon.is_some_and(|colon| Path::new(OsStr::from_bytes(&bytes[..colon])).is_file())
}

/// Splits `PATH:OFFSET+LENGTH`. Anything else is a path as a whole, and so is an argument that names an existing file.
fn parse(argument: &OsStr) -> (PathBuf, Extent) {
    match split_segment(argument.as_bytes()) {
        Some((path, segment)) if !Path::new(argument).exists() => {
            (OsStr::from_bytes(path).into(), Extent::Segments(vec![segment]))
        }
        _ => (argument.into(), Extent::WholeFile),
    }
}

fn split_segment(argument: &[u8]) -> Option<(&[u8], Segment)> {
    let colon = argument.iter().rposition(|&byte| byte == b':')?;
    let (offset, length) = std::str::from_utf8(&argument[colon + 1..]).ok()?.split_once('+')?;
    let segment = Segment {
        offset_bytes: size::parse(offset).ok()?,
        length_bytes: size::parse(length).ok()?,
    };
    (colon > 0 && segment.length_bytes > 0).then_some((&argument[..colon], segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_told_from_a_path() {
        let segment = |offset_bytes, length_bytes| {
            Extent::Segments(vec![Segment { offset_bytes, length_bytes }])
        };
        let table = [
            ("a/b", "a/b", Extent::WholeFile),
            ("a/b:0+4096", "a/b", segment(0, 4096)),
            ("a:b:1MiB+4k", "a:b", segment(1 << 20, 4096)),
            ("a:b", "a:b", Extent::WholeFile),
            ("a:5+0", "a:5+0", Extent::WholeFile),
            (":1+2", ":1+2", Extent::WholeFile),
        ];
        for (argument, path, extent) in table {
            assert_eq!(parse(OsStr::new(argument)), (path.into(), extent), "{argument}");
        }
    }
}
