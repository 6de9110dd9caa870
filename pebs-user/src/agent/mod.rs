//! Records services all the time: from a configuration to traces that have room.
//!
//! `config` reads what is wanted, `processes` looks for the processes of targets, `segment` is one trace of one of them, and
//! `supervisor` begins and ends these. `disk` says which traces are removed, `account` writes down what happened, `health`
//! has the numbers and `serve` answers with them. `recent` is the last minute of a target, and when it is worth a snapshot;
//! `limits` what a budget made a recording give up. `uploads` brings closed traces into a lake.
//!
//! Invariant: nothing here prints, handles a signal or ends the process; a thread that records waits for nothing here.

mod account;
mod config;
mod disk;
mod health;
mod limits;
mod memory;
mod processes;
mod recent;
mod segment;
mod serve;
mod supervisor;
mod uploads;

pub use config::{Config, SOCKET};
pub use health::{Health, State, TargetHealth};
pub use serve::ask;
pub use supervisor::{Agent, Order, Orders};

/// Urgency of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warning,
    Info,
}

/// Something for the caller to tell.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Targets that run are about to be recorded.
    Ready,
    /// The configuration is being read again; [`Event::Ready`] follows.
    Reloading,
    /// It ends.
    Ending,
    /// It works, as it does once a second; a line about it.
    Alive(String),
    Said(Level, String),
}

/// Receives events, on the thread that runs the agent.
type Emit<'a> = dyn FnMut(Event) + 'a;
