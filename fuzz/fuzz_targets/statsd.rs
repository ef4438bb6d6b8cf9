//! Fuzzes the StatsD sink. A line must be parsed as by the slow and plain parser, and counted; kept values must be
//! finite and have valid names; and the result must not depend on how lines are put into datagrams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use powerband_fuzz::statsd::parse::{lines, parse};
use powerband_fuzz::statsd::store::Store;
use powerband_fuzz::statsd_oracle::{Said, by_cutting, said};

fuzz_target!(|input: &[u8]| {
    let (mut together, mut apart) = (Store::default(), Store::default());
    let (mut values, mut refused) = (0, 0);
    for line in lines(input) {
        let found = parse(line).map(said);
        assert_eq!(found, by_cutting(line), "{}", line.escape_ascii());
        match found {
            Some(Said::Metric { numbers, .. }) => values += numbers.len().max(1) as u64,
            Some(Said::Notice) => values += 1,
            None => refused += 1,
        }
        apart.datagram(line, true);
    }
    together.datagram(input, true);
    // A store also refuses names that are used for two kinds, and sums that are not finite.
    assert!(together.updates <= values && together.malformed >= refused);
    assert_eq!((together.updates, together.malformed), (apart.updates, apart.malformed));
    let kept = together.values();
    assert_eq!(kept, apart.values());
    assert!(kept.values().all(|value| value.is_finite()));
    assert!(kept.keys().all(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')));
    together.datagram(input, false);
});
