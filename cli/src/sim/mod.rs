//! `foretell sim`: policies over recorded reads, in numbers and without waiting for anything.

mod cache;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    /// Count what a cache hits and misses: foretell sim cache --trace FILE --format blocks
    /// --capacity 100,1000 --policy lru,tip2,belady --hints all
    #[command(after_help = cache::HELP)]
    Cache(cache::CacheArgs),
}

pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        SimCommand::Cache(args) => cache::cache(args),
    }
}
