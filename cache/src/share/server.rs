//! The process that has the cache: it answers clients and takes their hits into account.
//!
//! One thread does it all. It never waits for a store: opens have threads (`opening`), and reads call back. It never waits for a
//! client either: what a client does not take yet is queued, and while much is queued or asked for, its further requests stay
//! in the socket.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::Name;
use super::connection::{Client, Known, OPEN_COST_BYTES, send_with};
use super::joining::Joining;
use super::opening::Opening;
use super::ring::Ring;
use super::wire::{REQUEST_MAX_BYTES, ToClient, ToServer, VERSION};
use crate::backend::{BackendError, Opened};
use crate::cache::{Cache, Store, Stream};
use crate::mapping::HUGE_PAGE;

/// Bytes that are asked for or queued for a client, beyond which it is not heard.
const LOAD_MAX_BYTES: usize = 64 * OPEN_COST_BYTES;
/// The same of all clients. Many of them have a part each.
const ALL_LOAD_MAX_BYTES: usize = 16 * LOAD_MAX_BYTES;
/// What a read counts beside its data.
const READ_COST_BYTES: usize = 4096;
/// Most blocks that the records of a client may name in one look. The rest of them is dropped.
const TOLD_MAX_BLOCKS: u64 = 1 << 16;
/// Most clients; further ones are refused and use a cache of their own.
pub(super) const CLIENTS_MAX: usize = 1024;
/// Most stores; clients of further ones are refused.
const STORES_MAX: usize = 256;
/// Rings are looked at in such intervals while there are records in them.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Filled memory is looked for in such intervals.
const GATHER_EVERY: Duration = Duration::from_millis(200);
/// Without records for so long, the server sleeps until it is told.
const LOOK_FOR: Duration = Duration::from_millis(50);
/// Without a descriptor for the next client, clients are left waiting for so long.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Opens the file at a path of a store, and waits.
pub type OpenAt = Arc<dyn Fn(&[u8]) -> Result<Opened, BackendError> + Send + Sync>;

/// What a recipe stands for.
pub(super) type ServedOf = Box<dyn Fn(&[u8]) -> Result<Served, BackendError> + Send>;

/// What a client's cache reads from.
#[derive(Clone)]
pub struct Served {
    /// The store, on the server's cache.
    pub store: Store,
    /// Opens the file at a path of the store, and waits.
    pub open: OpenAt,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("store", &self.store).finish_non_exhaustive()
    }
}

/// A cache that answers other processes of this user, until it is dropped.
#[derive(Debug)]
pub struct Server {
    pub(super) mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
    gathering: Option<JoinHandle<()>>,
}

/// Answers on their way to the thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    answers: Mutex<Vec<(u64, Answer)>>,
    bell: OwnedFd,
    is_over: AtomicBool,
    /// Clients that have said hello elsewhere.
    pub(super) joining: Mutex<Vec<Joining>>,
    /// Number of clients.
    pub(super) clients: AtomicUsize,
}

#[derive(Debug)]
pub(super) enum Answer {
    Opened { id: u64, path: Vec<u8>, result: Result<Opened, BackendError> },
    Read { id: u64, asked_bytes: usize, result: Result<Vec<u8>, (u64, BackendError)> },
}

impl Mailbox {
    fn send(&self, client: u64, answer: Answer) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push((client, answer));
        self.ring();
    }

    pub(super) fn ring(&self) {
        // It fails only if it has rung very often unheard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl Server {
    /// Answers at a name with the blocks of a cache that was made by [`Cache::new_shared`]. `served` says what a recipe, which
    /// clients send as bytes, stands for; it is asked once for each, and must not wait.
    ///
    /// # Errors
    /// Those of `eventfd`, and if no thread can be started; `InvalidInput` for a cache that is not shared.
    pub fn start(
        cache: &Cache,
        Name(listener): Name,
        served: impl Fn(&[u8]) -> Result<Served, BackendError> + Send + 'static,
    ) -> io::Result<Self> {
        Self::serving(cache, Some(listener), Box::new(served))
    }

    pub(super) fn serving(
        cache: &Cache,
        listener: Option<UnixListener>,
        served: ServedOf,
    ) -> io::Result<Self> {
        if cache.shared.slab.files().is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mailbox = Mailbox {
            answers: Mutex::default(),
            bell,
            is_over: AtomicBool::new(false),
            joining: Mutex::default(),
            clients: AtomicUsize::new(0),
        };
        let mailbox = Arc::new(mailbox);
        let serving = Serving {
            cache: cache.clone(),
            served,
            listener,
            mailbox: Arc::clone(&mailbox),
            stores: HashMap::new(),
            clients: HashMap::new(),
            next_client: 0,
            opening: Opening::default(),
            accepts_from: None,
        };
        let thread = std::thread::Builder::new()
            .name("foretell-share".to_owned())
            .spawn(move || serving.run())?;
        let (cache, of_gathering) = (cache.clone(), Arc::clone(&mailbox));
        let gathering = std::thread::Builder::new()
            .name("foretell-pages".to_owned())
            .spawn(move || gather(&cache, &of_gathering.is_over))?;
        Ok(Server { mailbox, thread: Some(thread), gathering: Some(gathering) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.mailbox.is_over.store(true, Ordering::Relaxed);
        self.mailbox.ring();
        for thread in [self.thread.take(), self.gathering.take()].into_iter().flatten() {
            thread.thread().unpark();
            let _ = thread.join(); // A panic was reported.
        }
    }
}

/// Makes huge pages of the cache's memory as it is filled; the work of a thread. Without them, clients wait for page tables:
/// a hit of 128 bytes takes half as long again.
fn gather(cache: &Cache, is_over: &AtomicBool) {
    let slab = &cache.shared.slab;
    let mut at = 0;
    while at + HUGE_PAGE <= slab.mapping().bytes() && !is_over.load(Ordering::Relaxed) {
        // Holes of memory that was given back would be filled.
        let is_limited = cache.shared.is_limited.load(Ordering::Relaxed);
        if !is_limited && at + HUGE_PAGE <= slab.used_bytes() {
            slab.mapping().gather(at);
            at += HUGE_PAGE;
        } else {
            std::thread::park_timeout(GATHER_EVERY);
        }
    }
}

pub(super) struct Serving {
    cache: Cache,
    served: ServedOf,
    /// `None` if clients join.
    listener: Option<UnixListener>,
    pub(super) mailbox: Arc<Mailbox>,
    /// By recipe. They stay, so that a client finds what earlier ones have read.
    stores: HashMap<Vec<u8>, Served>,
    pub(super) clients: HashMap<u64, Client>,
    pub(super) next_client: u64,
    opening: Opening,
    /// Until then, no client is accepted.
    accepts_from: Option<Instant>,
}

impl Serving {
    fn run(mut self) {
        let mut looked_at = Instant::now();
        while !self.mailbox.is_over.load(Ordering::Relaxed) {
            let mut has_records = self.look();
            let now = Instant::now();
            if has_records {
                looked_at = now;
            }
            let mut timeout = Some(LOOK_EVERY);
            if now.duration_since(looked_at) >= LOOK_FOR {
                has_records = false;
                for known in self.clients.values().filter_map(|client| client.known.as_ref()) {
                    has_records |= known.ring.ask();
                }
                timeout = has_records.then_some(Duration::ZERO);
            }
            let ready = self.wait(timeout);
            if self.look() {
                looked_at = Instant::now();
            }
            if ready.bell {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.mailbox.bell, &mut count);
                self.deliver();
                self.take_joining();
            }
            if ready.listener {
                self.accept();
            }
            for (number, is_readable, is_broken) in ready.clients {
                let Some(mut client) = self.clients.remove(&number) else { continue };
                let heard = if is_readable { Self::hear(&mut client) } else { Ok(!is_broken) };
                if heard.unwrap_or(false) && self.serve(number, &mut client).unwrap_or(false) {
                    self.clients.insert(number, client);
                }
            }
        }
    }

    /// Acts on what a client has sent, and sends what it takes, as long as there is something to do. Returns false if the client
    /// is done with.
    fn serve(&mut self, number: u64, client: &mut Client) -> io::Result<bool> {
        loop {
            let load_bytes = client.load_bytes;
            if !self.act_on_all(number, client)? {
                return Ok(false);
            }
            client.flush()?;
            // What was sent may have made room for requests that wait in `input`.
            if client.load_bytes >= load_bytes {
                return Ok(true);
            }
        }
    }

    /// Takes the hits of all clients into account. Returns whether there were any.
    fn look(&self) -> bool {
        let mut any = false;
        for client in self.clients.values() {
            let Some(known) = &client.known else { continue };
            let mut left_blocks = TOLD_MAX_BLOCKS;
            any |= known.ring.take(|told| {
                if let Some(file) = client.files.get(&told.handle) {
                    let blocks =
                        file.told(told.offset_bytes, told.length_bytes as usize, left_blocks);
                    left_blocks = left_blocks.saturating_sub(blocks);
                }
            });
        }
        if any {
            self.cache.shared.look();
        }
        any
    }

    /// What a client may load, as things are.
    fn load_max_bytes(&self) -> usize {
        LOAD_MAX_BYTES.min(ALL_LOAD_MAX_BYTES / self.clients.len().max(1))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Ready {
        self.mailbox.clients.store(self.clients.len(), Ordering::Relaxed);
        let now = Instant::now();
        self.accepts_from = self.accepts_from.filter(|&from| from > now);
        let accepts_after = self.accepts_from.map(|from| from - now);
        let load_max_bytes = self.load_max_bytes();
        let mut of_listener = PollFlags::empty();
        of_listener.set(PollFlags::IN, accepts_after.is_none());
        // Without a listener, the bell takes its place in the list.
        let listener = self.listener.as_ref().map_or(self.mailbox.bell.as_fd(), AsFd::as_fd);
        let mut fds = vec![
            PollFd::new(&self.mailbox.bell, PollFlags::IN),
            PollFd::from_borrowed_fd(listener, of_listener),
        ];
        for client in self.clients.values() {
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, client.load_bytes < load_max_bytes);
            wanted.set(PollFlags::OUT, !client.output.is_empty());
            fds.push(PollFd::new(&client.socket, wanted));
            fds.push(PollFd::new(&client.process, PollFlags::IN));
        }
        let timeout = [timeout, accepts_after].into_iter().flatten().min();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Ready::default(); // A signal.
        }
        let (own, of_clients) = fds.split_at(2);
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let clients = self.clients.keys().zip(of_clients.chunks_exact(2));
        let clients = clients.filter(|(_, fds)| fds.iter().any(is_ready));
        let clients = clients.map(|(&number, fds)| {
            let events = fds[0].revents();
            let has_ended = is_ready(&fds[1]);
            let is_broken = has_ended || events.intersects(PollFlags::HUP | PollFlags::ERR);
            (number, !has_ended && events.contains(PollFlags::IN), is_broken)
        });
        let clients = clients.collect();
        Ready { bell: is_ready(&own[0]), listener: is_ready(&own[1]), clients }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        loop {
            let socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                // Most likely there are no descriptors, and the socket would stay readable.
                Err(_) => {
                    self.accepts_from = Some(Instant::now() + ACCEPT_AGAIN_AFTER);
                    return;
                }
            };
            if self.clients.len() >= CLIENTS_MAX || socket.set_nonblocking(true).is_err() {
                continue;
            }
            let Some(client) = Client::new(socket) else { continue };
            self.clients.insert(self.next_client, client);
            self.next_client += 1;
        }
    }

    /// Hands out what has been opened and read.
    fn deliver(&mut self) {
        let answers = std::mem::take(
            &mut *self.mailbox.answers.lock().unwrap_or_else(PoisonError::into_inner),
        );
        for (number, answer) in answers {
            // A client that has gone needs no answer. What was opened for it is closed here.
            let Some(mut client) = self.clients.remove(&number) else { continue };
            client.answer(answer);
            if self.serve(number, &mut client).unwrap_or(false) {
                self.clients.insert(number, client);
            }
        }
    }

    /// Reads what a client has sent. Returns false if the client is done with.
    fn hear(client: &mut Client) -> io::Result<bool> {
        let mut chunk = [MaybeUninit::<u8>::uninit(); 64 << 10];
        match rustix::io::read(&client.socket, &mut chunk) {
            Ok((bytes, _)) => {
                client.input.extend_from_slice(bytes);
                Ok(!bytes.is_empty())
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Acts on what a client has sent, as far as its load allows. Returns false if the client is done with.
    fn act_on_all(&mut self, number: u64, client: &mut Client) -> io::Result<bool> {
        let mut taken = 0;
        let load_max_bytes = self.load_max_bytes();
        while client.load_bytes < load_max_bytes
            && let Some(head) = client.input[taken..].first_chunk()
        {
            let length = u32::from_ne_bytes(*head) as usize;
            if length > REQUEST_MAX_BYTES {
                return Ok(false);
            }
            let Some(body) = client.input.get(taken + 4..taken + 4 + length) else { break };
            let Some(message) = ToServer::decode(body) else { return Ok(false) };
            taken += 4 + length;
            if !self.act(number, client, message)? {
                return Ok(false);
            }
        }
        client.input.drain(..taken);
        Ok(true)
    }

    /// Acts on a message. Returns false if the client is done with.
    fn act(&mut self, number: u64, client: &mut Client, message: ToServer) -> io::Result<bool> {
        let Some(known) = &client.known else {
            return match message {
                ToServer::Hello { version: VERSION, recipe } => self.welcome(client, &recipe),
                _ => Ok(false),
            };
        };
        match message {
            ToServer::Hello { .. } => return Ok(false),
            ToServer::Open { id, path } => {
                let (open, mailbox) = (Arc::clone(&known.open), Arc::clone(&self.mailbox));
                client.load_bytes += OPEN_COST_BYTES;
                let at = path.clone();
                let store = Arc::as_ptr(&known.open).addr();
                let begun = self.opening.begin(
                    store,
                    Box::new(move || {
                        // The client waits for an answer, also of a back end that panics, which was reported.
                        let result = std::panic::catch_unwind(AssertUnwindSafe(|| open(&at)));
                        let result = result.unwrap_or_else(|_| {
                            Err(io::Error::from_raw_os_error(libc::EIO).into())
                        });
                        mailbox.send(number, Answer::Opened { id, path: at, result });
                    }),
                );
                if let Err(error) = begun {
                    client.answer(Answer::Opened { id, path, result: Err(error.into()) });
                }
            }
            ToServer::Read { id, handle, offset_bytes, length_bytes } => {
                let Some(file) = client.files.get(&handle) else { return Ok(false) };
                let asked_bytes = length_bytes as usize + READ_COST_BYTES;
                client.load_bytes += asked_bytes;
                let mailbox = Arc::clone(&self.mailbox);
                let buffer = vec![0; length_bytes as usize];
                file.read_buffer_then(buffer, offset_bytes, move |mut bytes, result| {
                    let result = match result {
                        Ok(count) => {
                            bytes.truncate(count);
                            Ok(bytes)
                        }
                        Err(error) => Err((error.offset_bytes, error.cause)),
                    };
                    mailbox.send(number, Answer::Read { id, asked_bytes, result });
                });
            }
            ToServer::Close { handle } => drop(client.files.remove(&handle)),
            ToServer::Hint { stream, handle, is_ordered, segments } => {
                if let Some((stream, file)) = client.stream(stream, handle) {
                    match is_ordered {
                        _ if segments.is_empty() => {}
                        true => stream.hint_segments(file, &segments),
                        false => stream.hint_set(file, &segments),
                    }
                }
            }
            ToServer::HintFile { stream, handle } => {
                if let Some((stream, file)) = client.stream(stream, handle) {
                    stream.hint_file(file);
                }
            }
            ToServer::Cancel { stream } => {
                client.streams.get(&stream).into_iter().for_each(Stream::cancel)
            }
            ToServer::EndStream { stream } => drop(client.streams.remove(&stream)),
            ToServer::Stats { id } => {
                let json = serde_json::to_vec(&self.cache.stats()).unwrap_or_default();
                client.queue(ToClient::Stats { id, json }.encode());
            }
            ToServer::Look => {} // Waking up was enough.
        }
        Ok(true)
    }

    fn welcome(&mut self, client: &mut Client, recipe: &[u8]) -> io::Result<bool> {
        if !self.stores.contains_key(recipe) {
            if self.stores.len() >= STORES_MAX {
                return Ok(false);
            }
            let Ok(served) = (self.served)(recipe) else { return Ok(false) };
            self.stores.insert(recipe.to_vec(), served);
        }
        let served = self.stores[recipe].clone();
        self.welcome_to(client, &served)
    }

    /// Sends a client the memory of the cache. From then on it reads from this store.
    pub(super) fn welcome_to(&self, client: &mut Client, served: &Served) -> io::Result<bool> {
        let slab = &self.cache.shared.slab;
        let Some([head, data]) = slab.files() else { return Ok(false) };
        let Served { store, open } = served;
        let (ring, ring_file) = Ring::new()?;
        let (head, data) = (for_reading(head)?, for_reading(data)?);
        let geometry = slab.geometry();
        let block_bytes = geometry.block_bytes as u32;
        let message = ToClient::Welcome { frames: geometry.frames, block_bytes }.encode();
        let files = [head.as_fd(), data.as_fd(), ring_file.as_fd()];
        send_with(&client.socket, &message, &files)?;
        client.known = Some(Known { session: store.session(), open: Arc::clone(open), ring });
        Ok(true)
    }
}

/// A file, opened anew, so that the client's descriptor is for reading only.
fn for_reading(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}

/// What a wait has found.
#[derive(Default)]
struct Ready {
    bell: bool,
    listener: bool,
    /// Number; whether there is something to read; whether the connection has ended.
    clients: Vec<(u64, bool, bool)>,
}
