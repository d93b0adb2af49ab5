//! Closes connections on which a client stays silent: it has sent half a request, or none. Otherwise it could keep the
//! connection for ever.
//!
//! While the store is silent on purpose it hears no client, so no client counts as late.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{self, Sleep};

use super::connection::Gate;
use super::lock::lock;
use super::timer::{Timer, Wait};

/// Shared by all connections to measure silence.
#[derive(Clone)]
pub(super) struct Patience {
    pub(super) timer: Arc<Timer>,
    pub(super) gate: Arc<Gate>,
    pub(super) idle: Duration,
}

/// The one wait that wakes a connection. It is reused, because dropped waits stay in the timer until they end.
type Alarm = Arc<Mutex<Option<Wait>>>;

/// The clock of one connection, as hyper wants it.
pub(super) struct Clock {
    patience: Patience,
    alarm: Alarm,
}

impl Clock {
    pub(super) fn new(patience: Patience) -> Self {
        Clock { patience, alarm: Alarm::default() }
    }
}

impl rt::Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, end: Instant) -> Pin<Box<dyn Sleep>> {
        let (patience, alarm) = (self.patience.clone(), Arc::clone(&self.alarm));
        Box::pin(Until { patience, alarm, end })
    }
}

/// A wait that ends later than the connection's earlier ones.
struct Until {
    patience: Patience,
    alarm: Alarm,
    end: Instant,
}

impl Sleep for Until {}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut alarm = lock(&self.alarm);
        while Instant::now() < self.end {
            let wait = alarm.get_or_insert_with(|| self.patience.timer.until(self.end));
            ready!(Pin::new(wait).poll(context));
            *alarm = None; // The wait may have been set for an earlier end.
        }
        self.patience.gate.poll(context)
    }
}

/// The body of a request. It fails if no piece arrives for too long.
pub(super) struct Patient {
    body: Incoming,
    patience: Patience,
    wait: Option<Wait>,
}

impl Patient {
    pub(super) fn new(body: Incoming, patience: Patience) -> Self {
        Patient { body, patience, wait: None }
    }
}

/// Nothing arrived for too long.
#[derive(Debug)]
struct Late;

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing arrived for too long")
    }
}

impl Error for Late {}

impl Body for Patient {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.wait = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Patience { timer, gate, idle } = &this.patience;
        let wait = this.wait.get_or_insert_with(|| timer.until(Instant::now() + *idle));
        ready!(Pin::new(wait).poll(context));
        ready!(gate.poll(context));
        Poll::Ready(Some(Err(Late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
