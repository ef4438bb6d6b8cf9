//! Lengths of time as people write them, in options and queries: `250us`, `1.5ms`, `2s`, `1m`, `0`.

/// A length of time in ns.
pub fn parse_ns(text: &str) -> Result<u64, String> {
    let help = || format!("`{text}` is no time: write a number and ns, us, ms, s, m or h, as in 250us or 1.5ms");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..split].parse().map_err(|_| help())?;
    let unit_ns = match &text[split..] {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        "" if number == 0.0 => 1.0,
        _ => return Err(help()),
    };
    Ok((number * unit_ns).round() as u64)
}

/// A length of time of at most a day in ns.
pub fn within_a_day_ns(text: &str) -> Result<u64, String> {
    match parse_ns(text)? {
        ns if ns > 86_400_000_000_000 => Err(format!("`{text}` is longer than a day")),
        ns => Ok(ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, ns) in [
            ("0", 0),
            ("0ms", 0),
            ("250us", 250_000),
            ("1.5ms", 1_500_000),
            ("2s", 2_000_000_000),
            ("1m", 60_000_000_000),
        ] {
            assert_eq!(within_a_day_ns(text), Ok(ns), "{text}");
        }
        for text in ["", "5", "ms", "1.2.3s", "-1ms", "10 ms", "5sec", "1e400s", "fast"] {
            assert!(parse_ns(text).is_err(), "{text}");
        }
        assert_eq!(parse_ns("25h"), Ok(90_000_000_000_000));
        assert!(within_a_day_ns("25h").is_err());
    }
}
