//! [Recordings](Recording) of MPI and other programs, by Darshan's extended tracing (DXT), as text.
//!
//! The text is the output of `darshan-dxt-parser LOG`, or of this repository's `scripts/dxt-text LOG`, which
//! uses the Python reader and keeps more digits of times:
//!
//! ```text
//! # DXT, file_id: 1645, file_name: /data/one
//! # DXT, rank: 0, hostname: node
//! # Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)
//!  X_POSIX       0   read        0               0       262144      0.0029      0.0032
//! ```
//!
//! The lines of a file follow its name.
//!
//! * Only the module `X_POSIX` is read, since the reads of the layers above end up there. Fields after the
//!   eighth are ignored.
//! * A rank is a reader. Overlapping reads of a rank's threads are put one after another.
//! * Writes are the program's own time.
//! * DXT does not trace opens: a rank's first access to a file counts as its open.
//! * [`Recording::warnings`] has the parser's warnings about missing data.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_policy::{Nanos, ReaderId};

use super::check_read;
use super::error::{Fault, Place, TraceError, quoted};
use super::input::{Input, Stop, number};
use super::recording::{Call, PathIndex, Recording, What};

/// What precedes the number and the name of the file that the next lines belong to.
const FILE: &[u8] = b"# DXT, file_id: ";
const FILE_NAME: &[u8] = b", file_name: ";
/// What precedes a warning about the data.
const WARNINGS: [&[u8]; 2] = [b"# *WARNING*:", b"# *ERROR*:"];
/// Warnings that are kept at most, and characters of each.
const WARNINGS_MAX: usize = 4;
const WARNING_LETTERS_MAX: usize = 200;
/// Lines at the beginning of the text of any log.
const HEADERS: [&[u8]; 2] = [b"# darshan log version:", b"# compression method:"];
/// The module that is read.
const MODULE: &[u8] = b"X_POSIX";
/// The first letters of every module.
const ANY_MODULE: &[u8] = b"X_";

/// Reads the recording in the file `path`.
///
/// # Errors
/// [`TraceError`]: the file cannot be read, or is no DXT text.
pub fn open(path: &Path) -> Result<Recording, TraceError> {
    let file = File::open(path);
    let file = file.map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    of(file, path)
}

/// Bytes of the longest line: a line lists all storage targets of a stripe.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Reads the recording from `bytes`, plain or compressed with gzip or zstd; errors name it `path`.
///
/// # Errors
/// As for [`open`].
pub fn of(bytes: impl Read + 'static, path: &Path) -> Result<Recording, TraceError> {
    let input = Input::with_lines(bytes, "dxt", LINE_BYTES_MAX);
    let mut input = input.map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    let recording = take_all(&mut input);
    recording.map_err(|stop| input.error(stop, path, Place::Line(input.taken())))
}

fn take_all(input: &mut Input) -> Result<Recording, Stop> {
    let mut recording = Recording::default();
    let mut paths: HashMap<PathBuf, PathIndex> = HashMap::new();
    let mut file = None;
    let (mut is_dxt, mut has_header) = (false, false);
    while let Some(line) = input.line()? {
        if let Some(name) = file_name(line) {
            is_dxt = true;
            let path = PathBuf::from(OsStr::from_bytes(name));
            let next = PathIndex(recording.paths.len() as u32);
            let index = *paths.entry(path.clone()).or_insert(next);
            if index == next {
                recording.paths.push(path);
            }
            file = Some(index);
            continue;
        }
        if let Some(warning) = warning(line) {
            if recording.warnings.len() < WARNINGS_MAX && !recording.warnings.contains(&warning) {
                recording.warnings.push(warning);
            }
            continue;
        }
        if line.is_empty() || line.starts_with(b"#") {
            has_header |= is_header(line);
            continue;
        }
        if !line.starts_with(ANY_MODULE) {
            let other = Fault::NotDxt { found: quoted(line) };
            return Err(if has_header && !is_dxt { Fault::OfDarshanParser } else { other }.into());
        }
        let file = file.ok_or(Fault::NoFile)?;
        let call = call(line, file)?;
        input.check_line_end()?;
        match call {
            Some(call) => recording.calls.push(call),
            None => recording.passed_over += 1,
        }
    }
    if !is_dxt {
        let other = Fault::NotDxt { found: "the end".to_owned() };
        return Err(if has_header { Fault::NoDxt } else { other }.into());
    }
    recording.has_durations = true;
    recording.settle();
    Ok(with_opens(recording))
}

/// The text of a warning, as in `# *WARNING*: The DXT_POSIX module contains incomplete data!`. Further lines of
/// the kind give the reason.
fn warning(line: &[u8]) -> Option<String> {
    let text = WARNINGS.iter().find_map(|begin| line.strip_prefix(*begin))?;
    let text = String::from_utf8_lossy(text.trim_ascii());
    let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
    Some(text.chars().take(WARNING_LETTERS_MAX).collect())
}

/// Whether the line is one that Darshan's parsers write before the data.
fn is_header(line: &[u8]) -> bool {
    HEADERS.iter().any(|begin| line.starts_with(begin)) || line.ends_with(b" module data")
}

/// Whether a file that begins with `prefix` is such a text.
pub(super) fn is_of(prefix: &[u8]) -> bool {
    let mut lines = prefix.split(|&byte| byte == b'\n');
    lines.any(|line| is_header(line.trim_ascii()) || line.starts_with(FILE))
}

/// The name in `# DXT, file_id: 1, file_name: /a`.
fn file_name(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(FILE)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest[digits..].strip_prefix(FILE_NAME)
}

/// ` X_POSIX 0 read 0 4096 4096 0.5 0.6`: module, rank, way, segment, offset, length, start and end.
fn call(line: &[u8], file: PathIndex) -> Result<Option<Call>, Stop> {
    let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let mut field = || fields.next().unwrap_or_default();
    if field() != MODULE {
        return Ok(None);
    }
    let rank = number(field(), "a rank (a whole number from 0 on)")?;
    let is_read = match field() {
        b"read" => true,
        b"write" => false,
        other => {
            return Err(Fault::Number { found: quoted(other), wanted: "read or write" }.into());
        }
    };
    field(); // The segment: its number within the file.
    let offset_bytes = number(field(), "an offset in bytes (a whole number from 0 on)")?;
    let length_bytes = number(field(), "a length in bytes (a whole number from 0 on)")?;
    let (began, ended) = (seconds(field())?, seconds(field())?);
    let took = ended.0.checked_sub(began.0).map(Nanos).ok_or(Fault::EndsBefore)?;
    let what = match is_read && length_bytes > 0 {
        true => {
            check_read(offset_bytes, length_bytes)?;
            What::Read { file, offset_bytes, length_bytes }
        }
        false => What::Other,
    };
    Ok(Some(Call { reader: ReaderId(rank), began, took, what }))
}

fn seconds(field: &[u8]) -> Result<Nanos, Stop> {
    let text = str::from_utf8(field).unwrap_or_default();
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..1e9).contains(seconds));
    let wanted = "a time in seconds (from 0 to 10^9)";
    let seconds = seconds.ok_or_else(|| Fault::Number { found: quoted(field), wanted })?;
    Ok(Nanos((seconds * 1e9).round() as u64))
}

/// Adds an open before each reader's first read of a file.
fn with_opens(mut recording: Recording) -> Recording {
    let mut opened = HashSet::new();
    let calls = std::mem::take(&mut recording.calls).into_iter().flat_map(|call| {
        let open = match call.what {
            What::Read { file, .. } if opened.insert((call.reader, file)) => {
                Some(Call { took: Nanos::ZERO, what: What::Open(file), ..call })
            }
            _ => None,
        };
        open.into_iter().chain([call])
    });
    recording.calls = calls.collect();
    recording
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const TEXT: &str = "\
# DXT trace of one file on two ranks

# DXT, file_id: 17, file_name: /data/a b
# DXT, rank: 1, hostname: node
# DXT, write_count: 1, read_count: 1
# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)  [OST]
 X_POSIX       1  write        0               0          512      0.5000      0.7500  [ 3]
 X_POSIX       1   read        0            4096         8192      1.0000      1.2500  [ 3] [ 4]

# DXT, file_id: 18, file_name: /data/c
# DXT, rank: 0, hostname: node
 X_MPIIO       0   read        0               0          100      0.6000      0.9000
 X_POSIX       0   read        0               0          100      0.6000      0.9000
 X_POSIX       0   read        1             100            0      0.9000      0.9000
";

    fn recorded(text: &str) -> Result<Recording, String> {
        let bytes = Cursor::new(text.as_bytes().to_vec());
        of(bytes, Path::new("run.dxt")).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_are_by_rank_in_the_order_in_which_they_began() {
        let recording = recorded(TEXT).expect("it is well-formed");
        assert_eq!(recording.paths, ["/data/a b", "/data/c"].map(PathBuf::from));
        assert!(recording.has_durations);
        assert_eq!(recording.passed_over, 1);
        let call = |rank, began_ms: u64, took_ms: u64, what| Call {
            reader: ReaderId(rank),
            began: Nanos(began_ms * 1_000_000),
            took: Nanos(took_ms * 1_000_000),
            what,
        };
        let [one, two] = [PathIndex(0), PathIndex(1)];
        let read =
            |file, offset_bytes, length_bytes| What::Read { file, offset_bytes, length_bytes };
        assert_eq!(
            recording.calls,
            [
                call(1, 0, 250, What::Other),
                call(0, 100, 0, What::Open(two)),
                call(0, 100, 300, read(two, 0, 100)),
                call(0, 400, 0, What::Other),
                call(1, 500, 0, What::Open(one)),
                call(1, 500, 250, read(one, 4096, 8192)),
            ]
        );
    }

    #[test]
    fn a_line_may_name_all_targets_of_a_wide_stripe() {
        let targets: String = (0..2000).map(|target| format!(" [OST: {target}]")).collect();
        let file = "# DXT, file_id: 1, file_name: /a\n";
        let text = format!("{file} X_POSIX 0 read 0 0 100 0.1 0.2 {targets}\n");
        assert_eq!(recorded(&text).map(|recording| recording.calls.len()), Ok(2));
    }

    #[test]
    fn what_is_none_says_where_and_why() {
        let file = "# DXT, file_id: 1, file_name: /a\n";
        let line = |line: &str| format!("{file} X_POSIX {line}\n");
        for (text, told) in [
            (String::new(), "run.dxt: is empty"),
            ("\n".to_owned(), "the end is no line of DXT"),
            ("a b c\n".to_owned(), "line 1: \"a b c\" is no line of DXT"),
            (" X_POSIX 0 read 0 0 1 0.0 0.0\n".to_owned(), "line 1: a read before any file's name"),
            (line("x read 0 0 1 0.0 0.0"), "line 2: \"x\" is not a rank"),
            (line("0 seek 0 0 1 0.0 0.0"), "line 2: \"seek\" is not read or write"),
            (line("0 read 0 -1 1 0.0 0.0"), "line 2: \"-1\" is not an offset"),
            (line("0 read 0 0 1 0.0"), "line 2: \"\" is not a time"),
            (line("0 read 0 0 1 0.0 nan"), "line 2: \"nan\" is not a time"),
            (line("0 read 0 0 1 2.0 1.0"), "line 2: a read that ends before it begins"),
            (line("0 read 0 0 1 1.0 12").trim_end().to_owned(), "line 2: the last line has no end"),
            (line("0 read 0 18446744073709551615 1 0.0 0.0"), "line 2: a read that ends beyond"),
            (line("0 read 0 0 1000000000000000 0.0 1.0"), "one read has at most 2147483648"),
        ] {
            let error = recorded(&text).expect_err("it is malformed");
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn what_the_parser_says_is_missing_is_kept() {
        let block = "\n# *WARNING*: The DXT_POSIX module contains incomplete data!\n\
            #            This happens when a module runs out of\n\
            #            memory to store new record data.\n";
        let file = "# DXT, file_id: 1, file_name: /a\n X_POSIX 0 read 0 0 100 0.1 0.2\n";
        let recording = recorded(&[block, file, block].concat()).expect("well formed");
        assert_eq!(recording.warnings, ["The DXT_POSIX module contains incomplete data!"]);
        assert_eq!(recording.calls.len(), 2);
        let none = recorded(file).expect("well formed");
        assert!(none.warnings.is_empty());
    }

    #[test]
    fn a_log_without_dxt_says_how_to_have_it() {
        let header = "# darshan log version: 3.41\n# compression method: ZLIB\n# exe: /bin/x\n";
        let module = "\n# DXT_POSIX module data\n";
        for text in [header.to_owned(), [header, module].concat()] {
            let error = recorded(&text).expect_err("there is nothing in it");
            assert!(error.contains("DXT_ENABLE_IO_TRACE=1"), "{error}");
        }
        let counters = "#<module>\t<rank>\nPOSIX\t-1\t9\tPOSIX_OPENS\t2\t/a\t/\text4\n";
        let error = recorded(&[header, counters].concat()).expect_err("it is of another parser");
        assert!(error.contains("darshan-dxt-parser"), "{error}");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        proptest::proptest!(|(text in "(# DXT, file_id: 1, file_name: /a\n)?( X_POSIX|[0-9.eE+-]{1,9}| read| |\n){0,40}")| {
            let _ = recorded(&text);
        });
    }
}
