//! Parses StatsD and DogStatsD. In: the bytes of a datagram. Out: its lines, and the content of each, borrowed from the
//! bytes: nothing is allocated. `store` adds up, `names` makes names.
//!
//! The form: `name:value|type`, then fields in any order: `@rate`, `#tag:value,tag`, `TSECONDS`. Other fields are
//! ignored (the container's id `c:`, and additions of later DogStatsD versions).

use memchr::{memchr, memchr_iter};

/// The content of a well-formed line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line<'a> {
    Metric(Metric<'a>),
    /// An event or a service check of DogStatsD.
    Notice,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric<'a> {
    /// Not empty.
    pub name: &'a [u8],
    /// The text after the `#`, as sent; empty: none.
    pub tags: &'a [u8],
    /// The share of events that the sender reports, in (0, 1].
    pub rate: f64,
    pub value: Value<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Counter(Numbers<'a>),
    Gauge(Numbers<'a>),
    /// A timer, a histogram or a distribution: the store treats them alike.
    Timing(Numbers<'a>),
    /// The value as any text, which may contain colons.
    Set(&'a [u8]),
}

/// The values of one line: usually one, or several in a row (DogStatsD 1.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers<'a> {
    first: Number,
    /// The text after the first colon; all of it is valid numbers.
    rest: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// Finite.
    pub value: f64,
    /// Written with `+` or `-`: for a gauge, a difference.
    pub signed: bool,
}

impl<'a> Numbers<'a> {
    fn parse(text: &'a [u8]) -> Option<Numbers<'a>> {
        let Some(colon) = memchr(b':', text) else {
            return Some(Numbers { first: number(text)?, rest: None });
        };
        let rest = &text[colon + 1..];
        let all = rest.split(|byte| *byte == b':').all(|text| number(text).is_some());
        all.then_some(Numbers { first: number(&text[..colon])?, rest: Some(rest) })
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Number> + use<'a> {
        let rest = self.rest.map(|rest| rest.split(|byte| *byte == b':'));
        std::iter::once(self.first).chain(rest.into_iter().flatten().filter_map(number))
    }
}

/// The lines of a datagram, without empty ones.
pub fn lines(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    let ends = memchr_iter(b'\n', datagram).chain(std::iter::once(datagram.len()));
    ends.filter_map(move |end| {
        let mut line = &datagram[start..end];
        start = end + 1;
        // Strip all of them, so that a line has the same content when it is sent alone.
        while let [shorter @ .., b'\r'] = line {
            line = shorter;
        }
        (!line.is_empty()).then_some(line)
    })
}

/// Parses a line. None if it is malformed.
#[inline]
pub fn parse(line: &[u8]) -> Option<Line<'_>> {
    if line.first() == Some(&b'_') {
        if let Some(event) = line.strip_prefix(b"_e{") {
            return is_event(event).then_some(Line::Notice);
        }
        if let Some(check) = line.strip_prefix(b"_sc|") {
            return is_service_check(check).then_some(Line::Notice);
        }
    }
    metric(line).map(Line::Metric)
}

fn metric(line: &[u8]) -> Option<Metric<'_>> {
    let bar = memchr(b'|', line)?;
    let (named, rest) = (&line[..bar], &line[bar + 1..]);
    let colon = memchr(b':', named)?;
    let (name, text) = (&named[..colon], &named[colon + 1..]);
    if name.is_empty() {
        return None;
    }
    let (kind, mut fields) = field(rest);
    let value = match kind {
        b"c" => Value::Counter(Numbers::parse(text)?),
        b"g" => Value::Gauge(Numbers::parse(text)?),
        b"ms" | b"h" | b"d" => Value::Timing(Numbers::parse(text)?),
        b"s" if !text.is_empty() => Value::Set(text),
        _ => return None,
    };
    let (mut rate, mut tags) = (None, None);
    while let Some(rest) = fields {
        let (text, next) = field(rest);
        fields = next;
        match text {
            // A repeated field has no clear meaning.
            [b'@', ..] if rate.is_some() => return None,
            [b'#', ..] if tags.is_some() => return None,
            [b'@', text @ ..] => rate = Some(number(text)?.value),
            [b'#', text @ ..] => tags = Some(text),
            [b'T', text @ ..] if text.is_empty() || !text.iter().all(u8::is_ascii_digit) => return None,
            _ => (),
        }
    }
    let rate = rate.unwrap_or(1.0);
    (rate > 0.0 && rate <= 1.0).then_some(Metric { name, tags: tags.unwrap_or_default(), rate, value })
}

/// The text up to the next bar, and the rest after it.
#[inline]
fn field(rest: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr(b'|', rest) {
        None => (rest, None),
        Some(bar) => (&rest[..bar], Some(&rest[bar + 1..])),
    }
}

/// Whole numbers of up to so many digits are exact in a double, and so is their conversion.
const EXACT_DIGITS: usize = 15;

#[inline]
fn number(text: &[u8]) -> Option<Number> {
    let signed = matches!(text, [b'+' | b'-', ..]);
    let digits = &text[usize::from(signed)..];
    if digits.is_empty() || digits.len() > EXACT_DIGITS {
        return any_number(text, signed);
    }
    let mut whole = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return any_number(text, signed);
        }
        whole = 10 * whole + u64::from(digit - b'0');
    }
    let value = whole as f64;
    Some(Number { value: if text[0] == b'-' { -value } else { value }, signed })
}

/// Parses fractions, exponents, and more digits. `inf` and `nan`, which the standard library accepts, are no values of
/// a metric.
#[cold]
fn any_number(text: &[u8], signed: bool) -> Option<Number> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(Number { value, signed })
}

/// Parses the text after `_e{`: the lengths of title and text, then both: `5,4}:title|text`, and any fields.
fn is_event(rest: &[u8]) -> bool {
    let length = |text: &[u8]| -> Option<usize> { std::str::from_utf8(text).ok()?.parse().ok() };
    let parts = || {
        let (lengths, said) = rest.split_at(memchr(b'}', rest)?);
        let (title, text) = lengths.split_at(memchr(b',', lengths)?);
        let (title, text) = (length(title)?, length(&text[1..])?);
        let said = said.strip_prefix(b"}:")?;
        let bar = said.get(title)?;
        let end = title.checked_add(text)?.checked_add(1)?;
        Some(title > 0 && *bar == b'|' && said.len() >= end && matches!(said.get(end), None | Some(b'|')))
    };
    parts().unwrap_or(false)
}

/// Parses the text after `_sc|`: `name|status`, and any fields.
fn is_service_check(rest: &[u8]) -> bool {
    let (name, rest) = field(rest);
    let status = rest.map(|rest| field(rest).0);
    !name.is_empty() && matches!(status, Some([b'0'..=b'3']))
}
