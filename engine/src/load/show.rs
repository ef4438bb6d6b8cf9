//! Shows the summary of a run as text, in the style of wrk, with additions: response time beside service time, how late
//! requests were sent, what the engine itself used, and a warning if it was the limit. In: a `Summary`. Out: lines.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use crate::contract::events::{Outcomes, Summary};
use crate::contract::outcome::Outcome;
use crate::contract::spec::{Arrivals, LoadSpec, Model};
use crate::load::recorder::histogram::decode;

/// Beyond this share of a CPU, a thread could not have sent faster.
const BUSY: f64 = 0.95;
/// If the 99th percentile of lateness, beyond what `precision` allows, exceeds this, requests were not sent on time.
const LATE_NS: u64 = 1_000_000; // also the floor of `generator_lag` (docs/reference/validity.md)

/// The lines printed before a run.
pub fn heading(spec: &LoadSpec, url: &str) -> String {
    let length = time(spec.phases.measure_ns.unwrap_or(0) as f64);
    let how = match &spec.model {
        Model::Closed { users, .. } => format!("{} and {}", many(spec.threads, "thread"), many(*users, "connection")),
        Model::Open { arrivals, rate_per_s, max_in_flight, .. } => {
            let kind = if *arrivals == Arrivals::Poisson { "random" } else { "even" };
            format!(
                "{}, {rate_per_s} {kind} requests/s, at most {max_in_flight} in flight",
                many(spec.threads, "thread")
            )
        }
    };
    format!("Running {length} @ {url}\n  {how}")
}

pub fn summary(spec: &LoadSpec, summary: &Summary) -> String {
    let mut text = String::new();
    if summary.measure_end_ns <= summary.measure_start_ns {
        text.push_str("Nothing was measured: the run ended before any time of its measured window had passed\n");
        failures(&mut text, summary);
        return text;
    }
    times(&mut text, summary);
    quantiles(&mut text, summary);
    totals(&mut text, summary);
    failures(&mut text, summary);
    engine(&mut text, spec, summary);
    text
}

fn times(text: &mut String, summary: &Summary) {
    let _ = writeln!(text, "  {:<15}{:>9}{:>9}{:>9}{:>9}", "", "Avg", "Stdev", "Min", "Max");
    let times = &summary.cohort_times;
    for (name, encoded) in [("Response time", &times.response_time_ns), ("Service time", &times.service_time_ns)] {
        let h = histogram(encoded);
        let cells = [h.mean(), h.stdev(), h.min() as f64, h.max() as f64].map(time);
        let _ = writeln!(text, "  {name:<15}{:>9}{:>9}{:>9}{:>9}", cells[0], cells[1], cells[2], cells[3]);
    }
}

fn quantiles(text: &mut String, summary: &Summary) {
    const QUANTILES: [f64; 7] = [0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1.0];
    let times = &summary.cohort_times;
    let [response, service, lag] =
        [&times.response_time_ns, &times.service_time_ns, &times.send_lag_ns].map(|encoded| histogram(encoded));
    let due = summary.cohort.scheduled;
    let ok = summary.cohort.outcomes.get(&Outcome::Ok).copied().unwrap_or(0);
    let window_ns = summary.measure_end_ns - summary.measure_start_ns;
    let _ = writeln!(text, "  {:<15}{:>9}{:>9}{:>9}", "Distribution", "response", "service", "send lag");
    for quantile in QUANTILES {
        let name = format!("{}%", (quantile * 1e6).round() / 1e4);
        let cells = [&service, &lag].map(|h| time(h.value_at_quantile(quantile) as f64));
        let all = of_all_due(&response, quantile, due, window_ns);
        let _ = writeln!(text, "  {name:>9}      {all:>9}{:>9}{:>9}", cells[0], cells[1]);
    }
    if ok < due {
        let _ = writeln!(
            text,
            "  {} of {due} requests due had no correct response: they rank last in the column of response times; the \
             service times, and the times above the table, are of the others",
            due - ok
        );
    }
}

/// A quantile of the response times of all requests that were due: those without a correct response rank last. The
/// length of the window, or the longest time seen, stands for them as a lower bound (docs/methods/response-time.md).
fn of_all_due(response: &Histogram<u64>, quantile: f64, due: u64, window_ns: u64) -> String {
    let share = if due > 0 { response.len() as f64 / due as f64 } else { 1.0 };
    if quantile > share {
        return format!(">={}", time(response.max().max(window_ns) as f64));
    }
    time(response.value_at_quantile(quantile / share) as f64)
}

fn totals(text: &mut String, summary: &Summary) {
    let seconds = seconds(summary);
    let ended: u64 = summary.window.outcomes.values().sum();
    let ok = summary.window.outcomes.get(&Outcome::Ok).copied().unwrap_or(0);
    let _ = writeln!(text, "  {ended} requests in {seconds:.2}s, {} read", bytes(summary.window.bytes_received as f64));
    if ok != ended {
        let _ = writeln!(text, "  Ok: {ok} ({:.2}%)", 100.0 * ok as f64 / (ended.max(1)) as f64);
    }
    let _ = writeln!(text, "Requests/sec: {:>12.2}", ok as f64 / seconds);
    let _ = writeln!(text, "Transfer/sec: {:>12}", bytes(summary.window.bytes_received as f64 / seconds));
}

fn failures(text: &mut String, summary: &Summary) {
    let failed = |outcomes: &Outcomes| -> Vec<String> {
        let failed = outcomes.iter().filter(|(outcome, _)| **outcome != Outcome::Ok);
        let name = |outcome: &Outcome| serde_json::to_string(outcome).unwrap_or_default().replace('"', "");
        failed.map(|(outcome, count)| format!("{} {count}", name(outcome))).collect()
    };
    let total = failed(&summary.total.outcomes);
    if !total.is_empty() {
        let _ = writeln!(text, "Not ok: {}", total.join(", "));
    }
    if summary.total.dropped > 0 {
        let waited = histogram(&summary.cohort_times.dropped_wait_ns);
        let _ = writeln!(
            text,
            "Dropped: {} of {} scheduled requests found no room in flight and were given up up to {} after they were due",
            summary.total.dropped,
            summary.total.scheduled,
            time(waited.max() as f64)
        );
    }
}

fn engine(text: &mut String, spec: &LoadSpec, summary: &Summary) {
    let cpu_ns = (summary.cpu_user_ns + summary.cpu_system_ns) as f64;
    let ended: u64 = summary.window.outcomes.values().sum();
    let window_ns = seconds(summary) * 1e9;
    let busiest = summary.thread_cpu_ns.iter().copied().max().unwrap_or(0) as f64 / window_ns;
    let _ = writeln!(
        text,
        "Engine: {:.2} us CPU per request ({:.0}% of a core; busiest thread {:.0}%), {} memory, {} connections opened",
        cpu_ns / 1e3 / ended.max(1) as f64,
        100.0 * cpu_ns / window_ns,
        100.0 * busiest,
        bytes(summary.max_rss_bytes as f64),
        summary.connections.opened
    );
    let lag_p99 = histogram(&summary.cohort_times.send_lag_ns).value_at_quantile(0.99);
    if lag_p99 > LATE_NS + spec.precision_ns {
        let _ = writeln!(
            text,
            "Warning: requests were sent late (p99 {}): the engine was the limit, and response times include its delay. \
             Use more threads (-t), a lower rate, or free a CPU for the engine.",
            time(lag_p99 as f64)
        );
    } else if busiest > BUSY {
        let _ = writeln!(
            text,
            "Warning: an engine thread was busy all the time: the server may be able to do more. Use more threads (-t)."
        );
    }
    let limits = [Outcome::NoDescriptors, Outcome::NoPorts].map(|outcome| summary.total.outcomes.get(&outcome));
    if limits.iter().any(Option::is_some) {
        let _ = writeln!(
            text,
            "Warning: this machine ran out of descriptors or ports: the engine was the limit. Raise `ulimit -n`, keep connections \
             alive, or use fewer connections."
        );
    }
}

fn seconds(summary: &Summary) -> f64 {
    (summary.measure_end_ns - summary.measure_start_ns) as f64 / 1e9
}

fn histogram(encoded: &str) -> Histogram<u64> {
    decode(encoded).expect("a summary's histograms are those the engine wrote")
}

fn many(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Formats a time with three significant digits and a unit.
fn time(ns: f64) -> String {
    scaled(ns, 1000.0, &["ns", "us", "ms", "s"])
}

fn bytes(count: f64) -> String {
    scaled(count, 1024.0, &["B", "KB", "MB", "GB", "TB"])
}

fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= base && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = if unit == 0 || value >= 100.0 { 0 } else { 2 - usize::from(value >= 10.0) };
    format!("{value:.decimals$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::recorder::merge::{self, Span};

    #[test]
    fn a_run_that_ended_before_its_window_has_no_figures_but_its_failures() {
        let json = r#"{"protocol": 1, "target": {"url": "http://127.0.0.1:1"}, "scenario": [{"name": "a"}],
            "model": {"kind": "closed", "users": 1}, "phases": {"drain_ns": 0, "deadline_ns": 1}}"#;
        let spec = serde_json::from_str(json).unwrap();
        let shown = |window_ns: u64| {
            let span = Span { go_ns: 1_000, measure_start_ns: 5_000, measure_end_ns: 5_000 + window_ns };
            let mut ended = merge::summary(span, &[], &[], "interrupted", false);
            ended.thread_cpu_ns = vec![100];
            ended.total.outcomes.insert(Outcome::Timeout, 3);
            summary(&spec, &ended)
        };
        let lines: Vec<String> = shown(0).lines().map(String::from).collect();
        assert!(lines.len() == 2 && lines[0].starts_with("Nothing was measured") && lines[1] == "Not ok: timeout 3");
        assert!(shown(1_000).contains("busiest thread 10%"));
    }

    #[test]
    fn values_are_read_at_a_glance() {
        assert_eq!([0.0, 999.0, 1_234.0, 12_345_678.0, 2e9].map(time), ["0ns", "999ns", "1.23us", "12.3ms", "2.00s"]);
        assert_eq!([0.0, 2048.0, 1e9].map(bytes), ["0B", "2.00KB", "954MB"]);
    }

    #[test]
    fn requests_without_a_correct_response_rank_last() {
        let mut response = Histogram::new(3).unwrap();
        (1..=90u64).for_each(|us| response.record(us * 1_000).unwrap());
        let quantile = |quantile, due| of_all_due(&response, quantile, due, 2_000_000_000);
        assert_eq!([0.5, 0.9, 1.0].map(|q| quantile(q, 90)), ["45.0us", "81.0us", "90.0us"]);
        assert_eq!([0.5, 0.9, 0.91, 1.0].map(|q| quantile(q, 100)), ["50.0us", "90.0us", ">=2.00s", ">=2.00s"]);
        let nothing = Histogram::new(3).unwrap();
        assert_eq!([0, 100].map(|due| of_all_due(&nothing, 0.5, due, 2_000_000_000)), ["0ns", ">=2.00s"]);
    }
}
