//! `foretell mount`: an object store, or a folder, as a file system.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use foretell_cache::backend::index::{Index, IndexBackend};
use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::object::{
    AddressError, ObjectBackend, ObjectOptions, without_secrets,
};
use foretell_cache::backend::{Backend, BackendError};
use foretell_cache::tier::{Tier, TierError, TierOptions};
use foretell_cache::{CacheError, CacheOptions, Stats};
use foretell_mount::{Contents, Ending, KIND, StoreMount, StoreMountOptions, check, point};
use rustix::fs::Mode;
use rustix::process::umask;

use crate::failure::{Failure, note};
use crate::output_file::OutputFile;
use crate::{background, duration, input_file, signals, size};

pub(crate) const HELP: &str = "\
SOURCE is a folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or \
https://HOST/PATH. A web server does not tell what it has: --index names a list of it, FILE or \
an address, with a path below SOURCE on each line, and after a tab the size in bytes, if it is \
known (`find . -type f -printf '%P\\t%s\\n'` writes one). Without, files can be opened by name, \
and there are no folders. The server must send parts of files (nginx, Apache and caddy do; \
`python3 -m http.server` does not).
Credentials, region and endpoint come from the usual variables of the environment \
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, ...), from the profile \
(AWS_PROFILE) of ~/.aws/config and ~/.aws/credentials, and from the machine's metadata service.

The mount is read-only, unless SOURCE is a folder and --read-write is given: then each write is \
in the folder's file before the program goes on. Links of a folder are shown as links, and nothing outside of \
SOURCE is read. Programs disclose what they will read by posix_fadvise(WILLNEED), as anywhere, or by ioctl on a file or on \
MOUNTPOINT/.foretell/control (foretell_ioctl.h). What it does is told by \
MOUNTPOINT/.foretell/stats, and what is cached of a file, and why, by its attributes \
user.foretell.cached_bytes, user.foretell.cached_ranges and user.foretell.cached_for.

One call of posix_fadvise fetches up to the kernel's read-ahead limit (128 KiB). `foretell run \
-- PROGRAM` works on a mount as anywhere. For data that does not change, a long --ttl saves a \
question to the store for each name. While a store does not answer, reads wait for --timeout and \
can be interrupted; looking up a name waits as long and cannot. (A folder with --read-write \
has them wait as long as it would without the mount.)

  SIZE      4096, 256MiB, 4GiB, 10GB
  DURATION  0s, 500ms, 30s, 10min

Examples:
  foretell mount s3://bucket/data /mnt/data --budget 4GiB
  foretell mount https://host/data /mnt/data --index https://host/data/index.txt
  foretell mount --read-write /nfs/project /mnt/project
  foretell unmount /mnt/data";

/// How long a store may take to answer at all when it is mounted.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);
/// How long names are believed. Names of a store far away are looked up ahead of who uses them, by hints: not in vain.
const FOLDER_TTL: Duration = Duration::from_secs(1);
const STORE_TTL: Duration = Duration::from_mins(1);
/// The longest list of what a store has.
const INDEX_MAX_BYTES: usize = 1 << 30;
/// At most one line in so long about what could not be read, and how many wait to be told.
const TROUBLE_EVERY: Duration = Duration::from_millis(500);
const TROUBLES_MAX: usize = 4;
/// How long a mount may take to say what it has done before it is unmounted without.
const STATS_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct MountArgs {
    /// What to mount
    source: String,

    /// An empty folder
    mountpoint: PathBuf,

    /// A list of what SOURCE, an address, has: it is shown, and SOURCE is not asked for more names. An address, or a file here
    #[arg(long, value_name = "FILE|URL", conflicts_with = "read_write")]
    index: Option<String>,

    /// Let programs write, too: of a folder, into which each write goes at once
    #[arg(long, conflicts_with = "tier")]
    read_write: bool,

    /// Let them not, which is so without --read-write as well
    #[arg(long, conflicts_with = "read_write")]
    read_only: bool,

    /// Memory for data
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = size::parse)]
    budget: u64,

    /// Size of a block, the unit in which data is fetched and kept: a power of two, 4KiB to 16MiB
    #[arg(long, default_value = "16KiB", value_name = "SIZE", value_parser = size::parse)]
    block: u64,

    /// Keep what was fetched in FOLDER on a local disk as well, for when memory has let it go, and for mounts to come
    #[arg(long, value_name = "FOLDER")]
    tier: Option<PathBuf>,

    /// Disk space for that
    #[arg(long, default_value = "10GiB", value_name = "SIZE", value_parser = size::parse, requires = "tier")]
    tier_budget: u64,

    /// Begin with an empty one, and leave nothing on disk
    #[arg(long, requires = "tier")]
    tier_wipe: bool,

    /// How long a name may stand for what it stood for when the store was asked last [default: 1min, of a folder 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,

    /// Requests ahead of programs at once, as long as the store does not say that it is busy [default: 128, of a folder 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: Option<u32>,

    /// How long a program waits for a store that does not answer before it is told so
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = duration::parse)]
    timeout: Duration,

    /// Let all users of this machine read all of it, whatever the modes of a folder's files, or with --read-write use it as these
    /// modes let them (without root, /etc/fuse.conf must say user_allow_other)
    #[arg(long)]
    allow_other: bool,

    /// Bits of inode numbers: 32 for programs of 32 bits, which cannot hold larger ones. Those are others at each mount, and cost some
    /// 20 to 75 bytes for each file that was listed or opened
    #[arg(long, default_value = "64", value_name = "32|64", value_parser = inode_bits)]
    inode_bits: u32,

    /// At the end, write what was done to FILE as JSON (- for standard output, with --foreground)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Stay, say what could not be read, and unmount on Ctrl-C
    #[arg(short, long)]
    foreground: bool,
}

pub(crate) fn mount(args: &MountArgs) -> Result<ExitCode, Failure> {
    if args.foreground {
        return serve(args);
    }
    if args.json.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage(
            "--json - needs --foreground: a mount in the background has no output",
        ));
    }
    background::again_in_foreground(1)
}

/// A store, and the tier in front of it, if there is one.
type Tiered = (Arc<dyn Backend>, Option<Arc<Tier>>);

fn tiered(args: &MountArgs) -> Result<Tiered, Failure> {
    let (backend, identity) = backend(args)?;
    let Some(folder) = &args.tier else { return Ok((backend, None)) };
    let place = std::path::absolute(folder).map_err(Failure::failed)?;
    for other in [Some(args.mountpoint.as_path()), folder_of(&args.source)].into_iter().flatten() {
        let other = other.canonicalize().map_err(Failure::failed)?;
        if place.starts_with(&other) || other.starts_with(&place) {
            return Err(Failure::failed(format!(
                "--tier {}: it and {} lie in one another; name a folder outside",
                folder.display(),
                other.display()
            )));
        }
    }
    let options = TierOptions {
        folder: folder.clone(),
        budget_bytes: args.tier_budget,
        block_bytes: usize::try_from(args.block).unwrap_or(usize::MAX),
        keep: !args.tier_wipe,
    };
    let tier = Tier::open(&options).map_err(|error| match error {
        TierError::Budget { .. } => Failure::usage(format!("--tier-budget: {error}")),
        error => Failure::failed(error),
    })?;
    Ok((Arc::new(tier.over(&identity, backend)), Some(tier)))
}

/// The folder that a source is, unless it is an address.
fn folder_of(source: &str) -> Option<&Path> {
    match source.split_once("://") {
        None => Some(Path::new(source)),
        Some(("file", path)) => Some(Path::new(path)),
        Some(_) => None,
    }
}

/// A store, and what tells it from others.
type Identified = (Arc<dyn Backend>, String);

fn backend(args: &MountArgs) -> Result<Identified, Failure> {
    if folder_of(&args.source).is_none() {
        let defaults = ObjectOptions::default();
        let depth = args.depth.map_or(defaults.depth, |depth| depth as usize);
        let silence = defaults.silence.min(args.timeout);
        let options = ObjectOptions { depth, deadline: args.timeout, silence };
        let hasty = ObjectOptions { deadline: CHECK_PATIENCE.min(args.timeout), ..options };
        if let Some(place) = &args.index {
            return indexed(args, place, (options, hasty));
        }
        let checked = ObjectBackend::at(&args.source, hasty).map_err(no_store)?;
        let shown = without_secrets(&args.source);
        if check(&checked, &shown).map_err(Failure::failed)? == Contents::None {
            if checked.is_object() {
                return Err(is_an_object(&shown));
            }
            note(format_args!("there is nothing at {shown} now"));
        }
        let backend = ObjectBackend::at(&args.source, options).map_err(no_store)?;
        let identity = backend.identity().to_owned();
        return Ok((Arc::new(backend), identity));
    }
    if args.index.is_some() {
        return Err(Failure::usage("--index: a folder tells what it has; leave the option out"));
    }
    let folder = folder(args)?;
    let backend = LocalBackend::beneath(&folder, folder_depth(args));
    let backend = backend.map_err(|error| unreadable(&folder, &error))?;
    Ok((Arc::new(backend), args.source.clone()))
}

fn is_an_object(address: &str) -> Failure {
    let (folder, name) = address.trim_end_matches('/').rsplit_once('/').unwrap_or_default();
    Failure::failed(format!(
        "cannot mount {address}: it is an object, not a folder; mount {folder}, where it is the file {name}"
    ))
}

/// An address that is none, or that no store is at.
fn no_store(error: AddressError) -> Failure {
    match error {
        AddressError::Scheme(_) => Failure::usage(error),
        error => Failure::failed(error),
    }
}

/// What a list says that a store has.
fn indexed(
    args: &MountArgs,
    place: &str,
    (options, hasty): (ObjectOptions, ObjectOptions),
) -> Result<Identified, Failure> {
    let (source, shown) = (without_secrets(&args.source), without_secrets(place));
    let wrong = |what: &dyn Display| Failure::failed(format!("--index {shown}: {what}"));
    let text = match folder_of(place) {
        Some(file) => {
            input_file::read(file, INDEX_MAX_BYTES as u64).map_err(|error| wrong(&error))?
        }
        None => {
            let list = ObjectBackend::at(place, options).map_err(no_store)?.unlisted();
            list.read_all("", INDEX_MAX_BYTES).map_err(|error| wrong(&error))?
        }
    };
    let index = Index::parse(&text).map_err(|error| wrong(&error))?;
    match index.first() {
        None => note(format_args!("{shown} names no files")),
        Some(first) => {
            let store = ObjectBackend::at(&args.source, hasty).map_err(no_store)?;
            match store.unlisted().probe(first) {
                Ok(()) => {}
                Err(BackendError::NotFound) => {
                    note(format_args!("{first}, which {shown} names, is not at {source} now"));
                }
                Err(error) => {
                    return Err(Failure::failed(format!(
                        "cannot mount {source}: {first}: {error}"
                    )));
                }
            }
        }
    }
    let store = ObjectBackend::at(&args.source, options).map_err(no_store)?.unlisted();
    let identity = store.identity().to_owned();
    Ok((Arc::new(IndexBackend::new(Arc::new(store), index)), identity))
}

fn folder_depth(args: &MountArgs) -> Option<usize> {
    args.depth.map(|depth| depth as usize)
}

fn unreadable(folder: &Path, error: &io::Error) -> Failure {
    let folder = folder.display();
    Failure::failed(format!("cannot mount {folder}: {error}; name a folder that you may read"))
}

/// The folder that is to be mounted, which does not lie in its mount point, nor that in it.
fn folder(args: &MountArgs) -> Result<PathBuf, Failure> {
    let folder = folder_of(&args.source).unwrap_or(Path::new(""));
    let folder_path = folder.canonicalize().map_err(|error| unreadable(folder, &error))?;
    fs::read_dir(&folder_path).map_err(|error| unreadable(folder, &error))?;
    if let Ok(mountpoint) = args.mountpoint.canonicalize()
        && (mountpoint.starts_with(&folder_path) || folder_path.starts_with(&mountpoint))
    {
        let (folder, place) = (folder.display(), mountpoint.display());
        return Err(Failure::failed(format!(
            "cannot mount {folder} at {place}: one lies in the other; mount somewhere outside"
        )));
    }
    Ok(folder_path)
}

/// The mount in this process, until it is unmounted or a signal asks for it.
fn serve(args: &MountArgs) -> Result<ExitCode, Failure> {
    if args.timeout.is_zero() {
        return Err(Failure::usage("--timeout 0: no answer comes in no time"));
    }
    let block_bytes = usize::try_from(args.block).unwrap_or(usize::MAX);
    let options = StoreMountOptions {
        source: match folder_of(&args.source).and_then(|folder| folder.canonicalize().ok()) {
            Some(folder) => folder.to_string_lossy().into_owned(),
            None => without_secrets(&args.source),
        },
        cache: CacheOptions { budget_bytes: args.budget, block_bytes },
        ttl: args.ttl.unwrap_or(match folder_of(&args.source) {
            Some(_) => FOLDER_TTL,
            None => STORE_TTL,
        }),
        is_for_all: args.allow_other,
        timeout: folder_of(&args.source).map(|_| args.timeout),
        are_numbers_small: args.inode_bits == 32,
    };
    options.cache.check().map_err(|error| {
        let option = if let CacheError::BlockBytes(_) = error { "--block" } else { "--budget" };
        Failure::usage(format!("{option}: {error}"))
    })?;
    let mut json =
        OutputFile::of_option("--json", args.json.as_deref()).map_err(Failure::failed)?;
    if is_writable(args) {
        // Who writes through the mount has taken away what his own mask does. It stays so: the mount may serve
        // who has still something of it open until this process ends.
        let mask = umask(Mode::empty());
        json = json.map(|file| file.with_mask(mask));
    }
    raise_descriptors();
    signals::block(&signals::OF_A_SERVER);
    let (mount, tier) = start(args, &options)?;
    foretell_fault::point("mounted");
    let handle = mount.handle();
    // If there is no thread to be had, Ctrl-C is not heard, and `unmount` still works.
    let _ = thread::Builder::new().name("mount-signals".into()).spawn(move || {
        loop {
            signals::take(&signals::OF_A_SERVER);
            handle.request_unmount();
        }
    });
    // Standard output is for JSON alone if that is wished.
    let is_json_out = args.json.as_deref() == Some(Path::new("-"));
    let say = if is_json_out { |line: &str| note(line) } else { say };
    say(&format!(
        "{} at {}: {}, {} of memory in blocks of {}",
        options.source,
        mount.mountpoint().display(),
        if args.read_write { "read-write" } else { "read-only" },
        size::display(args.budget),
        size::display(args.block),
    ));
    if mount.wait() == Ending::Requested && !is_json_out {
        say(""); // Below the ^C of the terminal.
    }
    let (failure, place) = (mount.failure(), mount.mountpoint().display().to_string());
    let (mountpoint, stats, report) =
        (mount.mountpoint().to_owned(), mount.stats(), mount.report());
    let is_in_use = mount.unmount().map_err(Failure::failed)?;
    say(&summary(&mountpoint, &stats, args.block));
    let tier = tier.map(|tier| tier.stats());
    if let Some(tier) = &tier {
        say(&tier_summary((tier.hit_blocks, args.block), tier.held_bytes));
    }
    if let Some(file) = json {
        let mut report: serde_json::Value =
            serde_json::from_slice(&report).map_err(Failure::failed)?;
        if let Some(tier) = tier {
            report["tier"] = serde_json::to_value(tier).map_err(Failure::failed)?;
        }
        file.write_json(&report).map_err(Failure::failed)?;
    }
    if is_in_use {
        note("a program still has files of the mount open; it cannot read them any longer");
    }
    match failure {
        Some(reason) => Err(Failure::failed(format!("the mount at {place} has ended: {reason}"))),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn is_writable(args: &MountArgs) -> bool {
    args.read_write && !args.read_only
}

fn start(
    args: &MountArgs,
    options: &StoreMountOptions,
) -> Result<(StoreMount, Option<Arc<Tier>>), Failure> {
    if !is_writable(args) {
        let (backend, tier) = tiered(args)?;
        let source = (backend, tier.clone());
        let mount = StoreMount::mount_tiered(source, &args.mountpoint, options, told_sometimes());
        return Ok((mount.map_err(Failure::failed)?, tier));
    }
    if folder_of(&args.source).is_none() {
        return Err(Failure::usage(format!(
            "--read-write: {} cannot be written, only a folder can; leave the option out",
            without_secrets(&args.source)
        )));
    }
    let folder = folder(args)?;
    let (folder, mountpoint) = ((folder.as_path(), folder_depth(args)), &args.mountpoint);
    let mount = StoreMount::mount_writable(folder, mountpoint, options, told_sometimes());
    Ok((mount.map_err(Failure::failed)?, None))
}

/// Reads `32` or `64`.
fn inode_bits(text: &str) -> Result<u32, String> {
    match text {
        "32" => Ok(32),
        "64" => Ok(64),
        _ => Err("neither 32 nor 64".to_owned()),
    }
}

/// Each connection, and each file of a folder, is a descriptor.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit); // It is only as good as it gets.
}

/// Says what could not be read, but not more often than people can follow; and whoever tells never waits for who reads.
fn told_sometimes() -> impl Fn(&str) + Send + Sync + 'static {
    let (sender, receiver) = std::sync::mpsc::sync_channel::<String>(TROUBLES_MAX);
    let left_out = Arc::new(AtomicU64::new(0));
    let more = Arc::clone(&left_out);
    // Without a thread nothing is said; `.foretell/stats` says it too.
    let _ = thread::Builder::new().name("mount-troubles".into()).spawn(move || {
        while let Ok(what) = receiver.recv() {
            match more.swap(0, Ordering::Relaxed) {
                0 => note(what),
                more => note(format_args!("{what} (and {more} more that are not told)")),
            }
            thread::sleep(TROUBLE_EVERY);
        }
    });
    move |what: &str| {
        if sender.try_send(what.to_owned()).is_err() {
            left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn summary(mountpoint: &Path, stats: &Stats, block_bytes: u64) -> String {
    let asked =
        stats.hit_blocks + stats.joined_blocks + stats.demanded_blocks + stats.passed_by_blocks;
    let share = |blocks: u64| 100.0 * blocks as f64 / asked.max(1) as f64;
    format!(
        "{}: {} read, {:.0} % of it from memory and {:.0} % on its way; {} fetched in {} requests, {} ahead and {} failed",
        mountpoint.display(),
        size::display(asked * block_bytes),
        share(stats.hit_blocks),
        share(stats.joined_blocks),
        size::display(stats.fetched_bytes),
        stats.requests,
        stats.requests_ahead,
        stats.requests_failed,
    )
}

fn tier_summary((hit_blocks, block_bytes): (u64, u64), held_bytes: u64) -> String {
    let (hits, holds) = (size::display(hit_blocks * block_bytes), size::display(held_bytes));
    format!("of what was fetched, {hits} came from the local disk, which holds {holds}")
}

pub(crate) fn unmount(mountpoint: &Path) -> Result<ExitCode, Failure> {
    let stats = stats_of(mountpoint);
    let pid = stats.as_ref().and_then(|stats| u32::try_from(stats.get("pid")?.as_u64()?).ok());
    let process = pid.and_then(background::process);
    point::unmount_path(mountpoint, &KIND).map_err(Failure::failed)?;
    if process.is_some_and(|process| !background::ends(&process)) {
        note("the mount's process is still there: a program uses its files");
    }
    let done = stats.as_ref().and_then(|stats| {
        let block_bytes = stats.get("block_bytes")?.as_u64()?;
        let of_tier = stats.get("tier").and_then(|tier| {
            let count = |name: &str| tier.get(name)?.as_u64();
            Some(tier_summary((count("hit_blocks")?, block_bytes), count("held_bytes")?))
        });
        let stats = serde_json::from_value(stats.clone()).ok()?;
        Some((summary(mountpoint, &stats, block_bytes), of_tier))
    });
    match done {
        Some((summary, of_tier)) => {
            [Some(summary), of_tier].iter().flatten().for_each(|line| say(line))
        }
        None => note("unmounted; its process did not say what it has done, or had ended before"),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a mount says of itself, if it does so soon.
fn stats_of(mountpoint: &Path) -> Option<serde_json::Value> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let path = mountpoint.join(".foretell/stats");
    let read = move || {
        let _ = sender.send(std::fs::read(path)); // Nobody may wait any longer.
    };
    thread::Builder::new().name("mount-stats".into()).spawn(read).ok()?;
    let text = receiver.recv_timeout(STATS_PATIENCE).ok()?.ok()?;
    serde_json::from_slice(&text).ok()
}

/// One line on standard output. The reader may be gone: the mount goes on.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
