//! The database of `--downstream-kind tcp`: this same server on an event loop of its own. Its only work is the
//! wait of the downstream, which a limited number of requests may do at once. `planted::downstream` is its client.

use std::io;
use std::net::Ipv4Addr;

use super::models::event_loop;
use super::options::config::{Accept, Concurrency, Config, DownstreamKind};
use super::planted::downstream::{BODY_BYTES, Remote};
use super::request::service::Service;
use crate::sys;

const BACKLOG: u32 = 4096; // net.core.somaxconn since Linux 5.4: all threads may connect at once

/// Starts the database and returns its client; `None` unless the downstream is a server.
pub fn start(config: &Config) -> Result<Option<Remote>, String> {
    let DownstreamKind::Tcp { connections } = config.downstream_kind else { return Ok(None) };
    let explain = |error: io::Error| format!("cannot start its downstream: {error}");
    let listener = sys::listen(Ipv4Addr::LOCALHOST.into(), 0, BACKLOG, false).map_err(explain)?;
    let address = sys::local_address(&listener).map_err(explain)?;
    let database = Service::new(&config_of(config), None);
    event_loop::start(&database, vec![listener], 1, "database").map_err(explain)?;
    let permits = database.work.downstream.clone().expect("a downstream behind TCP has a limit");
    Ok(Some(Remote::new(address, connections, permits)))
}

fn config_of(config: &Config) -> Config {
    let mut plan = config.plan;
    (plan.cpu.mean_ns, plan.wait.mean_ns, plan.lock_ns, plan.memory_bytes, plan.yields) = (0, 0, 0, 0, 0);
    (plan.payload_bytes, plan.chunked) = (BODY_BYTES, false);
    Config {
        plan,
        concurrency: Concurrency::EventLoop { instances: 1, accept: Accept::Dealt },
        downstream_kind: DownstreamKind::Permits,
        websocket: None,
        loop_blocks: false,
        stall: None,
        pauses: None,
        accept_delay_ns: 0,
        ..config.clone()
    }
}
