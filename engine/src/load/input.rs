//! The inputs of the coordinator while a load runs: commands, the end of stdin, signals, reports of workers; all through one channel.

use std::sync::mpsc::Sender;

use crate::contract::spec::Command;
use crate::load::recorder::{Final, Snapshot};

pub enum Input {
    Command(Command),
    /// A line that is no command; the text says why.
    Wrong(String),
    /// The controller has gone.
    Closed,
    /// SIGINT or SIGTERM.
    Interrupted,
    /// A report of the worker with this index.
    Report(usize, Report),
}

/// What a worker reports.
pub enum Report {
    Interval(Box<Snapshot>),
    /// Closed model: every user has left, the last at this instant.
    AllLeft(u64),
    Final(Box<Final>),
}

/// The workers' end of the channel.
pub type Reports = Sender<Input>;
