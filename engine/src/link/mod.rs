//! `powerband-engine link`: two network namespaces joined by a link of a given delay and rate, for as long as it runs.
//! In: a `LinkSpec` on stdin. Out: `LinkEvent`s on stdout. The kernel's netem delays packets if it is available,
//! otherwise this process does. Nothing has a name outside of it: when the process ends in any way, device and
//! namespaces disappear. Layers: `bridge`, `netem` > `lane` (the schedule, pure), `namespace`, `control`.

mod bridge;
mod control;
mod lane;
mod namespace;
mod netem;

use std::process::ExitCode;

use crate::clock::{now_ns, process_use};
use crate::contract::events::ErrorEvent;
use crate::contract::link::{Carried, End, Form, LinkEvent, LinkSpec, Summary, WantedForm};
use crate::contract::print;
use crate::contract::spec::check_protocol;
use bridge::Bridge;
use control::Control;
use lane::{ETHERNET_HEADER_BYTES, sent_bytes, usual_queue_bytes};
use namespace::{ADDRESSES, MTU_BYTES, Namespace};

/// Longest delay, and fastest and slowest rate.
const DELAY_NS_MAX: u64 = 60_000_000_000;
const RATE_BITS_PER_S: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000;
/// The most that queue and wire of one direction may hold together.
const HELD_BYTES_MAX: u64 = 1 << 30;

#[derive(clap::Args)]
pub struct Args {}

pub fn main(_: Args) -> ExitCode {
    let mut control = Control::default();
    match read_spec(&mut control).and_then(|spec| serve(&spec, &mut control)) {
        Ok(summary) => {
            print(&LinkEvent::Summary(summary));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("powerband-engine link: {}", error.message);
            print(&LinkEvent::Error(error));
            ExitCode::FAILURE
        }
    }
}

/// Makes the link and keeps it until the controller ends it.
fn serve(spec: &LinkSpec, control: &mut Control) -> Result<Summary, ErrorEvent> {
    let queue_bytes = check(spec).map_err(|message| ErrorEvent::new("spec", message))?;
    let namespaces = namespaces().map_err(|message| ErrorEvent::new("limit", message))?;
    let without_netem =
        if spec.form == WantedForm::Bridge { Some("not asked for".to_owned()) } else { netem::missing() };
    match without_netem {
        None => {
            netem::join(&namespaces, spec, queue_bytes).map_err(|message| ErrorEvent::new("limit", message))?;
            print(&up(Form::Netem, &namespaces, queue_bytes));
            while !control.wait(&[], None).map_err(|message| ErrorEvent::new("spec", message))? {}
            let carried = netem::carried(&namespaces).map_err(|message| ErrorEvent::new("internal", message))?;
            Ok(summary(carried, |_| None))
        }
        Some(reason) if spec.form == WantedForm::Netem => Err(ErrorEvent::new(
            "limit",
            format!("this machine has no netem ({reason}): leave form out, for a bridge in user space"),
        )),
        Some(reason) => {
            let mut bridge = Bridge::new(namespaces, spec, queue_bytes).map_err(|message| {
                ErrorEvent::new("limit", format!("{message} (netem, which would do too: {reason})"))
            })?;
            print(&up(Form::Bridge, bridge.namespaces(), queue_bytes));
            bridge.run(control).map_err(|message| ErrorEvent::new("internal", message))?;
            Ok(summary(bridge.carried(), |quantile| bridge.late_ns(quantile)))
        }
    }
}

/// Makes two new namespaces.
fn namespaces() -> Result<[Namespace; 2], String> {
    let make = || {
        Namespace::create().map_err(|error| {
            let advice = match error.raw_os_error() {
                Some(libc::EPERM) => ": run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN are needed)",
                Some(libc::EINVAL) => ": this kernel has none",
                Some(libc::ENOSPC) => ": there are too many (/proc/sys/user/max_net_namespaces)",
                _ => "",
            };
            format!("cannot make a network namespace ({error}){advice}")
        })
    };
    Ok([make()?, make()?])
}

/// Validates the spec; returns the bound of the queue.
fn check(spec: &LinkSpec) -> Result<u64, String> {
    if spec.delay_ns > DELAY_NS_MAX {
        return Err(format!("delay_ns: {} is longer than 60 s", spec.delay_ns));
    }
    if let Some(rate) = spec.rate_bits_per_s
        && !RATE_BITS_PER_S.contains(&rate)
    {
        return Err(format!("rate_bits_per_s: {rate} is not from 1 kbit/s to 1 Tbit/s"));
    }
    let packet_bytes = MTU_BYTES as u64 + ETHERNET_HEADER_BYTES;
    if let Some(bytes) = spec.queue_bytes
        && bytes < packet_bytes
    {
        return Err(format!("queue_bytes: {bytes} hold no full packet, which has {packet_bytes}"));
    }
    let queue_bytes = spec.queue_bytes.unwrap_or_else(|| usual_queue_bytes(spec.rate_bits_per_s, spec.delay_ns));
    let under_way = spec.rate_bits_per_s.map_or(0, |rate| sent_bytes(spec.delay_ns, rate));
    if queue_bytes.saturating_add(under_way) > HELD_BYTES_MAX {
        return Err(format!(
            "{queue_bytes} bytes in the queue and {under_way} under way are more than 1 GiB: lower rate or delay"
        ));
    }
    Ok(queue_bytes)
}

fn up(form: Form, namespaces: &[Namespace; 2], queue_bytes: u64) -> LinkEvent {
    let end = |end: usize| End { namespace: namespaces[end].path(), address: ADDRESSES[end] };
    LinkEvent::Up { at_ns: now_ns(), pid: std::process::id(), form, queue_bytes, a: end(0), b: end(1) }
}

fn summary([a_to_b, b_to_a]: [Carried; 2], late_ns: impl Fn(f64) -> Option<u64>) -> Summary {
    Summary {
        at_ns: now_ns(),
        a_to_b,
        b_to_a,
        late_ns_p50: late_ns(0.5),
        late_ns_p99: late_ns(0.99),
        late_ns_max: late_ns(1.0),
        cpu_ns: process_use().cpu_ns(),
    }
}

/// The first line of stdin.
fn read_spec(control: &mut Control) -> Result<LinkSpec, ErrorEvent> {
    let line = control
        .first_line()
        .ok_or_else(|| ErrorEvent::new("spec", "stdin: empty; the first line must be a LinkSpec (JSON)"))?;
    check_protocol(&line).map_err(|message| ErrorEvent::new("spec", message))?;
    serde_json::from_slice(&line)
        .map_err(|problem| ErrorEvent::new("spec", format!("the first line on stdin is no valid LinkSpec: {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::spec::PROTOCOL;

    fn spec(change: impl FnOnce(&mut LinkSpec)) -> LinkSpec {
        let mut spec = LinkSpec {
            protocol: PROTOCOL,
            delay_ns: 1_000_000,
            rate_bits_per_s: Some(1_000_000_000),
            queue_bytes: None,
            form: WantedForm::Auto,
        };
        change(&mut spec);
        spec
    }

    #[test]
    fn a_spec_that_cannot_be_met_is_refused_with_its_field() {
        let refused = |change: fn(&mut LinkSpec)| check(&spec(change)).unwrap_err();
        assert!(refused(|spec| spec.delay_ns = u64::MAX).starts_with("delay_ns"));
        assert!(refused(|spec| spec.rate_bits_per_s = Some(0)).starts_with("rate_bits_per_s: 0"));
        assert!(refused(|spec| spec.queue_bytes = Some(u64::MAX)).contains("more than 1 GiB"));
        assert!(refused(|spec| spec.queue_bytes = Some(1_513)).starts_with("queue_bytes: 1513 hold no full packet"));
        assert!(
            refused(|spec| (spec.delay_ns, spec.rate_bits_per_s) = (DELAY_NS_MAX, Some(1_000_000_000)))
                .contains("under way")
        );
    }

    #[test]
    fn the_queue_is_as_long_as_asked_or_as_a_round_trip_needs() {
        assert_eq!(check(&spec(|spec| spec.queue_bytes = Some(3_000))), Ok(3_000));
        assert_eq!(check(&spec(|spec| spec.delay_ns = 10_000_000)), Ok(2_500_000));
    }
}
