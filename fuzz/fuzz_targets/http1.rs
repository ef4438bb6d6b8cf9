//! Fuzzes the parser of HTTP/1 responses. Its result must depend neither on how the bytes are cut nor on the head that
//! the cache remembers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use powerband_fuzz::load::http1::contains::Needles;
use powerband_fuzz::load::http1::parse::{Expected, HeadCache, Parser, Partial, Progress, Response};

#[derive(Debug, Default, PartialEq)]
struct Read {
    responses: Vec<Response>,
    bad: bool,
}

fuzz_target!(|input: &[u8]| {
    // The first byte says what was requested, the second how the answer is cut.
    let [asked, piece, stream @ ..] = input else { return };
    let texts: &[String] = if asked & 2 == 2 { &["ab".into()] } else { &[] };
    let expected = Expected { head: asked & 1 == 1, needles: Needles::new(texts) };
    let mut cache = HeadCache::default();
    let whole = read(&mut cache, &expected, stream, stream.len());
    assert_eq!(read(&mut cache, &expected, stream, stream.len()), whole, "with the last head remembered");
    assert_eq!(read(&mut HeadCache::default(), &expected, stream, usize::from(*piece)), whole);
    assert_eq!(read(&mut HeadCache::default(), &expected, stream, 1), whole);
});

fn read(cache: &mut HeadCache, expected: &Expected, stream: &[u8], piece: usize) -> Read {
    let (mut parser, mut partial, mut read) = (Parser::default(), Partial::default(), Read::default());
    for mut bytes in stream.chunks(piece.max(1)) {
        while !bytes.is_empty() {
            match parser.feed(cache, &mut partial, expected, bytes) {
                Progress::More => break,
                Progress::Done(used, response) => {
                    assert!(used <= bytes.len());
                    bytes = &bytes[used..];
                    read.responses.push(response);
                }
                Progress::Bad(_) => return Read { bad: true, ..read },
            }
        }
    }
    read.responses.extend(parser.end_of_stream(&mut partial, expected));
    read
}
