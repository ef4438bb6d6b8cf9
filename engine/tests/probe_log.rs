//! What the subject prints is kept in bounds: nothing of its first and last MiB is lost, and the rest is counted.

use std::os::unix::fs::MetadataExt;

use crate::probe_support::{Bench, Probe, find};

const MIB: usize = 1 << 20;

#[test]
fn a_short_log_is_kept_as_it_was_printed() {
    let bench = Bench::new();
    std::fs::write(bench.log(), "of an earlier attempt\n").unwrap();
    let mut probe = Probe::start(&bench.python("import os; os.write(1, b'out\\n'); os.write(2, b'err\\n')"));
    probe.until("exited");
    let whole = "of an earlier attempt\nout\nerr\n";
    assert_eq!(bench.log_text(), whole, "it is there when the end is reported");
    let (events, _) = probe.finish();
    let end = find(&events, "end");
    assert_eq!((end["log_bytes"].as_u64(), end["log_dropped_bytes"].as_u64()), (Some(whole.len() as u64), Some(0)));
    assert_eq!(bench.log_text(), whole);
}

#[test]
fn of_a_long_log_the_first_and_the_last_are_kept_and_the_rest_is_counted() {
    let bench = Bench::new();
    let lines = 2_000_000;
    let code = format!("for i in range({lines}): print(f'line {{i:044}}')");
    let mut probe = Probe::start(&bench.python(&code));
    probe.until_that("exited", |event| {
        let bytes = std::fs::metadata(bench.log()).map_or(0, |found| found.blocks() * 512);
        assert!(bytes <= 20 << 20, "it takes {bytes} bytes of the disk");
        event["type"] == "exited"
    });
    let (events, _) = probe.finish();
    let text = bench.log_text();
    let printed = 50 * lines;
    let end = find(&events, "end");
    assert_eq!(end["log_bytes"], printed);
    assert_eq!(end["log_dropped_bytes"], printed - 2 * MIB);
    assert!(text.starts_with("line 00") && text.ends_with(&format!("line {:044}\n", lines - 1)));
    let told = format!("\n[powerband let go of {} bytes here]\n", printed - 2 * MIB);
    assert_eq!(text[MIB..].find(&told), Some(0));
    assert_eq!(text.len(), 2 * MIB + told.len());
}

#[test]
fn a_disk_that_refuses_does_not_hold_the_subject_up() {
    let bench = Bench::new();
    std::os::unix::fs::symlink("/dev/full", bench.log()).unwrap();
    let mut probe = Probe::start(&bench.python("import os\nfor i in range(4000): os.write(1, b'x' * 1000)"));
    assert_eq!(probe.until("exited")["exit_code"], 0);
    probe.finish();
}
