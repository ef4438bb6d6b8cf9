//! Fuzzes the parser of metrics pages. Its result must not depend on how an answer is cut into pieces, and must contain
//! only finite values of the requested metrics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use powerband_fuzz::probe::page::{Answer, Known};

fuzz_target!(|input: &[u8]| {
    // The first byte says how the answer is cut.
    let [piece, bytes @ ..] = input else { return };
    let whole = read(bytes, bytes.len());
    assert_eq!(read(bytes, usize::from(*piece)), whole);
    assert_eq!(read(bytes, 1), whole);
    let Ok(text) = whole else { return };
    let names = ["a".to_owned(), "b:c".to_owned()];
    let mut known = Known::default();
    let values = known.read(&text, &names);
    assert_eq!(known.read(&text, &names), values, "with all series known");
    for (series, value) in values.into_iter().flatten() {
        let name = series.split('{').next();
        assert!(value.is_finite() && names.iter().any(|wanted| Some(wanted.as_str()) == name), "{series}");
    }
});

fn read(bytes: &[u8], piece: usize) -> Result<String, String> {
    let mut answer = Answer::default();
    for piece in bytes.chunks(piece.max(1)) {
        if answer.add(piece)? {
            break;
        }
    }
    answer.text()
}
