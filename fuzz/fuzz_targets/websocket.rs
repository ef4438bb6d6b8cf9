//! Fuzzes the reader of WebSocket frames, of a server or a client. The messages and the violation must not depend on
//! how the bytes are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use powerband_fuzz::websocket::Violation;
use powerband_fuzz::websocket::reader::{Reader, Rules};

const MESSAGE_BYTES_MAX: usize = 1000;

fuzz_target!(|input: &[u8]| {
    // The first byte says whether the peer is a client, the second how its bytes are cut.
    let [peer, piece, stream @ ..] = input else { return };
    let rules = Rules { peer_masks: peer & 1 == 1, message_bytes_max: MESSAGE_BYTES_MAX };
    let whole = read(&rules, stream, stream.len());
    assert_eq!(read(&rules, stream, usize::from(*piece)), whole);
    assert_eq!(read(&rules, stream, 1), whole);
});

/// Returns the events as text, and the violation that ended them, if any.
fn read(rules: &Rules, stream: &[u8], piece: usize) -> (Vec<String>, Option<Violation>) {
    let (mut reader, mut seen) = (Reader::default(), Vec::new());
    for piece in stream.chunks(piece.max(1)) {
        let mut bytes = piece.to_vec();
        let mut at = 0;
        loop {
            match reader.read(rules, &mut bytes[at..]) {
                Ok((used, event)) => {
                    at += used;
                    match event {
                        Some(event) => seen.push(format!("{event:?}")),
                        None => break,
                    }
                }
                Err(violation) => return (seen, Some(violation)),
            }
        }
        assert_eq!(at, bytes.len(), "without an event all bytes are used");
    }
    (seen, None)
}
