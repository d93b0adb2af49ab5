//! Running several simulations: each distinct value once, on all processors, with one progress bar.

use std::fmt;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::failure::draws_progress;

/// A progress bar that is given its length later.
pub(super) fn progress() -> ProgressBar {
    let target =
        if draws_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    let style = ProgressStyle::with_template("{bar:30} {percent}%  {msg}  {elapsed}{left}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    // The remaining time is unknown until some work is done.
    let left = |state: &ProgressState, text: &mut dyn fmt::Write| {
        let left = HumanDuration(state.eta());
        let _ = if state.pos() > 0 { write!(text, " (left {left:#})") } else { Ok(()) };
    };
    bar.set_style(style.with_key("left", left));
    // The ticks take a thread.
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}

/// Each distinct value once, in order of first appearance.
pub(super) fn unique<T: PartialEq>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().enumerate().filter(|(at, one)| !all[..*at].contains(one)).map(|(_, one)| one)
}

/// Calls `work` on each of `items`, on as many threads as there are processors. Results are in the order of the items.
pub(super) fn on_all_processors<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let worker = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(place) else { return };
            foretell_fault::point("sim-run");
            let result = work(item);
            *results[place].lock().expect("nothing fails with the lock held") = Some(result);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(items.len());
    thread::scope(|scope| {
        let name = || thread::Builder::new().name("sim-run".into());
        // If a thread cannot be started, the others do its work.
        let others: Vec<_> =
            (1..threads).filter_map(|_| name().spawn_scoped(scope, worker).ok()).collect();
        worker();
        for other in others {
            // The panic was reported in its thread: resuming does not report it again.
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let result = |slot: Mutex<Option<R>>| slot.into_inner().ok().flatten();
    results.into_iter().map(|slot| result(slot).expect("every item has had its turn")).collect()
}
