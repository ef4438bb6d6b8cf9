//! The values that the command line resolves to, and that every other file uses. Nothing is checked or defaulted here.

use std::net::IpAddr;
use std::str::FromStr;

use clap::ValueEnum;

use super::plan::Plan;
use crate::duration::within_a_day_ns;
use crate::serve::pool::Rules;

/// The resolved configuration of one server.
#[derive(Clone, Debug)]
pub struct Config {
    pub host: IpAddr,
    pub port: u16,
    pub management_port: Option<u16>,
    pub backlog: u32,
    pub concurrency: Concurrency,
    /// The protocol spoken over WebSockets; None for plain HTTP.
    pub websocket: Option<Dialect>,
    pub plan: Plan,
    /// Most requests in the downstream at once; 0: there is no downstream.
    pub downstream_limit: usize,
    pub downstream_kind: DownstreamKind,
    pub loop_blocks: bool,
    pub accept_delay_ns: u64,
    /// The limit on descriptors; None: the system's limit.
    pub descriptors: Option<u64>,
    pub stall: Option<Pauses>,
    pub pauses: Option<Pauses>,
    pub seed: u64,
    pub misbehave: Misbehave,
}

#[derive(Clone, Debug)]
pub enum Concurrency {
    ThreadPerConnection,
    Pool { rules: Rules, unit: Unit },
    EventLoop { instances: usize, accept: Accept },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownstreamKind {
    Permits,
    /// A server behind TCP. `connections` is the most connections to it; 0: no limit.
    Tcp {
        connections: usize,
    },
}

/// Pauses that begin at k * `every_ns`, k = 1, 2, ..., and each last for `length_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    pub every_ns: u64,
    pub length_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    Request,
    Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Accept {
    Dealt,
    Reuseport,
}

/// The protocol spoken over a WebSocket.
///
/// `Plain`: each message is echoed. `Socketcluster`: calls get an answer, other events are echoed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Plain,
    Socketcluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehave {
    None,
    NeverReady,
    DieAfter { ns: u64 },
    Garbage,
    Close,
    Silent,
    IgnoreSigterm,
    ForkEscape,
}

impl FromStr for Misbehave {
    type Err = String;

    fn from_str(text: &str) -> Result<Misbehave, String> {
        Ok(match text {
            "none" => Misbehave::None,
            "never-ready" => Misbehave::NeverReady,
            "garbage" => Misbehave::Garbage,
            "close" => Misbehave::Close,
            "silent" => Misbehave::Silent,
            "ignore-sigterm" => Misbehave::IgnoreSigterm,
            "fork-escape" => Misbehave::ForkEscape,
            _ => match text.strip_prefix("die-after:") {
                Some(time) => Misbehave::DieAfter { ns: within_a_day_ns(time)? },
                None => {
                    return Err("expected none, never-ready, die-after:TIME, garbage, close, silent, ignore-sigterm \
                                or fork-escape"
                        .into());
                }
            },
        })
    }
}
