//! The [opens](Opens) of recordings by `foretell record`, one run each.
//!
//! * An open is one that succeeded, of a file. The first read of it by the same process tells when it was read.
//! * A file that a process reads without an open in the recording, such as the program itself, its libraries, and files of
//!   programs seen from outside, was opened at that read.
//! * A file has the size that it has now. One that is gone has the size that its reads show.
//!
//! Files of no disk are left out. A file is known by its path, so runs of several recordings have their files in common.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use foretell_learn::recording::reader::Reader;
use foretell_learn::recording::{Event, Origin, PathId, What, is_named};
use foretell_learn::steps::Acts;

use super::END_BYTES_MAX;
use super::error::TraceError;
use super::opens::{OPENS_MAX, Opens, RecordedOpen, Run};
use super::recorded::{READ_BYTES, not_one};
use super::recording::is_on_no_disk;

/// Adds the run of the recording in the file `path` to `opens`. Returns what the recording lacks, if its end is missing.
///
/// # Errors
/// The file cannot be read, is no recording, or has no open; or there are too many opens.
pub fn add(opens: &mut Opens, path: &Path) -> Result<Option<&'static str>, TraceError> {
    let failed = |source| TraceError::Open { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let reader = Reader::new(BufReader::with_capacity(READ_BYTES, file));
    let mut reader = reader.map_err(|refusal| failed(not_one(refusal)))?;
    let mut maker = Maker::default();
    let before: usize = opens.runs.iter().map(|run| run.opens.len()).sum();
    while let Some(event) = reader.next_event().map_err(failed)? {
        maker.take(&event, reader.paths());
        if before + maker.opens.len() > OPENS_MAX {
            return Err(TraceError::TooLong { path: path.to_owned(), most: OPENS_MAX as u64 });
        }
    }
    if maker.opens.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    let name = path.display().to_string();
    maker.finish(opens, name, |path| match fs::metadata(path) {
        Ok(known) => known.is_file().then_some(Some(known.len())),
        Err(_) => Some(None),
    });
    Ok(reader.ending().problem())
}

#[derive(Default)]
struct Maker {
    opens: Vec<RecordedOpen>,
    /// The last open of a file by a process, and whether it was read since.
    last: HashMap<(u32, PathId), (usize, bool)>,
    /// By the numbers of paths: one past the last byte that was read, and whether it was opened.
    files: Vec<(u64, bool)>,
    paths: Vec<Arc<[u8]>>,
}

impl Maker {
    fn take(&mut self, event: &Event, paths: &[Arc<[u8]>]) {
        if self.paths.len() < paths.len() {
            self.paths.extend_from_slice(&paths[self.paths.len()..]);
            self.files.resize(paths.len(), (0, false));
        }
        match event.what {
            What::Touch { path, acts }
                if acts.has(Acts::OPEN) && !acts.has(Acts::FAIL | Acts::LIST) =>
            {
                let at_ns = event.at_ns.saturating_add(event.took_ns);
                self.open(event.process, path, at_ns);
            }
            What::Read { file, offset_bytes, length_bytes, origin } => {
                let end = &mut self.files[file.0 as usize].0;
                *end = (*end).max(offset_bytes.saturating_add(length_bytes));
                match self.last.get_mut(&(event.process, file)) {
                    Some((open, is_read)) => {
                        if !std::mem::replace(is_read, true) && origin == Origin::Call {
                            let open = &mut self.opens[*open];
                            open.read_us = (event.at_ns / 1000).saturating_sub(open.time_us);
                        }
                    }
                    None => {
                        self.open(event.process, file, event.at_ns);
                        self.last.entry((event.process, file)).and_modify(|last| last.1 = true);
                    }
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, process: u32, file: PathId, at_ns: u64) {
        if !is_named(&self.paths[file.0 as usize]) {
            return;
        }
        self.last.insert((process, file), (self.opens.len(), false));
        self.files[file.0 as usize].1 = true;
        let (time_us, file) = (at_ns / 1000, file.0);
        self.opens.push(RecordedOpen { time_us, read_us: 0, size_bytes: 0, file, process });
    }

    /// Adds the run to `all`. `size_of` tells the size of a file: `None` if it is no regular one, `Some(None)` if it is gone.
    fn finish(self, all: &mut Opens, name: String, size_of: impl Fn(&Path) -> Option<Option<u64>>) {
        let mut numbers: HashMap<String, u32> =
            (0..).zip(&all.paths).map(|(at, path)| (path.clone(), at)).collect();
        let mut known = |((end_bytes, is_opened), path): (&(u64, bool), &Arc<[u8]>)| {
            let path = Path::new(OsStr::from_bytes(path));
            let size =
                Some(path).filter(|path| *is_opened && !is_on_no_disk(path)).and_then(&size_of)?;
            let text = path.display().to_string();
            let number = *numbers.entry(text.clone()).or_insert_with(|| {
                all.paths.push(text);
                all.paths.len() as u32 - 1
            });
            Some((number, size.unwrap_or(*end_bytes).min(END_BYTES_MAX)))
        };
        let files: Vec<Option<(u32, u64)>> =
            self.files.iter().zip(&self.paths).map(&mut known).collect();
        let opens = self.opens.into_iter().filter_map(|open| {
            let (file, size_bytes) = files[open.file as usize]?;
            Some(RecordedOpen { file, size_bytes, ..open })
        });
        let mut opens: Vec<RecordedOpen> = opens.collect();
        opens.sort_by_key(|open| open.time_us);
        all.runs.extend((!opens.is_empty()).then_some(Run { name, opens }));
    }
}

#[cfg(test)]
mod tests {
    use foretell_learn::recording::Meta;
    use foretell_learn::recording::encoder::Encoder;

    use super::*;

    #[test]
    fn opens_and_first_reads_become_a_run() {
        let (mut encoder, beginning) = Encoder::new(&Meta::default());
        let paths = [&b"/nowhere/a"[..], b"/nowhere/lib", b"/dir", b"/proc/x", b"<file 3>"];
        let [a, lib, dir, proc, unnamed] =
            paths.map(|path| encoder.path(path).expect("there is room"));
        let touch = |path, acts| What::Touch { path, acts };
        let read =
            |file, length_bytes, origin| What::Read { file, offset_bytes: 0, length_bytes, origin };
        for (at_us, process, what) in [
            (10, 1, touch(a, Acts::OPEN)),
            (12, 1, touch(a, Acts::OPEN | Acts::FAIL)),
            (13, 1, touch(dir, Acts::LIST)),
            (14, 1, touch(dir, Acts::LOOK)),
            (60, 1, read(a, 100, Origin::Call)),
            (70, 1, read(a, 200, Origin::Call)),
            (80, 2, read(lib, 300, Origin::Pages)),
            (85, 2, read(lib, 400, Origin::Pages)),
            (90, 2, touch(proc, Acts::OPEN)),
            (95, 2, read(unnamed, 5, Origin::Call)),
            (99, 2, touch(a, Acts::OPEN)),
        ] {
            encoder.push(&Event { at_ns: at_us * 1000, took_ns: 0, process, what });
        }
        let bytes = [beginning, encoder.take_chunk().expect("events")].concat();
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), &bytes).expect("written");
        let mut opens = Opens::default();
        for run in 0..2 {
            let lacks = add(&mut opens, file.path()).expect("a recording");
            assert!(lacks.is_some_and(|lacks| lacks.starts_with("stopped early")));
            assert_eq!(opens.paths, ["/nowhere/a", "/nowhere/lib"]);
            let found = &opens.runs[run].opens;
            let short: Vec<_> = found
                .iter()
                .map(|open| (open.time_us, open.read_us, open.file, open.process))
                .collect();
            assert_eq!(short, [(10, 50, 0, 1), (80, 0, 1, 2), (99, 0, 0, 2)]);
            assert_eq!(found[0].size_bytes, 200);
        }
    }
}
