//! `foretell sim`: simulations of caches, of recorded runs and of the papers' programs. Nothing here waits for a device.
//!
//! | module | what it holds |
//! |---|---|
//! | `cache`, `replay`, `collective`, `fleet`, `predict`, `reproduce` | one subcommand each |
//! | `replay_args`, `recorded`, `table`, `sweep_plot` | parts of `replay`: options, reading the recording, table, plot |
//! | `figures` | where results go: `--json`, standard output |
//! | `recording` | names, places and block sizes of recordings |
//! | `runs` | running many simulations on all processors, progress |

mod cache;
mod collective;
mod figures;
mod fleet;
mod predict;
mod recorded;
mod recording;
mod replay;
mod replay_args;
mod reproduce;
mod runs;
mod sweep_plot;
mod table;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::signals;

#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    /// Count a cache's hits and misses over recorded reads: foretell sim cache --trace FILE --format blocks --capacity 100,1000
    /// --policy lru,tip2,belady --hints all
    #[command(after_help = cache::help())]
    Cache(cache::CacheArgs),
    /// Replay a recorded run with other disks, other memory, or hints: foretell sim replay run.strace --root /data --disks
    /// 1,2,4,8
    #[command(after_help = replay_args::HELP)]
    Replay(replay_args::ReplayArgs),
    /// Read striped files on many processors, by prefetching or by collective calls: foretell sim collective --procs 8 --disks
    /// 8 --pattern block-1d --sweep depth=1..64
    #[command(after_help = collective::HELP)]
    Collective(collective::CollectiveArgs),
    /// Read one data set of an object store on many nodes, with or without shared cache servers: foretell sim fleet --nodes
    /// 8,64,1000 --servers 0,8
    #[command(after_help = fleet::HELP)]
    Fleet(fleet::FleetArgs),
    /// Predict which files are opened next, and fetch them ahead:
    /// foretell sim predict --trace first.ftr,second.ftr --cache 1MiB,4MiB
    #[command(after_help = predict::help())]
    Predict(predict::PredictArgs),
    /// Reproduce the tables and figures of the TIP, collective and predictive papers: foretell sim reproduce all --out DIR
    #[command(after_help = reproduce::HELP)]
    Reproduce(reproduce::ReproduceArgs),
}

pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    signals::make_file_limits_errors();
    match &args.command {
        SimCommand::Cache(args) => cache::cache(args),
        SimCommand::Replay(args) => replay::replay(args),
        SimCommand::Collective(args) => collective::collective(args),
        SimCommand::Fleet(args) => fleet::fleet(args),
        SimCommand::Predict(args) => predict::predict(args),
        SimCommand::Reproduce(args) => reproduce::reproduce(args),
    }
}
