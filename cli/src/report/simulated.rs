//! What hints would gain, by the simulator of `foretell sim replay`: on several devices, and by folder.
//!
//! *By device*: all files of the recording lie on one device, and memory is empty at the start. *By folder*: only the files
//! below it lie on the device [`FOLDER_DEVICE`], and the rest takes the time that it took.
//!
//! A recording of more than [`CALLS_MAX`] calls is not simulated, since that would take minutes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use foretell_policy::Rules;
use foretell_policy::queue::Order;
use foretell_sim::device::DiskParameters;
use foretell_sim::machine::read_ahead::ReadAheadSpec;
use foretell_sim::machine::server::PREFETCHES_PER_DISK;
use foretell_sim::replay::activity::{Activity, Known};
use foretell_sim::replay::{Disclosed, Placing, Recorded, ReplaySpec, Work};
use foretell_sim::trace::recorded;
use foretell_sim::trace::recording::{Recording, What, is_on_no_disk};
use serde::Serialize;

/// The devices, with the number of them.
const DEVICES: [(&str, usize); 4] =
    [("nvme", 1), ("network", 1), ("object-store", 1), ("hp97560", 4)];

/// The device for the figures by folder.
const FOLDER_DEVICE: &str = "network";

/// Folders that are simulated: those with the most bytes.
const FOLDERS_MAX: usize = 5;

/// Names on the way to a folder: `/usr/lib/python3` has three.
const DEPTH: usize = 3;

/// Calls of a recording that is simulated: some seconds for all runs together.
const CALLS_MAX: usize = 400_000;

/// Bytes of memory, of a block and of a stripe: the defaults of `sim replay`, and of `foretell run`.
const CACHE_BYTES: u64 = 256 << 20;
const BLOCK_BYTES: u64 = 8192;
const STRIPE_BYTES: u64 = 64 << 10;

/// How files lie on the devices, by the name that `--layout` takes.
const LAYOUT: (&str, Placing) = ("aged", Placing::Aged);

/// The hints that are compared with none.
const HINTS: [Disclosed; 2] = [Disclosed::Files, Disclosed::All];

/// See the [module](self).
#[derive(Debug, Default, Serialize)]
pub(super) struct Simulated {
    /// How files lie on the devices, and the bytes of memory.
    layout: &'static str,
    memory_bytes: u64,
    by_device: Vec<Gain>,
    by_folder: Vec<Gain>,
    /// Why nothing is simulated, or not all.
    note: Option<String>,
}

/// Elapsed times, in seconds.
#[derive(Debug, Serialize)]
struct Gain {
    device: &'static str,
    disks: usize,
    /// The folder on that device; all files if none.
    folder: Option<String>,
    none_s: f64,
    files_s: f64,
    all_s: f64,
}

/// Simulates the recording in the file `path`.
///
/// # Errors
/// In words: it cannot be read.
pub(super) fn simulate(path: &Path) -> Result<Simulated, String> {
    let mut recording = recorded::open(path).map_err(|error| error.to_string())?;
    let mut simulated =
        Simulated { layout: LAYOUT.0, memory_bytes: CACHE_BYTES, ..Simulated::default() };
    if recording.calls.len() > CALLS_MAX {
        simulated.note = Some(format!(
            "the recording has {} calls, and at most {CALLS_MAX} are simulated here; use foretell sim replay",
            recording.calls.len()
        ));
        return Ok(simulated);
    }
    recording.leave_out(|path| {
        is_on_no_disk(path)
            || fs::metadata(path).is_ok_and(|known| !known.is_file() && !known.is_dir())
    });
    for (device, disks) in DEVICES {
        simulated.add(&recording, None, (device, disks))?;
    }
    for folder in folders(&recording) {
        simulated.add(&recording, Some(&folder), (FOLDER_DEVICE, 1))?;
    }
    Ok(simulated)
}

impl Simulated {
    fn add(
        &mut self,
        recording: &Recording,
        folder: Option<&Path>,
        (device, disks): (&'static str, usize),
    ) -> Result<(), String> {
        let activity = Activity::of_recording(recording, folder, known);
        if !activity.has_reads() {
            return Ok(());
        }
        let recorded = Recorded::new(&activity);
        let mut elapsed = Vec::new();
        for disclosed in [&[Disclosed::None][..], &HINTS].concat() {
            let spec = spec(device, disks, disclosed)?;
            if let Err(too_long) = spec.check(&recorded) {
                self.note.get_or_insert(format!("{device}: {too_long}"));
                return Ok(());
            }
            elapsed.push((spec.run(&recorded).elapsed_s * 1e6).round() / 1e6);
        }
        let [none_s, files_s, all_s] = elapsed[..] else { return Ok(()) };
        let name = folder.map(|folder| folder.display().to_string());
        let gain = Gain { device, disks, folder: name, none_s, files_s, all_s };
        match folder {
            None => self.by_device.push(gain),
            Some(_) => self.by_folder.push(gain),
        }
        Ok(())
    }
}

fn known(path: &Path) -> Option<Known> {
    let file = fs::metadata(path).ok()?;
    Some(Known { device: file.dev(), inode: file.ino(), size_bytes: file.len() })
}

fn spec(device: &str, disks: usize, disclosed: Disclosed) -> Result<ReplaySpec, String> {
    let disk = DiskParameters::by_name(device).map_err(|error| error.to_string())?;
    let outstanding = PREFETCHES_PER_DISK.max(disk.slots());
    Ok(ReplaySpec {
        rules: Rules::FORETELL,
        disclosed,
        cache_bytes: CACHE_BYTES,
        block_bytes: BLOCK_BYTES,
        disk,
        disks,
        stripe_bytes: STRIPE_BYTES,
        order: Order::Scan,
        outstanding,
        placing: LAYOUT.1,
        seed: 1,
        inodes: true,
        read_ahead: Some(ReadAheadSpec::linux(BLOCK_BYTES)),
        work: Work::default(),
    })
}

/// The folders with the most bytes read below them, at most [`DEPTH`] names deep.
fn folders(recording: &Recording) -> Vec<PathBuf> {
    let mut bytes: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for call in &recording.calls {
        let What::Read { file, length_bytes, .. } = call.what else { continue };
        let folder = recording.path(file).parent().unwrap_or(Path::new("/"));
        let folder: PathBuf = folder.components().take(DEPTH + 1).collect();
        let sum = bytes.entry(folder).or_default();
        *sum = sum.saturating_add(length_bytes);
    }
    bytes.remove(Path::new("/"));
    let mut all: Vec<(PathBuf, u64)> = bytes.into_iter().collect();
    all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    all.truncate(FOLDERS_MAX);
    all.into_iter().map(|(folder, _)| folder).collect()
}
