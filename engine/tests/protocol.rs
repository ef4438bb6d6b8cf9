//! Each program refuses a spec of another version of the wire contract for its version, whatever else the spec
//! contains.

use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn a_spec_of_another_version_is_refused_as_that() {
    for program in ["load", "probe", "link"] {
        for spec in [r#"{"protocol": 99}"#, r#"{"news": [], "protocol": 4294967297, "interval_ns": "soon"}"#] {
            let mut child = Command::new(env!("CARGO_BIN_EXE_powerband-engine"))
                .arg(program)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            writeln!(child.stdin.take().unwrap(), "{spec}").unwrap();
            let ended = child.wait_with_output().unwrap();
            let said = String::from_utf8(ended.stdout).unwrap();
            assert!(!ended.status.success(), "{program}: {said}");
            let error = said.lines().last().unwrap();
            assert!(
                error.contains("is not spoken here, this engine speaks 1: use the engine that came"),
                "{program}: {error}"
            );
        }
    }
}
