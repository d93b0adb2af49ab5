//! `foretell sim fleet`: nodes that read one data set of an object store, in simulated time.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use foretell_policy::Nanos;
use foretell_sim::fleet::{FleetReport, FleetSpec, Model, Node, Origin, Reads, Tier};
use serde::Serialize;

use super::figures::{Figures, as_json, check_outputs};
use super::runs::{on_all_processors, progress, unique};
use super::table::{Column, Kind, lines};
use crate::array::Switch;
use crate::failure::Failure;
use crate::size;
use crate::standard_output::say;

pub(super) const HELP: &str = "\
Examples:
  foretell sim fleet --nodes 8,64,1000 --servers 0,8
  foretell sim fleet --nodes 64 --servers 8 --order same,shuffled,partition --epochs 3
  foretell sim fleet --nodes 32 --servers 4 --origin-bandwidth 1GB --lease-ms 1000 --renew off
  foretell sim fleet --nodes 10,1000,100000 --data 10TiB --chunk 64MiB --servers 0,100 --json -

Many nodes read one data set of an object store. How often does each byte leave the store, when has each \
node read all, and what limits that? All figures are simulated.

Each node asks for its chunks in its order, with some requests in flight. With servers, it asks the chunk's \
server first. The first node that asks for a missing chunk gets a lease and fetches it from the store; \
others ask again until it has put the chunk into the server. Their requests count as load, and do not queue.

Orders:
  same       every node reads all data, in one order
  shuffled   every node reads all data, each in an order of its own
  partition  nodes share one order: in each epoch, a node reads another part of the data
  shards     each node has a part of the data, and shuffles it in each epoch

Options with several values, separated by commas, give one row per combination. 0 servers are no tier.

Up to --reads-max reads of all nodes are simulated one by one (model events). Larger fleets are computed from \
rates (model fluid), which is within 12 % of the events, and within 30 % for shuffled orders through a tier \
smaller than the data. That model knows no leases that end, no deaths, no lost patience (--patience 0), and no tier smaller than the data for \
the order same.

The defaults are round figures of common hardware: nodes and store with 100 Gbit/s, 30 ms to the first byte \
and 90 MB/s for each response, 5,500 requests a second (a prefix of S3), and servers like Redis, with 10 Gbit/s \
and 100,000 requests a second.

Columns:
  egress     bytes that left the store, by the bytes of the data
  ready s    seconds until the last node has read all
  bound s    the least time for that, whatever is done
  limit      what was busy nearly all the time, or what was so in turn
  server     bytes a second of a server, both directions together, on average
  most       likewise, of the busiest server
  asked/s    requests a second of the busiest server
  ended      leases that ended before the chunk was there
  alone      fetches without a lease, by nodes that had waited too long";

#[derive(Args)]
pub(crate) struct FleetArgs {
    /// Number of nodes, 1 to 1,000,000
    #[arg(long, default_value = "8", value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000), allow_negative_numbers = true)]
    nodes: Vec<u32>,

    /// Size of the data, rounded up to whole chunks
    #[arg(long, default_value = "32GiB", value_name = "SIZE", value_parser = some_bytes, allow_negative_numbers = true)]
    data: u64,

    /// Bytes that one request reads
    #[arg(long, default_value = "8MiB", value_name = "SIZE", value_parser = some_bytes, allow_negative_numbers = true)]
    chunk: u64,

    /// Which node reads what: same, shuffled, partition, shards
    #[arg(long, default_value = "shuffled", value_name = "NAME,...", value_delimiter = ',')]
    order: Vec<Reads>,

    /// How often the data is read, 1 to 1000
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    epochs: u32,

    /// Bandwidth of a node in each direction, in bytes per second
    #[arg(long, default_value = "12.5GB", value_name = "SIZE", value_parser = some_bytes, allow_negative_numbers = true)]
    node_bandwidth: u64,

    /// Requests that a node has in flight, 1 to 65,536
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), allow_negative_numbers = true)]
    in_flight: u32,

    /// Each node's own cache, for later epochs
    #[arg(long, default_value = "0", value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    node_cache: u64,

    /// Bandwidth of the store, in bytes per second
    #[arg(long, default_value = "12.5GB", value_name = "SIZE", value_parser = some_bytes, allow_negative_numbers = true)]
    origin_bandwidth: u64,

    /// Bandwidth of one of the store's responses, in bytes per second
    #[arg(long, default_value = "90MB", value_name = "SIZE", value_parser = some_bytes, allow_negative_numbers = true)]
    response_bandwidth: u64,

    /// Time to the first byte of the store, in milliseconds, at most a minute
    #[arg(long, default_value_t = 30.0, value_name = "MILLISECONDS", value_parser = milliseconds, allow_negative_numbers = true)]
    origin_ms: f64,

    /// Requests a second that the store takes
    #[arg(long, default_value_t = 5500, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    origin_requests: u32,

    /// Servers of the shared tier, 0 to 1,000,000; 0 is no tier
    #[arg(long, default_value = "0,8", value_name = "M,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=1_000_000), allow_negative_numbers = true)]
    servers: Vec<u32>,

    /// Bandwidth of a server in each direction, in bytes per second
    #[arg(long, default_value = "1.25GB", value_name = "SIZE", value_parser = some_bytes, allow_negative_numbers = true)]
    server_bandwidth: u64,

    /// Time of a request to a server and its answer, in milliseconds, at most a minute
    #[arg(long, default_value_t = 0.5, value_name = "MILLISECONDS", value_parser = milliseconds, allow_negative_numbers = true)]
    server_ms: f64,

    /// Requests a second that a server answers
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    server_requests: u32,

    /// Memory of a server for data
    #[arg(long, default_value = "64GiB", value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    server_memory: u64,

    /// How long a node may take for a chunk before another one fetches it, in milliseconds, 1 to 3,600,000
    #[arg(long, default_value_t = 5000, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u32).range(1..=3_600_000), allow_negative_numbers = true)]
    lease_ms: u32,

    /// The longest pause of a node that waits before it asks again, in milliseconds, at most a minute; 0: it is told at once
    #[arg(long, default_value_t = 50, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u32).range(..=60_000), allow_negative_numbers = true)]
    again_ms: u32,

    /// A node that has waited for so many leases takes the lease over; 0: it waits on
    #[arg(long, default_value_t = 3, value_name = "LEASES", value_parser = clap::value_parser!(u32).range(..=1_000_000), allow_negative_numbers = true)]
    patience: u32,

    /// Whether a lease lasts as long as its node still fetches
    #[arg(long, value_enum, default_value = "on")]
    renew: Switch,

    /// Chunks that a node reads between two publications of its position
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    publish: u32,

    /// Nodes that die with their leases when half of the data has come from the store, at most
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    deaths: u32,

    /// Reads of all nodes that are simulated one by one, at most; more are computed from rates
    #[arg(long, default_value_t = 1 << 22, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1 << 28), allow_negative_numbers = true)]
    reads_max: u64,

    /// Seed of the orders, and of the chunks' servers
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true)]
    seed: u64,

    /// Write the figures to FILE as JSON (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn some_bytes(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    (0.0..=60e3).contains(&number).then_some(number).ok_or_else(|| "not from 0 to 60000".into())
}

/// A run as `--json` writes it: its options, then its results.
#[derive(Serialize)]
struct Row {
    nodes: u32,
    servers: u32,
    order: Reads,
    data_bytes: u64,
    chunk_bytes: u64,
    epochs: u32,
    deaths: u32,
    seed: u64,
    model: Model,
    egress: f64,
    ready_s: f64,
    ready_mean_s: f64,
    bound_s: f64,
    limit: String,
    reads: u64,
    cache_reads: u64,
    tier_reads: u64,
    origin_reads: u64,
    leases_ended: u64,
    without_lease: u64,
    origin_share: f64,
    origin_requests_share: f64,
    node_share: f64,
    server_share: f64,
    server_requests_share: f64,
    server_bytes_per_s: f64,
    server_bytes_per_s_most: f64,
    server_requests_per_s: f64,
    server_requests_per_s_most: f64,
}

impl Row {
    fn new(spec: &FleetSpec, report: &FleetReport) -> Self {
        let shares = report.shares;
        Row {
            nodes: spec.nodes,
            servers: spec.tier.map_or(0, |tier| tier.servers),
            order: spec.reads,
            data_bytes: spec.data_bytes(),
            chunk_bytes: spec.chunk_bytes,
            epochs: spec.epochs,
            deaths: spec.deaths,
            seed: spec.seed,
            model: report.model,
            egress: report.from_origin as f64 / f64::from(spec.chunks),
            ready_s: report.ready.as_secs(),
            ready_mean_s: report.ready_mean.as_secs(),
            bound_s: spec.bound().as_secs(),
            limit: shares.limits(),
            reads: report.reads,
            cache_reads: report.from_cache,
            tier_reads: report.from_tier,
            origin_reads: report.from_origin,
            leases_ended: report.leases_ended,
            without_lease: report.without_lease,
            origin_share: shares.origin,
            origin_requests_share: shares.origin_requests,
            node_share: shares.node,
            server_share: shares.server,
            server_requests_share: shares.server_requests,
            server_bytes_per_s: report.server_bytes_per_s[0],
            server_bytes_per_s_most: report.server_bytes_per_s[1],
            server_requests_per_s: report.server_requests_per_s[0],
            server_requests_per_s_most: report.server_requests_per_s[1],
        }
    }
}

pub(super) fn fleet(args: &FleetArgs) -> Result<ExitCode, Failure> {
    check_outputs(&[], &[("--json", args.json.as_deref())])?;
    let json = Figures::open(args.json.as_deref())?;
    let runs = runs(args)?;
    let progress = progress();
    progress.set_length(runs.len() as u64);
    progress.set_message(format!("{} runs", runs.len()));
    let rows = on_all_processors(&runs, |(spec, model)| {
        let row = Row::new(spec, &spec.run(*model));
        progress.inc(1);
        row
    });
    progress.finish_and_clear();
    json.deliver(
        Ok(()),
        || as_json(&rows, rows.len() > 1),
        || lines(&columns(&rows)).iter().try_for_each(|line| say(line)),
    )
}

/// Every combination, and the model that tells of it.
fn runs(args: &FleetArgs) -> Result<Vec<(FleetSpec, Model)>, Failure> {
    let chunks =
        u32::try_from(args.data.div_ceil(args.chunk)).ok().filter(|&chunks| chunks <= CHUNKS_MAX);
    let Some(chunks) = chunks else {
        let most = size::display(args.chunk.saturating_mul(u64::from(CHUNKS_MAX)));
        return Err(Failure::usage(format!(
            "--data: more than {CHUNKS_MAX} chunks ({most}); take larger chunks (--chunk) or less data"
        )));
    };
    let mut runs = Vec::new();
    for &reads in unique(&args.order) {
        for &nodes in unique(&args.nodes) {
            for &servers in unique(&args.servers) {
                let tier = Tier {
                    servers,
                    bytes_per_s: args.server_bandwidth as f64,
                    latency: Nanos::from_millis(args.server_ms),
                    requests_per_s: f64::from(args.server_requests),
                    memory_bytes: args.server_memory,
                    lease: Nanos::from_millis(f64::from(args.lease_ms)),
                    renews: args.renew == Switch::On,
                    again: Nanos::from_millis(f64::from(args.again_ms)),
                    patience_leases: args.patience,
                    publish_chunks: args.publish,
                };
                let spec = FleetSpec {
                    nodes,
                    node: Node {
                        bytes_per_s: args.node_bandwidth as f64,
                        in_flight: args.in_flight,
                        cache_bytes: args.node_cache,
                    },
                    chunks,
                    chunk_bytes: args.chunk,
                    reads,
                    epochs: args.epochs,
                    origin: Origin {
                        bytes_per_s: args.origin_bandwidth as f64,
                        stream_bytes_per_s: args.response_bandwidth as f64,
                        latency: Nanos::from_millis(args.origin_ms),
                        requests_per_s: f64::from(args.origin_requests),
                    },
                    tier: (servers > 0).then_some(tier),
                    deaths: args.deaths,
                    seed: args.seed,
                };
                spec.check().map_err(Failure::usage)?;
                let model = spec.model(args.reads_max).map_err(Failure::usage)?;
                runs.push((spec, model));
            }
        }
    }
    Ok(runs)
}

/// The most chunks; a run holds some ten bytes for each.
const CHUNKS_MAX: u32 = 1 << 26;

fn columns(rows: &[Row]) -> Vec<Column> {
    let column = |name, kind, cell: &dyn Fn(&Row) -> String| Column {
        name,
        kind,
        cells: rows.iter().map(cell).collect(),
    };
    let rate = |bytes_per_s: f64| format!("{}/s", size::display(bytes_per_s as u64));
    vec![
        column("order", Kind::Word, &|row| row.order.to_string()),
        column("data", Kind::Size, &|row| size::display(row.data_bytes)),
        column("epochs", Kind::Size, &|row| row.epochs.to_string()),
        column("nodes", Kind::Size, &|row| row.nodes.to_string()),
        column("servers", Kind::Size, &|row| row.servers.to_string()),
        column("model", Kind::Figure, &|row| match row.model {
            Model::Events => "events".into(),
            Model::Fluid => "fluid".into(),
        }),
        column("egress", Kind::Kept, &|row| format!("{:.3}", row.egress)),
        column("ready s", Kind::Kept, &|row| format!("{:.1}", row.ready_s)),
        column("bound s", Kind::Kept, &|row| format!("{:.1}", row.bound_s)),
        column("server", Kind::Figure, &|row| rate(row.server_bytes_per_s)),
        column("most", Kind::Figure, &|row| rate(row.server_bytes_per_s_most)),
        column("asked/s", Kind::Figure, &|row| format!("{:.0}", row.server_requests_per_s_most)),
        column("ended", Kind::Figure, &|row| row.leases_ended.to_string()),
        column("alone", Kind::Figure, &|row| row.without_lease.to_string()),
        column("limit", Kind::Kept, &|row| row.limit.clone()),
    ]
}
