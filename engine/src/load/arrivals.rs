//! The open model's schedule as a pure sequence. In: rate, ramp, kind and seed. Out: the intended instants (ns since
//! `go`), one after the other, strictly increasing. No clock is read and nothing waits here.
//!
//! Both kinds map a unit-rate process through the inverse of the cumulative rate L(t) (time change; Cinlar 1975):
//! arrival u is at L^-1(u), where u steps by 1 (constant) or by an exponential of mean 1 (Poisson). So a ramp acts on
//! both in the same way.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::contract::spec::{Arrivals as Kind, Ramp};

/// One thread's part of an engine's arrivals.
pub struct Schedule {
    kind: Kind,
    rate_per_ns: f64,
    from_per_ns: f64,
    ramp_ns: f64,
    /// The next arrival of this thread, as u of the unit-rate process.
    position: f64,
    /// The mean step of u from one arrival of this thread to its next: the number of threads.
    stride: f64,
    last_ns: Option<u64>,
    rng: SmallRng,
}

impl Schedule {
    /// The arrivals of thread `thread` of `threads`; together the threads offer `rate_per_s`. `stream` numbers the
    /// engines of a fleet: it shifts constant arrivals by a fraction of their period, so that several engines do not
    /// send at the same instants.
    pub fn new(
        kind: Kind,
        rate_per_s: f64,
        ramp: Option<&Ramp>,
        thread: u32,
        threads: u32,
        stream: u64,
        seed: u64,
    ) -> Schedule {
        let mut schedule = Schedule {
            kind,
            rate_per_ns: rate_per_s / 1e9,
            from_per_ns: ramp.map_or(rate_per_s, |ramp| ramp.from_per_s) / 1e9,
            ramp_ns: ramp.map_or(0.0, |ramp| ramp.over_ns as f64),
            position: thread as f64 + shift(stream as f64),
            stride: threads as f64,
            last_ns: None,
            rng: SmallRng::seed_from_u64(seed),
        };
        if kind == Kind::Poisson {
            schedule.position = schedule.step();
        }
        schedule
    }

    /// The next intended instant, ns since `go`.
    pub fn next_ns(&mut self) -> u64 {
        let at_ns = self.when(self.position).round() as u64;
        self.position += self.step();
        let at_ns = self.last_ns.map_or(at_ns, |last| at_ns.max(last.saturating_add(1)));
        self.last_ns = Some(at_ns);
        at_ns
    }

    fn step(&mut self) -> f64 {
        match self.kind {
            Kind::Constant => self.stride,
            Kind::Poisson => self.stride * exponential(&mut self.rng),
        }
    }

    /// L^-1: the instant by which `count` arrivals of the whole engine have been offered. Within the ramp, L is a
    /// quadratic; it is solved in the form without cancellation when the rate hardly changes.
    fn when(&self, count: f64) -> f64 {
        let within_ramp = (self.from_per_ns + self.rate_per_ns) / 2.0 * self.ramp_ns;
        if count >= within_ramp {
            return self.ramp_ns + (count - within_ramp) / self.rate_per_ns;
        }
        let growth = (self.rate_per_ns - self.from_per_ns) / self.ramp_ns;
        let root = (self.from_per_ns * self.from_per_ns + 2.0 * growth * count).max(0.0).sqrt();
        if count == 0.0 { 0.0 } else { 2.0 * count / (self.from_per_ns + root) }
    }
}

/// The fraction of a period by which an engine of a fleet is shifted, by its number; 0 for the first. Multiples of the
/// golden ratio keep any number of engines apart.
pub fn shift(engine: f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    (engine * GOLDEN).fract()
}

/// Draws from the exponential distribution of mean 1, by inversion.
pub fn exponential(rng: &mut SmallRng) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn until(mut schedule: Schedule, end_ns: u64) -> Vec<u64> {
        std::iter::repeat_with(|| schedule.next_ns()).take_while(|&at_ns| at_ns < end_ns).collect()
    }

    fn engine(kind: Kind, rate: f64, ramp: Option<&Ramp>, threads: u32, seed: u64, end_ns: u64) -> Vec<u64> {
        let part =
            |thread| until(Schedule::new(kind, rate, ramp, thread, threads, 0, seed + u64::from(thread)), end_ns);
        let mut all: Vec<u64> = (0..threads).flat_map(part).collect();
        all.sort_unstable();
        all
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![Just(Kind::Constant), Just(Kind::Poisson)]
    }

    proptest! {
        #[test]
        fn arrivals_increase_strictly(kind in kinds(), rate in 0.5f64..5e6, from in 0.0f64..1e6, over_ns in 0u64..3 * SECOND_NS,
                                      seed: u64, stream in 0u64..100) {
            let ramp = Ramp { from_per_s: from, over_ns };
            let mut schedule = Schedule::new(kind, rate, Some(&ramp), 0, 1, stream, seed);
            let mut last = None;
            for _ in 0..2_000 {
                let at = schedule.next_ns();
                prop_assert!(last.is_none_or(|last| at > last));
                last = Some(at);
            }
        }

        #[test]
        fn constant_arrivals_count_exactly(rate in 1u32..20_000, threads in 1u32..5, seconds in 1u64..4) {
            let all = engine(Kind::Constant, f64::from(rate), None, threads, 0, seconds * SECOND_NS);
            prop_assert_eq!(all.len() as u64, u64::from(rate) * seconds);
        }

        #[test]
        fn a_ramp_offers_the_mean_of_its_ends(from in 0u32..5_000, to in 1u32..5_000, threads in 1u32..4) {
            let ramp = Ramp { from_per_s: f64::from(from), over_ns: 2 * SECOND_NS };
            let all = engine(Kind::Constant, f64::from(to), Some(&ramp), threads, 0, 2 * SECOND_NS);
            prop_assert!((all.len() as i64 - i64::from(from + to)).abs() <= 1, "{}", all.len());
        }
    }

    #[test]
    fn threads_interleave_constant_arrivals_evenly() {
        let all = engine(Kind::Constant, 1000.0, None, 4, 0, SECOND_NS);
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
        assert_eq!(all[0], 0);
    }

    #[test]
    fn streams_of_a_fleet_do_not_coincide() {
        let of = |stream| Schedule::new(Kind::Constant, 1000.0, None, 0, 1, stream, 0).next_ns();
        assert_eq!([of(0), of(1), of(2)], [0, 618_034, 236_068]);
    }

    /// Kolmogorov-Smirnov test against the exponential distribution with the offered mean; 1.63 / sqrt(n) is the 1 %
    /// point.
    fn passes_ks(gaps_ns: &mut [f64], mean_ns: f64) -> bool {
        gaps_ns.sort_by(f64::total_cmp);
        let n = gaps_ns.len() as f64;
        let distance = gaps_ns.iter().enumerate().fold(0.0f64, |worst, (i, gap)| {
            let expected = 1.0 - (-gap / mean_ns).exp();
            worst.max((expected - i as f64 / n).abs()).max(((i + 1) as f64 / n - expected).abs())
        });
        distance < 1.63 / n.sqrt()
    }

    #[test]
    fn poisson_gaps_are_exponential_over_one_thread_and_over_four() {
        for threads in [1, 4] {
            let all = engine(Kind::Poisson, 1000.0, None, threads, 7, 20 * SECOND_NS);
            let mut gaps: Vec<f64> = all.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
            assert!(passes_ks(&mut gaps, 1e6), "{threads} threads");
            assert!((all.len() as f64 - 20_000.0).abs() < 4.0 * 20_000f64.sqrt());
        }
    }

    #[test]
    fn the_ks_test_refuses_constant_gaps() {
        assert!(!passes_ks(&mut [1e6; 1000], 1e6));
    }
}
