//! Parses a line in a slow and simple way: splits it at every bar first, then interprets the parts. Tests and the fuzz
//! target compare `parse` with it.

use crate::statsd::parse::{Line, Value};

#[derive(Debug, PartialEq)]
pub enum Said {
    Notice,
    Metric {
        kind: &'static str,
        name: Vec<u8>,
        tags: Vec<u8>,
        rate: f64,
        /// The numbers, each with true if it has a sign.
        numbers: Vec<(f64, bool)>,
        /// The value of a set.
        text: Vec<u8>,
    },
}

/// The result of `parse` in the oracle's form.
pub fn said(line: Line) -> Said {
    let Line::Metric(metric) = line else { return Said::Notice };
    let (kind, numbers, text) = match metric.value {
        Value::Counter(numbers) => ("counter", Some(numbers), vec![]),
        Value::Gauge(numbers) => ("gauge", Some(numbers), vec![]),
        Value::Timing(numbers) => ("timing", Some(numbers), vec![]),
        Value::Set(text) => ("set", None, text.to_vec()),
    };
    let numbers = numbers.iter().flat_map(|numbers| numbers.iter());
    let numbers = numbers.map(|number| (number.value, number.signed)).collect();
    Said::Metric { kind, name: metric.name.into(), tags: metric.tags.into(), rate: metric.rate, numbers, text }
}

/// Parses a line. None if it is malformed.
pub fn by_cutting(line: &[u8]) -> Option<Said> {
    let parts: Vec<&[u8]> = line.split(|byte| *byte == b'|').collect();
    if line.starts_with(b"_e{") {
        return event(line).then_some(Said::Notice);
    }
    if parts[0] == b"_sc" && parts.len() > 1 {
        let status = parts.get(2).copied().unwrap_or_default();
        let good = !parts[1].is_empty() && status.len() == 1 && b"0123".contains(&status[0]);
        return good.then_some(Said::Notice);
    }
    let (Some(typed), mut words) = (parts.get(1), parts[0].split(|byte| *byte == b':')) else { return None };
    let name = words.next().filter(|name| !name.is_empty())?;
    let values: Vec<&[u8]> = words.collect();
    let one = |mark: u8| {
        let mut all = parts[2..].iter().filter(|part| part.first() == Some(&mark)).map(|part| &part[1..]);
        let first = all.next();
        if all.next().is_some() { None } else { Some(first) }
    };
    let rate = match one(b'@')? {
        None => 1.0,
        Some(text) => number(text)?.0,
    };
    let tags = one(b'#')?.unwrap_or_default();
    let is_time = |part: &[u8]| part.len() > 1 && part[1..].iter().all(u8::is_ascii_digit);
    let times_are_good = parts[2..].iter().filter(|part| part.starts_with(b"T")).all(|part| is_time(part));
    if values.is_empty() || rate <= 0.0 || rate > 1.0 || !times_are_good {
        return None;
    }
    let (kind, numbers, text) = match *typed {
        b"s" => ("set", Some(vec![]), values.join(&b':')),
        b"c" => ("counter", values.into_iter().map(number).collect(), vec![]),
        b"g" => ("gauge", values.into_iter().map(number).collect(), vec![]),
        b"ms" | b"h" | b"d" => ("timing", values.into_iter().map(number).collect(), vec![]),
        _ => return None,
    };
    let said = Said::Metric { kind, name: name.into(), tags: tags.into(), rate, numbers: numbers?, text };
    match &said {
        Said::Metric { kind: "set", text, .. } if text.is_empty() => None,
        _ => Some(said),
    }
}

fn number(text: &[u8]) -> Option<(f64, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some((value, text.starts_with(['+', '-'])))
}

/// Parses `_e{title,text}:title|text`, and any fields.
fn event(line: &[u8]) -> bool {
    let Some(end) = line.windows(2).position(|two| two == b"}:") else { return false };
    let Ok(lengths) = std::str::from_utf8(&line[3..end]) else { return false };
    let Some((title, text)) = lengths.split_once(',') else { return false };
    let (Ok(title), Ok(text)) = (title.parse::<usize>(), text.parse::<usize>()) else { return false };
    let said = &line[end + 2..];
    let fits = title.checked_add(text).is_some_and(|length| length < said.len());
    fits && title > 0 && said[title] == b'|' && said.get(title + 1 + text).is_none_or(|next| *next == b'|')
}
