use super::*;
use proptest::prelude::*;

fn expected(head: bool, texts: &[&str]) -> Expected {
    Expected { head, needles: Needles::new(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>()) }
}

/// All responses in a stream that arrives in these pieces and then ends, and the error that ended it.
fn parse(pieces: &[&[u8]], expected: &Expected) -> (Vec<Response>, Option<&'static str>) {
    let (mut parser, mut cache, mut partial) = (Parser::default(), HeadCache::default(), Partial::default());
    let mut responses = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            match parser.feed(&mut cache, &mut partial, expected, rest) {
                Progress::More => break,
                Progress::Done(used, response) => {
                    assert!(parser == Parser::default() && partial.is_empty());
                    responses.push(response);
                    rest = &rest[used..];
                }
                Progress::Bad(reason) => return (responses, Some(reason)),
            }
        }
    }
    responses.extend(parser.end_of_stream(&mut partial, expected));
    (responses, None)
}

fn one(bytes: &str, head: bool, texts: &[&str]) -> Response {
    let (responses, bad) = parse(&[bytes.as_bytes()], &expected(head, texts));
    assert_eq!((responses.len(), bad), (1, None), "{bytes}");
    responses[0]
}

fn ok(status: u16) -> Response {
    Response { status, closes: false, contains: true }
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn bodies_end_where_their_head_says() {
    assert_eq!(one("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false, &[]), ok(200));
    assert_eq!(one("HTTP/1.1 404 Not Found\nContent-Length: 0\n\n", false, &[]), ok(404));
    assert_eq!(one("HTTP/1.1 204 No Content\r\n\r\n", false, &[]), ok(204));
    assert_eq!(one("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", false, &[]), ok(304));
    assert_eq!(one("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true, &[]), ok(200));
    assert_eq!(one(&format!("{CHUNKED}2;x=y\r\nhi\r\n0A\r\n0123456789\r\n0\r\nT: 1\r\n\r\n"), false, &[]), ok(200));
}

#[test]
fn heads_of_old_servers_are_understood() {
    assert_eq!(one("HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length:\r\n\t2\r\n\r\nhi", false, &[]), ok(200));
    assert_eq!(one("HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nhi", false, &[]), ok(200));
    assert_eq!(
        one("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi", false, &[]),
        ok(200)
    );
}

#[test]
fn a_body_may_end_with_the_connection() {
    let until_close = Response { status: 200, closes: true, contains: true };
    assert_eq!(one("HTTP/1.1 200 OK\r\n\r\nanything", false, &["any"]), until_close);
    assert_eq!(one("HTTP/1.0 200 OK\r\n\r\n", false, &[]), until_close);
}

#[test]
fn informational_responses_are_passed_over() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(one(text, false, &[]), ok(201));
}

#[test]
fn who_closes_is_understood() {
    let closes = |head: &str| one(&format!("{head}\r\nContent-Length: 0\r\n\r\n"), false, &[]).closes;
    assert!(closes("HTTP/1.1 200 OK\r\nConnection: close"));
    assert!(closes("HTTP/1.1 200 OK\r\nconnection: x, Close"));
    assert!(closes("HTTP/1.1 200 OK\r\nConnection: close\r\nConnection: keep-alive"));
    assert!(closes("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nConnection: close"));
    assert!(closes("HTTP/1.0 200 OK"));
    assert!(!closes("HTTP/1.0 200 OK\r\nConnection: keep-alive"));
    assert!(!closes("HTTP/1.1 200 OK"));
}

#[test]
fn texts_are_found_across_chunks() {
    let text = format!("{CHUNKED}3\r\nhel\r\n4\r\nlo w\r\n4\r\norld\r\n0\r\n\r\n");
    assert!(one(&text, false, &["hello world", "ello"]).contains);
    assert!(!one(&text, false, &["hello\r\n", "hello"]).contains);
}

#[test]
fn pipelined_responses_come_apart() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".repeat(16);
    assert_eq!(parse(&[text.as_bytes()], &expected(false, &[])), (vec![ok(200); 16], None));
}

#[test]
fn what_is_no_response_is_refused() {
    let refused = |text: &str| parse(&[text.as_bytes()], &expected(false, &[])).1.is_some();
    for text in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/2 200\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    ] {
        assert!(refused(text), "{text}");
    }
    assert!(refused(&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(70_000))));
}

/// Streams that are valid, odd or broken: the pieces of real responses in any order, and noise.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec()),
        Just(b"HTTP/1.1 500 Oops\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec()),
        Just(format!("{CHUNKED}5\r\nhello\r\n1;q\r\n!\r\n0\r\nA: b\r\n\r\n").into_bytes()),
        Just(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
        Just(b"HTTP/1.0 200 OK\r\n\r\nrest".to_vec()),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn cutting_a_stream_anywhere_changes_nothing(stream in streams(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let expected = expected(false, &["hello!"]);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        let whole = parse(&[&stream], &expected);
        prop_assert_eq!(&parse(&pieces, &expected).0, &whole.0);
        prop_assert_eq!(parse(&pieces, &expected).1.is_some(), whole.1.is_some());
        prop_assert_eq!(&parse(&bytes, &expected).0, &whole.0);
    }

    #[test]
    fn a_truncated_stream_gives_a_prefix_of_the_responses(stream in streams(), cut: prop::sample::Index) {
        let expected = expected(false, &[]);
        let complete = |bytes: &[u8]| {
            let closing = |response: &Response| response.closes;
            let mut responses = parse(&[bytes], &expected).0;
            if responses.last().is_some_and(closing) {
                responses.pop();
            }
            responses
        };
        let (part, whole) = (complete(&stream[..cut.index(stream.len() + 1)]), parse(&[&stream], &expected).0);
        prop_assert!(whole.starts_with(&part), "{part:?} of {whole:?}");
    }
}
