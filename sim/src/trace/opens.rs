//! Recordings of opens: which files the programs of a run open for reading, as `scripts/record-opens` writes them.
//!
//! ```text
//! # run all
//! 0 1 exec /usr/bin/make 240280
//! 2192 1 open /usr/lib/libc.so.6 1926232 50
//! ```
//!
//! Each line is `time_us pid op path size [read_us]`: microseconds since the run began, the process, `open` or `exec`, the path
//! (blanks and % as %20 and %25), the size in bytes, and the microseconds from the open to the first read. Without the last the
//! read follows at once. `# run NAME` begins a run, in which times begin again. Other lines with # are comments.
//!
//! Lines that are out of order are put in order, since processes on several processors are recorded out of order.
//!
//! What may fail: as for every recording. The error names the line.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::END_BYTES_MAX;
use super::error::{Fault, Place, TraceError, quoted};
use super::input::{Input, Stop, number};

/// Bytes of the longest line: a path of 4,096 bytes, each of which may be written as three.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// Opens held at once: 32 bytes each, 1 GiB.
pub(super) const OPENS_MAX: usize = 32 << 20;
/// The fields of a line.
const FIELDS: &[&str] = &["time_us", "pid", "op", "path", "size"];
/// The latest time: a thousand years.
const TIME_US_MAX: u64 = 1_000 * 366 * 86_400 * 1_000_000;

/// An open or an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedOpen {
    /// When, in microseconds since the run began.
    pub time_us: u64,
    /// The time from the open to the first read, in microseconds.
    pub read_us: u64,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// The file: an index of [`Opens::paths`].
    pub file: u32,
    /// The process, as the recording numbers it.
    pub process: u32,
}

/// What one command opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Its name; empty if there is no line with it.
    pub name: String,
    /// In the order of time.
    pub opens: Vec<RecordedOpen>,
}

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opens {
    /// The files, as they are written.
    pub paths: Vec<String>,
    /// The runs, each with at least one open.
    pub runs: Vec<Run>,
}

/// Reads the recording in the file `path`, plain or compressed with gzip or zstd.
///
/// # Errors
/// [`TraceError`]: the file cannot be read, or is no such recording.
pub fn open(path: &Path) -> Result<Opens, TraceError> {
    let file = File::open(path);
    let file = file.map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    of(file, path)
}

/// Reads the recording from `bytes`; errors name it `path`.
///
/// # Errors
/// As for [`open`].
pub fn of(bytes: impl Read + 'static, path: &Path) -> Result<Opens, TraceError> {
    let input = Input::with_lines(bytes, "opens", LINE_BYTES_MAX);
    let mut input = input.map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    let opens =
        take_all(&mut input).map_err(|stop| input.error(stop, path, Place::Line(input.taken())))?;
    let count: usize = opens.runs.iter().map(|run| run.opens.len()).sum();
    match count {
        0 => Err(TraceError::Empty { path: path.to_owned() }),
        OPENS_MAX.. => Err(TraceError::TooLong { path: path.to_owned(), most: OPENS_MAX as u64 }),
        _ => Ok(opens),
    }
}

fn take_all(input: &mut Input) -> Result<Opens, Stop> {
    let (mut opens, mut files, mut count) = (Opens::default(), HashMap::new(), 0);
    let mut run = Run::default();
    while let Some(line) = input.line()? {
        if let Some(comment) = line.strip_prefix(b"#") {
            if let Some(name) = comment.trim_ascii().strip_prefix(b"run ") {
                let name = String::from_utf8_lossy(name).into_owned();
                let last = std::mem::replace(&mut run, Run { name, opens: Vec::new() });
                opens.add(last);
            }
        } else if !line.is_empty() {
            run.opens.push(parse(line, &mut files, &mut opens.paths)?);
            count += 1;
            if count >= OPENS_MAX {
                break;
            }
        }
    }
    opens.add(run);
    Ok(opens)
}

impl Opens {
    fn add(&mut self, mut run: Run) {
        run.opens.sort_by_key(|open| open.time_us);
        self.runs.extend((!run.opens.is_empty()).then_some(run));
    }
}

fn parse(
    line: &[u8],
    files: &mut HashMap<Vec<u8>, u32>,
    paths: &mut Vec<String>,
) -> Result<RecordedOpen, Fault> {
    let words: Vec<&[u8]> =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    let (&[time, process, op, path, size], rest) = words
        .split_first_chunk()
        .filter(|(_, rest)| rest.len() < 2)
        .ok_or(Fault::Fields { found: words.len(), wanted: FIELDS })?;
    if ![b"open", b"exec"].iter().any(|known| *known == op) {
        return Err(Fault::Number { found: quoted(op), wanted: "open or exec" });
    }
    let least = |value: u64, most: u64| value.min(most);
    let time_us = least(number(time, "a time in microseconds")?, TIME_US_MAX);
    let read_us = rest.first().map_or(Ok(0), |read| number(read, "a time in microseconds"))?;
    let size_bytes = number(size, "a size in bytes")?;
    if size_bytes > END_BYTES_MAX {
        return Err(Fault::Beyond);
    }
    let process = number(process, "the number of a process")? as u32;
    let file = match files.get(path) {
        Some(&file) => file,
        None => {
            let file = paths.len() as u32;
            paths.push(String::from_utf8_lossy(path).into_owned());
            files.insert(path.to_owned(), file);
            file
        }
    };
    Ok(RecordedOpen { time_us, read_us: least(read_us, TIME_US_MAX), size_bytes, file, process })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Result<Opens, String> {
        of(text.as_bytes(), Path::new("t")).map_err(|error| error.to_string())
    }

    #[test]
    fn runs_are_read_in_the_order_of_time() {
        let text = "0 1 exec /bin/a 10\n# run two\n9 2 open /b%20c 20 5\n3 1 open /bin/a 10\n# run three\n\n# a comment\n";
        let opens = read(text).expect("a recording");
        assert_eq!(opens.paths, ["/bin/a", "/b%20c"]);
        assert_eq!(opens.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["", "two"]);
        let open = |time_us, read_us, size_bytes, file, process| RecordedOpen {
            time_us,
            read_us,
            size_bytes,
            file,
            process,
        };
        assert_eq!(opens.runs[1].opens, [open(3, 0, 10, 0, 1), open(9, 5, 20, 1, 2)]);
    }

    #[test]
    fn what_is_no_recording_is_refused_with_its_line() {
        for (text, error) in [
            ("", "t: is empty"),
            ("# run a\n", "t: is empty"),
            ("0 1 open /a\n", "t: line 1: 4 fields, not the 5 of `time_us pid op path size`"),
            ("0 1 open /a 1 2 3\n", "t: line 1: 7 fields, not the 5 of `time_us pid op path size`"),
            (
                "0 1 open /a 1\nx 1 open /a 1\n",
                "t: line 2: \"x\" is not a time in microseconds; is the file of another format?",
            ),
            (
                "0 1 close /a 1\n",
                "t: line 1: \"close\" is not open or exec; is the file of another format?",
            ),
        ] {
            assert_eq!(read(text), Err(error.to_owned()), "{text}");
        }
    }
}
