//! The load engine as a command of its own: turns arguments into a `LoadSpec`, and the summary of the run into text
//! (`show`) or JSON. The run itself is the same as under a controller.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::mpsc::channel;

use crate::contract;
use crate::contract::events::LoadEvent;
use crate::contract::spec::{
    Arrivals, Checks, ConnectionPolicy, Duration, LoadSpec, Model, PROTOCOL, Phases, Step, Target, Timeouts, Tls,
};
use crate::duration::parse_ns;
use crate::load::problem::Problem;
use crate::load::{control, coordinator, plan, show};

#[derive(clap::Args)]
pub struct Args {
    /// Where to send requests, with the path; without it, a JSON spec is read from stdin
    url: Option<String>,
    /// Users, each with its own connection; with --rate: the most requests in flight
    #[arg(short, long, value_name = "N", default_value_t = 64)]
    connections: u32,
    /// Threads, one event loop each
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// How long to measure
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = parse_ns)]
    duration: u64,
    /// Requests per second on a schedule that does not wait for answers (open model); absent: each user sends again once
    /// answered (closed model)
    #[arg(short, long, value_name = "PER_S")]
    rate: Option<f64>,
    /// With --rate: random arrivals (Poisson) instead of even ones
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// With --rate: how late a request may be sent in order to share a wake-up; 0s spins
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse_ns)]
    precision: u64,
    /// Pause of a user between an answer and its next request
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_ns, conflicts_with = "rate")]
    think: u64,
    /// Start the users evenly over this time
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_ns, conflicts_with = "rate")]
    ramp: u64,
    /// A header, such as 'Accept: text/plain'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "'NAME: VALUE'", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Request method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// Request body
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Text that every response body must contain; may be repeated
    #[arg(long, value_name = "TEXT")]
    contains: Vec<String>,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: u32,
    /// A new connection for every request
    #[arg(long)]
    no_keep_alive: bool,
    /// Run this long before measuring
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_ns)]
    warmup: u64,
    /// Longest wait for a connection, and for a response
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_ns)]
    timeout: u64,
    /// Accept any TLS certificate
    #[arg(long)]
    insecure: bool,
    /// Allow a target that is not this machine
    #[arg(long)]
    allow_remote: bool,
    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the summary as JSON (the `summary` event of the protocol)
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn is_alone(&self) -> bool {
        self.url.is_some()
    }
}

pub fn main(args: &Args, descriptor_limit: u64) -> ExitCode {
    match run(args, descriptor_limit) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("powerband-engine load: {}", problem.message);
            problem.exit_code()
        }
    }
}

fn run(args: &Args, descriptor_limit: u64) -> Result<(), Problem> {
    let plan = plan::make(spec(args)?, descriptor_limit)?;
    let load = plan.spec.clone();
    // Looking up a name may take long: until it is done, signals end the process by default.
    let (sender, inputs) = channel();
    control::catch_signals(sender.clone(), false);
    if !args.json {
        print(&show::heading(&load, args.url.as_deref().unwrap_or_default()));
    }
    let summary = coordinator::run(plan, sender, inputs, &mut |_| true)?;
    if args.json {
        contract::print(&LoadEvent::Summary(Box::new(summary)));
    } else {
        print(show::summary(&load, &summary).trim_end());
    }
    Ok(())
}

/// Prints lines to stdout. A write error is ignored: the reader has had enough (`| head -1`).
fn print(lines: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{lines}\n").as_bytes());
}

fn spec(args: &Args) -> Result<LoadSpec, Problem> {
    let (base, path) = split(args.url.as_deref().unwrap_or_default());
    let think = Duration::Constant { ns: args.think };
    let model = match args.rate {
        Some(rate_per_s) => Model::Open {
            arrivals: if args.poisson { Arrivals::Poisson } else { Arrivals::Constant },
            rate_per_s,
            ramp: None,
            max_in_flight: args.connections,
            think,
        },
        None => Model::Closed {
            users: args.connections,
            think,
            ramp_ns: args.ramp,
            first_pause_ns: 0,
            requests_per_user: None,
            pace: None,
        },
    };
    if args.threads > args.connections {
        return Err(Problem::new("spec", "--threads: more than --connections; give each thread at least one"));
    }
    let step = Step {
        name: "request".into(),
        method: args.method.clone(),
        path,
        headers: args.headers.clone(),
        body: args.body.clone(),
        checks: Checks { status: Vec::new(), body_contains: args.contains.clone() },
        think: None,
        message: None,
        answered: true,
    };
    let run_ns = args.warmup.saturating_add(args.duration);
    Ok(LoadSpec {
        protocol: PROTOCOL,
        target: Target {
            url: base,
            addresses: Vec::new(),
            source_addresses: Vec::new(),
            tls: Tls { insecure: args.insecure, ..Tls::default() },
            allow_remote: args.allow_remote,
        },
        scenario: vec![step],
        model,
        connection: ConnectionPolicy {
            keep_alive: !args.no_keep_alive,
            pipeline: args.pipeline,
            ..ConnectionPolicy::default()
        },
        timeouts: Timeouts { connect_ns: args.timeout, request_ns: args.timeout },
        phases: Phases {
            warmup_ns: Some(args.warmup),
            measure_ns: Some(args.duration),
            drain_ns: args.timeout,
            deadline_ns: run_ns.saturating_add(args.timeout).saturating_add(1_000_000_000),
            go_at_once: true,
        },
        threads: args.threads,
        cpus: Vec::new(),
        precision_ns: args.precision,
        interval_ns: 100_000_000,
        histogram_every: 10,
        seed: args.seed,
        first_user: 0,
    })
}

/// The URL's origin, and its path with query.
fn split(url: &str) -> (String, String) {
    let authority = url.find("://").map_or(0, |at| at + 3);
    match url[authority..].find(['/', '?']) {
        None => (url.into(), "/".into()),
        Some(at) => {
            let (origin, path) = url.split_at(authority + at);
            let path = path.split('#').next().unwrap_or_default();
            (origin.into(), if path.starts_with('/') { path.into() } else { format!("/{path}") })
        }
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| format!("{text:?} must be 'Name: value'"))?;
    Ok((name.trim().into(), value.trim().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_split_into_origin_and_path() {
        let split = |url| -> (String, String) { super::split(url) };
        assert_eq!(split("http://a:1"), ("http://a:1".into(), "/".into()));
        assert_eq!(split("http://a:1/b/c?d#e"), ("http://a:1".into(), "/b/c?d".into()));
        assert_eq!(split("http://a?x=1"), ("http://a".into(), "/?x=1".into()));
    }

    #[test]
    fn headers_come_apart_at_the_first_colon() {
        assert_eq!(header("A: b:c"), Ok(("A".into(), "b:c".into())));
        assert!(header("A").is_err());
    }
}
