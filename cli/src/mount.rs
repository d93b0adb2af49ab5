//! `foretell mount` and `foretell unmount`: an object store or a folder as a file system.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use foretell_cache::backend::index::{Index, IndexBackend};
use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::{
    self, AddressError, AddressOptions, Backend, BackendError, Named, without_secrets,
};
use foretell_cache::tier::fleet::{self, Fleet};
use foretell_cache::tier::{Tier, TierError, TierOptions, Tiers, TiersStats};
use foretell_cache::{CacheError, CacheOptions, Stats};
use foretell_mount::{Contents, Ending, Kind, StoreMount, StoreMountOptions, check, point};
use rustix::fs::Mode;
use rustix::process::umask;

use crate::failure::{Failure, note};
use crate::output_file::OutputFile;
use crate::standard_output::mention;
use crate::{background, descriptors, duration, input_file, signals, size};

pub(crate) const HELP: &str = "\
Examples:
  foretell mount s3://bucket/data /mnt/data --budget 4GiB
  foretell mount https://host/data /mnt/data --index https://host/data/index.txt
  foretell mount --read-write /nfs/project /mnt/project
  foretell unmount /mnt/data

  SIZE      4096, 256MiB, 4GiB, 10GB
  DURATION  0s, 500ms, 30s, 10min

SOURCE is a folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or \
https://HOST/PATH. Credentials, region and endpoint come from the usual environment variables \
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, ...), from the profile \
(AWS_PROFILE) in ~/.aws/config and ~/.aws/credentials, and from the machine's metadata service.

A web server does not list its files. --index names a list of them. Each of its lines has a path \
below SOURCE, optionally followed by a tab and the size in bytes (`find . -type f -printf \
'%P\\t%s\\n'` writes one). Without a list, files can be opened by name, and there are no folders. \
The server must answer range requests (nginx, Apache and caddy do; `python3 -m http.server` does \
not).

The mount is read-only. For a folder, --read-write lets programs write: each write is in the \
folder's file before the program goes on. Symbolic links of a folder are shown as links, and \
nothing outside SOURCE is read.

Programs give hints by posix_fadvise(WILLNEED), as on any file system, or by an ioctl on a file or \
on MOUNTPOINT/.foretell/control (foretell_ioctl.h). One call of posix_fadvise fetches up to the \
kernel's read-ahead limit (128 KiB). `foretell run -- PROGRAM` works on a mount as anywhere else.

MOUNTPOINT/.foretell/stats has the mount's statistics. A file's attributes \
user.foretell.cached_bytes, user.foretell.cached_ranges and user.foretell.cached_for say what is \
cached of it, and why.

For data that does not change, a long --ttl saves a request to the store for each name. While a \
store does not answer, reads wait for --timeout and can be interrupted; name lookups wait as long \
and cannot. With --read-write, both wait as long as they would without the mount.";

/// How long a program waits for a store that does not answer, by default.
const TIMEOUT: Duration = Duration::from_mins(1);
/// How long a store may take to answer the check before the mount, without `--timeout`: a wrong address is told soon.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);
/// How long a name stays valid, by default. A store's is longer: hints look names up ahead of their use, and must not expire
/// before it.
const FOLDER_TTL: Duration = Duration::from_secs(1);
const STORE_TTL: Duration = Duration::from_mins(1);
/// The largest list of `--index`, in bytes.
const INDEX_MAX_BYTES: usize = 1 << 30;
/// Read errors are printed at most once per interval; so many wait to be printed, and the rest are counted.
const TROUBLE_EVERY: Duration = Duration::from_millis(500);
const TROUBLES_MAX: usize = 4;
/// How long a mount may take to deliver its statistics before it is unmounted without them.
const STATS_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct MountArgs {
    /// The folder or the address to mount
    source: String,

    /// An empty folder
    mountpoint: PathBuf,

    /// List of the files at SOURCE, an address, which is then not asked for names; a local file or an address
    #[arg(long, value_name = "FILE|URL", conflicts_with = "read_write")]
    index: Option<String>,

    /// Let programs write to SOURCE, a folder, which gets each write at once
    #[arg(long, conflicts_with = "tier")]
    read_write: bool,

    /// Do not let programs write (the default)
    #[arg(long, conflicts_with = "read_write")]
    read_only: bool,

    /// Memory for cached data
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = size::parse)]
    budget: u64,

    /// Block size, the unit of fetching and caching: a power of two from 4KiB to 16MiB
    #[arg(long, default_value = "16KiB", value_name = "SIZE", value_parser = size::parse)]
    block: u64,

    /// Also keep fetched data: in FOLDER on a local disk, for when memory has evicted it and for later mounts, or on a Redis
    /// or Valkey server (redis://HOST[:PORT]), for all machines that name the same one. May be given once for each
    #[arg(long, value_name = "FOLDER|URL")]
    tier: Vec<PathBuf>,

    /// Disk space for --tier FOLDER
    #[arg(long, default_value = "10GiB", value_name = "SIZE", value_parser = size::parse, requires = "tier")]
    tier_budget: u64,

    /// Begin with an empty --tier FOLDER, and leave nothing on disk at the end
    #[arg(long, requires = "tier")]
    tier_wipe: bool,

    /// How long a name and its attributes stay valid before the store is asked again [default: 1min; of a folder, 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,

    /// Most prefetch requests in flight; fewer while the store says that it is busy [default: 128; of a folder, 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: Option<u32>,

    /// How long a program waits for a store that does not answer before it gets an error [default: 60s]. If it is given, the
    /// check before the mount waits as long, and otherwise 5 s
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,

    /// Let all users read everything, whatever the modes of a folder's files; with --read-write, as these modes allow. Without
    /// root, /etc/fuse.conf must have user_allow_other
    #[arg(long)]
    allow_other: bool,

    /// Bits of inode numbers. 32 is for 32-bit programs, which cannot hold larger numbers: these then change with each mount,
    /// and cost some 20 to 75 bytes of memory per file listed or opened
    #[arg(long, default_value = "64", value_name = "32|64", value_parser = inode_bits)]
    inode_bits: u32,

    /// At the end, write the mount's statistics to FILE as JSON (- for standard output, with --foreground)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Stay in the foreground, report read errors, and unmount on Ctrl-C
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

/// A store behind its tiers, and these.
type Tiered = (Arc<dyn Backend>, Tiers);

fn tiered(args: &MountArgs) -> Result<Tiered, Failure> {
    let (backend, identity) = source(args)?;
    let url_of =
        |tier: &PathBuf| tier.to_str().filter(|tier| tier.contains("://")).map(str::to_owned);
    let (urls, folders): (Vec<_>, Vec<_>) =
        args.tier.iter().partition(|tier| url_of(tier).is_some());
    if urls.len() > 1 || folders.len() > 1 {
        return Err(Failure::usage("--tier: give one folder and one address at most"));
    }
    let disk = folders.first().map(|folder| disk(args, folder)).transpose()?;
    let fleet =
        urls.first().and_then(|url| url_of(url)).map(|url| shared(args, &url)).transpose()?;
    if disk.is_none() && args.tier_wipe {
        return Err(Failure::usage("--tier-wipe: it is about a --tier FOLDER; leave it out"));
    }
    let tiers = Tiers { disk, fleet };
    Ok((tiers.over(&identity, backend), tiers))
}

/// The tier on a server.
fn shared(args: &MountArgs, url: &str) -> Result<Arc<Fleet>, Failure> {
    let shown = fleet::shown(url);
    if folder_of(&args.source).is_some() {
        return Err(Failure::usage(format!(
            "--tier {shown}: files of a folder have no version that other machines know; leave it out, or mount a store"
        )));
    }
    let block_bytes = usize::try_from(args.block).unwrap_or(usize::MAX);
    Fleet::open(url, block_bytes, None).map_err(|error| match error {
        AddressError::Threads(_) => Failure::failed(error),
        error => Failure::usage(format!("--tier {error}")),
    })
}

/// The tier on a local disk.
fn disk(args: &MountArgs, folder: &Path) -> Result<Arc<Tier>, Failure> {
    let place = std::path::absolute(folder).map_err(Failure::failed)?;
    for other in [Some(args.mountpoint.as_path()), folder_of(&args.source)].into_iter().flatten() {
        let other = other.canonicalize().map_err(Failure::failed)?;
        if place.starts_with(&other) || other.starts_with(&place) {
            return Err(Failure::failed(format!(
                "--tier {}: one of it and {} is inside the other; name a folder outside",
                folder.display(),
                other.display()
            )));
        }
    }
    let options = TierOptions {
        folder: folder.to_owned(),
        budget_bytes: args.tier_budget,
        block_bytes: usize::try_from(args.block).unwrap_or(usize::MAX),
        keep: !args.tier_wipe,
    };
    Tier::open(&options).map_err(|error| match error {
        TierError::Budget { .. } => Failure::usage(format!("--tier-budget: {error}")),
        error => Failure::failed(error),
    })
}

/// The path of a source that is a folder; `None` for an address.
fn folder_of(source: &str) -> Option<&Path> {
    match source.split_once("://") {
        None => Some(Path::new(source)),
        Some(("file", path)) => Some(Path::new(path)),
        Some(_) => None,
    }
}

/// A store, and the identity that distinguishes it from others in a tier.
type Identified = (Arc<dyn Backend>, String);

fn source(args: &MountArgs) -> Result<Identified, Failure> {
    if folder_of(&args.source).is_none() {
        let depth = args.depth.map(|depth| depth as usize);
        let timeout = args.timeout.unwrap_or(TIMEOUT);
        let (silence, settings, environment) = (None, &[][..], None);
        let options = AddressOptions { depth, deadline: timeout, silence, settings, environment };
        let deadline = args.timeout.unwrap_or(CHECK_PATIENCE);
        let hasty = AddressOptions { deadline, silence: Some(timeout), ..options };
        if let Some(place) = &args.index {
            return indexed(args, place, (&options, &hasty));
        }
        let checked = store_at(&args.source, &hasty)?.backend;
        let shown = without_secrets(&args.source);
        match check(&*checked, &shown).map_err(Failure::failed)? {
            Contents::None if checked.is_object() => return Err(is_an_object(&shown)),
            Contents::None => note(format_args!("there is nothing at {shown} now")),
            Contents::Unlisted => note(format_args!(
                "{shown} does not list its files: they can be opened by name alone; --index names a list of them"
            )),
            Contents::Some => {}
        }
        let Named { backend, identity } = store_at(&args.source, &options)?;
        return Ok((backend, identity));
    }
    if args.index.is_some() {
        return Err(Failure::usage("--index: a folder lists its own files; leave the option out"));
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

/// The store at an address. Fails if the address is invalid or there is no store.
fn store_at(address: &str, options: &AddressOptions<'_>) -> Result<Named, Failure> {
    backend::at(address, options).map_err(|error| match error {
        AddressError::Scheme(_) => Failure::usage(error),
        error => Failure::failed(error),
    })
}

/// The store restricted to the files that the list at `place` names.
fn indexed(
    args: &MountArgs,
    place: &str,
    (options, hasty): (&AddressOptions<'_>, &AddressOptions<'_>),
) -> Result<Identified, Failure> {
    let (source, shown) = (without_secrets(&args.source), without_secrets(place));
    let wrong = |what: &dyn Display| Failure::failed(format!("--index {shown}: {what}"));
    let text = match folder_of(place) {
        Some(file) => {
            input_file::read(file, INDEX_MAX_BYTES as u64).map_err(|error| wrong(&error))?
        }
        None => {
            let list = store_at(place, options)?.backend;
            list.read_all("", INDEX_MAX_BYTES).map_err(|error| wrong(&error))?
        }
    };
    let index = Index::parse(&text).map_err(|error| wrong(&error))?;
    match index.first() {
        None => note(format_args!("{shown} names no files")),
        Some(first) => match store_at(&args.source, hasty)?.backend.probe(first) {
            Ok(()) => {}
            Err(BackendError::NotFound) => {
                note(format_args!("{shown} names {first}, which is not at {source} now"));
            }
            Err(error) => {
                return Err(Failure::failed(format!("cannot mount {source}: {first}: {error}")));
            }
        },
    }
    let Named { backend, identity } = store_at(&args.source, options)?;
    Ok((Arc::new(IndexBackend::new(backend, index)), identity))
}

fn folder_depth(args: &MountArgs) -> Option<usize> {
    args.depth.map(|depth| depth as usize)
}

fn unreadable(folder: &Path, error: &io::Error) -> Failure {
    let folder = folder.display();
    Failure::failed(format!("cannot mount {folder}: {error}; name a folder that you may read"))
}

/// The folder to mount, after a check that neither it nor the mount point is inside the other.
fn folder(args: &MountArgs) -> Result<PathBuf, Failure> {
    let folder = folder_of(&args.source).unwrap_or(Path::new(""));
    let folder_path = folder.canonicalize().map_err(|error| unreadable(folder, &error))?;
    fs::read_dir(&folder_path).map_err(|error| unreadable(folder, &error))?;
    if let Ok(mountpoint) = args.mountpoint.canonicalize()
        && (mountpoint.starts_with(&folder_path) || folder_path.starts_with(&mountpoint))
    {
        let (folder, place) = (folder.display(), mountpoint.display());
        return Err(Failure::failed(format!(
            "cannot mount {folder} at {place}: one is inside the other; mount somewhere outside"
        )));
    }
    Ok(folder_path)
}

/// Serves the mount in this process until it is unmounted or a signal ends it.
fn serve(args: &MountArgs) -> Result<ExitCode, Failure> {
    let timeout = args.timeout.unwrap_or(TIMEOUT);
    if timeout.is_zero() {
        return Err(Failure::usage("--timeout: 0 leaves no time for an answer; give at least 1ms"));
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
        timeout: folder_of(&args.source).map(|_| timeout),
        are_numbers_small: args.inode_bits == 32,
    };
    options.cache.check().map_err(|error| {
        let option = if let CacheError::BlockBytes(_) = error { "--block" } else { "--budget" };
        Failure::usage(format!("{option}: {error}"))
    })?;
    let mut json =
        OutputFile::of_option("--json", args.json.as_deref()).map_err(Failure::failed)?;
    if is_writable(args) {
        // The kernel has already applied the writing program's mask, so this process's is zero. It stays zero to the end:
        // programs may have files of the mount open until then.
        let mask = umask(Mode::empty());
        json = json.map(|file| file.with_mask(mask));
    }
    descriptors::raise();
    signals::block(&signals::OF_A_SERVER);
    let (mount, tiers) = start(args, &options)?;
    foretell_fault::point("mounted");
    let handle = mount.handle();
    // Without this thread Ctrl-C is not noticed; `unmount` still works.
    let _ = thread::Builder::new().name("mount-signals".into()).spawn(move || {
        loop {
            signals::take(&signals::OF_A_SERVER);
            handle.request_unmount();
        }
    });
    // With `--json -`, standard output has only the JSON.
    let is_json_out = args.json.as_deref() == Some(Path::new("-"));
    let tell = if is_json_out { |line: &str| note(line) } else { mention };
    tell(&format!(
        "{} at {}: {}, {} of memory in blocks of {}",
        options.source,
        mount.mountpoint().display(),
        if args.read_write { "read-write" } else { "read-only" },
        size::display(args.budget),
        size::display(args.block),
    ));
    if mount.wait() == Ending::Requested && !is_json_out {
        tell(""); // Below the ^C of the terminal.
    }
    let (failure, place) = (mount.failure(), mount.mountpoint().display().to_string());
    let (mountpoint, stats, report) =
        (mount.mountpoint().to_owned(), mount.stats(), mount.report());
    let is_in_use = mount.unmount().map_err(Failure::failed)?;
    tell(&summary(&mountpoint, &stats, args.block));
    let tiers = tiers.stats();
    let shown = serde_json::to_value(tiers).map_err(Failure::failed)?;
    tier_summaries(&shown, args.block).iter().for_each(|line| tell(line));
    if let Some(file) = json {
        let mut report: serde_json::Value =
            serde_json::from_slice(&report).map_err(Failure::failed)?;
        let TiersStats { tier, fleet } = tiers;
        if let Some(tier) = tier {
            report["tier"] = serde_json::to_value(tier).map_err(Failure::failed)?;
        }
        if let Some(fleet) = fleet {
            report["fleet"] = serde_json::to_value(fleet).map_err(Failure::failed)?;
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

fn start(args: &MountArgs, options: &StoreMountOptions) -> Result<(StoreMount, Tiers), Failure> {
    if !is_writable(args) {
        let (backend, tiers) = tiered(args)?;
        let source = (backend, tiers.clone());
        let mount = StoreMount::mount_tiered(source, &args.mountpoint, options, told_sometimes());
        return Ok((mount.map_err(Failure::failed)?, tiers));
    }
    if folder_of(&args.source).is_none() {
        return Err(Failure::usage(format!(
            "--read-write: {} is not a folder, and only a folder can be written; leave the option out",
            without_secrets(&args.source)
        )));
    }
    let folder = folder(args)?;
    let (folder, mountpoint) = ((folder.as_path(), folder_depth(args)), &args.mountpoint);
    let mount = StoreMount::mount_writable(folder, mountpoint, options, told_sometimes());
    Ok((mount.map_err(Failure::failed)?, Tiers::default()))
}

/// Parses `32` or `64`.
fn inode_bits(text: &str) -> Result<u32, String> {
    match text {
        "32" => Ok(32),
        "64" => Ok(64),
        _ => Err("neither 32 nor 64".to_owned()),
    }
}

/// Returns a function that prints read errors, at most one per [`TROUBLE_EVERY`]. It never waits for the reader of standard
/// error.
fn told_sometimes() -> impl Fn(&str) + Send + Sync + 'static {
    let (sender, receiver) = std::sync::mpsc::sync_channel::<String>(TROUBLES_MAX);
    let left_out = Arc::new(AtomicU64::new(0));
    let more = Arc::clone(&left_out);
    // Without this thread nothing is printed; `.foretell/stats` counts the errors too.
    let _ = thread::Builder::new().name("mount-troubles".into()).spawn(move || {
        while let Ok(what) = receiver.recv() {
            match more.swap(0, Ordering::Relaxed) {
                0 => note(what),
                more => note(format_args!("{what} (and {more} more errors, not shown)")),
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

/// A line about each tier of which there are counts.
fn tier_summaries(stats: &serde_json::Value, block_bytes: u64) -> Vec<String> {
    let bytes = |tier: &str, name: &str| stats.get(tier)?.get(name)?.as_u64();
    let blocks = |tier: &str, name: &str| Some(size::display(bytes(tier, name)? * block_bytes));
    let of_disk = blocks("tier", "hit_blocks").zip(bytes("tier", "held_bytes"));
    let of_disk = of_disk.map(|(hits, holds)| {
        let holds = size::display(holds);
        format!("of what was fetched, {hits} came from the local disk, which holds {holds}")
    });
    let of_fleet = blocks("fleet", "hit_blocks").zip(blocks("fleet", "missed_blocks"));
    let of_fleet = of_fleet.map(|(hits, missed)| {
        format!("{hits} came from the shared tier, and {missed} from the store")
    });
    [of_disk, of_fleet].into_iter().flatten().collect()
}

pub(crate) fn unmount(mountpoint: &Path) -> Result<ExitCode, Failure> {
    let stats = stats_of(mountpoint);
    let pid = stats.as_ref().and_then(|stats| u32::try_from(stats.get("pid")?.as_u64()?).ok());
    let process = pid.and_then(background::process);
    point::unmount_path(mountpoint, &Kind::STORE).map_err(Failure::failed)?;
    if process.is_some_and(|process| !background::ends(&process)) {
        note("the mount's process is still running: a program uses its files");
    }
    let done = stats.as_ref().and_then(|stats| {
        let block_bytes = stats.get("block_bytes")?.as_u64()?;
        let of_tiers = tier_summaries(stats, block_bytes);
        let stats = serde_json::from_value(stats.clone()).ok()?;
        Some((summary(mountpoint, &stats, block_bytes), of_tiers))
    });
    match done {
        Some((summary, of_tiers)) => {
            mention(&summary);
            of_tiers.iter().for_each(|line| mention(line));
        }
        None => {
            note("unmounted; there are no figures: its process did not answer, or had ended before")
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The statistics of a mount, if it delivers them in time.
fn stats_of(mountpoint: &Path) -> Option<serde_json::Value> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let path = mountpoint.join(".foretell/stats");
    let read = move || {
        let _ = sender.send(std::fs::read(path)); // The receiver may have given up.
    };
    thread::Builder::new().name("mount-stats".into()).spawn(read).ok()?;
    let text = receiver.recv_timeout(STATS_PATIENCE).ok()?.ok()?;
    serde_json::from_slice(&text).ok()
}
