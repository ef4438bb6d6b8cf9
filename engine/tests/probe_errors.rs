//! A probe that gets an invalid spec or cannot start the subject prints one `error` event, which says what is wrong,
//! where and what to do, and leaves nothing running.

use crate::probe_support::{Bench, Probe};
use serde_json::{Value, json};

/// The message of the error event, which must come last.
fn error(mut probe: Probe, kind: &str) -> String {
    while probe.next().is_some() {}
    assert!(!probe.child.wait().unwrap().success());
    let last = probe.events.last().unwrap();
    assert_eq!((&last["type"], &last["kind"]), (&json!("error"), &json!(kind)), "{last}");
    last["message"].as_str().unwrap().to_owned()
}

fn assert_launch_error(spec: &Value, expected: &str) {
    let message = error(Probe::start(spec), "launch");
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_subject_that_cannot_start_is_explained() {
    let bench = Bench::new();
    let script = bench.folder.join("script");
    let path = script.to_str().unwrap();
    assert_launch_error(&bench.launch(&["no-such-program"]), "not found on the PATH");
    assert_launch_error(&bench.launch(&["./no-such-program"]), "no such file");
    assert_launch_error(&bench.launch(&["/tmp"]), "not executable");
    assert_launch_error(&bench.launch(&[]), "argv is empty");
    std::fs::write(&script, "echo hello\n").unwrap();
    assert_launch_error(&bench.launch(&[path]), "chmod +x");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_launch_error(&bench.launch(&[path]), "#! line");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    assert_launch_error(&bench.launch(&[path]), "interpreter");
    let mut spec = bench.launch(&["./script"]);
    spec["launch"]["cwd"] = json!(bench.folder);
    assert_launch_error(&spec, "interpreter");
    let mut spec = bench.launch(&["sleep", "1"]);
    spec["launch"]["cwd"] = json!("/no/such/folder");
    assert_launch_error(&spec, "/no/such/folder");
    let mut spec = bench.launch(&["sleep", "1"]);
    spec["launch"]["log_file"] = json!("/no/such/folder/log");
    assert_launch_error(&spec, "log_file");
    let mut spec = bench.launch(&["sleep", "1"]);
    spec["launch"]["cpus"] = json!([1000]);
    assert_launch_error(&spec, "CPUs [1000]");
}

#[test]
fn a_bad_spec_is_refused() {
    let bench = Bench::new();
    let good = bench.launch(&["sleep", "600"]);
    let with = |key: &str, value: Value| {
        let mut spec = good.clone();
        spec[key] = value;
        spec
    };
    for (line, expected) in [
        ("not json".to_owned(), "ProbeSpec"),
        (with("protocol", json!(999)).to_string(), "protocol: 999"),
        (with("intervall_ns", json!(1)).to_string(), "intervall_ns"),
        (with("interval_ns", json!(0)).to_string(), "interval_ns is 0"),
        (with("watch", json!([{"name": "subject", "pid": 1}])).to_string(), "two trees are called `subject`"),
    ] {
        let message = error(Probe::start_with_line(&line), "spec");
        assert!(message.contains(expected), "{message}");
    }
    bench.assert_no_process();
}

#[test]
fn a_bad_command_ends_the_probe_and_the_subject() {
    let bench = Bench::new();
    for (line, expected) in [("what?", "no valid command"), (r#"{"type":"drain"}"#, "commands for `load`")] {
        let mut probe = Probe::start(&bench.launch(&["sleep", "600"]));
        probe.until("launched");
        probe.tell(line);
        let message = error(probe, "spec");
        assert!(message.contains(expected), "{message}");
        bench.assert_no_process();
    }
}
