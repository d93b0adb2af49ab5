//! The layer between HTTP and S3: draws a request's fate, makes its answer wait, and paces its body.
//!
//! A request is carried out when it arrives, and its answer waits for the rest of its time. So the work of the request
//! is part of the modelled wait. The head of the answer goes out at the time of the first byte, and each piece of the
//! body when [`Pace`] says.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foretell_fault::point;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::{Request, Response};
use s3s::service::S3Service;
use s3s::{HttpResponse, s3_error};

use super::connection::Fuse;
use super::faults::{Ending, Faults, draw};
use super::first_byte::FirstByte;
use super::lock::lock;
use super::pacing::{Link, Pace};
use super::patience::{Patience, Patient};
use super::report::{Counters, count};
use super::timer::{Timer, Wait};

/// How long a connection stays open after the last byte before it is broken on purpose, so that this byte is sent.
const BEFORE_BREAK: Duration = Duration::from_millis(1);

/// The state that all requests share.
pub(super) struct Shared {
    pub(super) s3: S3Service,
    pub(super) timer: Arc<Timer>,
    pub(super) patience: Patience,
    pub(super) counters: Counters,
    pub(super) first_byte: FirstByte,
    pub(super) seed: u64,
    /// The limit for one response, in bytes a second.
    pub(super) rate: Option<u64>,
    /// The size of a piece of a body, in bytes.
    pub(super) piece: usize,
    pub(super) origin: Instant,
    pub(super) requests: AtomicU64,
    pub(super) link: Mutex<Link>,
    pub(super) faults: Mutex<Faults>,
}

/// The connection ends here, before or within an answer.
#[derive(Debug)]
pub(super) struct Broken(&'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Broken {}

impl Shared {
    fn nanos(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Answers a request on the connection that `fuse` belongs to.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        fuse: Fuse,
    ) -> Result<Response<PacedBody>, Broken> {
        let arrived = Instant::now();
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let reads = self.counters.arrived(request.method(), request.uri().path());
        let flight = Flight(Arc::clone(&self));
        let faults = *lock(&self.faults);
        let fate = draw(self.seed, number, &self.first_byte, &faults);
        let due = arrived + fate.wait;
        let response = match fate.ending {
            Ending::ResetBefore => None,
            Ending::Refused => {
                count(&self.counters.failed_503);
                s3_error!(SlowDown, "Please reduce your request rate.").to_http_response().ok()
            }
            _ => {
                let patience = self.patience.clone();
                let body = |body| s3s::Body::http_body_unsync(Patient::new(body, patience));
                self.carry_out(request.map(body)).await
            }
        };
        self.timer.until(due).await;
        let Some(response) = response else {
            if fate.ending == Ending::ResetBefore {
                count(&self.counters.resets);
            }
            fuse.blow();
            return Err(Broken("reset before the answer"));
        };
        if reads {
            self.counters.late(due.elapsed());
        }
        Ok(self.paced(response, due, fate.ending, fuse, flight))
    }

    /// Carries out a request. A panic becomes an error of this request only.
    async fn carry_out(&self, request: Request<s3s::Body>) -> Option<HttpResponse> {
        let mut call = Box::pin(async {
            point("store");
            self.s3.call(request).await
        });
        let guarded = poll_fn(|context| {
            let poll = || call.as_mut().poll(context);
            match catch_unwind(AssertUnwindSafe(poll)) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(response)) => Poll::Ready(Some(response)),
                Err(_) => Poll::Ready(None),
            }
        });
        match guarded.await {
            Some(response) => response.ok(),
            None => s3_error!(InternalError, "internal error in the store").to_http_response().ok(),
        }
    }

    fn paced(
        self: &Arc<Self>,
        response: HttpResponse,
        due: Instant,
        ending: Ending,
        fuse: Fuse,
        flight: Flight,
    ) -> Response<PacedBody> {
        response.map(|body| {
            let length = body.size_hint().exact();
            let part = |part: f64| {
                let at = length.filter(|&length| length > 0)? as f64 * part;
                Some(at as u64)
            };
            let (cut, fuse) = match ending {
                Ending::ResetWithin(at) => (part(at), Some(fuse)),
                Ending::Truncated(at) => (part(at), None),
                _ => (None, None),
            };
            PacedBody {
                shared: Arc::clone(self),
                source: body,
                held: Bytes::new(),
                length,
                sent: 0,
                pace: Pace::new(self.rate, self.nanos(due)),
                next: None,
                cut: cut.map(|at| Cut { at, fuse }),
                _flight: flight,
            }
        })
    }
}

/// A request in flight. Dropping it counts it as finished.
struct Flight(Arc<Shared>);

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.counters.left();
    }
}

/// Where a body breaks off.
struct Cut {
    at: u64,
    /// The connection's fuse, if it is to be reset.
    fuse: Option<Fuse>,
}

/// A body whose pieces come when they are due.
pub(super) struct PacedBody {
    shared: Arc<Shared>,
    source: s3s::Body,
    /// Data from the source that is not due yet.
    held: Bytes,
    /// The length that the head gave, if any.
    length: Option<u64>,
    sent: u64,
    pace: Pace,
    /// The wait for the next piece, and its length; or the wait before the connection breaks.
    next: Option<(Wait, usize)>,
    cut: Option<Cut>,
    _flight: Flight,
}

impl PacedBody {
    /// The size of the next piece. 0 at the end, or where the body is cut.
    fn piece(&self) -> usize {
        let end = self.length.unwrap_or(u64::MAX);
        let end = self.cut.as_ref().map_or(end, |cut| end.min(cut.at));
        (end - self.sent).min(self.shared.piece as u64) as usize
    }

    fn wait(&mut self, bytes: usize) -> (Wait, usize) {
        let shared = &self.shared;
        let now = shared.nanos(Instant::now());
        let due = self.pace.next(&mut lock(&shared.link), now, bytes);
        (shared.timer.until(shared.origin + Duration::from_nanos(due)), bytes)
    }

    /// Breaks the connection once the last bytes have been sent.
    fn poll_break(&mut self, context: &mut Context<'_>) -> Poll<Broken> {
        let end = Instant::now() + BEFORE_BREAK;
        let shared = &self.shared;
        let (wait, _) = self.next.get_or_insert_with(|| (shared.timer.until(end), 0));
        ready!(Pin::new(wait).poll(context));
        if let Some(fuse) = self.cut.take().and_then(|cut| cut.fuse) {
            fuse.blow();
            count(&shared.counters.resets);
        } else {
            count(&shared.counters.truncated);
        }
        Poll::Ready(Broken("broken off within the body"))
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let piece = this.piece();
        if piece == 0 {
            return match this.cut {
                Some(_) => this.poll_break(context).map(|broken| Some(Err(broken.into()))),
                None => Poll::Ready(None),
            };
        }
        let mut next = this.next.take().unwrap_or_else(|| this.wait(piece));
        if Pin::new(&mut next.0).poll(context).is_pending() {
            this.next = Some(next);
            return Poll::Pending;
        }
        if this.held.is_empty() {
            match Pin::new(&mut this.source).poll_frame(context) {
                Poll::Pending => {
                    this.next = Some(next);
                    return Poll::Pending;
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.held = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
            }
        }
        let data = this.held.split_to(this.held.len().min(next.1));
        this.sent += data.len() as u64;
        this.shared.counters.bytes_sent.fetch_add(data.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.length == Some(self.sent) && self.cut.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, |length| SizeHint::with_exact(length - self.sent))
    }
}
