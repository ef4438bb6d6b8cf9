//! Parses the answer of a metrics page. In: the bytes of an HTTP/1 answer as they arrive, which may be anything. Out:
//! the finite values of the requested series, or what is wrong, as the end of a sentence. Each byte is processed a
//! bounded number of times, in whatever pieces they arrive. The format: Prometheus text exposition 0.0.4.

use std::collections::{BTreeMap, HashSet};

use memchr::memmem;

use crate::statsd::store::{NAME_MAX, NAMES_MAX, SERIES_MAX};

const ANSWER_MAX: usize = 16 << 20; // arbitrary: far above any metrics page; the probe holds one answer in memory
const HEAD_MAX: usize = 64 << 10; // like the load engine's limit; a longer head is refused
/// The limit on the line before a chunk: its size and extensions.
const CHUNK_LINE_MAX: usize = 4 << 10;
const SHOWN: usize = 60; // characters of an answer in a message: enough to tell HTML from metrics
const BROKE_OFF: &str = "its answer broke off";

/// An answer as received so far.
#[derive(Default)]
pub struct Answer {
    bytes: Vec<u8>,
    /// None until the head is complete.
    body: Option<Body>,
}

/// How the body is delimited, and where it begins.
struct Body {
    at: usize,
    framing: Framing,
}

enum Framing {
    Length(usize),
    UntilClose,
    /// The data so far, the position of the next chunk, and true after the last one.
    Chunked(Vec<u8>, usize, bool),
}

impl Answer {
    /// Adds bytes. True once the answer is complete, although the server may keep the connection open.
    pub fn add(&mut self, bytes: &[u8]) -> Result<bool, String> {
        let seen = self.bytes.len().saturating_sub(3);
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > ANSWER_MAX {
            return Err(format!("it is longer than {} MiB", ANSWER_MAX >> 20));
        }
        if self.body.is_none() {
            let Some(end) = memmem::find(&self.bytes[seen..], b"\r\n\r\n") else {
                let long = self.bytes.len() > HEAD_MAX;
                return if long { Err(format!("its head is longer than {} KiB", HEAD_MAX >> 10)) } else { Ok(false) };
            };
            self.body = Some(head(&self.bytes[..seen + end + 4])?);
        }
        let Some(body) = &mut self.body else { return Ok(false) };
        match &mut body.framing {
            Framing::Length(length) => Ok(self.bytes.len() - body.at >= *length),
            Framing::UntilClose => Ok(false),
            Framing::Chunked(whole, next, ended) => {
                *ended = take_chunks(&self.bytes, next, whole)?;
                Ok(*ended)
            }
        }
    }

    /// The text of the page. Call it once the answer is complete or the connection is closed.
    pub fn text(self) -> Result<String, String> {
        if self.bytes.is_empty() {
            return Err("it closed the connection without an answer".into());
        }
        let Some(body) = self.body else { return Err(no_http(&self.bytes)) };
        let page = match body.framing {
            Framing::Chunked(whole, _, true) => whole,
            Framing::Chunked(..) => return Err(BROKE_OFF.into()),
            Framing::UntilClose => self.bytes[body.at..].to_vec(),
            Framing::Length(length) => self.bytes[body.at..].get(..length).ok_or(BROKE_OFF)?.to_vec(),
        };
        String::from_utf8(page).map_err(|error| format!("it is no UTF-8 text: {}", start_of(error.as_bytes())))
    }
}

/// Parses a complete head. An error if no page follows it.
fn head(bytes: &[u8]) -> Result<Body, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| no_http(bytes))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..)).ok_or_else(|| no_http(bytes))?;
    if !status.starts_with("200") {
        return Err(format!("it answered with status {}", status.chars().take(SHOWN).collect::<String>()));
    }
    let mut framing = Framing::UntilClose;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("transfer-encoding", value) if value.eq_ignore_ascii_case("chunked") => {
                framing = Framing::Chunked(Vec::new(), bytes.len(), false);
            }
            ("content-length", value) if matches!(framing, Framing::UntilClose) => {
                framing = value.parse().map_or(Framing::UntilClose, Framing::Length);
            }
            ("content-encoding", value) if !matches!(value, "" | "identity") => {
                let value: String = value.chars().take(SHOWN).collect();
                return Err(format!("it came as {value}, though plain text was asked for"));
            }
            _ => (),
        }
    }
    Ok(Body { at: bytes.len(), framing })
}

/// Appends the data of the chunks that are complete, and moves `next` behind them. True after the last chunk.
fn take_chunks(answer: &[u8], next: &mut usize, whole: &mut Vec<u8>) -> Result<bool, String> {
    loop {
        let rest = &answer[*next..];
        let Some(end) = memmem::find(&rest[..rest.len().min(CHUNK_LINE_MAX)], b"\r\n") else {
            return if rest.len() < CHUNK_LINE_MAX { Ok(false) } else { Err("its chunks have no sizes".into()) };
        };
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|line| line.split(';').next());
        let size =
            size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok()).ok_or("its chunks have no sizes")?;
        if size == 0 {
            return Ok(true);
        }
        if size > ANSWER_MAX {
            return Err(format!("it is longer than {} MiB", ANSWER_MAX >> 20));
        }
        let (start, behind) = (end + 2, end + 2 + size + 2);
        if behind > rest.len() {
            return Ok(false);
        }
        whole.extend_from_slice(&rest[start..start + size]);
        *next += behind;
    }
}

fn no_http(answer: &[u8]) -> String {
    format!("its answer is no HTTP: {}", start_of(answer))
}

fn start_of(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN)]).chars().take(SHOWN).collect();
    format!("it begins with `{}`", text.escape_debug())
}

/// The series read since the start. A page may show new ones each time, and whoever reads the events keeps all of them,
/// so their number is limited.
#[derive(Default)]
pub struct Known {
    series: HashSet<String>,
    bytes: usize,
}

impl Known {
    /// The finite values of the series of these metrics. Errors: a page in another format, and too many series.
    pub fn read(&mut self, page: &str, names: &[String]) -> Result<BTreeMap<String, f64>, String> {
        let mut values = BTreeMap::new();
        let (mut good, mut bad) = (0, None);
        for line in page.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match sample(line) {
                None => bad = bad.or(Some(line)),
                Some((name, series, value)) => {
                    good += 1;
                    if value.is_finite() && names.iter().any(|wanted| wanted == name) {
                        self.meet(series)?;
                        values.insert(series.to_owned(), value);
                    }
                }
            }
        }
        match bad {
            Some(line) if good == 0 => Err(format!("it is no Prometheus page: {}", start_of(line.as_bytes()))),
            _ => Ok(values),
        }
    }

    fn meet(&mut self, series: &str) -> Result<(), String> {
        if self.series.contains(series) {
            return Ok(());
        }
        let bytes = self.bytes + series.len();
        if series.len() > NAME_MAX {
            return Err(format!("a series has a name of more than {NAME_MAX} bytes: {}", start_of(series.as_bytes())));
        }
        if self.series.len() == SERIES_MAX || bytes > NAMES_MAX {
            return Err(format!(
                "the metrics asked for have had more than {SERIES_MAX} series, or {} MiB of names: ask for metrics whose labels do not change",
                NAMES_MAX >> 20
            ));
        }
        self.bytes = bytes;
        self.series.insert(series.to_owned());
        Ok(())
    }
}

/// The metric's name, the series as written, its value.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let name_end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let name = &line[..name_end];
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let series_end =
        if line[name_end..].starts_with('{') { name_end + labels_end(&line[name_end..])? } else { name_end };
    let value = line[series_end..].split_whitespace().next()?;
    Some((name, &line[..series_end], value.parse().ok()?))
}

/// The position after the closing brace; braces within quotes are text.
fn labels_end(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at + 1),
            _ => (),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// The text of an answer that comes in pieces.
    fn read(bytes: &[u8], piece: usize) -> Result<String, String> {
        let mut answer = Answer::default();
        for piece in bytes.chunks(piece) {
            if answer.add(piece)? {
                break;
            }
        }
        answer.text()
    }

    #[test]
    fn the_series_asked_for_are_read_with_their_labels() {
        let page = "# HELP a something\n# TYPE a gauge\na 1\na{x=\"}\\\"{\",y=\"b c\"} 2.5e3 1700000000\nother 3\nb NaN\nb{z=\"1\"} +Inf\nb{z=\"2\"} -4\n";
        let found = Known::default().read(page, &names(&["a", "b"])).unwrap();
        let expected = [("a", 1.0), ("a{x=\"}\\\"{\",y=\"b c\"}", 2500.0), ("b{z=\"2\"}", -4.0)];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn a_page_of_another_kind_is_told_from_one_without_the_series() {
        assert_eq!(Known::default().read("other 1\nwhat is this?\n", &names(&["a"])), Ok(BTreeMap::new()));
        assert_eq!(Known::default().read("", &names(&["a"])), Ok(BTreeMap::new()));
        let error = Known::default().read("<html>\n<body>", &names(&["a"])).unwrap_err();
        assert_eq!(error, "it is no Prometheus page: it begins with `<html>`");
    }

    #[test]
    fn no_page_makes_it_keep_more_than_so_many_series_and_bytes() {
        let page = |first: usize, last: usize| (first..last).map(|n| format!("a{{n=\"{n}\"}} 1\n")).collect::<String>();
        let mut known = Known::default();
        assert_eq!(known.read(&page(0, SERIES_MAX), &names(&["a"])).unwrap().len(), SERIES_MAX);
        assert_eq!(known.read(&page(9, 99), &names(&["a"])).unwrap().len(), 90, "those that are known");
        assert!(known.read(&page(SERIES_MAX, SERIES_MAX + 1), &names(&["b"])).is_ok(), "those that nobody asked for");
        let error = known.read(&page(SERIES_MAX, SERIES_MAX + 1), &names(&["a"])).unwrap_err();
        assert!(error.contains("more than 10000 series"), "{error}");
        let long = |name: usize| format!("a{{n=\"{}{name}\"}} 1\n", "x".repeat(NAME_MAX - 20));
        let error = Known::default().read(&long(0).repeat(2).replace('x', "xx"), &names(&["a"])).unwrap_err();
        assert!(error.starts_with("a series has a name of more than 2048 bytes: it begins with `a{n="), "{error}");
        let mut known = Known::default();
        let error = (0..2_000).find_map(|name| known.read(&long(name), &names(&["a"])).err()).unwrap();
        assert!(error.contains("2 MiB of names"), "{error}");
    }

    #[test]
    fn an_answer_without_end_is_refused() {
        let endless = |start: &str, more: &str| {
            let mut answer = Answer::default();
            let mut added = answer.add(start.as_bytes());
            while added == Ok(false) {
                added = answer.add(more.as_bytes());
            }
            added.unwrap_err()
        };
        let more = "x".repeat(40_000);
        assert_eq!(endless("HTTP/1.1 200 OK\r\nA: ", &more), "its head is longer than 64 KiB");
        assert_eq!(endless("HTTP/1.1 200 OK\r\n\r\n", &more), "it is longer than 16 MiB");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(endless(chunked, &more), "its chunks have no sizes");
        assert_eq!(endless(&format!("{chunked}1;"), &more), "its chunks have no sizes");
        assert_eq!(endless(&format!("{chunked}ffffffffffffffff\r\n"), &more), "it is longer than 16 MiB");
        assert_eq!(endless(chunked, &"1\r\nx\r\n".repeat(1_000)), "it is longer than 16 MiB");
    }

    #[test]
    fn answers_are_read_whole_in_each_form_or_refused_with_the_reason() {
        let ok = "HTTP/1.1 200 OK\r\n";
        let cases: [(String, Result<&str, &str>); 9] = [
            (format!("{ok}Content-Length: 3\r\n\r\na 1"), Ok("a 1")),
            (format!("{ok}\r\na 1"), Ok("a 1")),
            (format!("{ok}Transfer-Encoding: chunked\r\n\r\n2\r\na \r\n1;x\r\n1\r\n0\r\n\r\n"), Ok("a 1")),
            (format!("{ok}Content-Length: 9\r\n\r\na 1"), Err("its answer broke off")),
            (format!("{ok}Transfer-Encoding: chunked\r\n\r\n9\r\na "), Err("its answer broke off")),
            ("HTTP/1.1 404 Not Found\r\n\r\n".into(), Err("it answered with status 404 Not Found")),
            (format!("{ok}Content-Encoding: gzip\r\n\r\nx"), Err("it came as gzip, though plain text was asked for")),
            (String::new(), Err("it closed the connection without an answer")),
            ("SSH-2.0\r\n".into(), Err("its answer is no HTTP: it begins with `SSH-2.0\\r\\n`")),
        ];
        for (answer, expected) in cases {
            for piece in [1, 2, 7, answer.len().max(1)] {
                let found = read(answer.as_bytes(), piece);
                assert_eq!(found.as_deref().map_err(String::as_str), expected, "{answer:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn no_text_makes_the_parsers_panic() {
        let alphabet = b"a{}\"\\=, 1\n#\xc3\xa9\r;0";
        let mut state = 1u64;
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..24)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    alphabet[(state >> 33) as usize % alphabet.len()]
                })
                .collect();
            let _ = Known::default().read(&String::from_utf8_lossy(&text), &names(&["a"]));
            assert_eq!(read(&text, 1), read(&text, text.len()));
        }
    }
}
