//! Lengths of time in options and queries.

use std::str::FromStr;

/// A length of time as people write it: `250us`, `1.5ms`, `2s`, `1m`, `0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub ns: u64,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
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
        let ns = number * unit_ns;
        if ns > 86_400e9 {
            return Err(format!("`{text}` is longer than a day"));
        }
        Ok(Span { ns: ns.round() as u64 })
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
            assert_eq!(text.parse::<Span>(), Ok(Span { ns }), "{text}");
        }
        for text in ["", "5", "ms", "1.2.3s", "-1ms", "10 ms", "5sec", "25h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
