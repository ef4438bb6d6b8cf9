//! Assembles messages from frames that arrive in pieces. In: bytes, which are unmasked in place. Out: whole messages
//! and control frames, without a copy if they arrived in one piece. Fragments are joined up to a limit, text is
//! validated as it arrives. The caller answers pings and closes.

use super::Violation;
use super::frame::{self, HEADER_BYTES_MAX, Header, Opcode, apply_mask};

/// Capacity kept from message to message; an idle connection uses no more memory than this and the reader itself.
const KEPT_BYTES_MAX: usize = 512;

/// Requirements on the peer's frames, the same for all connections of a kind.
pub struct Rules {
    /// True if the peer is a client, which must mask; false if it is a server, which must not.
    pub peer_masks: bool,
    pub message_bytes_max: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole message that is valid UTF-8.
    Text(&'a [u8]),
    Binary(&'a [u8]),
    Ping(&'a [u8]),
    Pong(&'a [u8]),
    /// All later bytes are to be ignored.
    Close {
        code: Option<u16>,
        reason: &'a str,
    },
}

/// The position of one connection within a frame and a message.
#[derive(Default)]
pub struct Reader {
    /// The first bytes of an incomplete header.
    head: [u8; HEADER_BYTES_MAX],
    head_bytes: u8,
    /// The frame whose payload is being read, with the length still to come, and the mask rotated to match.
    frame: Option<Header>,
    /// The opcode, text or binary, of the message that has begun.
    message: Option<Opcode>,
    /// The message so far, followed by the payload so far of a control frame within it.
    buffer: Vec<u8>,
    /// The length of the message within the buffer.
    message_bytes: usize,
    /// The length of its valid UTF-8 so far; the rest is an incomplete character.
    valid_bytes: usize,
    /// True if the caller has seen the buffer beyond `message_bytes`.
    delivered: bool,
}

impl Reader {
    /// Consumes bytes up to the end of a message or control frame. Returns the number consumed and the event; without
    /// an event, all bytes are consumed. After a violation the connection must be closed, with the violation's close
    /// code.
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

    /// True if no byte of the next frame or message has arrived.
    pub fn is_between_messages(&self) -> bool {
        self.head_bytes == 0 && self.frame.is_none() && self.message.is_none()
    }

    /// Discards data that the caller has seen.
    fn recycle(&mut self) {
        if std::mem::take(&mut self.delivered) {
            self.buffer.truncate(self.message_bytes);
            if self.message_bytes == 0 && self.buffer.capacity() > KEPT_BYTES_MAX {
                self.buffer = Vec::new();
            }
        }
    }

    /// A whole header, and the number of these bytes used for it.
    fn read_header(&mut self, bytes: &[u8]) -> Result<Option<(Header, usize)>, Violation> {
        let before = usize::from(self.head_bytes);
        let more = bytes.len().min(HEADER_BYTES_MAX - before);
        self.head[before..before + more].copy_from_slice(&bytes[..more]);
        let parsed = frame::parse(&self.head[..before + more])?;
        self.head_bytes = if parsed.is_some() { 0 } else { (before + more) as u8 };
        Ok(parsed.map(|(header, length)| (header, length - before)))
    }

    /// Checks that a frame is allowed at this point.
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

    /// True for a frame that is an event on its own.
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

    /// Takes the available part of the frame's payload; returns its length, and true if the frame is now complete.
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
        // Reserve memory for received bytes only, never for the length in a header.
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

    /// The message or control frame that is now complete, and its start in the buffer.
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

/// The event of a frame that is complete in the input.
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
