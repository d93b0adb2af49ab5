//! A tier that many machines share: blocks on a Redis or Valkey server, or on a cluster of them.
//!
//! A store behind it is a back end around another one ([`Fleet::over`]), as with the [tier on a local disk](super::Tier).
//! `docs/internals/fleet.md` says why it is as it is.
//!
//! * **A. Hit.** The server has the block, and it passes the check: it is served.
//! * **B. Lease.** The block is not there: the server gives a lease to one node, which fetches the block from the origin and puts it.
//!   The lease has a deadline, which the node extends while it fetches; if the node dies, another one gets the lease.
//! * **C. Wait.** Another node has the lease: the block is asked for again and again, until it is there or the lease is free.
//!   From a node that takes too long, one of those that wait takes the lease over.
//! * **D. Refused.** The value fails the check: it is deleted, and the block asked for again.
//! * **E. Trouble.** The server does not answer, or refuses: all blocks come from the origin at once, as without the tier. The
//!   server is tried again after pauses, which double from a second to a minute. No read waits for that. Of a cluster, this is
//!   so for the blocks of each node by itself.
//! * **F. Full.** The server has no room, or little: what is disclosed on all machines says which blocks are worth it.
//!
//! So whatever becomes of the server, reads end with the right bytes; `format` says what an attacker with write access could do.
//!
//! By module: `address` and `server` say where servers are and talk to them, `format` and `orders` what is on them. `backend`
//! divides requests into blocks, `block` says what becomes of one, and `counts` counts them. `shared` has the queues, and `away`
//! says when a server is left alone; `work` and `placing` are what the threads do.

mod address;
mod away;
mod backend;
mod block;
mod counts;
mod format;
mod orders;
mod placing;
mod server;
mod shared;
mod work;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use address::{is_fleet, shown};
pub use backend::FleetBackend;
pub use counts::FleetStats;
use shared::Shared;

use super::trouble::Kinds;
use crate::backend::{AddressError, Environment};
use address::Address;

/// Threads that talk to the server, each with a connection of its own (to each node of a cluster).
const THREADS: usize = 4;
/// How long to wait for a lock that other threads hold for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Something is wrong with a shared tier. Reads go on without it.
#[derive(Debug, thiserror::Error)]
pub enum FleetTrouble {
    /// It does not answer, or refuses.
    #[error("{shown}: {why}; blocks come from the store, and it is tried again after a while")]
    Away {
        /// Its address, without secrets.
        shown: String,
        /// What it said.
        why: String,
    },
    /// It refuses a command that it could be used without.
    #[error(
        "{shown}: {why}; it is used without that, and some blocks may be fetched more than once"
    )]
    Denied {
        /// Its address, without secrets.
        shown: String,
        /// What it said.
        why: String,
    },
    /// Values failed their check.
    #[error(
        "{shown}: damaged or forged values, {so_far} so far; these blocks are fetched from the store again"
    )]
    Refused {
        /// Its address, without secrets.
        shown: String,
        /// Values that failed since the tier was opened.
        so_far: u64,
    },
}

impl Kinds for FleetTrouble {
    fn kind(&self) -> usize {
        match self {
            FleetTrouble::Away { .. } => 0,
            FleetTrouble::Refused { .. } => 1,
            FleetTrouble::Denied { .. } => 2,
        }
    }
}

/// Blocks on a server that many machines share; see the [module](self). Several stores may share it.
pub struct Fleet {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The tiers of this process, by its number, address, secrets and size of a block. Forked children do not have the threads
/// of those of their parents.
type Known = HashMap<(u32, String, Option<String>, Option<String>, usize), Weak<Fleet>>;

impl Fleet {
    /// Opens the tier at an address (`redis://…`), for blocks of this size: the cache's, since only whole blocks are kept.
    /// Stores of this process with the same tier share one. `environment`: that of another process for which it is opened.
    /// Does not wait: whether the server answers will be seen.
    ///
    /// # Errors
    /// If the address is wrong, or no threads can be started.
    pub fn open(
        address: &str,
        block_bytes: usize,
        environment: Option<&Environment>,
    ) -> Result<Arc<Self>, AddressError> {
        static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
        let parsed = Address::parse(address, environment)?;
        let secrets = (parsed.password.clone(), parsed.secret.clone());
        let secret = secrets.1.map(|secret| String::from_utf8_lossy(&secret).into_owned());
        let key = (std::process::id(), address.to_owned(), secrets.0, secret, block_bytes);
        // A child that was forked while a thread had the lock never gets it. Then it has a tier of its own.
        let begun = Instant::now();
        let mut known = loop {
            match KNOWN.try_lock() {
                Ok(known) => break known,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if begun.elapsed() > LOCK_PATIENCE => {
                    return Self::start(parsed, block_bytes).map_err(AddressError::Threads);
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PATIENCE / 100),
            }
        };
        let known = known.get_or_insert_default();
        known.retain(|_, fleet| fleet.strong_count() > 0);
        if let Some(fleet) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(fleet);
        }
        let fleet = Self::start(parsed, block_bytes).map_err(AddressError::Threads)?;
        known.insert(key, Arc::downgrade(&fleet));
        Ok(fleet)
    }

    fn start(address: Address, block_bytes: usize) -> io::Result<Arc<Self>> {
        // Of the two sets of algorithms in this program, TLS needs one to be chosen. It fails if there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let shared = Arc::new(Shared::new(address, block_bytes));
        let mut fleet = Fleet { shared, threads: Vec::new() };
        for _ in 0..THREADS {
            let shared = Arc::clone(&fleet.shared);
            let thread = std::thread::Builder::new().name("foretell-fleet".to_owned());
            fleet.threads.push(thread.spawn(move || shared.serve())?);
        }
        Ok(Arc::new(fleet))
    }

    /// Counts since the tier was opened.
    pub fn stats(&self) -> FleetStats {
        self.shared.counts.now()
    }

    /// Sets the listener for trouble with the server. It is called at most once a minute for each kind, in any thread, and must
    /// not wait. Only the first listener is ever called.
    pub fn on_trouble(&self, tell: impl Fn(&FleetTrouble) + Send + Sync + 'static) {
        self.shared.teller.set_listener(Box::new(tell));
        self.shared.tell_again();
    }

    /// Waits until all blocks that have come are put or given up.
    pub fn settle(&self) {
        self.shared.settle();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            // The dropping thread may be one of them.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
