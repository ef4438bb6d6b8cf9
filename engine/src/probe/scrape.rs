//! Reads the subject's Prometheus page once a second, on a thread of its own, so that a slow page delays no sample.
//!
//! In: a URL and the requested metrics. Out: one `Scrape` or `ScrapeFailed` for each point of the grid; a page that
//! takes longer than the period skips points. `page` parses the answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::page::{Answer, Known};
use crate::clock::now_ns;
use crate::contract::events::{ProbeEvent, Scrape};
use crate::contract::spec;

pub struct Scraper {
    events: Receiver<ProbeEvent>,
}

impl Scraper {
    /// Starts the thread at once. Until the server listens its readings fail, as the caller expects.
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

/// Ends when the receiver of the events has been dropped, or with the process.
fn read_for_ever(page: &Page, spec: &spec::Scrape, sender: &Sender<ProbeEvent>) {
    let (mut next_ns, mut known) = (now_ns(), Known::default());
    loop {
        let at_ns = now_ns();
        let read = page.read(Duration::from_nanos(spec.timeout_ns)).and_then(|text| known.read(&text, &spec.names));
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
    /// An IPv6 address is without its brackets.
    host: String,
    port: u16,
    /// Host and port as written in the URL, for the Host header.
    authority: String,
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
        let host = host.trim_matches(['[', ']']).into();
        Ok(Page { host, port, authority: authority.into(), path: format!("/{path}") })
    }

    fn request(&self) -> String {
        format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nAccept: text/plain;version=0.0.4\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n",
            self.path, self.authority
        )
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
        let addresses = (self.host.as_str(), self.port).to_socket_addrs().into_iter().flatten();
        let connect =
            |address| TcpStream::connect_timeout(&address, left()?).map_err(|e| failed("it cannot be connected to", e));
        let mut stream = first_of(addresses, connect)?;
        stream.set_write_timeout(Some(left()?)).map_err(|e| failed("writing", e))?;
        stream.write_all(self.request().as_bytes()).map_err(|e| failed("it cannot be asked", e))?;
        let (mut answer, mut buffer) = (Answer::default(), [0; 64 * 1024]);
        loop {
            stream.set_read_timeout(Some(left()?)).map_err(|e| failed("reading", e))?;
            let count = stream.read(&mut buffer).map_err(|e| failed("its answer broke off", e))?;
            // A server may keep the connection open despite `Connection: close`.
            if count == 0 || answer.add(&buffer[..count])? {
                return answer.text();
            }
        }
    }
}

/// The first connection to one of the addresses of a host, or else the last failure. At some nothing may listen
/// (localhost: ::1 and 127.0.0.1).
fn first_of<T>(
    addresses: impl Iterator<Item = SocketAddr>,
    connect: impl Fn(SocketAddr) -> Result<T, String>,
) -> Result<T, String> {
    let mut tried = Err("its host has no address".into());
    for address in addresses {
        tried = connect(address);
        if tried.is_ok() {
            break;
        }
    }
    tried
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_a_host_is_tried_until_one_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let closed = |last: u8| SocketAddr::from(([127, 0, 0, last], here.port()));
        let connect = |address| TcpStream::connect(address).map_err(|error| format!("{address}: {error}"));
        let stream = first_of([closed(8), here, closed(9)].into_iter(), connect).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), here);
        let reason = first_of([closed(8), closed(9)].into_iter(), connect).unwrap_err();
        assert!(reason.starts_with("127.0.0.9:"), "{reason}");
        assert_eq!(first_of([].into_iter(), connect).unwrap_err(), "its host has no address");
    }

    #[test]
    fn the_host_is_asked_for_as_it_stands_in_the_url() {
        for authority in ["[::1]:9", "[::1]", "localhost:80", "a.example"] {
            let request = Page::at(&format!("http://{authority}/x")).unwrap().request();
            assert!(request.starts_with(&format!("GET /x HTTP/1.1\r\nHost: {authority}\r\n")), "{request}");
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
}
