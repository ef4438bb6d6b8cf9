//! The inputs of the coordinator while a load runs, all through one channel: commands, the end of stdin, signals,
//! reports of workers.

use std::sync::mpsc::Sender;

use crate::contract::spec::Command;
use crate::load::recorder::{Final, Snapshot};

pub enum Input {
    Command(Command),
    /// A line that is no command; the text gives the reason.
    Wrong(String),
    /// The controller has gone.
    Closed,
    /// SIGINT or SIGTERM.
    Interrupted,
    /// A report of the worker with this index.
    Report(usize, Report),
}

/// A report of a worker.
pub enum Report {
    Interval(Box<Snapshot>),
    /// Closed model: every user has left, the last at this instant.
    AllLeft(u64),
    Final(Box<Final>),
}

/// A worker's end of the channel.
pub struct Reports {
    pub worker: usize,
    pub inputs: Sender<Input>,
}

impl Reports {
    /// Sends a report. The coordinator outlives its workers: if it has gone, the process is ending, and the report is
    /// not needed.
    pub fn send(&self, report: Report) {
        let _ = self.inputs.send(Input::Report(self.worker, report));
    }
}
