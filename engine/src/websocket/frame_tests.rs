use super::*;
use proptest::prelude::*;

fn header(bytes: &[u8]) -> (Header, usize) {
    parse(bytes).expect("no violation").expect("a whole header")
}

#[test]
fn the_frames_of_the_rfc_are_written_and_read() {
    // RFC 6455, 5.7.
    let key = Some([0x37, 0xfa, 0x21, 0x3d]);
    for (opcode, mask, payload, bytes) in [
        (Opcode::Text, None, &b"Hello"[..], &[0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f][..]),
        (Opcode::Text, key, b"Hello", &[0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]),
        (Opcode::Ping, None, b"Hello", &[0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]),
        (Opcode::Pong, key, b"Hello", &[0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]),
        (Opcode::Binary, None, &[7; 256], &[&[0x82, 0x7e, 0x01, 0x00][..], &[7; 256]].concat()),
        (Opcode::Binary, None, &[7; 65536], &[&[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0][..], &[7; 65536]].concat()),
    ] {
        let mut out = Vec::new();
        write_frame(&mut out, opcode, mask, payload);
        assert_eq!(out, bytes);
        let (read, length) = header(&out);
        assert_eq!(read, Header { fin: true, opcode, mask, payload_bytes: payload.len() as u64 });
        assert_eq!(length, bytes.len() - payload.len());
    }
    // Its fragmented "Hello".
    assert!(!header(&[0x01, 0x03]).0.fin);
    assert_eq!(
        header(&[0x80, 0x02]).0,
        Header { fin: true, opcode: Opcode::Continuation, mask: None, payload_bytes: 2 }
    );
}

#[test]
fn headers_that_the_rfc_forbids_are_refused() {
    for (bytes, violation) in [
        (&[0xc1][..], Violation::ReservedBits),
        (&[0xa1], Violation::ReservedBits),
        (&[0x91], Violation::ReservedBits),
        (&[0x83], Violation::UnknownOpcode),
        (&[0x8b], Violation::UnknownOpcode),
        (&[0x09], Violation::FragmentedControl),
        (&[0x89, 126], Violation::LongControl),
        (&[0x88, 0xff], Violation::LongControl),
        (&[0x82, 126, 0, 125], Violation::WastefulLength),
        (&[0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff], Violation::WastefulLength),
        (&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], Violation::ImpossibleLength),
    ] {
        assert_eq!(parse(bytes), Err(violation), "{bytes:02x?}");
    }
}

#[test]
fn close_frames_hold_as_much_of_the_reason_as_fits() {
    let closing = |code, reason: &str| {
        let mut out = Vec::new();
        write_close(&mut out, None, code, reason);
        out
    };
    assert_eq!(closing(None, "unsaid"), [0x88, 0]);
    assert_eq!(closing(Some(1000), "bye"), [0x88, 5, 0x03, 0xe8, b'b', b'y', b'e']);
    // 61 characters of two bytes; half of another does not fit.
    let long = closing(Some(1002), &"é".repeat(100));
    assert_eq!((long.len(), long[1]), (2 + 124, 124));
    assert_eq!(std::str::from_utf8(&long[4..]), Ok("é".repeat(61).as_str()));
}

fn headers() -> impl Strategy<Value = Header> {
    let opcode = prop_oneof![Just(Opcode::Continuation), Just(Opcode::Text), Just(Opcode::Binary), Just(Opcode::Ping)];
    let length = prop_oneof![0..200u64, 65_000..66_000u64, 0..=i64::MAX as u64];
    (any::<bool>(), opcode, any::<Option<MaskKey>>(), length).prop_map(|(fin, opcode, mask, length)| {
        let control = opcode.is_control();
        Header { fin: fin || control, opcode, mask, payload_bytes: if control { length % 126 } else { length } }
    })
}

proptest! {
    #[test]
    fn a_written_header_is_read_again_and_no_part_of_it_is_one(written in headers()) {
        let mut bytes = Vec::new();
        written.write(&mut bytes);
        prop_assert!(bytes.len() <= HEADER_BYTES_MAX);
        for end in 0..bytes.len() {
            prop_assert_eq!(parse(&bytes[..end]), Ok(None));
        }
        prop_assert_eq!(parse(&bytes), Ok(Some((written, bytes.len()))));
    }

    #[test]
    fn the_mask_is_byte_by_byte_what_the_rfc_says_and_undoes_itself(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        key: MaskKey,
        from in 0..8usize,
    ) {
        let from = from.min(bytes.len());
        let mut masked = bytes.clone();
        apply_mask(&mut masked[from..], key);
        for (i, byte) in bytes[from..].iter().enumerate() {
            prop_assert_eq!(masked[from + i], byte ^ key[i % 4]);
        }
        apply_mask(&mut masked[from..], key);
        prop_assert_eq!(masked, bytes);
    }

    #[test]
    fn any_bytes_are_a_header_a_part_of_one_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        if let Ok(Some((header, length))) = parse(&bytes) {
            let mut again = Vec::new();
            header.write(&mut again);
            prop_assert_eq!(&again[..], &bytes[..length]);
        }
    }
}
