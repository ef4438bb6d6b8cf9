//! The work of one request. Options set it; the query of a request may override each part.

use clap::ValueEnum;

use crate::duration::within_a_day_ns;

/// Largest payload that a request may ask for.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20; // arbitrary: each answer is made in memory
/// Most memory that a request may ask for.
pub const MEMORY_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Framing {
    ContentLength,
    Chunked,
}

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

/// The work of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub cpu: Amount,
    pub wait: Amount,
    pub lock_ns: u64,
    pub lock_kind: LockKind,
    /// Time in the downstream; ignored if there is none.
    pub downstream_ns: u64,
    pub payload_bytes: usize,
    pub chunked: bool,
    pub memory_bytes: usize,
    /// How often the request yields the CPU while it uses its CPU time.
    pub yields: u32,
}

impl Plan {
    /// Returns this plan with the overrides of a query (`wait=5ms&payload=10`), whose names are those of the options.
    /// The error is a sentence for the client.
    pub fn with_query(mut self, query: &str) -> Result<Plan, String> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let time = || within_a_day_ns(value);
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
                // Unknown names are ignored, since some clients add them to defeat caches.
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
}
