//! Retries of one operation until it works or its deadline has come. Panics of the crate become errors.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::timeout_at;

use super::errors::Failure;
use super::options::ObjectOptions;
use crate::backend::BackendError;

/// The first and the longest pause between tries.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A try is not begun if less time than this is left.
const TRY_LEAST: Duration = Duration::from_millis(50);

thread_local! {
    /// Whether this thread runs code whose panics become errors.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs code that may panic. A panic is returned as a line of text, and nothing is written to standard error.
pub(super) fn guarded<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_GUARDED.get() {
                others(info);
            }
        }));
    });
    let before = IS_GUARDED.replace(true);
    // Unwind safety: the values that `act` held are not used again.
    let done = catch_unwind(AssertUnwindSafe(act));
    IS_GUARDED.set(before);
    done.map_err(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("the client of the store failed ({said}); are its address and settings right?")
    })
}

/// Runs a future as [`guarded`] runs a function: a panic becomes an error.
async fn guarded_future<T>(act: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut act = pin!(act);
    poll_fn(|context| match guarded(|| act.as_mut().poll(context)) {
        Ok(poll) => poll,
        Err(message) => {
            let cause = BackendError::Other { errno: None, message: message.into() };
            Poll::Ready(Err(Failure::lasting(cause)))
        }
    })
    .await
}

/// Runs an operation in the threads that talk to the store, with retries, and waits for its result.
pub(super) fn wait_for<T: Send + 'static, F>(
    (handle, options): (&Handle, ObjectOptions),
    mut act: impl FnMut() -> F + Send + 'static,
) -> Result<T, BackendError>
where
    F: Future<Output = Result<T, object_store::Error>> + Send,
{
    let (answer, answered) = std::sync::mpsc::sync_channel(1);
    handle.spawn(async move {
        let mut tries = Tries::new(options);
        let found = loop {
            let act = act();
            let tried = tries.once(async { act.await.map_err(|error| Failure::of(&error)) }).await;
            match tried {
                Ok(found) => break Ok(found),
                Err(failure) => {
                    if let Err(cause) = tries.again(failure).await {
                        break Err(cause);
                    }
                }
            }
        };
        let _ = answer.send(found); // The caller may have gone.
    });
    answered.recv().map_err(|_| BackendError::Lost)?
}

/// The tries of one operation.
pub(super) struct Tries {
    pause: Duration,
    until: Instant,
    options: ObjectOptions,
}

impl Tries {
    pub(super) fn new(options: ObjectOptions) -> Self {
        Tries { pause: PAUSE_FIRST, until: Instant::now() + options.deadline, options }
    }

    /// One try, which ends at the deadline: a server may send a byte now and then for ever.
    pub(super) async fn once<T>(
        &self,
        act: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let late = |_| Err(Failure::lasting(BackendError::Timeout(self.options.deadline)));
        timeout_at(self.until.into(), guarded_future(act)).await.unwrap_or_else(late)
    }

    /// How long to wait: from half of the pause to all of it, and as long as the server asks for.
    fn pause_of(&self, after: Option<Duration>) -> Duration {
        let half = self.pause / 2;
        let share = RandomState::new().hash_one(0u8) as u32;
        let pause = half + half.mul_f64(f64::from(share) / f64::from(u32::MAX));
        pause.max(after.unwrap_or_default())
    }

    /// Waits until the next try. Fails if a retry would not help or no time is left for one.
    pub(super) async fn again(&mut self, failure: Failure) -> Result<(), BackendError> {
        let Failure { cause, may_pass, after } = failure;
        if !may_pass {
            return Err(cause);
        }
        let pause = self.pause_of(after);
        // A try with almost no time left could only time out.
        let until = self.until;
        let leaves_time = |pause: Duration| Instant::now() + pause + TRY_LEAST < until;
        let has_time = leaves_time(pause) && {
            tokio::time::sleep(pause).await;
            leaves_time(Duration::ZERO)
        };
        if !has_time {
            return Err(match cause {
                BackendError::Lost | BackendError::Timeout(_) => {
                    BackendError::Timeout(self.options.deadline)
                }
                other => other,
            });
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_the_server_asks_for() {
        let tries = Tries::new(ObjectOptions::default());
        let asked = Duration::from_secs(2);
        assert_eq!(tries.pause_of(Some(asked)), asked);
        for after in [None, Some(Duration::ZERO)] {
            let pause = tries.pause_of(after);
            assert!((PAUSE_FIRST / 2..=PAUSE_FIRST).contains(&pause), "{pause:?}");
        }
    }
}
