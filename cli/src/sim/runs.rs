//! Several simulated runs: which ones, on how many processors, and the progress of all.

use std::fmt;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::failure::draws_progress;

/// A bar that waits for its length.
pub(super) fn progress() -> ProgressBar {
    let target =
        if draws_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    let style = ProgressStyle::with_template("{bar:30} {percent}%  {msg}  {elapsed}{left}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    // Nothing is known of the rest until something is done.
    let left = |state: &ProgressState, text: &mut dyn fmt::Write| {
        let left = HumanDuration(state.eta());
        let _ = if state.pos() > 0 { write!(text, " (left {left:#})") } else { Ok(()) };
    };
    bar.set_style(style.with_key("left", left));
    // That takes a thread.
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}

/// Each once, in the order in which they first stand.
pub(super) fn unique<T: PartialEq>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().enumerate().filter(|(at, one)| !all[..*at].contains(one)).map(|(_, one)| one)
}

/// Does `work` for each of `items`, as many at a time as there are processors; results in the order of the items.
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
        // Where there are no threads to be had, those that there are do the work.
        let others: Vec<_> =
            (1..threads).filter_map(|_| name().spawn_scoped(scope, worker).ok()).collect();
        worker();
        for other in others {
            // It has been told, and is not to be told again.
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let result = |slot: Mutex<Option<R>>| slot.into_inner().ok().flatten();
    results.into_iter().map(|slot| result(slot).expect("every item has had its turn")).collect()
}
