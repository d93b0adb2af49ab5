//! Reads the recording of `foretell sim replay`: its reads and the work between them, and notes on what it lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use foretell_sim::replay::Disclosed;
use foretell_sim::replay::activity::{Activity, Known};
use foretell_sim::trace::recording::{LeftOut, Recording, State, What, is_on_no_disk};
use foretell_sim::trace::{Trace, TraceError, dxt, recorded, strace};

use super::recording::{not_a_recording, recorded_at, shown};
use super::replay_args::{ReplayArgs, Source};
use crate::failure::Failure;
use crate::size;

/// The activity to replay, and notes for the user on what the recording lacks.
pub(super) fn activity(args: &ReplayArgs) -> Result<(Activity, Vec<String>), Failure> {
    if let (Source::Reads(format), Some(_)) = (args.format, &args.root) {
        return Err(Failure::usage(format!(
            "--root: a recording in format {format} has no names of files; leave it out"
        )));
    }
    let path = recorded_at(&args.trace)?;
    let (activity, mut lacking) = match args.format {
        Source::Record => of_recording(args, recorded::open(path))?,
        Source::Strace => {
            let folder = std::env::current_dir()
                .map_err(|error| Failure::failed(format!("the current folder: {error}")))?;
            of_recording(args, strace::open(path, &folder))?
        }
        Source::Dxt => of_recording(args, dxt::open(path))?,
        Source::Reads(format) => {
            let trace = Trace::open(path, format, args.block).map_err(unusable)?;
            (Activity::of_trace(trace, args.block).map_err(unusable)?, Vec::new())
        }
    };
    let of = match &args.root {
        Some(root) => format!(" of a file below {}", root.display()),
        None => String::new(),
    };
    let lacks = |what: &str| format!("{}: there is no {what}{of} in it", shown(&args.trace));
    if !activity.has_reads() {
        let why = [lacks("read")].into_iter().chain(lacking).collect::<Vec<_>>();
        return Err(Failure::failed(why.join("; ")));
    }
    if args.hints().contains(&Disclosed::Recorded) && !activity.has_disclosures() {
        let lacks = lacks("posix_fadvise(WILLNEED) or readahead");
        if args.hints().iter().all(|&hints| hints == Disclosed::Recorded) {
            return Err(Failure::failed(format!("{lacks}; leave recorded out of --hints")));
        }
        lacking.push(format!("{lacks}: the hints recorded are left out"));
    }
    lacking.extend(times(args, &activity));
    Ok((activity, lacking))
}

/// A note on the work between reads, if the recording or `--think-us` is at odds with it.
fn times(args: &ReplayArgs, activity: &Activity) -> Option<String> {
    match args.format {
        Source::Strace if !activity.has_durations => Some(
            "the recording has no durations of calls (strace without -T): the only work is --think-us".to_owned(),
        ),
        _ if activity.has_durations && args.think_us > 0.0 => Some(
            "--think-us is not used: the recording has the work between reads".to_owned(),
        ),
        _ => None,
    }
}

fn unusable(error: TraceError) -> Failure {
    not_a_recording(&error, &Source::names())
}

fn of_recording(
    args: &ReplayArgs,
    recording: Result<Recording, TraceError>,
) -> Result<(Activity, Vec<String>), Failure> {
    let mut recording = recording.map_err(unusable)?;
    let root = args.root.as_deref().map(|root| settle_root(root, &mut recording)).transpose()?;
    let counts = |path: &Path| root.as_ref().is_none_or(|root| path.starts_with(root));
    let left_out =
        recording.leave_out(|path| is_on_no_disk(path) || counts(path) && is_no_file(path));
    let known = |path: &Path| {
        let file = fs::metadata(path).ok()?;
        Some(Known { device: file.dev(), inode: file.ino(), size_bytes: file.len() })
    };
    let activity = Activity::of_recording(&recording, root.as_deref(), known);
    let mut lacking = lacking(&recording, root.as_deref());
    lacking.extend(of_no_disk(left_out));
    if root.is_some() && !activity.has_reads() {
        lacking.insert(0, elsewhere(&recording));
    }
    if root.is_none() && args.hints().contains(&Disclosed::Files) {
        lacking.extend(libraries(&recording));
    }
    Ok((activity, lacking))
}

/// Whether the path leads to neither a file nor a folder, but to a pipe or a device, say.
fn is_no_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|known| !known.is_file() && !known.is_dir())
}

/// A note on reads that no disk serves.
fn of_no_disk(left_out: LeftOut) -> Option<String> {
    let LeftOut { files, bytes } = left_out;
    (files > 0).then(|| {
        let files = if files == 1 { "1 name".to_owned() } else { format!("{files} names") };
        format!(
            "{} were read from no disk, under {files} (devices, terminals, pipes, /proc, /sys, /run, memory): left out",
            size::display(bytes)
        )
    })
}

/// Says where the recorded reads are, if none is below the root.
fn elsewhere(recording: &Recording) -> String {
    let read = recording.calls.iter().filter_map(|call| match call.what {
        What::Read { file, .. } | What::List(file) => Some(recording.path(file)),
        _ => None,
    });
    let read: Vec<&Path> = read.collect();
    if read.is_empty() {
        return "nor any read of other files".to_owned();
    }
    let own: Vec<&Path> = read.iter().copied().filter(|path| !is_system(path)).collect();
    let (below, folder) = most_below(if own.is_empty() { &read } else { &own });
    let reads = read.len();
    let are_apart = own.iter().any(|path| path.components().count() > 2);
    if folder == Path::new("/") && are_apart {
        return format!("{reads} are elsewhere, and no folder has most of them; leave --root out");
    }
    format!("of {reads} elsewhere, {below} are below {}; give that for --root", folder.display())
}

/// The innermost folder that more than half of `paths` are below, and how many are.
fn most_below(paths: &[&Path]) -> (usize, PathBuf) {
    let mut found = (paths.len(), PathBuf::from("/"));
    loop {
        let mut inner: BTreeMap<&Path, usize> = BTreeMap::new();
        for path in paths {
            let folders: Vec<&Path> = path.ancestors().skip(1).collect();
            let at = folders.iter().position(|folder| *folder == found.1);
            if let Some(folder) = at.and_then(|at| folders.get(at.checked_sub(1)?)) {
                *inner.entry(folder).or_default() += 1;
            }
        }
        match inner.into_iter().find(|&(_, below)| 2 * below > paths.len()) {
            Some((folder, below)) => found = (below, folder.to_owned()),
            None => return found,
        }
    }
}

/// Folders of files that every program maps, such as libraries. These count only if they are below the root.
const SYSTEM: [&str; 7] = ["/usr", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys"];

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|folder| path.starts_with(folder))
}

fn lacking(recording: &Recording, root: Option<&Path>) -> Vec<String> {
    let counts = |path: &Path| root.is_none_or(|root| path.starts_with(root));
    let read = recording.calls.iter().filter_map(|call| match call.what {
        What::Read { file, .. } => Some(recording.path(file)).filter(|path| counts(path)),
        _ => None,
    });
    let read: BTreeSet<&Path> = read.collect();
    let error = |path: &&Path| fs::metadata(path).err().map(|error| error.kind());
    let errors: Vec<ErrorKind> = read.iter().filter_map(error).collect();
    let forbidden = errors.iter().filter(|&&kind| kind == ErrorKind::PermissionDenied).count();
    let gone = errors.len() - forbidden;
    let mapped = recording.mapped.iter().filter(|&&(file, _)| {
        let path = recording.path(file);
        counts(path) && (root.is_some() || !is_system(path))
    });
    let mapped = mapped.fold(0u64, |sum, &(_, bytes)| sum.saturating_add(bytes));
    let unknown = [(gone, "cannot find"), (forbidden, "no permission to look at")];
    let unknown = unknown.into_iter().filter(|&(files, _)| files > 0).map(|(files, why)| {
        let all = match read.len() {
            1 => "1 file".to_owned(),
            all => format!("{all} files"),
        };
        format!("{why} {files} of {all}: their sizes are taken from the reads")
    });
    let some_mapped = (mapped > 0).then(|| {
        let mapped = size::display(mapped);
        format!("{mapped} of files were mapped into memory: reads through mappings are not recorded, and not replayed")
    });
    let unnamed = (recording.unnamed_bytes > 0).then(|| {
        let unnamed = size::display(recording.unnamed_bytes);
        format!("{unnamed} were read from files opened before the recording: not replayed (strace -y names the files)")
    });
    let opens = recording.unnamed_opens;
    let opened = (opens > 0).then(|| {
        let opened = match opens {
            1 => "1 file was opened in a folder that the recording does not name: its reads, if any, are",
            _ => &format!("{opens} files were opened in folders that the recording does not name: their reads, if any, are"),
        };
        format!("{opened} not replayed (record with strace -y, or all calls, without -e trace=)")
    });
    let rings = recording.ring_calls;
    let rings = (rings > 0).then(|| {
        format!("{rings} calls of io_uring or aio: their reads are not recorded, and their time counts as work")
    });
    let warned = recording.warnings.iter().map(|warning| format!("its recorder says: {warning}"));
    let all = warned.chain(damage(&recording.state)).chain(unknown).chain(some_mapped);
    all.chain(unnamed).chain(opened).chain(rings).collect()
}

/// A note that libraries are among the disclosed files: programs read only the beginning of a library and map the rest.
fn libraries(recording: &Recording) -> Option<String> {
    let read = recording.calls.iter().filter_map(|call| match call.what {
        What::Read { file, .. } => Some(recording.path(file)),
        _ => None,
    });
    let is_library = |path: &&Path| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| name.ends_with(".so") || name.contains(".so."))
    };
    let found: BTreeSet<&Path> = read.filter(is_library).collect();
    let first = found.first()?.file_name()?.to_string_lossy();
    Some(match found.len() {
        1 => format!(
            "{first} is disclosed as a whole, too: --root FOLDER leaves out files that are not below FOLDER"
        ),
        all => format!(
            "{all} libraries, such as {first}, are disclosed as wholes, too: --root FOLDER leaves out files that are not below FOLDER"
        ),
    })
}

/// Notes on lines that are not understood, and on a recording that is cut off.
fn damage(state: &State) -> Vec<String> {
    let without_end = state.without_end.map(str::to_owned);
    let damaged = state.first_not_understood.map(|first| {
        let State { lines, not_understood, .. } = state;
        format!("{not_understood} of {lines} lines are not understood as calls; the first is line {first}")
    });
    let cut = state.ends_within_call.then(|| {
        "the recording ends in the middle of a call: the rest of the run is missing".to_owned()
    });
    let unheard = state.unheard_child.map(|child| {
        format!("process {} was created but has no line: was strace run with -f?", child.0)
    });
    let unopened = (state.unopened > 0).then(|| {
        let files = match state.unopened {
            1 => "1 file was read without a recorded open: it is".to_owned(),
            files => format!("{files} files were read without a recorded open: they are"),
        };
        format!("{files} replayed from byte 0 (calls are missing, as with strace -p or -e trace=, or lines)")
    });
    without_end.into_iter().chain(damaged).chain(cut).chain(unopened).chain(unheard).collect()
}

/// The folder that `root` leads to, with links resolved. Recorded paths that use the given name of the root are changed to the
/// resolved one.
fn settle_root(root: &Path, recording: &mut Recording) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("--root: {}: {error}", root.display()));
    let given = without_dots(&std::path::absolute(root).map_err(failed)?);
    let folder = match fs::canonicalize(root) {
        Ok(folder) => folder,
        // The recorded files need not exist on this machine.
        Err(_) if recording.paths.iter().any(|path| path.starts_with(&given)) => return Ok(given),
        Err(error) => return Err(failed(error)),
    };
    if given != folder && fs::canonicalize(&given).is_ok_and(|path| path == folder) {
        for path in &mut recording.paths {
            if let Ok(rest) = path.strip_prefix(&given) {
                *path = folder.join(rest);
            }
        }
    }
    Ok(folder)
}

/// As recordings have names: `..` takes the name before it away.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}
