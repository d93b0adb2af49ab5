//! Hints from a file or a pipe: one path a line, or one JSON object a line.
//!
//! ```text
//! /data/a.bin
//! {"path": "/data/b.bin", "segments": [[0, 4096], [1048576, 65536]], "repeat": 2}
//! {"path": "/data/c.bin", "segments": [[0, 4096]], "stride": [1048576, 100], "order": "any"}
//! ```
//!
//! * `segments`: `[offset, length]` in bytes, in the order in which they will be read.
//! * `order`: `"given"` (the default), or `"any"` if the segments may be read in any order.
//! * `stride`: `[distance, count]` stands for `count` segments like the single one given, `distance` bytes from one to the
//!   next.
//! * `repeat`: how many times all of it will be read.
//!
//! Empty lines are skipped. A line that begins with `{` is JSON, so a path that begins with `{` must be written as JSON.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_policy::{Extent, Order, Segment};
use serde::Deserialize;
use serde::de::Error;

use super::{Certainty, Disclosure, FromFile, Kind};

/// See the [module](self).
pub const KIND: Kind = Kind::FromFile(FromFile {
    on: "hints",
    help: "Also take hints from FILE (- for standard input, which PROGRAM then does not get): one path per line, or JSON: \
           {\"path\": \"f\", \"segments\": [[OFFSET, LENGTH], ...], \"repeat\": 1}",
    called: "the list of hints",
    open: |setting, file| {
        let lines = disclosures(BufReader::new(file), setting.working_folder);
        Box::new(lines.map(|line| line.map_err(|error| error.to_string())))
    },
});

/// A line that is no hint.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The line cannot be read.
    #[error("line {line}: {error}")]
    Read {
        /// The line's number, from 1.
        line: usize,
        /// Why.
        error: io::Error,
    },
    /// The line contains a zero byte.
    #[error("line {line}: contains a zero byte; give one path a line (find without -print0)")]
    Zero {
        /// The line's number, from 1.
        line: usize,
    },
    /// The line is too long.
    #[error(
        "line {line}: longer than {LINE_BYTES_MAX} bytes; give one path a line, and many segments of a file in several lines"
    )]
    Long {
        /// The line's number, from 1.
        line: usize,
    },
    /// The line is a relative path, and the working folder was removed.
    #[error("line {line}: the working folder was removed: give absolute paths")]
    NoFolder {
        /// The line's number, from 1.
        line: usize,
    },
    /// The line begins with `{` and is not a valid object.
    #[error("line {line}{}", in_line(error))]
    Json {
        /// The line's number, from 1.
        line: usize,
        /// Why.
        error: serde_json::Error,
    },
}

/// Most bytes of a line: [`SEGMENTS_MAX`] segments with numbers of ten digits fit.
const LINE_BYTES_MAX: usize = 32 << 20;

/// Most segments of a line. Together with the line they take less than 100 MB while they are parsed.
const SEGMENTS_MAX: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    path: PathBuf,
    segments: Option<Vec<LineSegment>>,
    stride: Option<LineStride>,
    repeat: Option<u32>,
    #[serde(default)]
    order: LineOrder,
}

#[derive(Deserialize)]
#[serde(expecting = "a segment [OFFSET, LENGTH] in bytes")]
struct LineSegment(u64, u64);

#[derive(Deserialize)]
#[serde(expecting = "a stride [DISTANCE, COUNT]")]
struct LineStride(u64, u64);

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LineOrder {
    #[default]
    Given,
    Any,
}

/// The error with its column, if it has one. The line number that serde_json gives is left out: it parses each line as a text
/// of its own.
fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match (error.line(), error.column()) {
        (0, _) => format!(": {text}"),
        (line, column) => {
            let place = format!(" at line {line} column {column}");
            format!(", column {column}: {}", text.strip_suffix(&place).unwrap_or(&text))
        }
    }
}

/// The hints in `reader`, lazily. Relative paths are taken from `working_folder`; without one, each relative path is an error.
/// Ends at the first line that cannot be read, contains a zero byte, or is too long, since such input may be endless.
pub fn disclosures(
    mut reader: impl BufRead,
    working_folder: Option<PathBuf>,
) -> impl Iterator<Item = Result<Disclosure, ListError>> {
    let (mut line, mut number, mut failed) = (Vec::new(), 0, false);
    std::iter::from_fn(move || {
        while !failed {
            line.clear();
            number += 1;
            match take_line(&mut reader, number, &mut line) {
                Ok(false) => return None,
                Ok(true) if line.is_empty() => {}
                Ok(true) => {
                    return Some(parse(&line, number, working_folder.as_deref()));
                }
                Err(error) => {
                    failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    })
}

/// Appends the next line to `line`, without its newline. `number` is the line's number, for errors. Returns whether there was a
/// line.
fn take_line(
    reader: &mut impl BufRead,
    number: usize,
    line: &mut Vec<u8>,
) -> Result<bool, ListError> {
    let mut is_there = false;
    loop {
        let bytes = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ListError::Read { line: number, error }),
            Ok(bytes) => bytes,
        };
        if bytes.is_empty() {
            return Ok(is_there);
        }
        is_there = true;
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        if part.contains(&0) {
            return Err(ListError::Zero { line: number });
        }
        if line.len() + part.len() > LINE_BYTES_MAX {
            return Err(ListError::Long { line: number });
        }
        line.extend_from_slice(part);
        let taken = part.len() + usize::from(end.is_some());
        reader.consume(taken);
        if end.is_some() {
            return Ok(true);
        }
    }
}

fn parse(
    line: &[u8],
    number: usize,
    working_folder: Option<&Path>,
) -> Result<Disclosure, ListError> {
    let mut disclosure = if line.starts_with(b"{") {
        parse_object(line).map_err(|error| ListError::Json { line: number, error })?
    } else {
        Disclosure::whole_file(OsStr::from_bytes(line).into(), Certainty::File)
    };
    if disclosure.path.is_relative() {
        let working_folder = working_folder.ok_or(ListError::NoFolder { line: number })?;
        disclosure.path = working_folder.join(disclosure.path);
    }
    Ok(disclosure)
}

/// A line that is an object; its path may be relative.
fn parse_object(line: &[u8]) -> Result<Disclosure, serde_json::Error> {
    // Counted before they take memory. A path may contain brackets, too.
    let lists = line.iter().filter(|&&byte| byte == b'[').count();
    if lists > SEGMENTS_MAX + libc::PATH_MAX as usize {
        return Err(serde_json::Error::custom(format!(
            "more than {SEGMENTS_MAX} segments: give them in several lines"
        )));
    }
    let line: Line = serde_json::from_slice(line)?;
    let segment = |&LineSegment(offset_bytes, length_bytes)| Segment { offset_bytes, length_bytes };
    let extent = match (line.segments, line.stride) {
        (None, None) => Extent::WholeFile,
        (Some(segments), None) => Extent::Segments(segments.iter().map(segment).collect()),
        (Some(segments), Some(LineStride(stride_bytes, count))) if segments.len() == 1 => {
            Extent::Strided { first: segment(&segments[0]), stride_bytes, count }
        }
        (_, Some(_)) => {
            return Err(serde_json::Error::custom("a stride needs exactly one segment"));
        }
    };
    let order = match line.order {
        LineOrder::Given => Order::Given,
        LineOrder::Any => Order::Any,
    };
    let repeats = line.repeat.unwrap_or(1);
    if repeats == 0 {
        return Err(serde_json::Error::custom("repeat must be at least 1"));
    }
    Ok(Disclosure { path: line.path, extent, repeats, order, certainty: Certainty::File })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_objects_may_be_mixed() {
        let text = "a b\n\n{\"path\": \"/c\", \"segments\": [[5, 6], [1, 2]], \"repeat\": 3}\n/d";
        let all: Vec<_> = disclosures(text.as_bytes(), Some("/here".into()))
            .map(|line| line.expect("a good line"))
            .collect();
        assert_eq!(all[0], Disclosure::whole_file("/here/a b".into(), Certainty::File));
        assert_eq!((all[1].path.as_path(), all[1].repeats), (Path::new("/c"), 3));
        let Extent::Segments(segments) = &all[1].extent else { panic!("segments were given") };
        assert_eq!(segments[1], Segment { offset_bytes: 1, length_bytes: 2 });
        assert_eq!(all[2].path, Path::new("/d"));
    }

    #[test]
    fn without_a_working_folder_absolute_paths_are_left() {
        let mut all = disclosures(&b"/a\nb\n{\"path\": \"c\"}"[..], None);
        assert_eq!(all.next().expect("a line").expect("absolute").path, Path::new("/a"));
        for number in [2, 3] {
            let error = all.next().expect("a line").expect_err("relative to nothing").to_string();
            assert!(error.starts_with(&format!("line {number}: the working folder")), "{error}");
        }
    }

    #[test]
    fn strides_and_sets_can_be_said() {
        let text = "{\"path\": \"/a\", \"segments\": [[8, 4]], \"stride\": [100, 7]}\n\
                    {\"path\": \"/b\", \"order\": \"any\"}\n\
                    {\"path\": \"/c\", \"stride\": [100, 7]}\n\
                    {\"path\": \"/d\", \"order\": \"none\"}\n\
                    {\"path\": \"/e\", \"repeat\": 0}";
        let all: Vec<_> = disclosures(text.as_bytes(), Some("/".into())).collect();
        let first = Segment { offset_bytes: 8, length_bytes: 4 };
        let strided = Extent::Strided { first, stride_bytes: 100, count: 7 };
        assert_eq!(all[0].as_ref().expect("a stride").extent, strided);
        assert_eq!(all[1].as_ref().expect("a set").order, Order::Any);
        let of_nothing = all[2].as_ref().expect_err("of what?").to_string();
        assert_eq!(of_nothing, "line 3: a stride needs exactly one segment");
        assert!(all[3].as_ref().expect_err("no order").to_string().contains("none"));
        let never = all[4].as_ref().expect_err("it is not read").to_string();
        assert!(never.starts_with("line 5: repeat"), "{never}");
    }

    #[test]
    fn a_line_of_very_many_segments_is_refused_before_it_takes_memory() {
        let line = |segments: usize| {
            let mut text = String::from("{\"path\": \"/a\", \"segments\": [");
            text += &"[0,1],".repeat(segments - 1);
            text + "[0,1]]}"
        };
        let read = |text: String| {
            disclosures(text.as_bytes(), None).next().expect("a line").map(|found| found.path)
        };
        assert_eq!(read(line(10_000)).expect("a hint"), Path::new("/a"));
        let error = read(line(SEGMENTS_MAX + 10_000)).expect_err("too many").to_string();
        assert!(error.contains("in several lines"), "{error}");
    }

    #[test]
    fn names_separated_by_zero_bytes_are_refused() {
        let error = disclosures(&b"/a\0/b\0"[..], Some("/".into())).next().expect("a line");
        assert!(error.expect_err("no path").to_string().contains("zero byte"));
    }

    #[test]
    fn endless_input_is_not_read_to_its_end() {
        let endless = |byte| std::io::BufReader::new(std::io::repeat(byte));
        for (byte, told) in [(0, "line 1: contains a zero byte"), (b'a', "line 1: longer")] {
            let all: Vec<_> = disclosures(endless(byte), Some("/".into())).collect();
            let [Err(error)] = &all[..] else { panic!("{all:?}") };
            assert!(error.to_string().starts_with(told), "{error}");
        }
    }

    #[test]
    fn a_bad_line_is_named_and_the_next_is_read() {
        let text = "{\"path\": 7}\n/good\n{\"path\": \"/x\", \"segment\": []}\n\
                    {\"path\": \"/x\", \"segments\": [[1]]}";
        let all: Vec<_> = disclosures(text.as_bytes(), Some("/".into())).collect();
        let no_path = all[0].as_ref().expect_err("7 is no path").to_string();
        assert!(no_path.starts_with("line 1, column "), "{no_path}");
        assert!(all[1].is_ok());
        let unknown = all[2].as_ref().expect_err("an unknown key").to_string();
        assert!(unknown.contains("line 3") && unknown.contains("segment"), "{unknown}");
        let half = all[3].as_ref().expect_err("half a segment").to_string();
        assert!(half.contains("[OFFSET, LENGTH]") && !half.contains("at line"), "{half}");
    }

    /// Whatever a list has in it, each line is a hint within its bounds or a mistake that is told in one line.
    #[test]
    fn damaged_lists_are_read_or_refused() {
        use foretell_fault::damage::{Damage, cases};
        let list = b"/data/a.bin\n{\"path\": \"/b\", \"segments\": [[0, 4096], [1048576, 65536]], \"repeat\": 2}\n\
            relative\n{\"path\": \"/c\", \"segments\": [[0, 4096]], \"stride\": [1048576, 100], \"order\": \"any\"}\n";
        for number in 0..cases(2000) {
            let mut damage = Damage::of_case(number);
            let mut bytes = list.repeat(1 + damage.below(3));
            damage.apply(&mut bytes, list);
            let most = bytes.len() + 1;
            let mut count = 0;
            for line in disclosures(&bytes[..], Some("/here".into())) {
                count += 1;
                assert!(count <= most, "case {number}: more hints than lines");
                match line {
                    Ok(disclosure) => {
                        let path = disclosure.path.as_os_str().as_bytes();
                        assert!(path.starts_with(b"/"), "case {number}: {disclosure:?}");
                        assert!(disclosure.repeats > 0, "case {number}");
                        assert!(
                            disclosure.memory_bytes() <= 64 * bytes.len() + 4096,
                            "case {number}"
                        );
                    }
                    Err(error) => {
                        let told = error.to_string();
                        assert!(
                            told.starts_with("line ") && !told.contains('\n'),
                            "{number}: {told}"
                        );
                    }
                }
            }
        }
    }
}
