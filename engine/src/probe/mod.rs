//! `powerband-engine probe`: starts a command and owns its whole process tree, samples it, other trees and the host on
//! a fixed grid, and ends the tree. In: a `ProbeSpec` and commands on stdin. Out: `ProbeEvent` lines on stdout. The
//! meaning and cost of the counters: docs/methods/process-counters.md. Nothing is averaged, judged or stored here.

mod accept;
mod census;
mod datagrams;
mod host;
mod hsperfdata;
mod input;
mod jvm;
mod keeper;
mod launch;
mod limits;
mod log;
mod output;
mod page;
mod perf;
mod process;
mod procfs;
mod scrape;
mod session;
mod signals;
mod statsd;
mod threads;
mod tree;
mod waits;

use std::process::ExitCode;

use crate::contract::spec::{PROTOCOL, ProbeSpec, Watch};
use crate::duration::parse_ns;

#[derive(clap::Args)]
pub struct Args {
    /// Watch this running process and its descendants instead of reading a spec from stdin
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
    /// With --pid: time between two samples (e.g. 100ms, 1s)
    #[arg(long, default_value = "100ms", value_parser = from_1_ms, requires = "pid")]
    interval: u64,
    /// With --pid: stop after this long (e.g. 10s); without it, when the process ends
    #[arg(long, short, value_parser = from_1_ms, requires = "pid")]
    duration: Option<u64>,
}

pub fn main(args: Args) -> ExitCode {
    match args.pid {
        None => keeper::guarded(session::serve),
        Some(pid) => {
            let watch = vec![Watch { name: "process".into(), pid }];
            let spec = ProbeSpec {
                protocol: PROTOCOL,
                launch: None,
                watch,
                interval_ns: args.interval,
                threads_interval_ns: tree::SECOND_NS,
                ports: Vec::new(),
                scrape: None,
                statsd: None,
                exact_counts: true,
                cpus: Vec::new(),
                host_cpus: Vec::new(),
            };
            session::watch_alone(spec, args.duration)
        }
    }
}

/// A length of time of at least 1 ms in ns.
fn from_1_ms(text: &str) -> Result<u64, String> {
    match parse_ns(text)? {
        ns @ 1_000_000.. => Ok(ns),
        _ => Err(format!("`{text}` is too short: at least 1ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_at_least_a_millisecond() {
        assert_eq!(from_1_ms("100ms"), Ok(100_000_000));
        for bad in ["10", "0s", "999us"] {
            assert!(from_1_ms(bad).is_err(), "{bad}");
        }
    }
}
