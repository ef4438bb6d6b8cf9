//! Names the series of a metric as a Prometheus page would. In: a name and tags as sent, any bytes. Out: text. Two
//! spellings of one series (tags in another order) have one name.

/// The kind of a metric: metrics of two kinds never share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Timing,
    Set,
}

/// The series of one metric: three for a timing (`_count`, `_sum`, `_max`), one for any other.
pub fn series(kind: Kind, name: &[u8], tags: &[u8]) -> Vec<String> {
    let (name, labels) = (identifier(&String::from_utf8_lossy(name)), labels(tags));
    let suffixes: &[&str] = match kind {
        // A name that already ends in `_total` gets no second suffix.
        Kind::Counter if name.ends_with("_total") => &[""],
        Kind::Counter => &["_total"],
        Kind::Gauge | Kind::Set => &[""],
        Kind::Timing => &["_count", "_sum", "_max"],
    };
    suffixes.iter().map(|suffix| format!("{name}{suffix}{labels}")).collect()
}

/// The text reduced to letters, digits, `_` and `:`, not beginning with a digit.
fn identifier(text: &str) -> String {
    let keeps = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut name: String = text.chars().map(|c| if keeps(c) { c } else { '_' }).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

/// `{a="1",b=""}` for `b,a:1`; an empty text for no tags. A label of Prometheus has one value: the values of a tag that
/// occurs more than once are joined by commas.
fn labels(tags: &[u8]) -> String {
    let tags = String::from_utf8_lossy(tags);
    let mut pairs: Vec<(String, &str)> = tags
        .split(',')
        .filter(|tag| !tag.is_empty())
        .map(|tag| tag.split_once(':').unwrap_or((tag, "")))
        .map(|(name, value)| (identifier(name), value))
        .collect();
    pairs.sort();
    pairs.dedup();
    let of_one_name = pairs.chunk_by(|(a, _), (b, _)| a == b);
    let labels: Vec<String> = of_one_name
        .map(|pairs| {
            let values: Vec<&str> = pairs.iter().map(|(_, value)| *value).collect();
            format!("{}=\"{}\"", pairs[0].0, escaped(&values.join(",")))
        })
        .collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

/// Escapes a value for the quotes of the text format.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(name: &str, tags: &str) -> String {
        series(Kind::Counter, name.as_bytes(), tags.as_bytes()).concat()
    }

    #[test]
    fn names_are_those_of_a_prometheus_page() {
        assert_eq!(counter("reflection.received", ""), "reflection_received_total");
        assert_eq!(counter("a-b c/dé", ""), "a_b_c_d__total");
        assert_eq!(counter("requests_total", ""), "requests_total");
        assert_eq!(counter("2xx", ""), "_2xx_total");
        assert_eq!(series(Kind::Gauge, b"a\xff", b""), ["a_"]);
        assert_eq!(series(Kind::Set, b"users", b"x"), ["users{x=\"\"}"]);
        assert_eq!(series(Kind::Timing, b"t", b"a:1"), ["t_count{a=\"1\"}", "t_sum{a=\"1\"}", "t_max{a=\"1\"}"]);
    }

    #[test]
    fn tags_become_labels_in_one_order_each_once() {
        assert_eq!(counter("n", "b:2,a:1,c"), r#"n_total{a="1",b="2",c=""}"#);
        assert_eq!(counter("n", "a:1:2,,a:0,a:1:2,"), r#"n_total{a="0,1:2"}"#);
        assert_eq!(counter("n", ","), "n_total");
        assert_eq!(counter("n", "1 x:\"\\,:v"), r#"n_total{_="v",_1_x="\"\\"}"#);
    }
}
