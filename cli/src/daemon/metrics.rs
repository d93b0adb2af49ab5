//! The daemon's figures for Prometheus: over HTTP, on a Unix socket, and on a port of the loopback address if that is wanted.
//!
//! The names are those of [`METRICS`]; a counter never falls while the daemon runs.

use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use foretell_cache::tier::fleet::FleetStats;
use http::{Method, Response, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::about::About;
use super::status::{Status, Totals};

/// Connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 16;

/// How long a client may take for its request.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// How long a connection may last: one that does not read its answer gives up its place.
const CONNECTION_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Pause after a failed accept: no descriptor is left.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// A figure: its name, its kind, what it is, and its value.
type Metric = (&'static str, &'static str, &'static str, fn(&Status, &Totals) -> f64);

/// All figures. The sums are over the runs that have ended and those under way.
const METRICS: &[Metric] = &[
    (
        "foretell_budget_bytes",
        "gauge",
        "Bytes that may be prefetched and unread, for all runs together",
        |s, _| s.budget_bytes as f64,
    ),
    (
        "foretell_held_bytes",
        "gauge",
        "Bytes that are prefetched and unread, or on their way",
        |s, _| s.held_bytes as f64,
    ),
    ("foretell_runs", "gauge", "Runs under way", |s, _| s.runs.len() as f64),
    ("foretell_runs_total", "counter", "Runs that the daemon has taken", |_, t| t.runs as f64),
    (
        "foretell_runs_refused_total",
        "counter",
        "Runs that were left to managers of their own",
        |s, _| s.refused_runs as f64,
    ),
    (
        "foretell_cache_bytes",
        "gauge",
        "Bytes of memory of the cache of stores; 0 without one",
        |s, _| s.cache.as_ref().map_or(0, |cache| cache.size_bytes) as f64,
    ),
    (
        "foretell_cache_filled_bytes",
        "gauge",
        "Bytes that are in the cache of stores, or on their way",
        |s, _| s.cache.as_ref().map_or(0, |cache| cache.filled_bytes) as f64,
    ),
    (
        "foretell_cache_limit_bytes",
        "gauge",
        "Bytes that the cache of stores uses at most at present; 0 without one",
        |s, _| s.cache.as_ref().map_or(0, |cache| cache.limit_bytes) as f64,
    ),
    (
        "foretell_cache_refused_total",
        "counter",
        "Stores of programs that the cache has refused",
        |s, _| s.cache.as_ref().map_or(0, |cache| cache.refused) as f64,
    ),
    ("foretell_cache_clients", "gauge", "Stores of programs that use the cache", |s, _| {
        s.cache.as_ref().map_or(0, |cache| cache.clients) as f64
    }),
    (
        "foretell_cache_hits_total",
        "counter",
        "Blocks that were in the cache of stores when a program asked for them",
        |s, _| s.cache.as_ref().map_or(0, |cache| cache.counts.hit_blocks) as f64,
    ),
    (
        "foretell_cache_fetched_bytes_total",
        "counter",
        "Bytes that were fetched for the cache of stores",
        |s, _| s.cache.as_ref().map_or(0, |cache| cache.counts.fetched_bytes) as f64,
    ),
    (
        "foretell_fleet_hits",
        "gauge",
        "Blocks that came from a shared tier, of stores that are open",
        |s, _| fleet(s).hit_blocks as f64,
    ),
    (
        "foretell_fleet_misses",
        "gauge",
        "Blocks that came from the stores behind a shared tier, of stores that are open",
        |s, _| fleet(s).missed_blocks as f64,
    ),
    (
        "foretell_fleet_leases",
        "gauge",
        "Blocks that were fetched for all machines of a shared tier, of stores that are open",
        |s, _| fleet(s).leases as f64,
    ),
    (
        "foretell_fleet_waits",
        "gauge",
        "Blocks that another machine was fetching, of stores that are open",
        |s, _| fleet(s).waited_blocks as f64,
    ),
    (
        "foretell_fleet_refused",
        "gauge",
        "Values of a shared tier that failed the check, of stores that are open",
        |s, _| fleet(s).refused_values as f64,
    ),
    (
        "foretell_fleet_errors",
        "gauge",
        "Failures of shared tiers, of stores that are open",
        |s, _| fleet(s).server_errors as f64,
    ),
    ("foretell_memory_pressures_total", "counter", "Times that memory was short", |s, _| {
        s.pressures as f64
    }),
    ("foretell_processes_total", "counter", "Processes that have been followed", |_, t| {
        t.processes as f64
    }),
    (
        "foretell_read_bytes_total",
        "counter",
        "Bytes that programs have read from regular files",
        |_, t| t.read_bytes as f64,
    ),
    ("foretell_prefetched_bytes_total", "counter", "Bytes that were prefetched", |_, t| {
        t.prefetched_bytes as f64
    }),
    (
        "foretell_useful_bytes_total",
        "counter",
        "Prefetched bytes that were in memory before they were read",
        |_, t| t.useful_bytes as f64,
    ),
    (
        "foretell_late_bytes_total",
        "counter",
        "Prefetched bytes that were on their way when they were read",
        |_, t| t.late_bytes as f64,
    ),
    ("foretell_wasted_bytes_total", "counter", "Prefetched bytes that were not read", |_, t| {
        t.wasted_bytes as f64
    }),
    (
        "foretell_stall_seconds_total",
        "counter",
        "Seconds for which programs have waited for reads and opens",
        |_, t| t.stall_s,
    ),
    ("foretell_uptime_seconds", "gauge", "Seconds since the daemon was started", |s, _| s.uptime_s),
];

/// Counts of shared tiers; zeros without one.
fn fleet(status: &Status) -> FleetStats {
    status.cache.as_ref().and_then(|cache| cache.fleet).unwrap_or_default()
}

/// Serves from a thread of its own until the process ends.
pub(super) fn serve(about: Arc<About>, socket: &Path, port: Option<u16>) -> io::Result<()> {
    let local = UnixListener::bind(socket)?;
    rustix::fs::chmod(socket, rustix::fs::Mode::from_raw_mode(0o600))?;
    local.set_nonblocking(true)?;
    let loopback = port.map(|port| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = listener.and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map_err(|error| {
            let way_out = match error.kind() {
                io::ErrorKind::PermissionDenied => "give a port from 1024 on",
                _ => "give another port, or end the process that listens there",
            };
            io::Error::new(error.kind(), format!("--metrics-port {port}: {error}; {way_out}"))
        })
    });
    let loopback = loopback.transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("foretell-metric".into()).spawn(move || {
        runtime.block_on(async move {
            let local = tokio::net::UnixListener::from_std(local);
            let loopback = loopback.map(tokio::net::TcpListener::from_std).transpose();
            let (Ok(local), Ok(loopback)) = (local, loopback) else { return };
            let room = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
            let of_loopback = {
                let (about, room) = (Arc::clone(&about), Arc::clone(&room));
                async move {
                    let Some(loopback) = loopback else { return };
                    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
                        match loopback.accept().await {
                            Ok((stream, _)) => spawn(&about, stream, permit),
                            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                        }
                    }
                }
            };
            tokio::spawn(of_loopback);
            while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
                match local.accept().await {
                    Ok((stream, _)) => spawn(&about, stream, permit),
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
            }
        });
    })?;
    Ok(())
}

fn spawn(
    about: &Arc<About>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    permit: tokio::sync::OwnedSemaphorePermit,
) {
    let about = Arc::clone(about);
    tokio::spawn(async move {
        let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
            let about = Arc::clone(&about);
            async move {
                Ok::<_, Infallible>(respond(&about, request.method(), request.uri().path()).await)
            }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
        let served = server.serve_connection(TokioIo::new(stream), service);
        let _ = tokio::time::timeout(CONNECTION_PATIENCE, served).await;
        drop(permit);
    });
}

async fn respond(about: &Arc<About>, method: &Method, path: &str) -> Response<String> {
    let refused = |status: StatusCode, text: &str| {
        let mut response = Response::new(text.to_owned());
        *response.status_mut() = status;
        response
    };
    if path != "/metrics" {
        return refused(StatusCode::NOT_FOUND, "the figures are at /metrics\n");
    }
    if method != Method::GET && method != Method::HEAD {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    let about = Arc::clone(about);
    // Managers are asked, which may take a while.
    let Ok(status) = tokio::task::spawn_blocking(move || about.status()).await else {
        return refused(StatusCode::INTERNAL_SERVER_ERROR, "the daemon has failed\n");
    };
    let mut response = Response::new(text(&status));
    let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// In Prometheus's text format.
fn text(status: &Status) -> String {
    let mut totals = status.ended.clone();
    status.runs.iter().for_each(|run| totals.add(&run.figures.blocks, &run.figures.programs));
    let mut text = String::new();
    for (name, kind, help, value) in METRICS {
        let value = value(status, &totals);
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    text
}
