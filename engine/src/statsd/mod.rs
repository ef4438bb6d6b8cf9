//! StatsD and DogStatsD without sockets and without time: a datagram's bytes become lines (`parse`), lines become sums
//! (`store`) with the names that they would have on a Prometheus page (`names`). The accepted formats, for users:
//! docs/statsd.md.
//!
//! Nothing is reset between two readings: values are since the start, as on a page. Quantiles, rates and forwarding to
//! another server are absent.

mod names;
#[cfg(test)]
mod oracle;
pub mod parse;
pub mod store;

#[cfg(test)]
mod tests;
