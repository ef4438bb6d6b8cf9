//! Fuzzes both halves of the opening handshake. A part of an answer must be incomplete, or be judged like the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use powerband_fuzz::websocket::handshake;
use powerband_fuzz::websocket::opening::{Key, Opening};

const OPENING: Opening = Opening { target: "/", host: "localhost", protocols: "superchat, chat", headers: &[] };

fuzz_target!(|input: &[u8]| {
    // The key of RFC 6455, 1.3: the seeds contain the answer to it.
    let key = Key::new(*b"the sample nonce");
    let whole = OPENING.check(&key, input);
    assert!(!matches!(whole, Ok(Some(length)) if length > input.len()));
    for part in (0..input.len()).step_by(1 + input.len() / 8) {
        let judged = OPENING.check(&key, &input[..part]);
        assert!(judged == Ok(None) || judged == whole, "{part} bytes: {judged:?}, all: {whole:?}");
    }
    if let Ok(accept) = handshake::accept(input) {
        let mut answer = Vec::new();
        handshake::write_answer(&mut answer, &accept);
        assert!(accept.len() == 28 && answer.ends_with(b"\r\n\r\n"));
    }
});
