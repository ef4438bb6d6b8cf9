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

#[derive(clap::Args)]
pub struct Args {
    /// Watch this running process and its descendants instead of reading a spec from stdin
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
    /// With --pid: time between two samples (e.g. 100ms, 1s)
    #[arg(long, default_value = "100ms", value_parser = parse_duration_ns, requires = "pid")]
    interval: u64,
    /// With --pid: stop after this long (e.g. 10s); without it, when the process ends
    #[arg(long, short, value_parser = parse_duration_ns, requires = "pid")]
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

/// Parses a number with `ms`, `s` or `m` to ns.
fn parse_duration_ns(text: &str) -> Result<u64, String> {
    let hint = || format!("`{text}` is no time: write a number with a unit, such as 100ms or 10s");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(hint)?;
    let (number, unit) = text.split_at(split);
    let unit_ns = match unit {
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return Err(hint()),
    };
    let value: f64 = number.parse().map_err(|_| hint())?;
    if !value.is_finite() || value * unit_ns < 1e6 {
        return Err(format!("`{text}` is too short: at least 1ms"));
    }
    Ok((value * unit_ns) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_number_and_a_unit() {
        assert_eq!(parse_duration_ns("100ms"), Ok(100_000_000));
        assert_eq!(parse_duration_ns("1.5s"), Ok(1_500_000_000));
        for bad in ["", "10", "s", "0s", "-1s", "10h", "1e400s"] {
            assert!(parse_duration_ns(bad).is_err(), "{bad}");
        }
    }
}
