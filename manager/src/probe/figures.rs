//! The figures of a probe.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::BackendKind;
use crate::driver::mounted::Mounted;

/// What is known of a path.
#[derive(Clone, Debug, Serialize)]
pub struct Probed {
    /// The path as it was given.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// The file that was measured, if any.
    #[serde(serialize_with = "as_text_if_any")]
    pub file: Option<PathBuf>,
    /// Its length.
    pub file_bytes: Option<u64>,
    /// The file system; `None` if the kernel does not say.
    pub file_system: Option<FileSystemFigures>,
    /// Whether `foretell mount` serves it.
    pub is_of_foretell: bool,
    /// The back end that foretell would use.
    pub backend: BackendKind,
    /// Why.
    pub why: String,
    /// Whether pages stay in memory when a file is opened again; `None` if that is not known.
    pub keeps_pages: Option<bool>,
    /// The most that the kernel reads ahead on the device at a time; `None` if it does not say.
    pub read_ahead_bytes: Option<u64>,
    /// How the arrival of the file's data is observed.
    pub observed: Option<Observed>,
    /// Whether foretell's reads leave the file's access time alone.
    pub leaves_access_time: Option<bool>,
    /// The share of the file that was in memory before; `None` if the kernel does not say.
    pub in_memory_share: Option<f64>,
    /// Small reads of data that was not in memory.
    pub reads: Option<ReadFigures>,
    /// What back ends brought of a range that was not in memory.
    pub advice: Vec<AdviceFigures>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

/// A mounted file system.
#[derive(Clone, Debug, Serialize)]
pub struct FileSystemFigures {
    /// Its type, as in the table of mounts.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its device, server or program.
    pub source: String,
    /// Where it is mounted.
    #[serde(serialize_with = "as_text")]
    pub mount_point: PathBuf,
}

impl From<Mounted> for FileSystemFigures {
    fn from(mounted: Mounted) -> Self {
        let Mounted { kind, source, point } = mounted;
        FileSystemFigures { kind, source, mount_point: point }
    }
}

/// How arrival is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    /// By reads that do not wait.
    Reads,
    /// By `mincore`.
    Mincore,
    /// Not at all: data is read.
    Nothing,
}

/// Times of small reads.
#[derive(Clone, Debug, Serialize)]
pub struct ReadFigures {
    /// How many there were.
    pub count: usize,
    /// The shortest time, in microseconds.
    pub min_us: f64,
    /// The time in the middle.
    pub median_us: f64,
    /// The longest time.
    pub max_us: f64,
}

impl ReadFigures {
    /// Of these times, if there are any.
    pub(super) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let (first, last) = (*times.first()?, *times.last()?);
        Some(ReadFigures {
            count: times.len(),
            min_us: micros(first),
            median_us: micros(times[times.len() / 2]),
            max_us: micros(last),
        })
    }
}

/// What a back end brought of a range.
#[derive(Clone, Debug, Serialize)]
pub struct AdviceFigures {
    /// The back end.
    pub backend: BackendKind,
    /// The length of the range.
    pub asked_bytes: u64,
    /// How long the request took, in microseconds.
    pub call_us: f64,
    /// Whether it had waited for the data when it was over.
    pub waits_in_call: bool,
    /// How much of the range is in memory then; `None` if that cannot be seen.
    pub arrived_bytes: Option<u64>,
    /// After what time it was there, in microseconds; `None` if it did not arrive.
    pub arrived_after_us: Option<f64>,
}

pub(super) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// The kernel's limit of reading ahead on the device of this number (`st_dev`).
pub(super) fn read_ahead_bytes(device: u64) -> Option<u64> {
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    // A partition has the limit of its disk, one folder up. What is no block device has one of its own.
    let block = format!("/sys/dev/block/{number}");
    let files = [
        format!("{block}/queue/read_ahead_kb"),
        format!("{block}/../queue/read_ahead_kb"),
        format!("/sys/class/bdi/{number}/read_ahead_kb"),
    ];
    let text = files.iter().find_map(|file| fs::read_to_string(file).ok())?;
    text.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn as_text_if_any<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}
