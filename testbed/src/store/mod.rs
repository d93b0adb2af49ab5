//! The slow object store: a folder served over S3, with the latency, bandwidth limits and faults of a store far away.
//!
//! Clients, protocol and data are real. Three things are modelled: when an answer comes, how fast, and whether it
//! fails. [`Store::start`] serves a folder from a thread of its own until the [`Store`] is stopped or dropped:
//!
//! ```
//! use foretell_testbed::store::{Store, StoreOptions};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::create_dir(folder.path().join("bucket"))?;
//! let store = Store::start(folder.path(), &StoreOptions::fast())?;
//! assert_eq!(store.buckets(), ["bucket"]);
//! let report = store.stop();
//! assert_eq!(report.requests, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A request passes these modules:
//!
//! * `connection` carries its bytes, or holds them back while the store is down; `patience` closes connections that
//!   stay silent.
//! * `service` draws the request's fate (`faults`), waits (`timer`), and paces the body (`pacing`).
//! * `objects` implements S3's operations; `folder` maps them to files, `listing` makes pages of keys, `file_body`
//!   reads ranges.
//! * This module has the thread, and accepts connections.
//!
//! One thread does everything but listings and reads of data that is not in memory. So a client that is measured on the
//! same machine has the other processors to itself, and locks are never contended.

mod connection;
mod error;
mod faults;
mod file_body;
mod first_byte;
mod folder;
mod listing;
mod lock;
mod objects;
mod options;
mod pacing;
mod patience;
mod report;
mod service;
mod timer;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task;

pub use error::StoreError;
pub use faults::Faults;
pub use first_byte::{FirstByte, Tail};
pub use folder::LeftOut;
pub use options::StoreOptions;
pub use report::StoreReport;

use connection::{Connection, Fuse, Gate};
use file_body::Buffers;
use folder::Folder;
use lock::lock;
use objects::{Objects, Readers};
use pacing::{Link, piece_bytes};
use patience::{Clock, Patience};
use report::{Counters, count};
use service::Shared;
use timer::Timer;

/// Threads for listings, and for reads of data that is not in memory.
const BLOCKING_THREADS: usize = 8;

/// How long the end waits for such a listing or read.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The pause after an accept that failed for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a store that is down looks to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// As if its process were gone: connections are reset, new ones are refused.
    Refuse,
    /// As if its network were gone: connections stay, new ones are made, and no bytes come. Requests that were not
    /// answered before are answered afterwards.
    Silent,
}

/// A running store; see the [module](self). Dropping it stops it.
pub struct Store {
    server: Arc<Server>,
    runtime: runtime::Handle,
    address: SocketAddr,
    buckets: Vec<String>,
    left_out: LeftOut,
    /// The sender that stops the thread, and the thread.
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

struct Server {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    accepting: Mutex<Option<task::JoinHandle<()>>>,
    connections: Mutex<HashMap<u64, (task::JoinHandle<()>, Fuse)>>,
}

impl Store {
    /// Starts to serve `folder`.
    ///
    /// # Errors
    /// The folder cannot be served, the address cannot be listened at, or an option is out of its range.
    pub fn start(folder: &Path, options: &StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let folder = Folder::open(folder, options.bucket.as_deref())?;
        let (buckets, left_out) =
            folder.entries().map_err(|source| StoreError::System { source })?;
        let listener = listen(options.listen)?;
        let system = |source| StoreError::System { source };
        let address = listener.local_addr().map_err(system)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("store-files")
            .build()
            .map_err(system)?;
        let timer = Timer::new().map_err(system)?;
        let gate = Arc::<Gate>::default();
        let patience = Patience {
            timer: Arc::clone(&timer),
            gate: Arc::clone(&gate),
            idle: options.idle_timeout,
        };
        let server = Arc::new(Server {
            shared: Arc::new(shared(folder, options, patience)),
            gate,
            accepting: Mutex::default(),
            connections: Mutex::default(),
        });
        let handle = runtime.handle().clone();
        handle.spawn(
            async move { timer.run().await.expect("invariant: the runtime has I/O enabled") },
        );
        {
            let _inside = handle.enter();
            server.accept_at(listener).map_err(system)?;
        }
        let (stop, stopped) = oneshot::channel();
        let work = move || {
            // An error means that the sender was dropped, which also ends the store.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(END_PATIENCE);
        };
        let thread =
            std::thread::Builder::new().name("store".into()).spawn(work).map_err(system)?;
        let running = Some((stop, thread));
        Ok(Store { server, runtime: handle, address, buckets, left_out, running })
    }

    /// The endpoint for clients, such as `http://127.0.0.1:39217`. Buckets are the first part of the path ("path
    /// style").
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The buckets at the start, sorted.
    pub fn buckets(&self) -> &[String] {
        &self.buckets
    }

    /// Entries of the folder that are in no bucket, at the start.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// What the store has done so far.
    pub fn report(&self) -> StoreReport {
        self.server.shared.counters.report()
    }

    /// Restarts the report's `in_flight_max`.
    pub fn reset_in_flight_max(&self) {
        self.server.shared.counters.reset_in_flight_max();
    }

    /// Sets the faults from the next request on.
    ///
    /// # Errors
    /// A share is out of its range.
    pub fn set_faults(&self, faults: Faults) -> Result<(), StoreError> {
        faults.validate()?;
        *lock(&self.server.shared.faults) = faults;
        Ok(())
    }

    /// Goes down. When this returns, the store is down.
    pub fn go_down(&self, outage: Outage) {
        match outage {
            Outage::Silent => self.server.gate.shut(),
            Outage::Refuse => {
                let server = Arc::clone(&self.server);
                self.on_its_thread(async move { server.refuse().await });
            }
        }
    }

    /// Comes up again, at the same address. Does nothing if it is not down.
    ///
    /// # Errors
    /// Somebody else has taken the address meanwhile.
    pub fn come_up(&self) -> Result<(), StoreError> {
        self.server.gate.open();
        if lock(&self.server.accepting).is_some() {
            return Ok(());
        }
        let listener = listen(self.address)?;
        let _inside = self.runtime.enter();
        self.server.accept_at(listener).map_err(|source| StoreError::System { source })
    }

    /// Stops the store. Answers in flight are broken off.
    pub fn stop(mut self) -> StoreReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            // The thread waits for this.
            let _ = stop.send(());
            let _ = thread.join();
        }
    }

    /// Runs `work` on the store's thread, and waits for its end.
    fn on_its_thread(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (done, wait) = mpsc::channel::<()>();
        self.runtime.spawn(async move {
            work.await;
            drop(done);
        });
        // Returns an error when `done` is dropped, which marks the end.
        let _ = wait.recv();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

fn shared(folder: Folder, options: &StoreOptions, patience: Patience) -> Shared {
    let piece = piece_bytes(options.per_response, options.total);
    let mut s3 = S3ServiceBuilder::new(Objects::new(Arc::new(folder), Buffers::new(piece)));
    s3.set_auth(SimpleAuth::from_single(options.access_key.clone(), options.secret_key.clone()));
    s3.set_access(Readers);
    let origin = Instant::now();
    Shared {
        s3: s3.build(),
        timer: Arc::clone(&patience.timer),
        patience,
        counters: Counters::new(origin),
        first_byte: options.first_byte.clone(),
        seed: options.seed,
        rate: options.per_response,
        piece,
        origin,
        requests: AtomicU64::new(0),
        link: Mutex::new(Link::new(options.total)),
        faults: Mutex::new(options.faults),
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, StoreError> {
    let wrong = |source| StoreError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(wrong)?;
    listener.set_nonblocking(true).map_err(wrong)?;
    Ok(listener)
}

impl Server {
    /// Accepts connections, in a task of the current runtime.
    fn accept_at(self: &Arc<Self>, listener: TcpListener) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let server = Arc::clone(self);
        let accepting = tokio::spawn(async move {
            for number in 0.. {
                match listener.accept().await {
                    Ok((stream, _)) => server.serve(number, stream),
                    Err(_) => {
                        server.shared.timer.until(Instant::now() + ACCEPT_PAUSE).await;
                    }
                }
            }
        });
        *lock(&self.accepting) = Some(accepting);
        Ok(())
    }

    /// Answers requests on a connection, in a task of its own.
    fn serve(self: &Arc<Self>, number: u64, stream: tokio::net::TcpStream) {
        count(&self.shared.counters.connections);
        let fuse = Fuse::default();
        let io = TokioIo::new(Connection::new(stream, Arc::clone(&self.gate), fuse.clone()));
        let (shared, its_fuse) = (Arc::clone(&self.shared), fuse.clone());
        let answer =
            service_fn(move |request| Arc::clone(&shared).answer(request, its_fuse.clone()));
        let server = Arc::clone(self);
        let patience = self.shared.patience.clone();
        // The map stays locked until the task is in it, as the task takes itself out at its end.
        let mut connections = lock(&self.connections);
        let task = tokio::spawn(async move {
            // Errors are expected: clients disconnect, and some answers are broken off on purpose.
            let idle = patience.idle;
            let mut builder = http1::Builder::new();
            builder.timer(Clock::new(patience)).header_read_timeout(idle);
            let _ = builder.serve_connection(io, answer).await;
            lock(&server.connections).remove(&number);
        });
        connections.insert(number, (task, fuse));
    }

    /// Resets all connections, and refuses new ones.
    async fn refuse(&self) {
        let accepting = lock(&self.accepting).take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // When it has ended, its listener is closed.
            let _ = accepting.await;
        }
        let connections = std::mem::take(&mut *lock(&self.connections));
        for (task, fuse) in connections.into_values() {
            fuse.blow();
            task.abort();
            let _ = task.await;
        }
    }
}
