//! The service behind every concurrency model. In: a request. Out: an answer that is already written, or a job whose
//! work the model has to do first. Sockets and threads belong to the models.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::http::{self, KEPT_ALIVE, LAST_ANSWER, Parsed, ReplyForm, Request, Status};
use super::work::Work;
use crate::serve::metrics::{self, Metrics};
use crate::serve::options::config::{Concurrency, Config, Dialect};
use crate::serve::options::plan::Plan;
use crate::serve::planted::downstream::Remote;

pub const TEXT: &str = "text/plain";
const FILLER: &[u8] = b"The quick brown fox jumps over the lazy dog. 0123456789 abcdef.\n";

pub struct Service {
    pub work: Work,
    pub metrics: Metrics,
    /// Planted delay of each accept.
    pub accept_delay_ns: u64,
    /// True if event loops block where they could set a timer.
    pub loop_blocks: bool,
    /// The protocol spoken over WebSockets; None for plain HTTP.
    pub websocket: Option<Dialect>,
    /// The work of a request without a query.
    pub plan: Plan,
    /// The answer to a request without a query that keeps its connection, by far the most frequent kind.
    usual_answer: Vec<u8>,
}

/// Work to do, and the form of the answer once it is done.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub plan: Plan,
    pub reply: ReplyForm,
}

impl Job {
    /// True if the connection continues after the answer.
    pub fn keep_alive(&self) -> bool {
        self.reply.keep_alive
    }
}

pub enum Step {
    /// The answer is written. `keep_alive`: true if the connection continues.
    Answered {
        keep_alive: bool,
    },
    Work(Job),
}

impl Service {
    pub fn new(config: &Config, remote: Option<Remote>) -> Arc<Service> {
        let loops = match config.concurrency {
            Concurrency::EventLoop { instances, .. } => instances,
            _ => 0,
        };
        let mut service = Service {
            work: Work::new(config, remote),
            metrics: Metrics::new(loops, config.websocket.is_some()),
            plan: config.plan,
            accept_delay_ns: config.accept_delay_ns,
            loop_blocks: config.loop_blocks,
            websocket: config.websocket,
            usual_answer: Vec::new(),
        };
        let mut answer = Vec::new();
        service.render(&Job { plan: config.plan, reply: KEPT_ALIVE }, &mut answer);
        service.usual_answer = answer;
        Arc::new(service)
    }

    /// Parses the first request in `bytes` and takes its `step`. Returns the number of bytes used and the step; None if
    /// the request is incomplete.
    pub fn read(&self, bytes: &[u8], out: &mut Vec<u8>) -> Option<(usize, Step)> {
        match http::parse(bytes) {
            Parsed::Partial => None,
            Parsed::Bad(status) => {
                self.reject_unreadable(status, out);
                Some((0, Step::Answered { keep_alive: false }))
            }
            Parsed::Complete(request, length) => Some((length, self.step(&request, out))),
        }
    }

    /// Writes the answer to `out` if the request needs no work; else returns its job.
    pub fn step(&self, request: &Request<'_>, out: &mut Vec<u8>) -> Step {
        let reply = request.reply;
        match request.path {
            "/" | "/work" if request.query.is_empty() => return Step::Work(Job { plan: self.plan, reply }),
            "/" | "/work" => match self.plan.with_query(request.query) {
                Ok(plan) => return Step::Work(Job { plan, reply }),
                Err(message) => http::respond(out, Status::BadRequest, TEXT, (message + "\n").as_bytes(), reply),
            },
            _ => self.status_page(request.path, reply, out),
        }
        Step::Answered { keep_alive: reply.keep_alive }
    }

    /// Answers `/health` and `/metrics`, and any other path with 404.
    pub fn status_page(&self, path: &str, reply: ReplyForm, out: &mut Vec<u8>) {
        match path {
            "/health" => http::respond(out, Status::Ok, TEXT, b"ok\n", reply),
            "/metrics" => {
                let page = self.metrics.render(self.work.downstream_permits(), self.work.collector.as_deref());
                http::respond(out, Status::Ok, metrics::CONTENT_TYPE, page.as_bytes(), reply);
            }
            _ => http::respond(out, Status::NotFound, TEXT, b"there are /, /work, /health and /metrics\n", reply),
        }
    }

    /// Appends the answer to a job whose work is done.
    pub fn answer(&self, job: &Job, out: &mut Vec<u8>) {
        let usual = job.reply == KEPT_ALIVE
            && (job.plan.payload_bytes, job.plan.chunked) == (self.plan.payload_bytes, self.plan.chunked);
        if usual {
            out.extend_from_slice(&self.usual_answer);
        } else {
            self.render(job, out);
        }
    }

    fn render(&self, job: &Job, out: &mut Vec<u8>) {
        let body: Vec<u8> = FILLER.iter().copied().cycle().take(job.plan.payload_bytes).collect();
        if job.plan.chunked && !job.reply.http_1_0 {
            http::respond_chunked(out, TEXT, &body, job.reply);
        } else {
            http::respond(out, Status::Ok, TEXT, &body, job.reply);
        }
    }

    /// Does the work of a job in the calling thread, then sends the answer.
    pub fn serve(&self, job: &Job, fd: RawFd) -> io::Result<()> {
        self.work.all(&job.plan);
        let mut out = Vec::with_capacity(self.usual_answer.len());
        self.answer(job, &mut out);
        self.work.gate();
        // Count first, so that a client that has its answer finds it in the count.
        self.metrics.requests.fetch_add(1, Relaxed);
        crate::sys::write_all(fd, &out)
    }

    /// Sends 503: the pool refused the request or the connection. Never blocks, since the threads that accept and read
    /// call it. Errors: those of `send`, and `WouldBlock` if the client has left earlier answers unread.
    pub fn refuse(&self, fd: RawFd, reply: ReplyForm) -> io::Result<()> {
        let mut out = Vec::new();
        http::respond(&mut out, Status::Unavailable, TEXT, b"the pool and its queue are full\n", reply);
        self.work.gate();
        crate::sys::write_at_once(fd, &out)
    }

    /// Appends the answer to bytes that are no valid request; the connection must then be closed.
    pub fn reject_unreadable(&self, status: Status, out: &mut Vec<u8>) {
        http::respond(out, status, TEXT, b"this cannot be read as an HTTP/1.1 request\n", LAST_ANSWER);
    }

    /// Counts a connection as open for as long as the returned value lives.
    pub fn admit(self: &Arc<Self>, fd: OwnedFd) -> Socket {
        self.count_in();
        self.adopt(fd)
    }

    /// Counts a connection as open before it has a `Socket`, which `adopt` makes.
    pub fn count_in(&self) {
        self.metrics.accepted.fetch_add(1, Relaxed);
        self.metrics.connections.fetch_add(1, Relaxed);
    }

    /// The `Socket` of a connection that `count_in` has counted.
    pub fn adopt(self: &Arc<Self>, fd: OwnedFd) -> Socket {
        Socket { fd, service: Arc::clone(self) }
    }
}

/// An accepted connection, counted as long as it lives.
pub struct Socket {
    fd: OwnedFd,
    service: Arc<Service>,
}

impl Socket {
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.service.metrics.connections.fetch_sub(1, Relaxed);
    }
}
