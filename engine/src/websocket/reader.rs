//! Messages out of frames that arrive in pieces. Bytes enter and are unmasked in place; whole messages and control frames
//! leave, those that came in one piece without a copy. Fragments are joined under a limit, text is checked as it comes.
//! Answering pings and closes is the caller's business.

use super::Violation;
use super::frame::{self, HEADER_BYTES_MAX, Header, Opcode, apply_mask};

/// The room that is kept from message to message; an idle connection costs no more than this beside the reader itself.
const KEPT_BYTES_MAX: usize = 512;

/// What is asked of the peer's frames: the same for all connections of a kind.
pub struct Rules {
    /// The peer is a client, and masks; otherwise it is a server, and must not.
    pub peer_masks: bool,
    pub message_bytes_max: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole message that is UTF-8.
    Text(&'a [u8]),
    Binary(&'a [u8]),
    Ping(&'a [u8]),
    Pong(&'a [u8]),
    /// Whatever follows it is to be ignored.
    Close {
        code: Option<u16>,
        reason: &'a str,
    },
}

/// Where one connection is within a frame and a message.
#[derive(Default)]
pub struct Reader {
    /// The start of a header that came in part.
    head: [u8; HEADER_BYTES_MAX],
    head_bytes: u8,
    /// The frame whose payload is being read: with the length still to come, and the mask as that will need it.
    frame: Option<Header>,
    /// Text or binary: the message of which some frame has come.
    message: Option<Opcode>,
    /// The message so far, then the payload so far of a control frame within it.
    buffer: Vec<u8>,
    /// How much of the buffer is the message.
    message_bytes: usize,
    /// How much of that is known to be UTF-8; the rest is the start of a character.
    valid_bytes: usize,
    /// The caller has seen the buffer beyond `message_bytes`.
    delivered: bool,
}

impl Reader {
    /// Uses bytes up to the end of a message or control frame: how many, and the event; without one, all of them.
    /// After a violation the connection must be ended, with the violation's close code.
    pub fn read<'a>(&'a mut self, rules: &Rules, bytes: &'a mut [u8]) -> Result<(usize, Option<Event<'a>>), Violation> {
        self.recycle();
        let mut used = 0;
        loop {
            if self.frame.is_none() {
                let Some((header, header_bytes)) = self.read_header(&bytes[used..])? else {
                    return Ok((bytes.len(), None));
                };
                used += header_bytes;
                self.check(rules, &header)?;
                if self.is_whole(&header) && header.payload_bytes <= (bytes.len() - used) as u64 {
                    let end = used + header.payload_bytes as usize;
                    return Ok((end, Some(event_in_place(&header, &mut bytes[used..end])?)));
                }
                self.begin_frame(header);
            }
            let (taken, complete) = self.take_payload(&mut bytes[used..])?;
            used += taken;
            if !complete {
                return Ok((used, None));
            }
            if let Some((opcode, start)) = self.end_frame()? {
                return Ok((used, Some(event(opcode, &self.buffer[start..])?)));
            }
        }
    }

    /// Nothing has come of the next frame or message.
    pub fn is_between_messages(&self) -> bool {
        self.head_bytes == 0 && self.frame.is_none() && self.message.is_none()
    }

    /// Forgets what the caller has seen.
    fn recycle(&mut self) {
        if std::mem::take(&mut self.delivered) {
            self.buffer.truncate(self.message_bytes);
            if self.message_bytes == 0 && self.buffer.capacity() > KEPT_BYTES_MAX {
                self.buffer = Vec::new();
            }
        }
    }

    /// A whole header, and how many of these bytes were used for it.
    fn read_header(&mut self, bytes: &[u8]) -> Result<Option<(Header, usize)>, Violation> {
        let before = usize::from(self.head_bytes);
        let more = bytes.len().min(HEADER_BYTES_MAX - before);
        self.head[before..before + more].copy_from_slice(&bytes[..more]);
        let parsed = frame::parse(&self.head[..before + more])?;
        self.head_bytes = if parsed.is_some() { 0 } else { (before + more) as u8 };
        Ok(parsed.map(|(header, length)| (header, length - before)))
    }

    /// Whether a frame may come here.
    fn check(&self, rules: &Rules, header: &Header) -> Result<(), Violation> {
        match (header.mask, rules.peer_masks) {
            (None, true) => return Err(Violation::Unmasked),
            (Some(_), false) => return Err(Violation::Masked),
            _ => {}
        }
        if header.opcode.is_control() {
            return Ok(());
        }
        match (header.opcode == Opcode::Continuation, self.message.is_some()) {
            (true, false) => return Err(Violation::StrayContinuation),
            (false, true) => return Err(Violation::InterruptedMessage),
            _ => {}
        }
        let room = rules.message_bytes_max.saturating_sub(self.message_bytes) as u64;
        if header.payload_bytes > room { Err(Violation::MessageTooBig) } else { Ok(()) }
    }

    /// A frame that is an event by itself.
    fn is_whole(&self, header: &Header) -> bool {
        header.opcode.is_control() || (header.fin && self.message.is_none())
    }

    fn begin_frame(&mut self, header: Header) {
        if matches!(header.opcode, Opcode::Text | Opcode::Binary) {
            self.message = Some(header.opcode);
            self.valid_bytes = 0;
        }
        self.frame = Some(header);
    }

    /// Takes what there is of the frame's payload; how much, and whether the frame is complete with it.
    fn take_payload(&mut self, bytes: &mut [u8]) -> Result<(usize, bool), Violation> {
        let frame = self.frame.as_mut().expect("a frame has begun");
        let taken = frame.payload_bytes.min(bytes.len() as u64) as usize;
        let piece = &mut bytes[..taken];
        frame.payload_bytes -= taken as u64;
        if let Some(key) = &mut frame.mask {
            apply_mask(piece, *key);
            key.rotate_left(taken % 4);
        }
        let (complete, control) = (frame.payload_bytes == 0, frame.opcode.is_control());
        // Room is made for what has come, never for what a header promises.
        self.buffer.extend_from_slice(piece);
        if !control {
            self.message_bytes += taken;
            if self.message == Some(Opcode::Text) {
                self.check_text()?;
            }
        }
        Ok((taken, complete))
    }

    fn check_text(&mut self) -> Result<(), Violation> {
        match std::str::from_utf8(&self.buffer[self.valid_bytes..]) {
            Ok(_) => self.valid_bytes = self.buffer.len(),
            Err(error) if error.error_len().is_none() => self.valid_bytes += error.valid_up_to(),
            Err(_) => return Err(Violation::InvalidText),
        }
        Ok(())
    }

    /// What a frame completes, and where in the buffer that starts.
    fn end_frame(&mut self) -> Result<Option<(Opcode, usize)>, Violation> {
        let frame = self.frame.take().expect("a frame has begun");
        if frame.opcode.is_control() {
            self.delivered = true;
            return Ok(Some((frame.opcode, self.message_bytes)));
        }
        if !frame.fin {
            return Ok(None);
        }
        let opcode = self.message.take().expect("a frame of data belongs to a message");
        if opcode == Opcode::Text && self.valid_bytes < self.message_bytes {
            return Err(Violation::InvalidText);
        }
        self.message_bytes = 0;
        self.delivered = true;
        Ok(Some((opcode, 0)))
    }
}

/// The event of a frame that is complete where it lies.
fn event_in_place<'a>(header: &Header, payload: &'a mut [u8]) -> Result<Event<'a>, Violation> {
    if let Some(key) = header.mask {
        apply_mask(payload, key);
    }
    if header.opcode == Opcode::Text && std::str::from_utf8(payload).is_err() {
        return Err(Violation::InvalidText);
    }
    event(header.opcode, payload)
}

fn event(opcode: Opcode, payload: &[u8]) -> Result<Event<'_>, Violation> {
    Ok(match opcode {
        Opcode::Text => Event::Text(payload),
        Opcode::Binary => Event::Binary(payload),
        Opcode::Ping => Event::Ping(payload),
        Opcode::Pong => Event::Pong(payload),
        Opcode::Close => return close(payload),
        Opcode::Continuation => unreachable!("a message has the opcode of its first frame"),
    })
}

fn close(payload: &[u8]) -> Result<Event<'_>, Violation> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        let empty = payload.is_empty();
        return if empty { Ok(Event::Close { code: None, reason: "" }) } else { Err(Violation::ShortClose) };
    };
    let code = u16::from_be_bytes(*code);
    // Registered codes that may be sent (1004 to 1006 and 1015 may not), then those of libraries and applications.
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::CloseCode);
    }
    let reason = std::str::from_utf8(reason).map_err(|_| Violation::InvalidText)?;
    Ok(Event::Close { code: Some(code), reason })
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
