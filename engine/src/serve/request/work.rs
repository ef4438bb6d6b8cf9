//! Does the work of one request (a `Plan`), in this order: memory, CPU, lock, downstream, wait. `Work::all` does
//! everything and blocks; the parts that may wait are separate calls, too, so that an event loop can set timers
//! instead. Independent of HTTP and sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::now_ns;
use crate::serve::options::config::{Config, DownstreamKind};
use crate::serve::options::plan::{Amount, Distribution, LockKind, Plan};
use crate::serve::planted::collector::Collector;
use crate::serve::planted::downstream::Remote;
use crate::serve::planted::permits::Permits;
use crate::serve::planted::stall::Stall;
use crate::serve::timing::{burn_with, wait_from};
use crate::sys::touch_memory;

/// The state that all requests share: the lock, the downstream, the random times and the pauses.
pub struct Work {
    lock: Permits,
    /// The downstream if it consists of permits of this process.
    pub downstream: Option<Arc<Permits>>,
    /// The downstream if it is a server.
    remote: Option<Remote>,
    draws: Draws,
    stall: Option<Stall>,
    pub collector: Option<Arc<Collector>>,
}

impl Work {
    /// Starts the schedule of freezes.
    pub fn new(config: &Config, remote: Option<Remote>) -> Work {
        let permits = config.downstream_limit > 0 && config.downstream_kind == DownstreamKind::Permits;
        Work {
            lock: Permits::new(1),
            downstream: permits.then(|| Arc::new(Permits::new(config.downstream_limit))),
            remote,
            collector: config.pauses.map(|pauses| Arc::new(Collector::new(pauses))),
            draws: Draws { seed: config.seed, drawn: AtomicU64::new(0) },
            stall: config.stall.map(Stall::new),
        }
    }

    /// Does the whole work of one request and blocks the calling thread meanwhile.
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

    /// Does the part that always occupies the calling thread: touching memory, CPU time, and holding the lock.
    pub fn cpu_and_lock(&self, plan: &Plan) {
        if plan.memory_bytes > 0 {
            touch_memory(plan.memory_bytes);
        }
        self.burn(self.draw(plan.cpu), plan.yields);
        if plan.lock_ns > 0 {
            let held_since_ns = self.lock.acquire();
            match plan.lock_kind {
                LockKind::Sleep => wait_from(held_since_ns, plan.lock_ns),
                LockKind::Burn => self.burn(plan.lock_ns, 0),
            }
            self.lock.release();
        }
    }

    /// Draws one value of a constant or random time.
    pub fn draw(&self, amount: Amount) -> u64 {
        match amount.distribution {
            _ if amount.mean_ns == 0 => 0,
            Distribution::Constant => amount.mean_ns,
            Distribution::Exponential => self.draws.exponential(amount.mean_ns),
        }
    }

    /// The permits of the downstream, of either kind.
    pub fn downstream_permits(&self) -> Option<&Permits> {
        self.downstream.as_deref().or_else(|| Some(self.remote.as_ref()?.permits()))
    }

    /// Burns CPU, with a safe point for the collector every half microsecond.
    fn burn(&self, cpu_ns: u64, yields: u32) {
        match &self.collector {
            Some(collector) => burn_with(cpu_ns, yields, || collector.gate()),
            None => burn_with(cpu_ns, yields, || ()),
        }
    }

    /// Blocks the calling thread during a collection and during a freeze.
    pub fn gate(&self) {
        if let Some(collector) = &self.collector {
            collector.gate();
        }
        if let Some(stall) = &self.stall {
            stall.gate();
        }
    }
}

/// The SplitMix64 sequence (Steele, Lea, Flood 2014) by index, so that threads share one stream without a lock and a
/// seed gives the same multiset of times whatever the interleaving; if both CPU time and wait are random, it decides which
/// of them gets which.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
