use std::collections::BTreeMap;

use proptest::prelude::*;

use super::oracle::{by_cutting, said};
use super::parse::{Line, lines, parse};
use super::store::{NAME_MAX, NAMES_MAX, SERIES_MAX, SET_VALUES_MAX, SETS_FULL, Store};

/// The store after these lines, sent as one datagram.
fn stored(text: &str) -> Store {
    let mut store = Store::default();
    store.datagram(text.as_bytes(), true);
    store
}

fn assert_values(text: &str, expected: &[(&str, f64)]) {
    let store = stored(text);
    let expected: BTreeMap<String, f64> = expected.iter().map(|(name, value)| (String::from(*name), *value)).collect();
    assert_eq!((store.values(), store.malformed), (expected, 0), "{text}");
}

#[test]
fn each_kind_of_metric_is_kept_as_its_kind() {
    assert_values("a:1|c\na:2.5|c\na:-1|c", &[("a_total", 2.5)]);
    assert_values("a:5|g\na:+3|g\na:-1|g", &[("a", 7.0)]);
    assert_values("a:-4|g", &[("a", -4.0)]);
    assert_values("a:1|s\na:b:c|s\na:1|s", &[("a", 2.0)]);
    let timing = [("t_count", 3.0), ("t_max", 30.0), ("t_sum", 60.0)];
    assert_values("t:10|ms\nt:20|h\nt:30|d", &timing);
    assert_values("t:-3|ms", &[("t_count", 1.0), ("t_max", -3.0), ("t_sum", -3.0)]);
}

#[test]
fn a_sample_stands_for_those_that_were_not_sent() {
    assert_values("a:1|c|@0.1\na:2|c|@0.5\na:1|c|@1", &[("a_total", 15.0)]);
    assert_values("t:10|ms|@0.25", &[("t_count", 4.0), ("t_max", 10.0), ("t_sum", 40.0)]);
    assert_values("a:3|g|@0.5", &[("a", 3.0)]);
    assert_eq!(stored("a:1|c|@0.1").updates, 1);
}

#[test]
fn what_dogstatsd_added_is_understood() {
    assert_values("a:1|c|#b:x,c", &[("a_total{b=\"x\",c=\"\"}", 1.0)]);
    assert_values("a:1|c|#c,b:x\na:1|c|#b:x,c", &[("a_total{b=\"x\",c=\"\"}", 2.0)]);
    assert_values("t:1:2:3|d\na:1:+2|g", &[("a", 3.0), ("t_count", 3.0), ("t_max", 3.0), ("t_sum", 6.0)]);
    assert_values("a:2|c|@0.5|#b|c:in-7|T1656581400|e:it-false|card:low|", &[("a_total{b=\"\"}", 4.0)]);
    assert_values("_e{5,4}:title|text|#a:b\n_e{1,0}:x|\n_sc|db.up|0|m:fine", &[]);
    let store = stored("_e{5,4}:title|text\n_sc|db.up|3\nt:1:2:3|h\na:1|c");
    assert_eq!((store.updates, store.malformed), (6, 0));
}

#[test]
fn a_datagram_holds_lines_of_any_ends() {
    assert_values("\na:1|c\r\n\r\na:1|c\n\n", &[("a_total", 2.0)]);
    assert_values("a:1|c\r\r\n\r", &[("a_total", 1.0)]);
    assert_values("", &[]);
}

const MALFORMED: &[&str] = &[
    "a",
    ":",
    "|",
    "a|c",
    "a:|c",
    "a:1",
    "a:1|",
    "a:1|x",
    "a:1|C",
    "a:1|m",
    ":1|c",
    "a:1|c|@",
    "a:1|c|@0",
    "a:1|c|@1.1",
    "a:1|c|@-1",
    "a:1|c|@x",
    "a:1|c|@1|@1",
    "a:1|c|#a|#b",
    "a:x|c",
    "a:inf|c",
    "a:nan|g",
    "a:1e999|c",
    "a:1 |c",
    "a:+-1|g",
    "a:1::2|d",
    "a:1:|d",
    "a:1:x|c",
    "a:|s",
    "a:1|c|T",
    "a:1|c|T1.5",
    "a:--1|g",
    "_e{5,4}:tit|text",
    "_e{5,4}title|text",
    "_e{5,4}:title|tex",
    "_e{99999999999999999999,1}:a|b",
    "_sc|x",
    "_sc||0",
];

#[test]
fn malformed_lines_are_counted_and_their_neighbours_kept() {
    for line in MALFORMED {
        let store = stored(&format!("good:1|c\n{line}\ngood:1|c"));
        assert_eq!((store.updates, store.malformed), (2, 1), "{line}");
        assert_eq!(store.values(), BTreeMap::from([("good_total".into(), 2.0)]), "{line}");
    }
}

#[test]
fn the_line_that_was_cut_off_is_refused_even_if_it_looks_whole() {
    let mut store = Store::default();
    store.datagram(b"a:1|c\na:1", false);
    store.datagram(b"a:1|c\na:12|c", false);
    store.datagram(b"a:12|c", false);
    assert_eq!((store.updates, store.malformed), (2, 3));
    assert_eq!(store.values()["a_total"], 2.0);
}

#[test]
fn a_name_belongs_to_the_kind_that_came_first() {
    for (first, second) in
        [("a:1|g", "a:1|s"), ("a_total:1|g", "a:1|c"), ("t_sum:1|g", "t:1|ms"), ("t:1|ms", "t_max:1|g")]
    {
        let store = stored(&format!("{first}\n{second}\n{second}\n{first}"));
        assert_eq!((store.updates, store.malformed), (2, 2), "{first} {second}");
    }
    assert_values("a:1|g\na:1|c", &[("a", 1.0), ("a_total", 1.0)]);
}

#[test]
fn sums_that_json_cannot_tell_are_refused_and_change_nothing() {
    let store = stored("a:1e308|c\na:1e308|c\nt:1e308|ms|@0.1\ng:1e308|g\ng:+1e308|g\nb:1:1e308:1e308|c");
    assert_eq!((store.updates, store.malformed), (2, 4));
    let values = BTreeMap::from([("a_total".into(), 1e308), ("g".into(), 1e308), ("b_total".into(), 0.0)]);
    assert_eq!(store.values(), values);
}

#[test]
fn there_are_so_many_series_and_no_more() {
    let mut store = Store::default();
    for number in 0..SERIES_MAX + 10 {
        store.datagram(format!("a{number}:1|c\na0:1|c|#").as_bytes(), true);
    }
    assert_eq!((store.values().len(), store.malformed), (SERIES_MAX, 10));
    assert_eq!(store.values()["a0_total"], (SERIES_MAX + 11) as f64);
}

#[test]
fn spellings_beyond_those_kept_count_all_the_same() {
    let mut store = Store::default();
    let tags = |number: usize| format!("{}b", ",".repeat(number % 2_000));
    let mut sent = 0;
    for number in 0..30_000 {
        let line = format!("a{}:1|c|#{}", number / 2_000, tags(number));
        store.datagram(line.as_bytes(), true);
        sent += 1;
    }
    assert_eq!(store.values().values().sum::<f64>(), f64::from(sent));
    assert_eq!((store.values().len(), store.malformed), (15, 0));
}

#[test]
fn a_name_may_be_so_long_and_no_longer() {
    let name = "a".repeat(NAME_MAX - 1);
    let store = stored(&format!("{name}:1|c|#b\n{name}:1|c|#bb\n{name}b:1|c\n{name}bb:1|c"));
    assert_eq!((store.updates, store.malformed), (2, 2));
}

#[test]
fn names_are_bounded_together() {
    let mut store = Store::default();
    let tag = "b".repeat(NAME_MAX - 10);
    for number in 0..SERIES_MAX {
        store.datagram(format!("a{number}:1|ms|#{tag}").as_bytes(), true);
    }
    assert!(store.malformed > 0);
    assert!(store.values().keys().map(String::len).sum::<usize>() <= NAMES_MAX);
}

#[test]
fn sets_that_are_full_say_so() {
    let mut store = Store::default();
    for number in 0..SET_VALUES_MAX {
        if number + 1 == SET_VALUES_MAX {
            assert!(!store.values().contains_key(SETS_FULL));
        }
        store.datagram(format!("s{}:{number}|s", number % 2).as_bytes(), true);
    }
    store.datagram(b"s0:0|s\ns0:new|s", true);
    let expected = [("s0", SET_VALUES_MAX as f64 / 2.0), ("s1", SET_VALUES_MAX as f64 / 2.0), (SETS_FULL, 1.0)];
    assert_eq!(store.values(), expected.map(|(name, value)| (name.to_owned(), value)).into());
    assert_eq!(store.malformed, 1);
}

/// The examples on the page give the results that the page states.
#[test]
fn the_page_tells_the_truth() {
    let page = include_str!("../../../docs/statsd.md");
    let block = |mark: &str| page.split(mark).nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    for example in block("```text accepted").lines().filter(|line| !line.is_empty()) {
        let (line, values) = example.split_once("   ").expect("a line and its values");
        let store = stored(line.trim());
        let said = store.values().iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
        let said = if said.is_empty() { "nothing" } else { &said };
        assert_eq!((said, store.malformed), (values.trim(), 0), "{line}");
    }
    for line in block("```text refused").lines().filter(|line| !line.is_empty()) {
        assert!(parse(line.as_bytes()).is_none(), "{line}");
    }
    let thousands = |number: usize| {
        let digits = number.to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|three| str::from_utf8(three).unwrap()).collect();
        groups.join(",")
    };
    for limit in [SERIES_MAX, NAME_MAX, SET_VALUES_MAX] {
        assert!(page.contains(&thousands(limit)), "{limit}");
    }
}

fn line() -> impl Strategy<Value = String> {
    let name = "[a-c]{1,2}(\\.[a-c0-9])?";
    let value = prop_oneof!["[+-]?[0-9]{1,17}", "[+-]?[0-9]{0,3}\\.?[0-9]{0,3}(e[0-9])?", "[a-z:+0-9.-]{0,6}"];
    let kind = prop_oneof![4 => "c|g|ms|h|d|s", 1 => "[a-z]{0,2}"];
    let field = prop_oneof!["@[0-9.]{1,4}", "#[a-c:,]{0,6}", "c:[a-z]{0,3}", "T[0-9]{0,3}", "[ -~]{0,3}"];
    (name, prop::collection::vec(value, 1..3), kind, prop::collection::vec(field, 0..3)).prop_map(
        |(name, values, kind, fields)| {
            let fields: String = fields.iter().map(|field| format!("|{field}")).collect();
            format!("{name}:{}|{kind}{fields}", values.join(":"))
        },
    )
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_every_line_is_accounted_for(bytes: Vec<u8>, whole: bool) {
        let mut store = Store::default();
        store.datagram(&bytes, whole);
        prop_assert!(store.values().values().all(|value| value.is_finite()));
        if whole {
            let accepted = lines(&bytes).filter(|line| parse(line).is_some()).count() as u64;
            prop_assert!(store.updates + store.malformed >= lines(&bytes).count() as u64);
            prop_assert!(store.malformed + accepted >= lines(&bytes).count() as u64);
        }
    }

    #[test]
    fn a_line_says_what_the_slow_way_finds(line in line()) {
        prop_assert_eq!(parse(line.as_bytes()).map(said), by_cutting(line.as_bytes()), "{}", line);
    }

    #[test]
    fn so_do_bytes_that_are_nearly_a_line(bytes in "[a_][a:|@#.,0-9csT{}e\u{0}é-]{0,12}") {
        prop_assert_eq!(parse(bytes.as_bytes()).map(said), by_cutting(bytes.as_bytes()), "{}", bytes);
    }

    #[test]
    fn counters_add_up_to_what_was_sent(
        sent in prop::collection::vec((0..5usize, -1_000_000i64..1_000_000, 0..3u32), 0..200),
        per_datagram in 1..40usize,
    ) {
        let mut expected = BTreeMap::new();
        let mut texts = Vec::new();
        for (series, value, halvings) in sent {
            *expected.entry(format!("m{series}_total")).or_insert(0.0) += (value << halvings) as f64;
            let rate = ["", "|@0.5", "|@0.25"][halvings as usize];
            texts.push(format!("m{series}:{value}|c{rate}"));
        }
        let mut store = Store::default();
        for datagram in texts.chunks(per_datagram) {
            store.datagram(datagram.join("\n").as_bytes(), true);
        }
        prop_assert_eq!(store.values(), expected);
        prop_assert_eq!((store.updates, store.malformed), (texts.len() as u64, 0));
    }

    #[test]
    fn how_lines_are_put_into_datagrams_changes_nothing(sent in prop::collection::vec(line(), 0..40)) {
        let together = stored(&sent.join("\n"));
        let mut apart = Store::default();
        for line in &sent {
            apart.datagram(line.as_bytes(), true);
        }
        prop_assert_eq!(together.values(), apart.values());
        prop_assert_eq!((together.updates, together.malformed), (apart.updates, apart.malformed));
    }

    #[test]
    fn tags_in_any_order_are_one_series(mut tags in prop::collection::vec("[a-c](:[x-z]{0,2})?", 0..6), seed: u64) {
        let before = stored(&format!("a:1|c|#{}", tags.join(","))).values();
        let turn = seed as usize % tags.len().max(1);
        tags.rotate_left(turn);
        tags.reverse();
        prop_assert_eq!(stored(&format!("a:1|c|#{}", tags.join(","))).values(), before);
    }
}

#[test]
fn nothing_is_a_notice_but_what_begins_as_one() {
    assert_eq!(parse(b"_sc|a|0"), Some(Line::Notice));
    assert!(matches!(parse(b"_scx:1|c"), Some(Line::Metric(_))));
    assert!(parse(b"").is_none());
}
