//! `foretell array`: the emulated disk array, mounted and unmounted by hand.
//!
//! `mount` starts the array in a process of its own and returns when it is usable; with
//! `--foreground` it stays and ends the array on Ctrl-C. `unmount` ends it from anywhere and prints
//! what the disks did.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::{Args, Subcommand, ValueEnum};
use foretell_policy::queue::Order;
use foretell_sim::device::DiskParameters;
use foretell_testbed::{Array, ArrayOptions, Ending, LayoutKind, Places, Report, Status, Striped};
use rustix::fs::Mode;
use rustix::process::umask;

use crate::failure::{Failure, note};
use crate::output_file::OutputFile;
use crate::standard_output::mention;
use crate::{background, descriptors, input_file, signals, size};

#[derive(Args)]
pub(crate) struct ArrayArgs {
    #[command(subcommand)]
    command: ArrayCommand,
}

#[derive(Subcommand)]
enum ArrayCommand {
    /// Serve the folder BACKING at MOUNTPOINT at the pace of modelled disks: foretell array mount data /mnt/array
    /// --disks 8
    Mount(MountArgs),
    /// Unmount the array at MOUNTPOINT and print what its disks did
    Unmount {
        /// Where the array is mounted
        mountpoint: PathBuf,
    },
}

#[derive(Args)]
struct MountArgs {
    /// The folder whose files are served
    backing: PathBuf,

    /// An empty folder
    mountpoint: PathBuf,

    /// Number of disks, 1 to 256
    #[arg(long, default_value_t = 4, value_name = "N")]
    disks: usize,

    #[arg(long, default_value = "hp97560", value_name = "NAME|FILE",
        help = format!("A built-in device ({}) or a parameter file", disk_names()))]
    disk: String,

    /// Stripe unit: bytes of a file on one disk before the next disk's turn
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = size::parse)]
    stripe: u64,

    /// Order in which a disk serves waiting requests: fifo, scan, c-look, sstf
    #[arg(long, default_value_t = Order::Scan)]
    order: Order,

    /// Queue length of a disk: the requests that it chooses among
    #[arg(long, default_value_t = 5, value_name = "N")]
    outstanding: usize,

    /// Real seconds per second of the array's clock: 0.25 makes disks four times as fast
    #[arg(long, default_value_t = 0.25, value_name = "FACTOR", allow_negative_numbers = true)]
    time_scale: f64,

    /// How files lie on the disks: sequential (as copied to a new file system) or aged (in short
    /// runs, as on an old one)
    #[arg(long, default_value_t = LayoutKind::Sequential)]
    layout: LayoutKind,

    /// Stripe each file by itself, its n-th unit on disk n mod N, as parallel file systems do, and lay it on each disk as this
    /// layout of `foretell sim collective`: sequential, random, increasing, aged, or apart (sequential, each file anywhere)
    #[arg(long, value_name = "PLACES", conflicts_with = "layout")]
    places: Option<Places>,

    /// With --places: bytes of a file that lie as a file of their own [default: files lie whole]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "places")]
    portion: Option<u64>,

    /// Whether the first lookup of each file reads its inode from disk and, with --writable, a change of names or attributes
    /// writes the blocks of inodes and folders
    #[arg(long, value_enum, default_value_t = Switch::On)]
    metadata: Switch,

    /// Let programs write. What they write is in BACKING before it has its time on the disks; without it, the array is
    /// read-only
    #[arg(long)]
    writable: bool,

    /// Seed of the aged layout and of random latencies
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// At the end, write the disks' statistics to FILE as JSON (- for standard output, with --foreground)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Stay in the foreground, and unmount on Ctrl-C
    #[arg(short, long)]
    foreground: bool,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub(crate) enum Switch {
    On,
    Off,
}

pub(crate) fn array(args: &ArrayArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        ArrayCommand::Mount(args) if args.foreground => serve(args),
        ArrayCommand::Mount(args) if args.json.as_deref() == Some(Path::new("-")) => Err(
            Failure::usage("--json - needs --foreground: an array in the background has no output"),
        ),
        ArrayCommand::Mount(_) => background::again_in_foreground(2),
        ArrayCommand::Unmount { mountpoint } => unmount(mountpoint),
    }
}

fn options(args: &MountArgs) -> Result<ArrayOptions, Failure> {
    Ok(ArrayOptions {
        disks: args.disks,
        disk: disk(&args.disk)?,
        stripe_bytes: args.stripe,
        order: args.order,
        outstanding: args.outstanding,
        time_scale: args.time_scale,
        layout: args.layout,
        striped: args.places.map(|places| Striped { places, portion_bytes: args.portion }),
        metadata: args.metadata == Switch::On,
        writable: args.writable,
        seed: args.seed,
    })
}

/// Most bytes of a parameter file.
const DISK_MAX_BYTES: u64 = 1 << 20;

/// The names of the built-in devices, separated by commas.
pub(crate) fn disk_names() -> String {
    DiskParameters::names().collect::<Vec<_>>().join(", ")
}

/// A built-in device, or the parameter file of this path.
pub(crate) fn disk(name: &str) -> Result<DiskParameters, Failure> {
    // A name with a slash or a dot is meant as a file.
    let is_file = name.contains(['/', '.']) || Path::new(name).exists();
    if DiskParameters::names().any(|known| known == name) || !is_file {
        return DiskParameters::by_name(name).map_err(Failure::usage);
    }
    let text = input_file::read_text(name, DISK_MAX_BYTES)
        .map_err(|error| Failure::failed(format!("--disk: {name}: {error}")))?;
    DiskParameters::from_toml(&text)
        .map_err(|error| Failure::usage(format!("--disk: {name}: {error}")))
}

/// Serves the array in this process until it is unmounted or a signal ends it.
fn serve(args: &MountArgs) -> Result<ExitCode, Failure> {
    let options = options(args)?;
    options.validate().map_err(Failure::usage)?;
    let mut json =
        OutputFile::of_option("--json", args.json.as_deref()).map_err(Failure::failed)?;
    if options.writable {
        // As in `foretell mount`: the kernel has already applied the writing program's mask.
        let mask = umask(Mode::empty());
        json = json.map(|file| file.with_mask(mask));
        descriptors::raise();
    }
    signals::block(&signals::OF_A_SERVER);
    let array = Array::mount(&args.backing, &args.mountpoint, &options).map_err(Failure::failed)?;
    foretell_fault::point("mounted");
    let handle = array.handle();
    // Without this thread Ctrl-C is not noticed; `unmount` still works.
    let _ = thread::Builder::new().name("array-signals".into()).spawn(move || {
        loop {
            signals::take(&signals::OF_A_SERVER);
            handle.request_unmount();
        }
    });
    let ready = format!(
        "{} at {}: {} x {}, {} layout, {} order{}",
        args.backing.display(),
        array.mountpoint().display(),
        options.disks,
        args.disk,
        args.places.map_or(options.layout.name(), Places::name),
        options.order,
        if options.writable { ", writable" } else { "" },
    );
    mention(&ready);
    if array.wait() == Ending::Requested {
        mention(""); // Below the ^C of the terminal.
    }
    let mountpoint = array.mountpoint().to_owned();
    let report = array.unmount().map_err(Failure::failed)?;
    print(&report, &mountpoint);
    if let Some(file) = json {
        file.write_json(&report).map_err(Failure::failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn unmount(mountpoint: &Path) -> Result<ExitCode, Failure> {
    let status = foretell_testbed::status_of(mountpoint);
    let process = status.as_ref().and_then(|status| background::process(status.pid));
    foretell_testbed::unmount_path(mountpoint).map_err(Failure::failed)?;
    if process.is_some_and(|process| !background::ends(&process)) {
        note("the array's process is still running: a program uses its files");
    }
    match status {
        Some(Status { report, .. }) => print(&report, mountpoint),
        None => note("the array's process had ended before; there are no figures"),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report, mountpoint: &Path) {
    let written = match report.writes {
        0 => String::new(),
        _ => format!(", {} written", size::display(report.bytes_written)),
    };
    mention(&format!(
        "{}: {} requests, {} read{written}, {} seeks, {} for metadata, in {} s of the array's clock",
        mountpoint.display(),
        report.requests,
        size::display(report.bytes),
        report.seeks,
        report.metadata_reads,
        seconds(report.elapsed_s),
    ));
    mention("disk  requests     bytes    busy s    seek s  rotate s  queue");
    for (index, disk) in report.disks.iter().enumerate() {
        mention(&format!(
            "{index:>4}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>5}",
            disk.requests,
            size::display(disk.bytes),
            seconds(disk.busy_s),
            seconds(disk.seek_s),
            seconds(disk.rotation_s),
            disk.queue_max,
        ));
    }
    if report.in_use_after_unmount {
        note("a program still uses files of the array; it is served until it closes them");
    }
}

/// Seconds with three digits at least: a request of a fast device takes some microseconds.
fn seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        1.0.. => format!("{seconds:.2}"),
        0.01..1.0 => format!("{seconds:.4}"),
        _ => format!("{seconds:.6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn short_times_are_not_nothing() {
        let said = [0.0, 0.000_061, 0.004_2, 0.25, 1.0, 123.456].map(seconds);
        assert_eq!(said, ["0", "0.000061", "0.004200", "0.2500", "1.00", "123.46"]);
    }
}
