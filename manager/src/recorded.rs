//! The file of a recording, written by a thread: it may lie on a slow file system, and the session waits for none.
//!
//! The beginning, a recording without events, is written before the thread starts, by whoever opens the file
//! ([`Record::begin`]). The thread writes whole chunks. If a write fails, it cuts the file back to the last whole chunk and
//! ends; the session notices, and records no more.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foretell_learn::recording::Meta;
use foretell_learn::recording::encoder::Encoder;

use crate::threads::Threads;

/// Chunks under way to the thread: 1 MiB.
const UNDER_WAY_MAX: usize = 16;

/// Stack of the thread: it makes no deep calls.
const STACK_BYTES: usize = 128 << 10;

/// What a run is to be recorded to.
#[derive(Debug)]
pub struct Record {
    pub(crate) file: File,
    pub(crate) encoder: Encoder,
    /// What the file begins with, unless it is written.
    pub(crate) beginning: Vec<u8>,
    /// The folder in which the run begins.
    pub(crate) folder: Arc<[u8]>,
}

impl Record {
    /// To an empty file.
    pub fn new(file: File, meta: &Meta) -> Self {
        let (encoder, beginning) = Encoder::new(meta);
        Record { file, encoder, beginning, folder: Arc::clone(&meta.folder) }
    }

    /// Writes the beginning, so that the file is a recording from now on. A failed write leaves it empty.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.beginning);
        match written {
            Ok(()) => self.beginning.clear(),
            Err(_) => {
                self.file.set_len(0)?;
                self.file.rewind()?;
            }
        }
        written
    }
}

/// Chunks that are to be written at the end, and the way to the thread.
type Rest = (SyncSender<Vec<u8>>, VecDeque<Vec<u8>>);

/// A recording that is being written.
#[derive(Debug)]
pub struct Written {
    thread: JoinHandle<()>,
    /// The bytes of the file, or why it could not be written.
    result: Receiver<Result<u64, String>>,
    rest: Option<Rest>,
}

/// Starts the thread. `None` if there can be none.
pub(crate) fn start(file: File, threads: &Threads) -> Option<(SyncSender<Vec<u8>>, Written)> {
    let permit = threads.permit()?;
    let (sender, chunks) = sync_channel::<Vec<u8>>(UNDER_WAY_MAX);
    let (teller, result) = channel();
    let thread = thread::Builder::new().name("foretell-record".into()).stack_size(STACK_BYTES);
    let thread = thread.spawn(move || {
        let _permit = permit;
        let _ = teller.send(write_all(file, &chunks));
    });
    Some((sender, Written { thread: thread.ok()?, result, rest: None }))
}

fn write_all(mut file: File, chunks: &Receiver<Vec<u8>>) -> Result<u64, String> {
    let mut written_bytes = file.stream_position().unwrap_or(0); // A device has no position.
    for chunk in chunks {
        foretell_fault::point("foretell-record");
        file.write_all(&chunk).map_err(|error| {
            let _ = file.set_len(written_bytes);
            error.to_string()
        })?;
        written_bytes += chunk.len() as u64;
    }
    Ok(written_bytes)
}

impl Written {
    /// Also writes these chunks, at the end.
    pub(crate) fn with_rest(
        mut self,
        writer: Option<SyncSender<Vec<u8>>>,
        chunks: VecDeque<Vec<u8>>,
    ) -> Self {
        self.rest = writer.map(|writer| (writer, chunks));
        self
    }

    /// Waits until all is written, for `patience` at most. Returns the bytes of the file, or why it could not be written;
    /// `None` if it is not done by then.
    pub fn wait(&mut self, patience: Duration) -> Option<Result<u64, String>> {
        let deadline = Instant::now() + patience;
        if let Some((writer, mut chunks)) = self.rest.take() {
            while let Some(chunk) = chunks.pop_front() {
                match writer.try_send(chunk) {
                    Ok(()) => {}
                    Err(std::sync::mpsc::TrySendError::Disconnected(_)) => break,
                    Err(std::sync::mpsc::TrySendError::Full(chunk)) => {
                        chunks.push_front(chunk);
                        if Instant::now() >= deadline {
                            self.rest = Some((writer, chunks));
                            return None;
                        }
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match self.result.recv_timeout(left) {
            Ok(result) => Some(result),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                Some(Err("its writer has failed".into()))
            }
        }
    }

    /// Waits until all is written, however long that takes.
    pub fn end(mut self) {
        if let Some((writer, chunks)) = self.rest.take() {
            let _ = chunks.into_iter().try_for_each(|chunk| writer.send(chunk));
        }
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn threads() -> Threads {
        Threads::new().expect("some processes are left")
    }

    #[test]
    fn chunks_are_written_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run");
        let file = File::create(&path).expect("made");
        let (sender, written) = start(file, &threads()).expect("a thread");
        sender.send(b"one ".to_vec()).expect("taken");
        let rest = (0..100).map(|at| format!("{at} ").into_bytes()).collect();
        let mut written = written.with_rest(Some(sender), rest);
        let bytes = written.wait(LONG).expect("in time").expect("written");
        let mut text = String::new();
        File::open(&path).expect("there").read_to_string(&mut text).expect("read");
        assert_eq!(text.len() as u64, bytes);
        assert!(text.starts_with("one 0 1 2 ") && text.ends_with(" 99 "));
    }

    #[test]
    fn the_beginning_is_written_once_and_stays_if_the_disk_is_full() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run");
        let mut record = Record::new(File::create(&path).expect("made"), &Meta::default());
        record.begin().expect("written");
        assert!(record.beginning.is_empty());
        let length = std::fs::metadata(&path).expect("there").len();
        let (sender, mut written) = start(record.file, &threads()).expect("a thread");
        sender.send(b"chunk".to_vec()).expect("taken");
        drop(sender);
        assert_eq!(written.wait(LONG), Some(Ok(length + 5)));
        let full = File::options().write(true).open("/dev/full").expect("it is there");
        let mut record = Record::new(full, &Meta::default());
        assert!(record.begin().is_err() && !record.beginning.is_empty());
    }

    #[test]
    fn a_full_disk_ends_the_thread_and_is_told() {
        let full = File::options().write(true).open("/dev/full").expect("it is there");
        let (sender, mut written) = start(full, &threads()).expect("a thread");
        while sender.send(b"x".to_vec()).is_ok() {}
        let error = written.wait(LONG).expect("in time").expect_err("it is full");
        assert!(error.starts_with("No space left"), "{error}");
    }
}
