//! `foretell store`: the emulated object store, from the command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use foretell_testbed::store::{
    Faults, FirstByte, LeftOut, Store, StoreError, StoreOptions, StoreReport, Tail,
};

use crate::failure::{Failure, note};
use crate::output_file::OutputFile;
use crate::standard_output::mention;
use crate::{duration, signals, size};

/// Buckets named in the first line; the rest is a count.
const BUCKETS_NAMED: usize = 8;

#[derive(Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Subcommand)]
enum StoreCommand {
    /// Serve FOLDER over S3, slowly, until Ctrl-C; then print what was requested
    #[command(after_help = SERVE_HELP)]
    Serve(Box<ServeArgs>),
}

const SERVE_HELP: &str = "\
Each subfolder of FOLDER is a bucket, and each file in it an object; with --bucket NAME, all of \
FOLDER is one bucket. When the store is ready, it prints one line on standard output, whose first \
word is the endpoint. Anybody may read, without a signature; writing needs the keys.

  SIZE/s    90MB/s, 100MiB/s, or unlimited
  DURATION  30ms, 1.5s, 250us
  SHARE     0.01 or 1%, of all requests

Example:
  foretell store serve data --first-byte 30ms --first-byte-tail 1%:500ms --per-response 90MB/s";

#[derive(Args)]
struct ServeArgs {
    /// The folder that is served
    folder: PathBuf,

    /// Where to listen; port 0 finds a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,

    /// Allow an address that other machines can reach; they may then read the folder
    #[arg(long)]
    allow_remote: bool,

    /// Serve all of FOLDER as the one bucket NAME
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,

    /// Latency to the first byte of a response
    #[arg(long, default_value = "30ms", value_name = "DURATION", value_parser = duration::parse)]
    first_byte: Duration,

    /// Spread of that latency: the standard deviation of its logarithm (0 is none, 0.5 is much)
    #[arg(long, default_value_t = 0.0, value_name = "SIGMA", allow_negative_numbers = true)]
    first_byte_sigma: f64,

    /// Share of responses with this latency instead; may be given several times
    #[arg(long, value_name = "SHARE:DURATION", value_parser = tail)]
    first_byte_tail: Vec<Tail>,

    /// Bandwidth of each response body
    #[arg(long, default_value = "90MB/s", value_name = "SIZE/s", value_parser = rate)]
    per_response: Rate,

    /// Bandwidth of all response bodies together
    #[arg(long, default_value = "unlimited", value_name = "SIZE/s", value_parser = rate)]
    total: Rate,

    /// Share of requests that are answered with 503 SlowDown
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = share)]
    fail_503: f64,

    /// Share of requests whose connection is reset, before or during the response
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = share)]
    reset: f64,

    /// Share of requests whose response ends too early
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = share)]
    truncate: f64,

    /// Close connections that stay idle, or do not finish the head of a request, for this long
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration::parse)]
    idle_timeout: Duration,

    /// Seed of random latencies and faults
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Access key; requests signed with it and the secret key may write
    #[arg(long, default_value = "foretell", value_name = "KEY")]
    access_key: String,

    /// Secret key
    #[arg(long, default_value = "foretell-secret", value_name = "SECRET")]
    secret_key: String,

    /// At the end, write the store's statistics to FILE as JSON (- for standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Bytes per second; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate(Option<u64>);

pub(crate) fn store(args: &StoreArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        StoreCommand::Serve(args) => serve(args),
    }
}

fn serve(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let options = StoreOptions {
        listen: args.listen,
        allow_remote: args.allow_remote,
        bucket: args.bucket.clone(),
        first_byte: FirstByte {
            usual: args.first_byte,
            sigma: args.first_byte_sigma,
            tail: args.first_byte_tail.clone(),
        },
        per_response: args.per_response.0,
        total: args.total.0,
        faults: Faults { fail_503: args.fail_503, reset: args.reset, truncate: args.truncate },
        idle_timeout: args.idle_timeout,
        seed: args.seed,
        access_key: args.access_key.clone(),
        secret_key: args.secret_key.clone(),
    };
    options.validate().map_err(Failure::usage)?;
    let json = OutputFile::of_option("--json", args.json.as_deref()).map_err(Failure::failed)?;
    signals::block(&signals::OF_A_SERVER);
    let store = Store::start(&args.folder, &options).map_err(|error| match error {
        StoreError::Option { .. } | StoreError::NotLoopback { .. } => Failure::usage(error),
        _ => Failure::failed(error),
    })?;
    mention(&ready(&args.folder, &store));
    if let Some(what) = unserved(store.left_out()) {
        let folder = args.folder.display();
        note(format_args!("{what}; to serve all of {folder} as one bucket: --bucket NAME"));
    }
    if !options.listen.ip().is_loopback() {
        note("other machines may read this folder, and write to it with the keys");
    }
    signals::take(&signals::OF_A_SERVER);
    mention(""); // Below the ^C of the terminal.
    let report = store.stop();
    print(&report);
    if let Some(file) = json {
        file.write_json(&report).map_err(Failure::failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The first line: the endpoint, the folder and its buckets.
fn ready(folder: &Path, store: &Store) -> String {
    let buckets = store.buckets();
    let mut names = buckets[..buckets.len().min(BUCKETS_NAMED)].join(", ");
    if buckets.len() > BUCKETS_NAMED {
        names += &format!(" and {} more", buckets.len() - BUCKETS_NAMED);
    }
    let noun = if buckets.len() == 1 { "bucket" } else { "buckets" };
    format!("{} serves {}, {noun} {names}", store.endpoint(), folder.display())
}

/// What of the folder is not served, and why.
fn unserved(LeftOut { folders, others }: LeftOut) -> Option<String> {
    let folders = (folders > 0).then(|| {
        let noun = if folders == 1 { "sub-folder is" } else { "sub-folders are" };
        format!("{folders} {noun} not served: a bucket's name has 3 to 63 of a-z, 0-9, '-' and '.'")
    });
    let others = (others > 0).then(|| {
        let noun = if others == 1 { "file is" } else { "files are" };
        format!("{others} {noun} not served: an object is a file in a bucket's folder")
    });
    let parts: Vec<_> = [folders, others].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn print(report: &StoreReport) {
    mention(&format!(
        "{} requests in {:.1} s: {} GET, {} HEAD, {} lists, {} PUT, {} deletes, {} others; \
         {} connections",
        report.requests,
        report.elapsed_s,
        report.gets,
        report.heads,
        report.lists,
        report.puts,
        report.deletes,
        report.others,
        report.connections,
    ));
    mention(&format!(
        "{} sent; most in flight {}; {} answered 503, {} reset, {} truncated",
        size::display(report.bytes_sent),
        report.in_flight_max,
        report.failed_503,
        report.resets,
        report.truncated,
    ));
    if report.gets + report.heads + report.lists > 0 {
        mention(&format!(
            "first bytes late by {:.2} ms on average, {:.2} at most; {} by more than 1 ms",
            report.first_byte_late_us_mean / 1e3,
            report.first_byte_late_us_max / 1e3,
            report.first_byte_late_over_1ms,
        ));
    }
}

/// Parses `90MB/s` or `unlimited`.
fn rate(text: &str) -> Result<Rate, String> {
    if text == "unlimited" {
        return Ok(Rate(None));
    }
    let wrong = "not a rate such as 90MB/s, nor unlimited";
    let bytes = size::parse(text.strip_suffix("/s").ok_or(wrong)?)?;
    if bytes == 0 {
        return Err("nothing would ever arrive; for no limit give unlimited".into());
    }
    Ok(Rate(Some(bytes)))
}

/// Parses `0.01` or `1%`.
fn share(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let number: f64 = number.parse().map_err(|_| "not a share such as 0.01 or 1%".to_owned())?;
    let share = number / whole;
    // NaN is in no range.
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("not from 0 to 1".into()) }
}

/// Parses `1%:500ms`.
fn tail(text: &str) -> Result<Tail, String> {
    let parts = text.split_once(':').ok_or("not a share and a wait such as 1%:500ms")?;
    Ok(Tail { share: share(parts.0)?, wait: duration::parse(parts.1)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares_are_read() {
        assert_eq!(rate("90MB/s"), Ok(Rate(Some(90_000_000))));
        assert_eq!(rate("1MiB/s"), Ok(Rate(Some(1 << 20))));
        assert_eq!(rate("unlimited"), Ok(Rate(None)));
        for text in ["90MB", "0/s", "-1MB/s", "fast", ""] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!((share("1%"), share("0.25"), share("100%")), (Ok(0.01), Ok(0.25), Ok(1.0)));
        for text in ["1.1", "-1", "101%", "NaN", "", "%"] {
            assert!(share(text).is_err(), "{text}");
        }
        let wait = Duration::from_millis(500);
        assert_eq!(tail("1%:500ms"), Ok(Tail { share: 0.01, wait }));
        assert!(tail("500ms").is_err() && tail("2:500ms").is_err() && tail("1%:5").is_err());
    }
}
