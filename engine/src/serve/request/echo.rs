//! One WebSocket of an event loop. `open` turns an HTTP request into a WebSocket; `hear` turns bytes into messages.
//! Each message is a request; its answer is the message itself, or that of a SocketCluster server. Pings and closes are
//! answered here. The event loop does the work of a message, waits for it, and owns the socket.

use std::borrow::Cow;

use super::http::{self, KEPT_ALIVE, Request, Status};
use super::service::{Job, Service, TEXT};
use crate::serve::options::config::Dialect;
use crate::serve::options::plan::Plan;
use crate::socketcluster::serving;
use crate::websocket::frame::{Opcode, write_close, write_frame};
use crate::websocket::handshake::{self, Refusal};
use crate::websocket::reader::{Event, Reader, Rules};

const RULES: Rules = Rules { peer_masks: true, message_bytes_max: 16 << 20 };

pub struct Echo {
    reader: Reader,
    dialect: Dialect,
    /// The work of each message, if the query of the opening request overrides the options.
    plan: Option<Box<Plan>>,
    /// The answer to the message whose work is not done yet; empty if there is none.
    held: Vec<u8>,
}

pub enum Opened {
    Echo(Box<Echo>),
    /// The connection stays HTTP, and the answer is written.
    Answered {
        keep_alive: bool,
    },
}

pub enum Heard {
    /// All bytes are used, and no message is complete.
    Nothing,
    /// A message that ends after this many bytes; its answer is written or held.
    Message(usize),
    /// The peer sent a close frame, and the answer is written.
    Closed,
    /// The peer broke the protocol, and a close frame with the violation is written.
    Violated,
}

/// Answers a request. One that asks for a WebSocket gets it on any path; its query overrides the work of each message.
pub fn open(service: &Service, dialect: Dialect, request: &Request<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Opened {
    let keep_alive = request.reply.keep_alive;
    let accept = match handshake::accept(bytes) {
        Ok(accept) => accept,
        Err(Refusal::NotAsked) if matches!(request.path, "/health" | "/metrics") => {
            service.status_page(request.path, request.reply, out);
            return Opened::Answered { keep_alive };
        }
        Err(refusal) => {
            refusal.write_answer(out);
            return Opened::Answered { keep_alive: false };
        }
    };
    let plan = match request.query {
        "" => None,
        query => match service.plan.with_query(query) {
            Ok(plan) => Some(Box::new(plan)),
            Err(message) => {
                http::respond(out, Status::BadRequest, TEXT, (message + "\n").as_bytes(), request.reply);
                return Opened::Answered { keep_alive };
            }
        },
    };
    handshake::write_answer(out, &accept);
    Opened::Echo(Box::new(Echo { reader: Reader::default(), dialect, plan, held: Vec::new() }))
}

impl Echo {
    /// The work of each message.
    pub fn job(&self, service: &Service) -> Job {
        let plan = *self.plan.as_deref().unwrap_or(&service.plan);
        Job { plan, reply: KEPT_ALIVE }
    }

    /// Reads up to the end of a message and writes its answer to `out`, or, with `hold`, keeps it for `release`.
    pub fn hear(&mut self, bytes: &mut [u8], hold: bool, out: &mut Vec<u8>) -> Heard {
        let mut used = 0;
        loop {
            let (count, event) = match self.reader.read(&RULES, &mut bytes[used..]) {
                Ok((count, Some(event))) => (count, event),
                Ok((_, None)) => return Heard::Nothing,
                Err(violation) => {
                    write_close(out, None, Some(violation.close_code()), violation.text());
                    return Heard::Violated;
                }
            };
            used += count;
            let (opcode, message) = match event {
                Event::Text(message) => (Opcode::Text, message),
                Event::Binary(message) => (Opcode::Binary, message),
                Event::Ping(payload) => {
                    write_frame(out, Opcode::Pong, None, payload);
                    continue;
                }
                Event::Pong(_) => continue,
                Event::Close { code, reason } => {
                    write_close(out, None, code, reason);
                    return Heard::Closed;
                }
            };
            let answer = match self.dialect {
                Dialect::Plain => Cow::Borrowed(message),
                Dialect::Socketcluster => serving::answer(message),
            };
            write_frame(if hold { &mut self.held } else { out }, opcode, None, &answer);
            return Heard::Message(used);
        }
    }

    /// Appends the answer that was held.
    pub fn release(&mut self, out: &mut Vec<u8>) {
        if !self.held.is_empty() {
            out.append(&mut self.held);
            // Idle connections keep no memory for it.
            self.held = Vec::new();
        }
    }
}
