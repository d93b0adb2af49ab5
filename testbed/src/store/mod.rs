//! The slow object store: a folder served over S3, with the waits, limits and faults of a store far
//! away.
//!
//! Clients, protocol and data are real; what is modelled is when an answer comes, how fast, and
//! whether. [`Store::start`] serves a folder from a thread of its own until the [`Store`] is stopped or
//! dropped:
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
//! The way of a request, by module:
//!
//! * `connection` carries its bytes, or does not, when the store is down; `patience` ends those that say nothing;
//! * `service` has its fate drawn (`faults`), waits (`timer`) and paces the body (`pacing`);
//! * `objects` is what S3's operations do, `folder` what they mean for files, `listing` the pages
//!   of keys, `file_body` the reading of a range;
//! * here is the thread, and who is heard on it.
//!
//! One thread does everything but reads of what is not in memory and listings: a client that is
//! measured beside it keeps the other processors to itself, and requests need no locks that are ever
//! waited for.

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

/// Threads for reads of what is not in memory, and for listings.
const BLOCKING_THREADS: usize = 8;

/// How long the end waits for such a read or listing.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How long a failed accept, for want of descriptors, is left alone.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a store that is down looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Its process is gone: connections are reset, new ones refused.
    Refuse,
    /// Its network is gone: connections stay, new ones are made, and nothing comes. What was asked
    /// and not answered before is answered after it.
    Silent,
}

/// A store that is being served; see the [module](self). Dropping it stops it.
pub struct Store {
    server: Arc<Server>,
    runtime: runtime::Handle,
    address: SocketAddr,
    buckets: Vec<String>,
    /// Who stops the thread, and the thread.
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

struct Server {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    accepting: Mutex<Option<task::JoinHandle<()>>>,
    connections: Mutex<HashMap<u64, (task::JoinHandle<()>, Fuse)>>,
}

impl Store {
    /// Serves `folder`, from now on.
    ///
    /// # Errors
    /// The folder cannot be served, the address cannot be listened at, or an option is absurd.
    pub fn start(folder: &Path, options: &StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let folder = Folder::open(folder, options.bucket.as_deref())?;
        let buckets = folder.buckets().map_err(|source| StoreError::System { source })?;
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
        handle.spawn(async move { timer.run().await.expect("a runtime watches descriptors") });
        {
            let _inside = handle.enter();
            server.accept_at(listener).map_err(system)?;
        }
        let (stop, stopped) = oneshot::channel();
        let work = move || {
            // An error is that nobody can ask any more.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(END_PATIENCE);
        };
        let thread =
            std::thread::Builder::new().name("store".into()).spawn(work).map_err(system)?;
        Ok(Store { server, runtime: handle, address, buckets, running: Some((stop, thread)) })
    }

    /// What clients are given, such as `http://127.0.0.1:39217`; buckets are the first part of the
    /// path ("path style").
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The buckets that were there at the start, sorted.
    pub fn buckets(&self) -> &[String] {
        &self.buckets
    }

    /// What was done so far.
    pub fn report(&self) -> StoreReport {
        self.server.shared.counters.report()
    }

    /// The report's most requests at once are of this time on.
    pub fn reset_in_flight_max(&self) {
        self.server.shared.counters.reset_in_flight_max();
    }

    /// From the next request on, these go wrong.
    ///
    /// # Errors
    /// A share is none.
    pub fn set_faults(&self, faults: Faults) -> Result<(), StoreError> {
        faults.validate()?;
        *lock(&self.server.shared.faults) = faults;
        Ok(())
    }

    /// Goes down; once this returns, it is.
    pub fn go_down(&self, outage: Outage) {
        match outage {
            Outage::Silent => self.server.gate.shut(),
            Outage::Refuse => {
                let server = Arc::clone(&self.server);
                self.on_its_thread(async move { server.refuse().await });
            }
        }
    }

    /// Comes up again, at the same address; nothing happens if it is not down.
    ///
    /// # Errors
    /// The address has been taken meanwhile.
    pub fn come_up(&self) -> Result<(), StoreError> {
        self.server.gate.open();
        if lock(&self.server.accepting).is_some() {
            return Ok(());
        }
        let listener = listen(self.address)?;
        let _inside = self.runtime.enter();
        self.server.accept_at(listener).map_err(|source| StoreError::System { source })
    }

    /// Ends it. Answers under way are broken off.
    pub fn stop(mut self) -> StoreReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            // It is there, and waits for this.
            let _ = stop.send(());
            let _ = thread.join();
        }
    }

    /// Has `work` done on the store's thread, and waits for its end.
    fn on_its_thread(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (done, wait) = mpsc::channel::<()>();
        self.runtime.spawn(async move {
            work.await;
            drop(done);
        });
        // Ends in an error when `done` is dropped, which is what is waited for.
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
    /// Accepts connections, in a task of the runtime that this is called in.
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

    /// Answers what comes on a connection, in a task of its own.
    fn serve(self: &Arc<Self>, number: u64, stream: tokio::net::TcpStream) {
        count(&self.shared.counters.connections);
        let fuse = Fuse::default();
        let io = TokioIo::new(Connection::new(stream, Arc::clone(&self.gate), fuse.clone()));
        let (shared, its_fuse) = (Arc::clone(&self.shared), fuse.clone());
        let answer =
            service_fn(move |request| Arc::clone(&shared).answer(request, its_fuse.clone()));
        let server = Arc::clone(self);
        let patience = self.shared.patience.clone();
        // The map is locked until the task is in it, which takes itself out.
        let mut connections = lock(&self.connections);
        let task = tokio::spawn(async move {
            // Clients go as they like, and some answers are broken off on purpose.
            let idle = patience.idle;
            let mut builder = http1::Builder::new();
            builder.timer(Clock::new(patience)).header_read_timeout(idle);
            let _ = builder.serve_connection(io, answer).await;
            lock(&server.connections).remove(&number);
        });
        connections.insert(number, (task, fuse));
    }

    /// Resets all connections, and makes no more.
    async fn refuse(&self) {
        let accepting = lock(&self.accepting).take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // Its listener is closed by then.
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
