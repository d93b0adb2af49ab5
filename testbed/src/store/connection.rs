//! Connections that can be reset, and all be silenced at once.
//!
//! A client sees a lost server in three ways: its connections are refused, one is reset while in use, or no more bytes
//! come. The listener does the first; this module does the other two, below HTTP.

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
    /// Holds up all connections.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    /// Lets all connections go on.
    pub(crate) fn open(&self) {
        self.shut.store(false, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ready when the gate is open.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if !self.shut.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        let mut waiting = self.lock();
        // The gate may have been opened in between: `open` takes the list after that, and may have taken it already.
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

/// Whether a connection is to be reset, shared with the tasks that answer on it.
#[derive(Clone, Default)]
pub(crate) struct Fuse(Arc<AtomicBool>);

impl Fuse {
    /// Makes the connection be reset when it is closed, and not ended in order.
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
    /// A connection over `stream`, held up by `gate` and reset by `fuse`.
    pub(crate) fn new(stream: TcpStream, gate: Arc<Gate>, fuse: Fuse) -> Self {
        // Without this, heads of answers may go out later.
        let _ = stream.set_nodelay(true);
        Connection { stream, gate, fuse }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.fuse.0.load(Ordering::Relaxed) {
            // A socket with a linger time of zero is reset when it is closed. It fails if the client has reset it
            // before.
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
