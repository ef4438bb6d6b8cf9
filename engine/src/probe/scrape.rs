//! Reads the subject's Prometheus page once a second, on a thread of its own, so that a slow page delays no sample.
//!
//! In: a URL and the requested metrics. Out: one `Scrape` or `ScrapeFailed` for each point of the grid; a page that
//! takes longer than the period skips points. The format: Prometheus text exposition 0.0.4.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::clock::now_ns;
use crate::contract::events::{ProbeEvent, Scrape};
use crate::contract::spec;

const PAGE_MAX: usize = 16 * 1024 * 1024;
const SHOWN: usize = 60;

pub struct Scraper {
    events: Receiver<ProbeEvent>,
}

impl Scraper {
    /// Begins at once; until the server listens its readings fail, which the caller expects.
    pub fn start(spec: &spec::Scrape) -> Result<Scraper, String> {
        let page = Page::at(&spec.url)?;
        if spec.interval_ns == 0 || spec.timeout_ns == 0 {
            return Err("scrape: interval_ns and timeout_ns must be above 0".into());
        }
        let (sender, events) = channel();
        let spec = spec.clone();
        std::thread::Builder::new()
            .name("scrape".into())
            .spawn(move || read_for_ever(&page, &spec, &sender))
            .map_err(|error| format!("scrape: cannot start a thread: {error}"))?;
        Ok(Scraper { events })
    }

    /// The events that have arrived since the last call.
    pub fn readings(&self) -> impl Iterator<Item = ProbeEvent> {
        self.events.try_iter()
    }
}

/// Ends when the receiver of the events is dropped, or with the process.
fn read_for_ever(page: &Page, spec: &spec::Scrape, sender: &Sender<ProbeEvent>) {
    let mut next_ns = now_ns();
    loop {
        let at_ns = now_ns();
        let read = page.read(Duration::from_nanos(spec.timeout_ns)).and_then(|text| series(&text, &spec.names));
        let took_ns = now_ns() - at_ns;
        let missed = (now_ns() - next_ns) / spec.interval_ns;
        let event = match read {
            Ok(values) => ProbeEvent::Scrape(Scrape { at_ns, took_ns, values }),
            Err(reason) => ProbeEvent::ScrapeFailed { at_ns, took_ns, reason },
        };
        if sender.send(event).is_err() {
            return;
        }
        next_ns += (missed + 1) * spec.interval_ns;
        std::thread::sleep(Duration::from_nanos(next_ns.saturating_sub(now_ns())));
    }
}

/// The address of the page.
struct Page {
    host: String,
    port: u16,
    path: String,
}

impl Page {
    fn at(url: &str) -> Result<Page, String> {
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| format!("scrape: `{url}` is no http:// URL (https is not read)"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("scrape: `{port}` in `{url}` is no port"))?)
            }
            _ => (authority, 80),
        };
        if host.is_empty() || path.contains([' ', '\r', '\n']) {
            return Err(format!("scrape: `{url}` is no URL"));
        }
        Ok(Page { host: host.trim_matches(['[', ']']).into(), port, path: format!("/{path}") })
    }

    /// The body of one GET.
    fn read(&self, timeout: Duration) -> Result<String, String> {
        let deadline = Instant::now() + timeout;
        let left = || match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(format!("it took longer than {timeout:?}")),
            left => Ok(left),
        };
        let failed = |what: &str, error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => format!("it took longer than {timeout:?}"),
            _ => format!("{what}: {error}"),
        };
        let address = (self.host.as_str(), self.port).to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = address.ok_or_else(|| format!("{} has no address", self.host))?;
        let mut stream =
            TcpStream::connect_timeout(&address, left()?).map_err(|e| failed("it cannot be connected to", e))?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}:{}\r\nAccept: text/plain;version=0.0.4\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n",
            self.path, self.host, self.port
        );
        stream.set_write_timeout(Some(left()?)).map_err(|e| failed("writing", e))?;
        stream.write_all(request.as_bytes()).map_err(|e| failed("it cannot be asked", e))?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 64 * 1024]);
        // A server may keep the connection open despite `Connection: close`: the announced length is enough.
        while !is_whole(&answer) {
            stream.set_read_timeout(Some(left()?)).map_err(|e| failed("reading", e))?;
            match stream.read(&mut buffer).map_err(|e| failed("its answer broke off", e))? {
                0 => break,
                n => answer.extend_from_slice(&buffer[..n]),
            }
            if answer.len() > PAGE_MAX {
                return Err(format!("it is longer than {} MiB", PAGE_MAX >> 20));
            }
        }
        body(&answer)
    }
}

struct Head<'a> {
    status: &'a str,
    length: Option<usize>,
    chunked: bool,
    encoding: &'a str,
    body: &'a [u8],
}

fn head(answer: &[u8]) -> Option<Head<'_>> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = text.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.get(2..)?;
    let mut head = Head { status, length: None, chunked: false, encoding: "", body: &answer[end + 4..] };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", value) => head.length = value.parse().ok(),
            ("transfer-encoding", value) => head.chunked = value.eq_ignore_ascii_case("chunked"),
            ("content-encoding", value) => head.encoding = value,
            _ => (),
        }
    }
    Some(head)
}

fn is_whole(answer: &[u8]) -> bool {
    head(answer).is_some_and(|head| match head.length {
        _ if head.chunked => unchunked(head.body).is_some(),
        Some(length) => head.body.len() >= length,
        None => false,
    })
}

fn body(answer: &[u8]) -> Result<String, String> {
    if answer.is_empty() {
        return Err("it closed the connection without an answer".into());
    }
    let Some(head) = head(answer) else {
        return Err(format!("its answer is no HTTP: {}", start_of(answer)));
    };
    if !head.status.starts_with("200") {
        return Err(format!("it answered with status {}", head.status));
    }
    if !matches!(head.encoding, "" | "identity") {
        return Err(format!("it came as {}, though plain text was asked for", head.encoding));
    }
    let bytes = match head.length {
        _ if head.chunked => unchunked(head.body).ok_or("its answer broke off")?,
        Some(length) if head.body.len() < length => return Err("its answer broke off".into()),
        Some(length) => head.body[..length].to_vec(),
        None => head.body.to_vec(),
    };
    String::from_utf8(bytes).map_err(|error| format!("it is no UTF-8 text: {}", start_of(error.as_bytes())))
}

/// None while chunks are missing, or if the text is not chunked.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        let data = rest.get(end + 2..)?;
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(data.get(..size)?);
        rest = data.get(size.checked_add(2)?..)?;
    }
}

/// The finite values of the series of these metrics. A page in another format is an error.
fn series(page: &str, names: &[String]) -> Result<BTreeMap<String, f64>, String> {
    let mut values = BTreeMap::new();
    let (mut good, mut bad) = (0, None);
    for line in page.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match sample(line) {
            None => bad = bad.or(Some(line)),
            Some((name, series, value)) => {
                good += 1;
                if value.is_finite() && names.iter().any(|wanted| wanted == name) {
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

fn start_of(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(SHOWN).collect();
    format!("it begins with `{}`", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_series_asked_for_are_read_with_their_labels() {
        let page = "# HELP a something\n# TYPE a gauge\na 1\na{x=\"}\\\"{\",y=\"b c\"} 2.5e3 1700000000\nother 3\nb NaN\nb{z=\"1\"} +Inf\nb{z=\"2\"} -4\n";
        let found = series(page, &names(&["a", "b"])).unwrap();
        let expected = [("a", 1.0), ("a{x=\"}\\\"{\",y=\"b c\"}", 2500.0), ("b{z=\"2\"}", -4.0)];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn a_page_of_another_kind_is_told_from_one_without_the_series() {
        assert_eq!(series("other 1\nwhat is this?\n", &names(&["a"])), Ok(BTreeMap::new()));
        assert_eq!(series("", &names(&["a"])), Ok(BTreeMap::new()));
        let error = series("<html>\n<body>", &names(&["a"])).unwrap_err();
        assert_eq!(error, "it is no Prometheus page: it begins with `<html>`");
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
            let found = body(answer.as_bytes());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{answer:?}");
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        let parts = |url: &str| Page::at(url).map(|page| (page.host, page.port, page.path));
        assert_eq!(parts("http://localhost:8080/a?b"), Ok(("localhost".into(), 8080, "/a?b".into())));
        assert_eq!(parts("http://[::1]:9/"), Ok(("::1".into(), 9, "/".into())));
        assert_eq!(parts("http://[::1]"), Ok(("::1".into(), 80, "/".into())));
        for url in ["https://a/", "http://:1/", "http://a:x/", "http://a/b c"] {
            assert!(parts(url).unwrap_err().starts_with("scrape: "), "{url}");
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
            let _ = series(&String::from_utf8_lossy(&text), &names(&["a"]));
            let _ = unchunked(&text);
            let _ = body(&text);
        }
    }
}
