//! A connection that can be reset, and all of them silenced.
//!
//! A client notices three different things when a server is gone: connections that are refused, one
//! that is reset while it is used, and one on which nothing comes any more. The first is the
//! listener's affair; the other two are here, below HTTP.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// While it is shut, no connection reads or writes anything.
#[derive(Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    /// Holds everything up.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    /// Lets everything go on.
    pub(crate) fn open(&self) {
        self.shut.store(false, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ready when it is open.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if !self.shut.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        let mut waiting = self.lock();
        // Opened in between: whoever opens takes the list after that, and may have taken it already.
        if !self.shut.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a connection is to end, shared with those who answer on it.
#[derive(Clone, Default)]
pub(crate) struct Fuse(Arc<AtomicBool>);

impl Fuse {
    /// The connection is reset when it is closed next, instead of ended in order.
    pub(crate) fn blow(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client's connection.
pub(crate) struct Connection {
    stream: TcpStream,
    gate: Arc<Gate>,
    fuse: Fuse,
}

impl Connection {
    /// What `stream` carries, held up by `gate` and reset by `fuse`.
    pub(crate) fn new(stream: TcpStream, gate: Arc<Gate>, fuse: Fuse) -> Self {
        // Heads of answers go out at once. If that cannot be had, they go out later.
        let _ = stream.set_nodelay(true);
        Connection { stream, gate, fuse }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.fuse.0.load(Ordering::Relaxed) {
            // A socket that lingers for no time is reset when it is closed; its client may have done
            // so before.
            let _ = set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.gate.poll(context));
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.gate.poll(context));
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.gate.poll(context));
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.gate.poll(context));
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
