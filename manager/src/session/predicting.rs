//! Predicts what the run will read from what other workloads have read ([`foretell_learn::across`]).
//!
//! It begins when the run has waited and has no profile, or one that proved wrong. A thread reads the history then and feeds it
//! to the predictor, while the last opens of the run are kept. Each open of the run is told to the predictor from then on, and
//! what that expects is read ahead as guesses: the policy takes each stream by what became of its hints before.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use foretell_learn::across::{self, Across, Counts};
use foretell_learn::graph::{Settings, predictor};
use foretell_learn::recorder::Recorder;
use foretell_learn::replay::Request;
use foretell_learn::store::Store;

use super::learning::STACK_BYTES;
use crate::driver::done::DoneQueue;
use crate::threads::Threads;

/// The predictor. Its trial keeps it silent where its guesses would do harm.
const PREDICTOR: &str = "combination";

/// Opens that are kept while the history is read: the lookahead of the predictors.
const RECENT_MAX: usize = 32;

/// Files that wait to be asked for. The oldest are dropped: the run has come to them, or has not.
const WAITING_MAX: usize = 256;

/// See the [module](self).
pub(super) struct Predicting {
    state: State,
    /// The last opens before there is a predictor: when, in milliseconds since the start, and what.
    recent: VecDeque<(u32, Arc<[u8]>)>,
    waiting: VecDeque<Request>,
}

enum State {
    /// Until the run has waited without a profile.
    Idle(Store),
    Loading(Receiver<Option<Across>>),
    On(Box<Across>),
    /// There is no history, or it cannot be read.
    Off,
}

impl Predicting {
    /// `None`: nothing is predicted.
    pub(super) fn new(store: Option<Store>) -> Self {
        let state = store.map_or(State::Off, State::Idle);
        Predicting { state, recent: VecDeque::new(), waiting: VecDeque::new() }
    }

    /// Whether opens of the run are predicted.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.state, State::On(_))
    }

    /// The run has waited, and no profile covers it: reads the history, if that has not begun.
    pub(super) fn begin(&mut self, bell: &Arc<DoneQueue>, threads: &Threads) {
        let State::Idle(store) = &self.state else { return };
        let store = store.clone();
        self.state = State::Off;
        let Some(permit) = threads.permit() else { return };
        let (sender, receiver) = channel();
        let bell = Arc::clone(bell);
        let thread = thread::Builder::new().name("foretell-history".into());
        let started = thread.stack_size(STACK_BYTES).spawn(move || {
            let _permit = permit;
            let _ = sender.send(of_history(&store));
            bell.ring();
        });
        if started.is_ok() {
            self.state = State::Loading(receiver);
        }
    }

    /// Takes in the history, if it has been read.
    pub(super) fn take_history(&mut self, recorder: &Recorder) {
        let State::Loading(receiver) = &self.state else { return };
        self.state = match receiver.try_recv() {
            Err(TryRecvError::Empty) => return,
            Ok(Some(across)) => State::On(Box::new(across)),
            Ok(None) | Err(TryRecvError::Disconnected) => State::Off,
        };
        for (at_ms, path) in mem::take(&mut self.recent) {
            self.opened(&path, at_ms, recorder);
        }
    }

    /// The run has opened a file, at this time after its start.
    pub(super) fn opened(&mut self, path: &[u8], at_ms: u32, recorder: &Recorder) {
        match &mut self.state {
            State::Off => {}
            State::Idle(_) | State::Loading(_) => {
                if self.recent.len() >= RECENT_MAX {
                    self.recent.pop_front();
                }
                self.recent.push_back((at_ms, path.into()));
            }
            State::On(across) => {
                let is_known = |path: &[u8]| recorder.has_touched(path);
                self.waiting.extend(across.open(path, u64::from(at_ms) * 1000, is_known));
                let past = self.waiting.len().saturating_sub(WAITING_MAX);
                self.waiting.drain(..past);
            }
        }
    }

    /// What is to be read ahead now, `room` files at most.
    pub(super) fn requests(&mut self, room: usize) -> Vec<Request> {
        self.waiting.drain(..room.min(self.waiting.len())).collect()
    }

    /// What has become of it.
    pub(super) fn counts(&self) -> Counts {
        match &self.state {
            State::On(across) => across.counts(),
            _ => Counts::default(),
        }
    }
}

fn of_history(store: &Store) -> Option<Across> {
    let history = store.load(&across::workload().exact).ok()??; // Learning tells what is wrong with the store.
    Some(Across::new(&history, predictor(PREDICTOR)?, Settings::default()))
}
