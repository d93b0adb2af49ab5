//! `foretell profile`: writes rules from a recording of `foretell record`.
//!
//! Each file that was read, and of which enough was read, gets a rule of its own with the regions that its reads show
//! ([`foretell_rules::profile`]). A rule about a small file would bring nothing that a guess would not bring, and many of them
//! hide the others.

use std::ffi::OsStr;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use foretell_manager::learn::recording::reader::Reader;
use foretell_manager::learn::recording::{Meta, What, is_named};
use foretell_rules::profile::Reads;
use foretell_rules::{Action, FILE_MAX_BYTES, REGIONS_ALL_MAX, RULES_MAX, Rules, text};

use crate::failure::{Failure, note, without_controls};
use crate::output_file::{self, OutputFile};
use crate::standard_output::say;
use crate::{library, size};

pub(crate) const HELP: &str = "\
Each file gets a rule with the parts that were read, in the order in which they were read. A file that was read in no order is \
read as a whole, or not ahead if little of it was read. Look at the rules, shorten them with patterns, and follow them with \
`foretell run --rules`.

Example:
  foretell record -o run.ftr -- ./analyse data.h5
  foretell profile run.ftr -o rules.toml
  foretell rules check rules.toml
  foretell run --rules rules.toml -- ./analyse data.h5";

/// Bytes of the recording that are read at a time.
const READ_BYTES: usize = 128 << 10;

/// Folders without files on a device.
const NO_FILES: [&[u8]; 3] = [b"/proc/", b"/sys/", b"/dev/"];

#[derive(Args)]
pub(crate) struct ProfileArgs {
    /// The recording
    recording: PathBuf,

    /// Write the rules to FILE (- for standard output)
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Leave out files of which fewer bytes were read; a byte that is read several times counts once
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "1MiB")]
    min_read: u64,
}

/// What a profile leaves out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    /// Files of which little was read.
    small: usize,
    /// Files with names that cannot be in a file of rules.
    unwritable: usize,
    /// Files for which there was no room.
    beyond: usize,
}

pub(crate) fn profile(args: &ProfileArgs) -> Result<ExitCode, Failure> {
    output_file::check_apart(&[("the recording", &args.recording)], &[("--output", &args.output)])
        .map_err(Failure::usage)?;
    let output = OutputFile::open_as("--output", &args.output).map_err(Failure::failed)?;
    let failed = |why: &dyn std::fmt::Display| {
        Failure::failed(format!("{}: {why}", args.recording.display()))
    };
    let file = File::open(&args.recording).map_err(|error| failed(&error))?;
    let reader = Reader::new(BufReader::with_capacity(READ_BYTES, file));
    let mut reader = reader.map_err(|refusal| failed(&refusal))?;
    let (mut reads, mut order) = (Reads::default(), Vec::new());
    while let Some(event) = reader.next_event().map_err(|error| failed(&error))? {
        let What::Read { file, offset_bytes, length_bytes, .. } = event.what else { continue };
        let number = u64::from(file.0);
        if length_bytes > 0 && !reads.is_read(number) {
            order.push(number);
        }
        reads.add(number, event.process, offset_bytes, length_bytes);
    }
    if let Some(problem) = reader.ending().problem() {
        note(format!("{}: {problem}", args.recording.display()));
    }
    if reads.lost() > 0 {
        note(format!(
            "{}: {} reads are left out, since the recording has too many; record a part of the run",
            args.recording.display(),
            reads.lost()
        ));
    }
    let path = |number: u64| {
        let path = reader.paths().get(usize::try_from(number).ok()?)?;
        let has_files = !NO_FILES.iter().any(|folder| path.starts_with(folder));
        let is_own = path.ends_with(library::FILE_NAME.as_bytes());
        (is_named(path) && has_files && !is_own).then_some(&path[..])
    };
    // A program that knows the size of a file does not read at its end, and the recording has no sizes.
    for &number in &order {
        if let Some(path) = path(number).filter(|_| reads.distinct_bytes(number) >= args.min_read)
            && let Ok(about) = std::fs::metadata(OsStr::from_bytes(path))
            && about.is_file()
        {
            reads.ends_at(number, about.len());
        }
    }
    let (rules, count, left) = written(&reads, &order, path, args.min_read);
    let content = format!("{}{rules}", head(reader.meta()));
    output.write(content.as_bytes()).map_err(Failure::failed)?;
    if args.output.as_os_str() != "-" {
        let told = format!("{}: {}", args.output.display(), told(count, &left, args.min_read));
        say(&without_controls(&told))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn told(count: usize, left: &Left, min_read: u64) -> String {
    let rules = if count == 1 { "1 rule".to_owned() } else { format!("{count} rules") };
    let reasons = [
        (left.small, format!("of less than {}", size::display(min_read))),
        (left.unwritable, "with names that are no text".to_owned()),
        (left.beyond, "for which there is no room".to_owned()),
    ];
    let left = reasons.iter().filter(|(files, _)| *files > 0);
    let left: Vec<String> = left
        .map(|(files, why)| format!("{files} file{} {why}", if *files == 1 { "" } else { "s" }))
        .collect();
    if left.is_empty() { rules } else { format!("{rules}; left out: {}", left.join(", ")) }
}

/// Comments at the beginning.
fn head(meta: &Meta) -> String {
    let words = meta.command.iter().map(|word| String::from_utf8_lossy(word));
    let command = without_controls(&words.collect::<Vec<_>>().join(" "));
    format!(
        "# What this command has read: {command}\n\
         # `foretell run --rules FILE` follows it, and `foretell rules check FILE` explains it.\n\n"
    )
}

/// The rules, their number, and what is left out. If there is no room for all, those of which most was read are written.
fn written<'p>(
    reads: &Reads,
    order: &[u64],
    path: impl Fn(u64) -> Option<&'p [u8]>,
    min_read: u64,
) -> (String, usize, Left) {
    let mut left = Left::default();
    let mut files = Vec::new();
    for (at, &number) in order.iter().enumerate() {
        let Some(path) = path(number) else { continue };
        let bytes = reads.distinct_bytes(number);
        match std::str::from_utf8(path) {
            _ if bytes < min_read => left.small += 1,
            Ok(path) => files.push((bytes, at, number, path)),
            Err(_) => left.unwritable += 1,
        }
    }
    files.sort_by_key(|&(bytes, at, ..)| (std::cmp::Reverse(bytes), at));
    // Room for the head is left.
    let (mut regions, mut room) = (0, FILE_MAX_BYTES - (64 << 10));
    let mut rules: Vec<(usize, String)> = Vec::new();
    for (_, at, number, path) in files {
        let Some(plan) = reads.plan(number) else { continue };
        let count = plan.regions.len();
        let text = text(path, &Action::Read(plan)) + "\n";
        if Rules::parse(text.as_bytes(), None).is_err() {
            left.unwritable += 1;
        } else if rules.len() == RULES_MAX || regions + count > REGIONS_ALL_MAX || text.len() > room
        {
            left.beyond += 1;
        } else {
            (regions, room) = (regions + count, room - text.len());
            rules.push((at, text));
        }
    }
    rules.sort_by_key(|&(at, _)| at);
    let count = rules.len();
    (rules.into_iter().map(|(_, text)| text).collect(), count, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_in_the_order_of_first_use_and_small_files_are_left_out() {
        let mut reads = Reads::default();
        let paths: [&[u8]; 4] = [b"/b", b"/a", b"/small", b"/\xff"];
        for (file, bytes) in [(0, 1 << 20), (1, 2 << 20), (2, 10), (3, 1 << 20)] {
            reads.add(file, 7, 0, bytes);
        }
        let path = |file: u64| paths.get(file as usize).copied();
        let (text, count, left) = written(&reads, &[0, 1, 2, 3, 9], path, 100);
        assert_eq!((count, left), (2, Left { small: 1, unwritable: 1, beyond: 0 }));
        let rules = Rules::parse(text.as_bytes(), None).expect("good rules");
        let names: Vec<&str> = rules.rules().iter().map(|rule| rule.patterns[0].text()).collect();
        assert_eq!(names, ["/b", "/a"]);
    }

    #[test]
    fn without_room_for_all_the_largest_stay() {
        let (mut reads, files) = (Reads::default(), RULES_MAX as u64 + 10);
        for file in 0..files {
            reads.add(file, 7, 0, 1000 + file);
        }
        let names: Vec<Vec<u8>> = (0..files).map(|file| format!("/{file}").into_bytes()).collect();
        let path = |file: u64| names.get(file as usize).map(Vec::as_slice);
        let order: Vec<u64> = (0..files).collect();
        let (text, count, left) = written(&reads, &order, path, 0);
        assert_eq!((count, left), (RULES_MAX, Left { beyond: 10, ..Left::default() }));
        let rules = Rules::parse(text.as_bytes(), None).expect("good rules");
        assert!(rules.find(b"/10").is_some() && rules.find(b"/9").is_none());
    }

    #[test]
    fn what_is_left_out_is_told() {
        assert_eq!(told(1, &Left::default(), 1), "1 rule");
        let left = Left { small: 3, unwritable: 0, beyond: 1 };
        let all =
            "2 rules; left out: 3 files of less than 64 KiB, 1 file for which there is no room";
        assert_eq!(told(2, &left, 65_536), all);
    }
}
