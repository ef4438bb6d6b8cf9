//! The work of one request, in this order: memory, CPU, lock, downstream, wait. Its amounts come from the command line, each
//! may be overridden by the request's query. The parts that may wait are separate calls, so that an event loop can
//! wait by timer; `Work::all` is the blocking whole. Nothing is known here about HTTP or sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use clap::ValueEnum;

use crate::serve::options::{Config, DownstreamKind, Framing, MEMORY_BYTES_MAX, PAYLOAD_BYTES_MAX, Pauses, Span};
use crate::serve::planted::collector::Collector;
use crate::serve::planted::downstream::Remote;
use crate::serve::planted::permits::Permits;
use crate::serve::sys::{note_lateness, now_ns, sleep_until, thread_cpu_ns, touch_memory, wake_early_ns, yield_cpu};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    Constant,
    Exponential,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LockKind {
    /// Sleep: as if it waited for a disk or another service
    Sleep,
    /// Burn CPU
    Burn,
}

/// A constant or random time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    pub mean_ns: u64,
    pub distribution: Distribution,
}

/// What one request is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub cpu: Amount,
    pub wait: Amount,
    pub lock_ns: u64,
    pub lock_kind: LockKind,
    /// Only where there is a downstream.
    pub downstream_ns: u64,
    pub payload_bytes: usize,
    pub chunked: bool,
    pub memory_bytes: usize,
    /// How often the CPU is given up in the course of the CPU time.
    pub yields: u32,
}

impl Plan {
    /// This plan with what a query (`wait=5ms&payload=10`) overrides; the names are those of the options.
    /// The error is a sentence for the client.
    pub fn with_query(mut self, query: &str) -> Result<Plan, String> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let time = || value.parse::<Span>().map(|span| span.ns);
            match name {
                "cpu" => self.cpu.mean_ns = time()?,
                "cpu-distribution" => self.cpu.distribution = choice(name, value)?,
                "wait" => self.wait.mean_ns = time()?,
                "wait-distribution" => self.wait.distribution = choice(name, value)?,
                "lock" => self.lock_ns = time()?,
                "lock-kind" => self.lock_kind = choice(name, value)?,
                "downstream-wait" => self.downstream_ns = time()?,
                "payload" => self.payload_bytes = bytes(name, value, PAYLOAD_BYTES_MAX)?,
                "memory" => self.memory_bytes = bytes(name, value, MEMORY_BYTES_MAX)?,
                "yields" => {
                    self.yields = value.parse().map_err(|_| format!("`yields={value}`: expected a whole number"))?
                }
                "response" => self.chunked = choice::<Framing>(name, value)? == Framing::Chunked,
                // Clients add such things to defeat caches; they are no business of ours.
                _ => {}
            }
        }
        Ok(self)
    }
}

fn choice<T: ValueEnum>(name: &str, value: &str) -> Result<T, String> {
    T::from_str(value, false).map_err(|_| {
        let names: Vec<_> =
            T::value_variants().iter().filter_map(|v| Some(v.to_possible_value()?.get_name().to_owned())).collect();
        format!("`{name}={value}`: expected one of {}", names.join(", "))
    })
}

fn bytes(name: &str, value: &str, most: usize) -> Result<usize, String> {
    match value.parse::<usize>() {
        Ok(bytes) if bytes <= most => Ok(bytes),
        _ => Err(format!("`{name}={value}`: expected a number of bytes up to {most}")),
    }
}

/// What all requests share: the lock, the downstream, the random times and the freezes.
pub struct Work {
    lock: Permits,
    /// A downstream that is permits.
    pub downstream: Option<Permits>,
    /// One that is a server.
    remote: Option<Remote>,
    draws: Draws,
    stall: Option<Stall>,
    pub collector: Option<Arc<Collector>>,
}

impl Work {
    /// The schedule of freezes starts here.
    pub fn new(config: &Config, remote: Option<Remote>) -> Work {
        let permits = config.downstream_limit > 0 && config.downstream_kind == DownstreamKind::Permits;
        Work {
            lock: Permits::new(1),
            downstream: permits.then(|| Permits::new(config.downstream_limit)),
            remote,
            collector: config.pauses.map(|pauses| Arc::new(Collector::new(pauses))),
            draws: Draws { seed: config.seed, drawn: AtomicU64::new(0) },
            stall: config.stall.map(|spec| Stall { spec, start_ns: now_ns() }),
        }
    }

    /// The whole work of one request, blocking the calling thread.
    pub fn all(&self, plan: &Plan) {
        self.cpu_and_lock(plan);
        if let Some(downstream) = &self.downstream {
            let granted_ns = downstream.acquire();
            wait_from(granted_ns, plan.downstream_ns);
            downstream.release();
        }
        if let Some(remote) = &self.remote {
            remote.call(plan.downstream_ns);
        }
        wait_from(now_ns(), self.draw(plan.wait));
    }

    /// The part that no thread can do otherwise than itself: touching memory, CPU time, and holding the lock.
    pub fn cpu_and_lock(&self, plan: &Plan) {
        if plan.memory_bytes > 0 {
            touch_memory(plan.memory_bytes);
        }
        let piece_ns = self.draw(plan.cpu) / (u64::from(plan.yields) + 1);
        self.burn(piece_ns);
        for _ in 0..plan.yields {
            yield_cpu();
            self.burn(piece_ns);
        }
        if plan.lock_ns > 0 {
            let held_since_ns = self.lock.acquire();
            match plan.lock_kind {
                LockKind::Sleep => wait_from(held_since_ns, plan.lock_ns),
                LockKind::Burn => self.burn(plan.lock_ns),
            }
            self.lock.release();
        }
    }

    /// One value of a constant or random time.
    pub fn draw(&self, amount: Amount) -> u64 {
        match amount.distribution {
            _ if amount.mean_ns == 0 => 0,
            Distribution::Constant => amount.mean_ns,
            Distribution::Exponential => self.draws.exponential(amount.mean_ns),
        }
    }

    /// The downstream's permits, wherever it keeps them.
    pub fn downstream_permits(&self) -> Option<&Permits> {
        self.downstream.as_ref().or_else(|| self.remote.as_ref()?.permits())
    }

    /// Burns CPU, with a safe point for the collector every half microsecond.
    fn burn(&self, cpu_ns: u64) {
        match &self.collector {
            Some(collector) => burn_with(cpu_ns, || collector.gate()),
            None => burn(cpu_ns),
        }
    }

    /// Blocks the calling thread while the server is frozen, or its garbage is collected.
    pub fn gate(&self) {
        if let Some(collector) = &self.collector {
            collector.gate();
        }
        if let Some(stall) = &self.stall
            && let Some(end_ns) = stall.end_ns(now_ns())
        {
            sleep_until(end_ns);
        }
    }
}

/// The SplitMix64 sequence (Steele, Lea, Flood 2014) by index, so that threads share one stream without a lock and a
/// seed gives the same multiset of times whatever the interleaving.
struct Draws {
    seed: u64,
    drawn: AtomicU64,
}

impl Draws {
    fn exponential(&self, mean_ns: u64) -> u64 {
        let index = self.drawn.fetch_add(1, Relaxed) + 1;
        let mut z = self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // In (0, 1]: the logarithm is finite.
        let uniform = ((z >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-uniform.ln() * mean_ns as f64).round() as u64
    }
}

/// Freezes on an exact schedule: from k * every to k * every + length after the start, k = 1, 2, ...
struct Stall {
    spec: Pauses,
    start_ns: u64,
}

impl Stall {
    /// The end of the freeze that `now_ns` falls into.
    fn end_ns(&self, now_ns: u64) -> Option<u64> {
        let since = now_ns.saturating_sub(self.start_ns);
        let begun_ns = since - since % self.spec.every_ns;
        (begun_ns > 0 && since < begun_ns + self.spec.length_ns).then(|| self.start_ns + begun_ns + self.spec.length_ns)
    }
}

/// Uses this much CPU time of the calling thread, by its own CPU clock: preemption does not count, and neither does
/// the time a hypervisor took where the kernel accounts for it.
pub fn burn(cpu_ns: u64) {
    burn_with(cpu_ns, || ());
}

/// The same, with something to do every half microsecond.
fn burn_with(cpu_ns: u64, meanwhile: impl Fn()) {
    if cpu_ns == 0 {
        return;
    }
    let end_ns = thread_cpu_ns() + cpu_ns;
    let mut x = 1u64;
    while thread_cpu_ns() < end_ns {
        meanwhile();
        // About half a microsecond between two looks at the clock, which is a system call.
        for _ in 0..400 {
            x = std::hint::black_box(x.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(7));
        }
    }
}

/// Waits without using the CPU until `wait_ns` after `from_ns`, on average.
pub fn wait_from(from_ns: u64, wait_ns: u64) {
    if wait_ns == 0 {
        return;
    }
    let due_ns = from_ns + wait_ns - wake_early_ns(wait_ns);
    sleep_until(due_ns);
    note_lateness(now_ns().saturating_sub(due_ns));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        cpu: Amount { mean_ns: 0, distribution: Distribution::Constant },
        wait: Amount { mean_ns: 0, distribution: Distribution::Constant },
        lock_ns: 0,
        lock_kind: LockKind::Sleep,
        downstream_ns: 0,
        payload_bytes: 128,
        chunked: false,
        memory_bytes: 0,
        yields: 0,
    };

    #[test]
    fn a_query_overrides_what_it_names() {
        let plan = PLAN.with_query("wait=5ms&wait-distribution=exponential&payload=7&response=chunked&_=1").unwrap();
        assert_eq!(plan.wait, Amount { mean_ns: 5_000_000, distribution: Distribution::Exponential });
        assert_eq!((plan.payload_bytes, plan.chunked, plan.cpu), (7, true, PLAN.cpu));
        assert_eq!(PLAN.with_query(""), Ok(PLAN));
        assert!(PLAN.with_query("wait=5").is_err());
        assert!(PLAN.with_query("lock-kind=spin").unwrap_err().contains("sleep, burn"));
        assert!(PLAN.with_query("payload=999999999999").is_err());
        let plan = PLAN.with_query("memory=4096&yields=3").unwrap();
        assert_eq!((plan.memory_bytes, plan.yields), (4096, 3));
        assert!(PLAN.with_query("memory=4MiB").unwrap_err().contains("number of bytes"));
        assert!(PLAN.with_query("yields=-1").is_err());
    }

    #[test]
    fn exponential_times_have_the_mean_and_the_quantiles_of_their_distribution() {
        let draws = Draws { seed: 7, drawn: AtomicU64::new(0) };
        let n = 100_000;
        let mut times: Vec<u64> = (0..n).map(|_| draws.exponential(1_000_000)).collect();
        let mean = times.iter().sum::<u64>() as f64 / n as f64;
        // Four standard errors of the mean: 4 / sqrt(n) = 1.3 %.
        assert!((mean / 1e6 - 1.0).abs() < 0.013, "{mean}");
        times.sort_unstable();
        // Kolmogorov-Smirnov distance; 1.95 / sqrt(n) is the bound at the 0.1 % level.
        let distance = times
            .iter()
            .enumerate()
            .map(|(i, t)| ((1.0 - (-(*t as f64) / 1e6).exp()) - i as f64 / n as f64).abs())
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / (n as f64).sqrt(), "{distance}");
    }

    #[test]
    fn freezes_follow_their_schedule() {
        let stall = Stall { spec: Pauses { every_ns: 10, length_ns: 2 }, start_ns: 100 };
        for (now, end) in [
            (100, None),
            (109, None),
            (110, Some(112)),
            (111, Some(112)),
            (112, None),
            (120, Some(122)),
            (121, Some(122)),
        ] {
            assert_eq!(stall.end_ns(now), end, "{now}");
        }
    }

    #[test]
    fn burning_uses_the_cpu_and_waiting_does_not() {
        let start = thread_cpu_ns();
        burn(2_000_000);
        let burned = thread_cpu_ns() - start;
        assert!(burned >= 2_000_000, "{burned}");
        let (cpu, wall) = (thread_cpu_ns(), now_ns());
        for _ in 0..10 {
            wait_from(now_ns(), 2_000_000);
        }
        // Each may be due early by a quarter at most.
        assert!(now_ns() - wall >= 15_000_000);
        assert!(thread_cpu_ns() - cpu < 10_000_000);
    }
}
