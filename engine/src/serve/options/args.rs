//! The command line of `serve`: as typed (`Args`), then resolved once into a `Config` that every other file uses.
//! Contradictions are refused here, in one sentence each; nothing is defaulted later.

use std::net::IpAddr;
use std::time::Duration;

use clap::ValueEnum;

use super::config::{Accept, Concurrency, Config, Dialect, DownstreamKind, Misbehave, Pauses, Unit};
use super::plan::{Amount, Distribution, Framing, LockKind, MEMORY_BYTES_MAX, PAYLOAD_BYTES_MAX, Plan};
use crate::duration::within_a_day_ns;
use crate::serve::pool::{Policy, Rules};

/// A server whose capacity is known in advance, in a choice of concurrency models.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Port to listen on; 0 picks a free one and prints it
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Serve /health and /metrics on this port too, by a thread of their own; 0 picks a free one
    #[arg(long, value_name = "PORT")]
    pub management_port: Option<u16>,
    /// Length of the accept queue (the kernel caps it at net.core.somaxconn)
    #[arg(long, default_value_t = 4096, value_name = "N")]
    pub backlog: u32,

    /// Who does the work
    #[arg(long, value_enum, default_value = "fixed")]
    pub model: Model,
    /// fixed: threads of the pool
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub threads: usize,
    /// bounded: threads that are started, one per task, before anything is queued
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub core: usize,
    /// bounded: threads at most; those beyond the core are started only when the queue refuses a task
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub max: usize,
    /// bounded: length of the queue; 0 hands each task to an idle thread or refuses it
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub queue: usize,
    /// bounded, cached: how long a thread beyond the core stays idle before it ends
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = within_a_day_ns)]
    pub keep_alive: u64,
    /// bounded: what happens to a request that the pool refuses
    #[arg(long, value_enum, default_value = "abort")]
    pub policy: Policy,
    /// fixed, bounded, cached: what a pool thread takes on: one request, or a connection until it closes
    #[arg(long, value_enum, default_value = "request")]
    pub unit: Unit,
    /// event-loop: number of event loops, one thread each
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub instances: usize,
    /// event-loop: how connections reach the loops: dealt in turn, or hashed by the kernel (SO_REUSEPORT)
    #[arg(long, value_enum, default_value = "dealt")]
    pub accept: Accept,
    /// event-loop: what is spoken
    #[arg(long, value_enum, default_value = "http")]
    pub protocol: Protocol,

    /// CPU time burned for each request
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = within_a_day_ns)]
    pub cpu: u64,
    #[arg(long, value_enum, default_value = "constant")]
    pub cpu_distribution: Distribution,
    /// Time that each request waits without using the CPU
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = within_a_day_ns)]
    pub wait: u64,
    #[arg(long, value_enum, default_value = "constant")]
    pub wait_distribution: Distribution,
    /// Bytes of the response's body
    #[arg(long, default_value_t = 128, value_name = "BYTES")]
    pub payload: usize,
    /// How the body is framed
    #[arg(long, value_enum, default_value = "content-length")]
    pub response: Framing,
    /// Each request holds the one global lock for this long
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = within_a_day_ns)]
    pub lock: u64,
    /// What a request does while it holds the lock
    #[arg(long, value_enum, default_value = "sleep")]
    pub lock_kind: LockKind,
    /// At most this many requests are with the downstream at once; 0: there is no downstream
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub downstream_limit: usize,
    /// How long each request is with the downstream
    #[arg(long, default_value = "5ms", value_name = "TIME", value_parser = within_a_day_ns)]
    pub downstream_wait: u64,
    /// What the downstream is
    #[arg(long, value_enum, default_value = "permits")]
    pub downstream_kind: DownstreamName,
    /// tcp: connections to the downstream, shared by all threads; 0: as many as there are threads that ask
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub downstream_connections: usize,
    /// Memory that each request maps, touches page by page, and gives back
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub memory: usize,
    /// How often a request gives the CPU up to other threads in the course of its CPU time
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub yields: u32,
    /// The whole server freezes once in this time, counted from its start; 0: never
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = within_a_day_ns)]
    pub stall_every: u64,
    /// How long each freeze lasts
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = within_a_day_ns)]
    pub stall_for: u64,
    /// A garbage collection stops the world once in this time; 0: never
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = within_a_day_ns)]
    pub gc_every: u64,
    /// CPU time of each collection
    #[arg(long, default_value = "50ms", value_name = "TIME", value_parser = within_a_day_ns)]
    pub gc_for: u64,
    /// event-loop: whether waits and the downstream are timers and queues, or block the loop
    #[arg(long, value_enum, default_value = "timer")]
    pub loop_waits: LoopWaits,
    /// The thread that accepts connections sleeps this long for each
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = within_a_day_ns)]
    pub accept_delay: u64,
    /// Descriptors that this server may have open; 0: as many as the system allows
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub descriptors: u64,
    /// Seed of the random times
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,

    /// Be a bad server on purpose, to test the bench: none, never-ready, die-after:TIME, garbage, close, silent,
    /// ignore-sigterm, fork-escape
    #[arg(long, default_value = "none", value_name = "HOW")]
    pub misbehave: Misbehave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// A new thread for each connection
    ThreadPerConnection,
    /// A pool without limit whose idle threads end after --keep-alive
    Cached,
    /// A pool of --threads threads with a queue without limit
    Fixed,
    /// A pool with --core, --max, --queue, --keep-alive, as java.util.concurrent.ThreadPoolExecutor has them
    Bounded,
    /// --instances event loops
    EventLoop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// Requests and responses
    Http,
    /// WebSockets, on any path: each message is a request, and its answer the same message
    Websocket,
    /// WebSockets whose clients speak SocketCluster: calls are answered with their data, other events with themselves
    Socketcluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DownstreamName {
    /// K permits of this server's own
    Permits,
    /// A server behind loopback TCP, which serves K requests at once; threads block in its socket
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoopWaits {
    Timer,
    Block,
}

/// Most event loops: each is a thread with two descriptors and 200 KiB of buffers.
const INSTANCES_MAX: usize = 4096;
/// With fewer descriptors than this a server can hardly start.
const DESCRIPTORS_MIN: u64 = 16;

impl Args {
    /// Checks what clap cannot check, and resolves the rest. The error is a sentence for the user.
    pub fn resolve(&self) -> Result<Config, String> {
        if self.payload > PAYLOAD_BYTES_MAX {
            return Err(format!("--payload {} is more than {PAYLOAD_BYTES_MAX} bytes", self.payload));
        }
        if self.memory > MEMORY_BYTES_MAX {
            return Err(format!("--memory {} is more than {MEMORY_BYTES_MAX} bytes", self.memory));
        }
        if self.descriptors > 0 && self.descriptors < DESCRIPTORS_MIN {
            return Err(format!(
                "--descriptors {} is too few to start with: at least {DESCRIPTORS_MIN}",
                self.descriptors
            ));
        }
        if self.protocol != Protocol::Http && self.model != Model::EventLoop {
            return Err("WebSockets are spoken by event loops only: add --model event-loop".into());
        }
        Ok(Config {
            host: self.host,
            port: self.port,
            management_port: self.management_port,
            backlog: self.backlog,
            concurrency: self.concurrency()?,
            websocket: match self.protocol {
                Protocol::Http => None,
                Protocol::Websocket => Some(Dialect::Plain),
                Protocol::Socketcluster => Some(Dialect::Socketcluster),
            },
            plan: Plan {
                cpu: Amount { mean_ns: self.cpu, distribution: self.cpu_distribution },
                wait: Amount { mean_ns: self.wait, distribution: self.wait_distribution },
                lock_ns: self.lock,
                lock_kind: self.lock_kind,
                downstream_ns: self.downstream_wait,
                payload_bytes: self.payload,
                chunked: self.response == Framing::Chunked,
                memory_bytes: self.memory,
                yields: self.yields,
            },
            downstream_limit: self.downstream_limit,
            downstream_kind: self.downstream()?,
            loop_blocks: self.loop_waits == LoopWaits::Block,
            accept_delay_ns: self.accept_delay,
            descriptors: (self.descriptors > 0).then_some(self.descriptors),
            stall: pauses(("--stall-every", self.stall_every), ("--stall-for", self.stall_for))?,
            pauses: pauses(("--gc-every", self.gc_every), ("--gc-for", self.gc_for))?,
            seed: self.seed,
            misbehave: self.misbehave,
        })
    }

    fn concurrency(&self) -> Result<Concurrency, String> {
        let keep_alive = Duration::from_nanos(self.keep_alive);
        let rules = match self.model {
            Model::ThreadPerConnection => return Ok(Concurrency::ThreadPerConnection),
            Model::EventLoop => {
                at_least_one("--instances", self.instances)?;
                if self.instances > INSTANCES_MAX {
                    return Err(format!("--instances {} is more than {INSTANCES_MAX}", self.instances));
                }
                return Ok(Concurrency::EventLoop { instances: self.instances, accept: self.accept });
            }
            Model::Cached => Rules::cached(keep_alive),
            Model::Fixed => {
                at_least_one("--threads", self.threads)?;
                Rules::fixed(self.threads)
            }
            Model::Bounded => self.bounded(keep_alive)?,
        };
        Ok(Concurrency::Pool { rules, unit: self.unit })
    }

    fn bounded(&self, keep_alive: Duration) -> Result<Rules, String> {
        at_least_one("--max", self.max)?;
        if self.core > self.max {
            return Err(format!(
                "--core {} is more than --max {}; a pool's core is part of its maximum",
                self.core, self.max
            ));
        }
        if self.policy == Policy::DiscardOldest && self.queue == 0 {
            return Err(
                "--policy discard-oldest needs a --queue of at least 1: with 0 there is never an oldest to discard \
                        (ThreadPoolExecutor recurses there until its stack overflows)"
                    .into(),
            );
        }
        Ok(Rules { core: self.core, max: self.max, queue_limit: Some(self.queue), keep_alive, policy: self.policy })
    }

    fn downstream(&self) -> Result<DownstreamKind, String> {
        let tcp = self.downstream_kind == DownstreamName::Tcp && self.downstream_limit > 0;
        if tcp && self.model == Model::EventLoop && self.loop_waits == LoopWaits::Timer {
            return Err(
                "--downstream-kind tcp blocks whoever asks: with --model event-loop it needs --loop-waits block \
                        (or use --downstream-kind permits)"
                    .into(),
            );
        }
        let connections = self.downstream_connections;
        Ok(if tcp { DownstreamKind::Tcp { connections } } else { DownstreamKind::Permits })
    }
}

/// The pauses; None unless both times are given.
fn pauses((every_name, every_ns): (&str, u64), (for_name, length_ns): (&str, u64)) -> Result<Option<Pauses>, String> {
    if every_ns == 0 || length_ns == 0 {
        return Ok(None);
    }
    if length_ns >= every_ns {
        return Err(format!("{for_name} must be shorter than {every_name}, or the server never runs"));
    }
    Ok(Some(Pauses { every_ns, length_ns }))
}

fn at_least_one(option: &str, value: usize) -> Result<(), String> {
    if value == 0 { Err(format!("{option} must be at least 1")) } else { Ok(()) }
}
