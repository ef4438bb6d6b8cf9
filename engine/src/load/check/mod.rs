//! Checks that a load can be run as its spec says. In: a `LoadSpec`. Out: the first problem, with the path of its
//! field. serde has checked shape and types; addresses, files and limits of this machine are checked when the plan is
//! made.

mod fields;
mod messages;

use crate::contract::spec::{Duration, LoadSpec, Model, Step};
use crate::load::http1::plan::says_close;
use fields::{Checked, DAY_NS, at_least, at_most, between, check_headers, check_path, is_token, wrong};
use messages::{check_message, check_messages};

/// The most steps a scenario may have: a request's step number shares 16 bits with two flags.
const MAX_STEPS: usize = 1 << 14;
const MAX_PIPELINE: u32 = 1024; // arbitrary: far deeper than any client; each request in flight costs its user 24 bytes
const MAX_THREADS: u32 = 1024; // as many CPUs as a cpu_set_t can name: more event loops could not be pinned
const MAX_RATE_PER_S: f64 = 1e8; // 10 ns between sends: schedules count whole ns, and would lose a closer spacing

pub fn check(spec: &LoadSpec) -> Checked {
    if spec.scenario.is_empty() || spec.scenario.len() > MAX_STEPS {
        return wrong("scenario", format!("needs 1 to {MAX_STEPS} steps, has {}", spec.scenario.len()));
    }
    for (i, step) in spec.scenario.iter().enumerate() {
        check_step(&format!("scenario[{i}]"), step)?;
        check_message(&format!("scenario[{i}]"), spec.connection.websocket.as_ref(), step)?;
    }
    check_model(&spec.model)?;
    check_connection(spec)?;
    check_messages(spec)?;
    between(1, u64::from(MAX_THREADS), "threads", u64::from(spec.threads))?;
    if let Model::Open { max_in_flight, .. } = spec.model
        && max_in_flight < spec.threads
    {
        return wrong("model.max_in_flight", format!("{max_in_flight} must be at least threads ({})", spec.threads));
    }
    between(1_000_000, DAY_NS, "interval_ns", spec.interval_ns)?;
    at_least(1, "histogram_every", u64::from(spec.histogram_every))?;
    between(1, DAY_NS, "timeouts.connect_ns", spec.timeouts.connect_ns)?;
    between(1, DAY_NS, "timeouts.request_ns", spec.timeouts.request_ns)?;
    at_most(DAY_NS, "precision_ns", spec.precision_ns)?;
    at_least(1, "phases.deadline_ns", spec.phases.deadline_ns)
}

fn check_step(path: &str, step: &Step) -> Checked {
    if step.method.is_empty() || !step.method.bytes().all(is_token) {
        return wrong(&format!("{path}.method"), format!("{:?} is no HTTP method", step.method));
    }
    if step.method == "CONNECT" {
        return wrong(&format!("{path}.method"), "CONNECT opens a tunnel, which is no request");
    }
    check_path(&format!("{path}.path"), &step.path)?;
    check_headers(&format!("{path}.headers"), &step.headers)?;
    for (i, status) in step.checks.status.iter().enumerate() {
        if !(200..=999).contains(status) {
            return wrong(
                &format!("{path}.checks.status[{i}]"),
                format!("{status} is no final HTTP status (200 to 999)"),
            );
        }
    }
    step.think.as_ref().map_or(Ok(()), |think| check_duration(&format!("{path}.think"), think))
}

fn check_model(model: &Model) -> Checked {
    match model {
        Model::Closed { users, think, ramp_ns, first_pause_ns, requests_per_user, pace } => {
            at_least(1, "model.users", u64::from(*users))?;
            at_most(DAY_NS, "model.ramp_ns", *ramp_ns)?;
            at_most(DAY_NS, "model.first_pause_ns", *first_pause_ns)?;
            check_duration("model.think", think)?;
            pace.as_ref().map_or(Ok(()), |pace| check_duration("model.pace", pace))?;
            let most = requests_per_user.unwrap_or(1);
            between(1, u64::from(u32::MAX) - 1, "model.requests_per_user", most)
        }
        Model::Open { rate_per_s, ramp, max_in_flight, think, .. } => {
            if !(rate_per_s.is_finite() && *rate_per_s > 0.0 && *rate_per_s <= MAX_RATE_PER_S) {
                return wrong("model.rate_per_s", format!("{rate_per_s} must be above 0 and at most {MAX_RATE_PER_S}"));
            }
            at_least(1, "model.max_in_flight", u64::from(*max_in_flight))?;
            check_duration("model.think", think)?;
            let from_per_s = ramp.as_ref().map_or(0.0, |ramp| ramp.from_per_s);
            if !(0.0..=MAX_RATE_PER_S).contains(&from_per_s) {
                return wrong("model.ramp.from_per_s", format!("{from_per_s} must be 0 to {MAX_RATE_PER_S}"));
            }
            at_most(DAY_NS, "model.ramp.over_ns", ramp.as_ref().map_or(0, |ramp| ramp.over_ns))
        }
    }
}

fn check_connection(spec: &LoadSpec) -> Checked {
    let pipeline = spec.connection.pipeline;
    between(1, u64::from(MAX_PIPELINE), "connection.pipeline", u64::from(pipeline))?;
    if pipeline > 1 && !spec.connection.keep_alive {
        return wrong("connection.pipeline", "more than 1 needs connection.keep_alive");
    }
    if let Some(i) = spec.scenario.iter().position(says_close).filter(|_| pipeline > 1) {
        return wrong("connection.pipeline", format!("more than 1, but scenario[{i}] asks for Connection: close"));
    }
    Ok(())
}

fn check_duration(path: &str, duration: &Duration) -> Checked {
    let longest_ns = match *duration {
        Duration::Constant { ns } => ns,
        Duration::Exponential { mean_ns } => mean_ns,
        Duration::Uniform { min_ns, max_ns } if min_ns > max_ns => {
            return wrong(&format!("{path}.min_ns"), format!("{min_ns} is more than max_ns ({max_ns})"));
        }
        Duration::Uniform { max_ns, .. } => max_ns,
    };
    at_most(DAY_NS, path, longest_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(path: &[&str], value: Value) -> LoadSpec {
        let mut spec = json!({
            "protocol": 1, "target": {"url": "http://127.0.0.1:1"}, "scenario": [{"name": "a"}],
            "model": {"kind": "closed", "users": 1}, "connection": {"keep_alive": true, "pipeline": 1},
            "timeouts": {"connect_ns": 1, "request_ns": 1}, "phases": {"drain_ns": 0, "deadline_ns": 1}
        });
        let place = path.iter().fold(&mut spec, |at, key| match key.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[*key],
        });
        *place = value;
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_sound_spec_passes() {
        assert_eq!(check(&spec(&["seed"], json!(1))), Ok(()));
    }

    #[test]
    fn requests_behind_one_that_closes_their_connection_are_refused() {
        let asks = json!([{"name": "a"}, {"name": "b", "headers": [["Connection", "close"]]}]);
        let mut spec = spec(&["scenario"], asks);
        assert_eq!(check(&spec), Ok(()));
        spec.connection.pipeline = 2;
        let message = check(&spec).unwrap_err().message;
        assert!(message.starts_with("connection.pipeline: more than 1, but scenario[1] asks"), "{message}");
    }

    #[test]
    fn each_problem_names_its_field() {
        let open = |rate: f64| json!({"kind": "open", "arrivals": "constant", "rate_per_s": rate, "max_in_flight": 1});
        for (path, value, starts) in [
            (&["scenario"][..], json!([]), "scenario: needs"),
            (&["scenario", "0", "path"], json!("x"), "scenario[0].path: \"x\" must start"),
            (&["scenario", "0", "path"], json!("/a b"), "scenario[0].path: holds a space"),
            (&["scenario", "0", "method"], json!("GET /"), "scenario[0].method:"),
            (&["scenario", "0", "headers"], json!([["a b", ""]]), "scenario[0].headers[0]: \"a b\""),
            (&["scenario", "0", "headers"], json!([["a", "x\r\ny: z"]]), "scenario[0].headers[0]: the value"),
            (&["scenario", "0", "checks"], json!({"status": [200, 99]}), "scenario[0].checks.status[1]: 99"),
            (
                &["scenario", "0", "think"],
                json!({"kind": "uniform", "min_ns": 2, "max_ns": 1}),
                "scenario[0].think.min_ns",
            ),
            (&["model"], json!({"kind": "closed", "users": 0}), "model.users: 0 must be at least 1"),
            (&["model"], open(0.0), "model.rate_per_s"),
            (&["model"], open(-1.0), "model.rate_per_s"),
            (&["connection"], json!({"keep_alive": false, "pipeline": 2}), "connection.pipeline: more than 1"),
            (&["connection", "pipeline"], json!(0), "connection.pipeline: 0"),
            (&["threads"], json!(0), "threads: 0"),
            (&["timeouts", "connect_ns"], json!(u64::MAX), "timeouts.connect_ns: 18446744073709551615 must be at most"),
            (&["timeouts", "request_ns"], json!(DAY_NS + 1), "timeouts.request_ns: 86400000000001 must be at most"),
            (&["precision_ns"], json!(u64::MAX), "precision_ns"),
            (&["model"], json!({"kind": "closed", "users": 1, "ramp_ns": u64::MAX}), "model.ramp_ns"),
            (&["model"], json!({"kind": "closed", "users": 1, "first_pause_ns": u64::MAX}), "model.first_pause_ns"),
            (&["interval_ns"], json!(0), "interval_ns: 0"),
            (&["phases", "deadline_ns"], json!(0), "phases.deadline_ns: 0"),
        ] {
            let problem = check(&spec(path, value)).unwrap_err();
            assert!(problem.message.starts_with(starts), "{} for {path:?}", problem.message);
            assert_eq!(problem.kind, "spec");
        }
    }
}
