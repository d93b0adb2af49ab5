//! `foretell daemon`: one process that manages the runs of a user's programs, within one budget.
//!
//! Each run has a manager of its own in it, the same that `foretell run` has without a daemon, for its own programs. They share
//! the budget ([`foretell_manager::shares`]) and the store of what was learned. A run that the daemon cannot or must not take
//! has its own manager, and so have all runs when the daemon has ended.
//!
//! * `folder.rs`: the folder with its socket, and how only one daemon takes it.
//! * `wire.rs`: the packets between a run and the daemon. `client.rs`: the run's side.
//! * `server.rs`: its start and its end. `hear.rs`: the loop that hears requests. `managed.rs`: the life of a run, on a
//!   thread of its own.
//! * `activation.rs`: a socket that systemd has opened.
//! * `pipes.rs`: the pipes of a run, whose other ends may be anyone's.
//! * `asking.rs`: how many connections and requests there may be. `peer.rs`: which processes may ask.
//! * `pressure.rs`: a smaller budget where memory is short.
//! * `about.rs`, `status.rs`, `view.rs`, `top.rs`, `metrics.rs`: what the daemon does, for people and programs.
//!
//! Invariants: no program and no run waits for the daemon longer than [`client`] says. The daemon opens nothing that the run
//! that asks could not open itself. An idle daemon sleeps.

mod about;
mod activation;
mod asking;
mod client;
mod folder;
mod hear;
mod log;
mod managed;
mod metrics;
mod peer;
mod pipes;
mod pressure;
mod server;
pub(crate) mod status;
mod top;
mod view;
mod wire;

pub(crate) use client::Daemon;
pub(crate) use server::{DaemonArgs, HELP, daemon};
pub(crate) use status::{StatusArgs, status};
pub(crate) use top::{HELP as TOP_HELP, TopArgs, top};

use serde::{Deserialize, Serialize};

/// What the daemon answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The run is managed from now on by this process, which hears programs at this address; but for what the line says.
    Taken { pid: i32, address: String, problem: Option<String> },
    /// It is not, for this reason.
    Refused(String),
    /// What the daemon does.
    Status(Box<status::Status>),
}
