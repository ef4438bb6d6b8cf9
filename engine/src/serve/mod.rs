//! `serve`, the reference subject: the same tiny HTTP service in every concurrency model. The caller sets the work of a
//! request, so that the capacity is known in advance and any bottleneck can be planted. In: options. Out: the line
//! `listening on HOST:PORT` on stdout once connections are accepted. On SIGTERM or SIGINT the server ends with exit
//! code 0, without waiting for requests in progress. Event loops may speak WebSocket instead of HTTP. No TLS, no
//! HTTP/2.
//!
//! Layers: `management`, `database` > `models` > `request` > `metrics` > `planted` > `options` > `pool`, `timing`.

mod database;
mod management;
mod metrics;
mod models;
mod options;
mod planted;
mod pool;
mod request;
mod timing;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;

use crate::sys::{self, Signals};
use models::{connections, event_loop, misbehave, pooled_requests};
pub use options::args::Args;
use options::config::{Accept, Concurrency, Config, Misbehave, Unit};
use request::service::Service;

pub fn main(args: Args) -> ExitCode {
    let config = match args.resolve() {
        Ok(config) => config,
        Err(message) => {
            eprintln!("powerband-engine serve: {message}");
            return ExitCode::from(2);
        }
    };
    match run(&config) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("powerband-engine serve: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the server and waits for the signal that ends it. The error is a sentence for the user.
fn run(config: &Config) -> Result<ExitCode, String> {
    match config.descriptors {
        Some(limit) => {
            sys::limit_descriptors(limit).map_err(|error| format!("cannot limit its descriptors: {error}"))?
        }
        None => drop(sys::raise_descriptor_limit()),
    }
    sys::least_timer_slack();
    if config.misbehave == Misbehave::ForkEscape {
        let pid = misbehave::escape().map_err(|error| format!("cannot fork: {error}"))?;
        println!("escaped process {pid}");
    }
    // Block the signals before any thread starts, so that all threads leave them to this one.
    let signals = block_signals(config.misbehave);
    if config.misbehave != Misbehave::NeverReady {
        open(config)?;
    }
    Ok(wait_for_the_end(&signals, config.misbehave))
}

fn block_signals(misbehave: Misbehave) -> Signals {
    if misbehave == Misbehave::IgnoreSigterm {
        sys::ignore(libc::SIGTERM);
        return Signals::block(&[libc::SIGINT]);
    }
    Signals::block(&[libc::SIGTERM, libc::SIGINT])
}

/// Opens the listening sockets, starts the threads of the model, and prints the address.
fn open(config: &Config) -> Result<(), String> {
    let sockets = match config.concurrency {
        Concurrency::EventLoop { instances, accept: Accept::Reuseport } => instances,
        _ => 1,
    };
    let listeners = listen(config, config.port, sockets)?;
    let address = address_of(&listeners[0])?;
    let service = Service::new(config, database::start(config)?);
    if let Some(collector) = &service.work.collector {
        collector.start().map_err(no_thread)?;
    }
    let mut lines = format!("listening on {address}\n");
    if let Some(port) = config.management_port {
        let listener = listen(config, port, 1)?.remove(0);
        lines += &format!("management on {}\n", address_of(&listener)?);
        management::start(Arc::clone(&service), listener).map_err(no_thread)?;
    }
    start_model(config, &service, listeners).map_err(no_thread)?;
    // A write error needs no handling: the server runs on with a closed stdout.
    let _ = io::stdout().write_all(lines.as_bytes()).and_then(|()| io::stdout().flush());
    Ok(())
}

fn start_model(config: &Config, service: &Arc<Service>, mut listeners: Vec<OwnedFd>) -> io::Result<()> {
    let service = Arc::clone(service);
    if matches!(config.misbehave, Misbehave::Garbage | Misbehave::Close | Misbehave::Silent) {
        return misbehave::start(service, listeners.remove(0), config.misbehave);
    }
    match &config.concurrency {
        Concurrency::ThreadPerConnection => connections::start_threads(service, listeners.remove(0)),
        Concurrency::Pool { rules, unit: Unit::Connection } => {
            connections::start_pool(service, listeners.remove(0), rules.clone())
        }
        Concurrency::Pool { rules, unit: Unit::Request } => {
            pooled_requests::start(service, listeners.remove(0), rules.clone())
        }
        Concurrency::EventLoop { instances, .. } => event_loop::start(&service, listeners, *instances, "loop"),
    }
}

/// Opens this many listening sockets on one port.
fn listen(config: &Config, port: u16, sockets: usize) -> Result<Vec<OwnedFd>, String> {
    let explain = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} on {} is already in use by another process: choose another --port, or 0 for a free one",
            config.host
        ),
        io::ErrorKind::PermissionDenied => {
            format!("port {port} may not be used by this user: choose a --port above 1023, or 0 for a free one")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("{} is no address of this machine: choose another --host", config.host)
        }
        _ => format!("cannot listen on {} port {port}: {error}", config.host),
    };
    let open = |port, shared| sys::listen(config.host, port, config.backlog, shared).map_err(explain);
    // A shared port would silently be shared with another program's server, too, so check that it is free first.
    let alone = open(port, false)?;
    if sockets == 1 {
        return Ok(vec![alone]);
    }
    drop(alone);
    let first = open(port, true)?;
    let port = address_of(&first)?.port();
    let more = (1..sockets).map(|_| open(port, true));
    std::iter::once(Ok(first)).chain(more).collect()
}

fn address_of(listener: &OwnedFd) -> Result<SocketAddr, String> {
    sys::local_address(listener).map_err(|error| format!("cannot tell the port that was bound: {error}"))
}

fn no_thread(error: io::Error) -> String {
    format!("cannot start its threads: {error}; ask for fewer, or raise the limit on processes (ulimit -u)")
}

fn wait_for_the_end(signals: &Signals, misbehave: Misbehave) -> ExitCode {
    let Misbehave::DieAfter { ns } = misbehave else {
        signals.wait(None);
        return ExitCode::SUCCESS;
    };
    match signals.wait(Some(ns)) {
        Some(_) => ExitCode::SUCCESS,
        None => {
            eprintln!("powerband-engine serve: dying now, as --misbehave die-after asks");
            ExitCode::from(70)
        }
    }
}
