//! Fuzzes the parser of a SocketCluster server's messages. It must classify a packet as `Unknown`, or like the slow and
//! plain parser.
#![no_main]

use libfuzzer_sys::fuzz_target;
use powerband_fuzz::scan::{Mark, Tally};
use powerband_fuzz::socketcluster::incoming::{Incoming, classify, handshake_answer, packets};
use powerband_fuzz::socketcluster::{HANDSHAKE_ID, Version};
use powerband_fuzz::socketcluster_oracle::by_tree;

fuzz_target!(|input: &[u8]| {
    // The first byte chooses the version.
    let [version, text @ ..] = input else { return };
    if std::str::from_utf8(text).is_err() {
        return;
    }
    let version = if version & 1 == 1 { Version::V14 } else { Version::V20 };
    for packet in packets(text) {
        let incoming = classify(version, packet);
        assert!(incoming == Incoming::Unknown || incoming == by_tree(version, packet), "{incoming:?}");
        if handshake_answer(packet).is_some() {
            assert!(matches!(incoming, Incoming::Reply { rid: HANDSHAKE_ID, .. } | Incoming::Unknown));
        }
    }
    scan(text);
});

/// Checks that numbers and words are found only after their text.
fn scan(text: &[u8]) {
    let mark = Mark::new("\"count\":");
    let (number, word) = (mark.number_after(text), mark.word_after(text));
    assert!(mark.is_in(text) || (number.is_none() && word.is_none()));
    if let Some((label, count)) = Tally::new(Some("\"pid\":"), "\"count\":").read(text) {
        assert!(number == Some(count) && !label.iter().any(u8::is_ascii_whitespace));
    }
}
