//! A StatsD sink beside the samples: adds up the metrics that a subject sends, on a thread of its own. In: datagrams
//! from a UDP socket, a Unix socket, or both. Out: a `Statsd` event at each point of a grid, and a last one at the end;
//! all its numbers are since the start. `crate::statsd` parses the datagrams.

use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::datagrams::{Batch, Socket};
use crate::clock::now_ns;
use crate::contract::events::{ProbeEvent, Statsd};
use crate::contract::spec;
use crate::statsd::store::Store;
use crate::sys;

const INTERVAL_NS_MIN: u64 = 1_000_000; // an event a millisecond: closer ones would cost more than the metrics
/// The longest pause in which a UDP socket is not read after it was empty: a steady sender then causes no wake-ups, and
/// many datagrams are read at a time.
const REST_NS_MAX: u64 = 10_000_000;
/// A shorter pause costs more than it saves.
const REST_NS_MIN: u64 = 1_000_000;
/// Longest time for reading waiting datagrams before an event: otherwise a flood would delay it without end.
const CATCH_UP_NS_MAX: u64 = 10_000_000;
/// The limit before the last event: a full buffer holds a million updates, which a slow machine reads in a few seconds.
const LAST_READ_NS_MAX: u64 = 4_000_000_000;

/// The bound sockets, open before the subject starts; nothing is read yet. The kernel buffers datagrams that arrive in
/// the meantime.
pub struct Bound {
    sources: Vec<Source>,
    interval_ns: u64,
}

impl Bound {
    pub fn bind(spec: &spec::Statsd) -> Result<Bound, String> {
        Bound::open(spec).map_err(|message| format!("statsd: {message}"))
    }

    fn open(spec: &spec::Statsd) -> Result<Bound, String> {
        if spec.interval_ns < INTERVAL_NS_MIN {
            return Err(format!("interval_ns is {}: it must be at least 1 ms (1000000)", spec.interval_ns));
        }
        if spec.udp.is_some_and(|address| address.port() == 0) {
            return Err("udp needs a port other than 0, which nobody would know".into());
        }
        let udp = spec.udp.map(Socket::udp).transpose()?;
        let unix = spec.unix.as_deref().map(|path| Socket::unix(Path::new(path))).transpose()?;
        let sources: Vec<Source> = udp.into_iter().chain(unix).map(Source::new).collect();
        if sources.is_empty() {
            return Err("give udp, unix, or both".into());
        }
        Ok(Bound { sources, interval_ns: spec.interval_ns })
    }
}

/// The running sink. Dropping it ends its thread, which closes the sockets.
pub struct Sink {
    events: Receiver<ProbeEvent>,
    thread: Option<JoinHandle<()>>,
    /// One byte means: read what was sent, then end. If it closes without a byte: end at once.
    ending: Option<PipeWriter>,
}

impl Sink {
    pub fn start(bound: Bound) -> Result<Sink, String> {
        let failed = |error: std::io::Error| format!("statsd: cannot start a thread: {error}");
        let (asked, ending) = pipe().map_err(failed)?;
        let (sender, events) = channel();
        let reader = move || Reader::new(bound.sources, asked).run(bound.interval_ns, &sender);
        let thread = std::thread::Builder::new().name("statsd".into()).spawn(reader).map_err(failed)?;
        Ok(Sink { events, thread: Some(thread), ending: Some(ending) })
    }

    /// The events that have arrived since the last call.
    pub fn readings(&self) -> impl Iterator<Item = ProbeEvent> {
        self.events.try_iter()
    }

    /// Reads what has been sent so far and ends; `readings` then has the last event.
    pub fn finish(&mut self) {
        if let Some(mut ending) = self.ending.take() {
            // Fails only if the thread has ended.
            let _ = ending.write_all(b".");
        }
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on stderr; then the last event is missing.
            let _ = thread.join();
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.ending = None;
        self.join();
    }
}

/// A socket, and the end of its current pause.
struct Source {
    socket: Socket,
    rest_ns: u64,
    resting_until_ns: u64,
}

impl Source {
    fn new(socket: Socket) -> Source {
        // At a byte per nanosecond, faster than any single sender, half of the buffer fills in this time.
        let rest_ns = (socket.buffer_bytes / 2).min(REST_NS_MAX);
        let rest_ns = if rest_ns < REST_NS_MIN { 0 } else { rest_ns };
        Source { socket, rest_ns, resting_until_ns: 0 }
    }
}

/// The reason why the thread woke up.
enum Woken {
    /// True for each source that has datagrams.
    ByDatagrams([bool; 2]),
    ToEnd,
    /// The events have no receiver any more.
    Abandoned,
}

/// The state of the thread.
struct Reader {
    sources: Vec<Source>,
    ending: PipeReader,
    batch: Batch,
    store: Store,
    packets: u64,
    bytes: u64,
}

impl Reader {
    fn new(sources: Vec<Source>, ending: PipeReader) -> Reader {
        Reader { sources, ending, batch: Batch::new(), store: Store::default(), packets: 0, bytes: 0 }
    }

    /// Runs until it is asked to end, or until the events have no receiver any more.
    fn run(mut self, interval_ns: u64, sender: &Sender<ProbeEvent>) {
        let mut next_ns = now_ns();
        loop {
            let now_ns = now_ns();
            if now_ns >= next_ns {
                next_ns += ((now_ns - next_ns) / interval_ns + 1) * interval_ns;
                if sender.send(self.event(CATCH_UP_NS_MAX)).is_err() {
                    return;
                }
            }
            match self.wait(next_ns) {
                Woken::ByDatagrams(ready) => {
                    self.read(ready);
                }
                Woken::ToEnd => break,
                Woken::Abandoned => return,
            }
        }
        // The receiver may be gone.
        let _ = sender.send(self.event(LAST_READ_NS_MAX));
    }

    /// Sleeps until a socket that is not paused has datagrams, the end is requested, or `until_ns`.
    fn wait(&self, until_ns: u64) -> Woken {
        let now_ns = now_ns();
        let mut until_ns = until_ns;
        let mut polled = [-1, -1, self.ending.as_raw_fd()].map(sys::readable);
        for (source, polled) in self.sources.iter().zip(&mut polled) {
            if source.resting_until_ns <= now_ns {
                polled.fd = source.socket.fd();
            } else {
                until_ns = until_ns.min(source.resting_until_ns);
            }
        }
        sys::poll(&mut polled, Some(until_ns.saturating_sub(now_ns)));
        match polled[2].revents {
            0 => Woken::ByDatagrams([polled[0].revents != 0, polled[1].revents != 0]),
            byte if byte & libc::POLLIN != 0 => Woken::ToEnd,
            _ => Woken::Abandoned,
        }
    }

    /// Reads one batch from each socket that is ready; returns the number of datagrams.
    fn read(&mut self, ready: [bool; 2]) -> usize {
        let mut all = 0;
        for (source, _) in self.sources.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            let mut came = 0;
            for (bytes, whole) in self.batch.receive(&source.socket) {
                came += 1;
                self.bytes += bytes.len() as u64;
                self.store.datagram(bytes, whole);
            }
            if came < Batch::SIZE {
                source.resting_until_ns = now_ns() + source.rest_ns;
            }
            all += came;
        }
        self.packets += all as u64;
        all
    }

    /// Reads the datagrams sent before now, for at most this time, and makes the event.
    fn event(&mut self, reading_ns_max: u64) -> ProbeEvent {
        let until_ns = now_ns() + reading_ns_max;
        while self.read([true, true]) > 0 && now_ns() < until_ns {}
        ProbeEvent::Statsd(Statsd {
            at_ns: now_ns(),
            values: self.store.values(),
            packets: self.packets,
            updates: self.store.updates,
            bytes: self.bytes,
            malformed: self.store.malformed,
            dropped: self.sources.iter_mut().map(|source| source.socket.dropped()).sum(),
        })
    }
}
