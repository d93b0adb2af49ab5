//! `foretell demo`: shows what foretell does, on this machine, on an emulated slow device.
//!
//! | module | what it holds |
//! |---|---|
//! | `array` | the demo on an array of disks |
//! | `store` | the demo on a mounted object store |
//! | `page` | how a report looks |
//! | `outputs`, `cancel`, `scratch`, `machine` | what is written, Ctrl-C, the temporary folder, facts about this machine |

mod array;
mod cancel;
mod machine;
mod outputs;
mod page;
mod scratch;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use foretell_testbed::LayoutKind;

use crate::duration;
use crate::failure::Failure;
use cancel::Cancel;
use outputs::Outputs;

/// The defaults: real seconds per second of the array's clock, and the store's latency.
const TIME_SCALE: f64 = 0.125;
const FIRST_BYTE: Duration = Duration::from_millis(30);

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Use a mounted object store in place of disks; it is emulated too, 30 ms away
    #[arg(long)]
    store: bool,

    /// Disk array: real seconds per second of the array's clock; smaller is quicker and less exact [default: 0.125]
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    time_scale: Option<f64>,

    /// Disk array: how files lie on the disks, aged (in short runs, as on an old file system) or sequential [default: aged]
    #[arg(long)]
    layout: Option<LayoutKind>,

    /// Object store: latency to the first byte of each response [default: 30ms]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    first_byte: Option<Duration>,

    /// Object store: how many times each way of reading is measured [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=store::ROUNDS_MAX))]
    rounds: Option<u64>,

    /// Write every figure to FILE as JSON (- for standard output, after the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Where to write the report, an HTML page
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    report: PathBuf,
}

pub(crate) fn demo(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let cancel = Cancel::listen();
    args.check()?;
    let outputs = || Outputs::open(&args.report, args.json.as_deref());
    if args.store {
        let options = store::options(args.first_byte.unwrap_or(FIRST_BYTE))?;
        let rounds = args.rounds.map_or(store::ROUNDS, |rounds| rounds as usize);
        return store::demo(options, rounds, outputs()?, &cancel);
    }
    let layout = args.layout.unwrap_or(LayoutKind::Aged);
    let options = array::options(layout, args.time_scale.unwrap_or(TIME_SCALE))?;
    array::demo(&options, outputs()?, &cancel)
}

impl DemoArgs {
    /// Refuses options of the other demo.
    fn check(&self) -> Result<(), Failure> {
        let of_disks =
            [("--time-scale", self.time_scale.is_some()), ("--layout", self.layout.is_some())];
        let of_store =
            [("--first-byte", self.first_byte.is_some()), ("--rounds", self.rounds.is_some())];
        let given = |options: [(&'static str, bool); 2]| {
            options.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
        };
        match self.store {
            true => given(of_disks).map_or(Ok(()), |name| {
                Err(Failure::usage(format!(
                    "{name} is for the disk array; leave it out with --store"
                )))
            }),
            false => given(of_store).map_or(Ok(()), |name| {
                Err(Failure::usage(format!("{name} is for the object store; add --store")))
            }),
        }
    }
}
