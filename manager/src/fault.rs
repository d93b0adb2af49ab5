//! Deliberate faults, for tests that show that a program under foretell does not notice them.

use std::str::FromStr;
use std::thread;
use std::time::Duration;

use crate::programs::Program;

/// A way in which the manager fails on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It panics as soon as a program has introduced itself.
    Panic,
    /// It does nothing for this time, once a program has introduced itself.
    Stall(Duration),
    /// Every ring is full from the start and is never emptied.
    FullRing,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(seconds) = text.strip_prefix("stall:") {
            let seconds =
                seconds.parse().map_err(|_| format!("{seconds:?} is not a whole number"))?;
            return Ok(Fault::Stall(Duration::from_secs(seconds)));
        }
        match text {
            "panic" => Ok(Fault::Panic),
            "full-ring" => Ok(Fault::FullRing),
            _ => Err(format!("unknown fault {text:?}: give panic, stall:SECONDS or full-ring")),
        }
    }
}

/// A fault that is going to happen.
#[derive(Debug)]
pub(crate) struct FaultState {
    fault: Option<Fault>,
    due: bool,
}

impl FaultState {
    pub(crate) fn new(fault: Option<Fault>) -> Self {
        FaultState { fault, due: false }
    }

    /// Notes that a program has introduced itself.
    pub(crate) fn adopted(&mut self, program: &Program) {
        self.due = true;
        if self.fault == Some(Fault::FullRing) {
            program.fill_ring();
        }
    }

    /// Called once in each round of the session's loop: panics or stalls if that is due.
    pub(crate) fn strike(&mut self) {
        if !self.due {
            return;
        }
        match self.fault {
            Some(Fault::Panic) => panic!("a fault was asked for"),
            Some(Fault::Stall(duration)) => {
                self.fault = None;
                thread::sleep(duration);
            }
            Some(Fault::FullRing) | None => {}
        }
    }

    pub(crate) fn ignores_rings(&self) -> bool {
        self.fault == Some(Fault::FullRing)
    }
}
