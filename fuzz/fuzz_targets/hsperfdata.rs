//! Fuzzes the parser of the files in which JVMs publish figures. Any file must give an event of bounded size,
//! or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use powerband_fuzz::probe::hsperfdata::Page;

fuzz_target!(|input: &[u8]| {
    let Ok(page) = Page::parse(input) else { return };
    assert_eq!(Page::parse(input).as_ref(), Ok(&page));
    let event = serde_json::to_string(&page.jvm(1, "subject", 2)).expect("an event is JSON");
    assert!(event.len() < 16 << 10, "{} bytes", event.len());
});
