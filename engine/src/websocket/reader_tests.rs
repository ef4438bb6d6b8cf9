use super::*;
use crate::websocket::frame::{MaskKey, write_close, write_frame};
use proptest::prelude::*;

const KEY: MaskKey = [0x37, 0xfa, 0x21, 0x3d];
const LIMIT: usize = 1000;

/// An event that owns its content.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Seen {
        match event {
            Event::Text(payload) => Seen::Text(payload.into()),
            Event::Binary(payload) => Seen::Binary(payload.into()),
            Event::Ping(payload) => Seen::Ping(payload.into()),
            Event::Pong(payload) => Seen::Pong(payload.into()),
            Event::Close { code, reason } => Seen::Close(code, reason.into()),
        }
    }
}

/// All events of a stream that arrives in these pieces, and the violation that ended it.
fn read(peer_masks: bool, pieces: &[&[u8]]) -> (Vec<Seen>, Option<Violation>) {
    let rules = Rules { peer_masks, message_bytes_max: LIMIT };
    let (mut reader, mut seen) = (Reader::default(), Vec::new());
    for piece in pieces {
        let mut bytes = piece.to_vec();
        let mut at = 0;
        loop {
            match reader.read(&rules, &mut bytes[at..]) {
                Ok((used, event)) => {
                    at += used;
                    match event {
                        Some(event) => seen.push(event.into()),
                        None => break,
                    }
                }
                Err(violation) => return (seen, Some(violation)),
            }
        }
        assert_eq!(at, bytes.len(), "without an event all bytes are used");
        assert!(reader.buffer.len() <= LIMIT + 125);
    }
    (seen, None)
}

/// Frames as a server's client sees them: unmasked.
fn events(bytes: &[u8]) -> (Vec<Seen>, Option<Violation>) {
    read(false, &[bytes])
}

fn frame(fin: bool, opcode: Opcode, mask: Option<MaskKey>, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, opcode, mask, payload);
    if !fin {
        out[0] &= 0x7f;
    }
    out
}

#[test]
fn control_frames_may_come_within_a_message() {
    let stream = [
        frame(false, Opcode::Binary, None, b"one "),
        frame(true, Opcode::Ping, None, b"now"),
        frame(false, Opcode::Continuation, None, b""),
        frame(true, Opcode::Pong, None, b""),
        frame(true, Opcode::Continuation, None, b"two"),
        frame(true, Opcode::Text, None, b""),
    ]
    .concat();
    let expected =
        vec![Seen::Ping(b"now".into()), Seen::Pong(vec![]), Seen::Binary(b"one two".into()), Seen::Text(vec![])];
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(events(&stream), (expected.clone(), None));
    assert_eq!(read(false, &bytes), (expected, None));
}

#[test]
fn closes_are_read_with_code_and_reason_or_without() {
    let closing = |payload: &[u8]| events(&frame(true, Opcode::Close, None, payload));
    assert_eq!(closing(b""), (vec![Seen::Close(None, String::new())], None));
    assert_eq!(closing(b"\x03\xe8bye"), (vec![Seen::Close(Some(1000), "bye".into())], None));
    assert_eq!(closing(b"\x03").1, Some(Violation::ShortClose));
    assert_eq!(closing(b"\x03\xe8\xff").1, Some(Violation::InvalidText));
    for code in [0u16, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535] {
        assert_eq!(closing(&code.to_be_bytes()).1, Some(Violation::CloseCode), "{code}");
    }
    for code in [1000u16, 1003, 1007, 1011, 1014, 3000, 3999, 4000, 4999] {
        assert_eq!(closing(&code.to_be_bytes()), (vec![Seen::Close(Some(code), String::new())], None));
    }
}

#[test]
fn who_must_mask_must_and_who_must_not_must_not() {
    assert_eq!(read(true, &[&frame(true, Opcode::Text, None, b"x")]).1, Some(Violation::Unmasked));
    assert_eq!(read(true, &[&frame(true, Opcode::Ping, None, b"")]).1, Some(Violation::Unmasked));
    assert_eq!(events(&frame(true, Opcode::Text, Some(KEY), b"x")).1, Some(Violation::Masked));
}

#[test]
fn fragments_belong_to_one_message_at_a_time() {
    let stray = frame(true, Opcode::Continuation, None, b"x");
    assert_eq!(events(&stray).1, Some(Violation::StrayContinuation));
    let after_a_whole = [frame(true, Opcode::Text, None, b"x"), stray].concat();
    assert_eq!(events(&after_a_whole), (vec![Seen::Text(b"x".into())], Some(Violation::StrayContinuation)));
    for opcode in [Opcode::Text, Opcode::Binary] {
        let interrupted = [frame(false, Opcode::Text, None, b"x"), frame(true, opcode, None, b"y")].concat();
        assert_eq!(events(&interrupted), (vec![], Some(Violation::InterruptedMessage)));
    }
}

#[test]
fn a_message_beyond_the_limit_is_refused_by_its_header() {
    let whole = |bytes: usize| events(&frame(true, Opcode::Binary, None, &vec![1; bytes]));
    assert_eq!(whole(LIMIT), (vec![Seen::Binary(vec![1; LIMIT])], None));
    assert_eq!(whole(LIMIT + 1).1, Some(Violation::MessageTooBig));
    // The largest possible length without any payload: no memory may be reserved for it.
    let promise = [&[0x82, 127][..], &i64::MAX.to_be_bytes()].concat();
    assert_eq!(events(&promise), (vec![], Some(Violation::MessageTooBig)));
    assert_eq!(events(&[&[0x82, 127][..], &u64::MAX.to_be_bytes()].concat()).1, Some(Violation::ImpossibleLength));
}

#[test]
fn endless_fragments_end_at_the_limit() {
    let mut stream = frame(false, Opcode::Binary, None, &[0; 100]);
    for _ in 0..9 {
        stream.extend(frame(false, Opcode::Continuation, None, &[0; 100]));
    }
    assert_eq!(events(&stream), (vec![], None));
    // Empty fragments cost nothing, however many there are.
    stream.extend(frame(false, Opcode::Continuation, None, b"").repeat(10_000));
    assert_eq!(events(&stream), (vec![], None));
    stream.extend(frame(false, Opcode::Continuation, None, b"x"));
    assert_eq!(events(&stream), (vec![], Some(Violation::MessageTooBig)));
}

#[test]
fn characters_may_be_cut_by_fragments_and_invalid_ones_are_found_at_once() {
    let text = "κόσμε €😀".as_bytes();
    for cut in 0..=text.len() {
        let stream =
            [frame(false, Opcode::Text, None, &text[..cut]), frame(true, Opcode::Continuation, None, &text[cut..])];
        assert_eq!(events(&stream.concat()), (vec![Seen::Text(text.into())], None), "{cut}");
    }
    for (first, second) in [
        (&b"\xce"[..], &b"x"[..]),
        (b"\xf4", b"\x90"),
        (b"\xe2\x82", b"\xff"),
        (b"\xed", b"\xa0\x80"),
        (b"fine", b"\xc0\xaf"),
    ] {
        let start = frame(false, Opcode::Text, None, first);
        assert_eq!(events(&start), (vec![], None), "the start of something");
        // The violation is found before the last fragment arrives.
        let wrong = [start, frame(false, Opcode::Continuation, None, second)].concat();
        assert_eq!(events(&wrong), (vec![], Some(Violation::InvalidText)), "{first:02x?} {second:02x?}");
    }
    let unfinished = frame(true, Opcode::Text, None, b"\xe2\x82");
    let bytes: Vec<&[u8]> = unfinished.chunks(1).collect();
    assert_eq!(events(&unfinished).1, Some(Violation::InvalidText));
    assert_eq!(read(false, &bytes).1, Some(Violation::InvalidText));
    // A frame is refused as soon as possible, although the rest of it is still to come.
    let long = frame(true, Opcode::Text, None, &[b"ok \xff".as_slice(), &[b'x'; 100]].concat());
    assert_eq!(events(&long[..10]).1, Some(Violation::InvalidText));
    assert_eq!(events(&frame(true, Opcode::Binary, None, b"\xff")).1, None);
}

#[test]
fn a_long_message_leaves_no_room_behind_and_a_short_one_its_own() {
    let rules = Rules { peer_masks: false, message_bytes_max: 1 << 20 };
    let mut reader = Reader::default();
    for (length, kept) in [(100, true), (100_000, false), (100, true)] {
        let mut bytes = frame(true, Opcode::Binary, None, &vec![3; length]);
        let mut last = bytes.split_off(bytes.len() - 1);
        let first_bytes = bytes.len();
        assert_eq!(reader.read(&rules, &mut bytes), Ok((first_bytes, None)));
        assert_eq!(reader.read(&rules, &mut last), Ok((1, Some(Event::Binary(&vec![3; length])))));
        assert_eq!(reader.read(&rules, &mut []), Ok((0, None)));
        assert_eq!(reader.buffer.capacity() > 0, kept);
        assert!(reader.buffer.capacity() <= KEPT_BYTES_MAX);
    }
}

#[test]
fn a_violation_is_told_in_a_close_frame_that_the_reader_takes() {
    for violation in [Violation::ReservedBits, Violation::MessageTooBig, Violation::InvalidText] {
        let mut out = Vec::new();
        write_close(&mut out, None, Some(violation.close_code()), violation.text());
        assert_eq!(events(&out), (vec![Seen::Close(Some(violation.close_code()), violation.text().into())], None));
    }
    assert_eq!(Violation::Masked.close_code(), 1002);
    assert_eq!(Violation::InvalidText.close_code(), 1007);
    assert_eq!(Violation::MessageTooBig.close_code(), 1009);
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "\\PC{0,60}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..20),
        prop::collection::vec(any::<u8>(), 120..140),
        prop::collection::vec(any::<u8>(), 900..1100),
    ]
}

/// Streams that are valid, odd or broken: frames in any order, and noise.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let data = (any::<bool>(), 0..3usize, payloads()).prop_map(|(fin, opcode, payload)| {
        frame(fin, [Opcode::Continuation, Opcode::Text, Opcode::Binary][opcode], Some(KEY), &payload)
    });
    let control = (0..3usize, "\\PC{0,20}").prop_map(|(opcode, payload)| {
        let payload = if opcode == 0 { [b"\x03\xe8", payload.as_bytes()].concat() } else { payload.into_bytes() };
        frame(true, [Opcode::Close, Opcode::Ping, Opcode::Pong][opcode], Some(KEY), &payload)
    });
    let noise = prop::collection::vec(any::<u8>(), 0..6);
    prop::collection::vec(prop_oneof![6 => data, 3 => control, 1 => noise], 0..8).prop_map(|parts| parts.concat())
}

/// A message, its fragments, and true if a ping comes between them.
fn messages() -> impl Strategy<Value = Vec<(Seen, Vec<usize>, bool)>> {
    let message = prop_oneof![
        "\\PC{0,100}".prop_map(|text| Seen::Text(text.into_bytes())),
        prop::collection::vec(any::<u8>(), 0..LIMIT).prop_map(Seen::Binary),
    ];
    prop::collection::vec((message, prop::collection::vec(0..LIMIT, 0..4), any::<bool>()), 0..5)
}

fn pieces(stream: &[u8], cuts: Vec<prop::sample::Index>) -> Vec<&[u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    at.extend([0, stream.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn cutting_a_stream_anywhere_changes_nothing(
        stream in streams(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        let whole = read(true, &[&stream]);
        prop_assert_eq!(&read(true, &pieces(&stream, cuts)), &whole);
        prop_assert_eq!(&read(true, &bytes), &whole);
    }

    #[test]
    fn a_truncated_stream_gives_a_prefix_of_the_events(stream in streams(), cut: prop::sample::Index) {
        let (part, whole) = (read(true, &[&stream[..cut.index(stream.len() + 1)]]), read(true, &[&stream]));
        prop_assert!(whole.0.starts_with(&part.0), "{part:?} of {whole:?}");
        prop_assert!(part.1.is_none() || part == whole);
    }

    #[test]
    fn what_was_sent_is_read_however_it_is_fragmented_and_cut(
        messages in messages(),
        mask: Option<MaskKey>,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let (mut stream, mut sent) = (Vec::new(), Vec::new());
        for (message, fragments, ping) in messages {
            let (mut opcode, payload) = match &message {
                Seen::Text(payload) => (Opcode::Text, payload.clone()),
                Seen::Binary(payload) => (Opcode::Binary, payload.clone()),
                _ => unreachable!("control frames are no messages"),
            };
            let mut ends: Vec<usize> = fragments.into_iter().map(|end| end.min(payload.len())).collect();
            ends.sort_unstable();
            let mut start = 0;
            for end in ends {
                stream.extend(frame(false, opcode, mask, &payload[start..end]));
                (start, opcode) = (end, Opcode::Continuation);
                if ping {
                    stream.extend(frame(true, Opcode::Ping, mask, b"between"));
                    sent.push(Seen::Ping(b"between".into()));
                }
            }
            stream.extend(frame(true, opcode, mask, &payload[start..]));
            sent.push(message);
        }
        prop_assert_eq!(read(mask.is_some(), &pieces(&stream, cuts)), (sent, None));
    }

    #[test]
    fn no_bytes_make_it_panic(stream in prop::collection::vec(any::<u8>(), 0..200), peer_masks: bool) {
        let _ = read(peer_masks, &[&stream]);
    }
}
