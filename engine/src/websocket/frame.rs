//! One frame: its header from bytes and to bytes, the mask, and the writing of whole messages and of close frames.
//! `reader` checks the order and the content of frames.

use super::Violation;

/// Two bytes, eight bytes of length, four of mask.
pub const HEADER_BYTES_MAX: usize = 14;
const CONTROL_BYTES_MAX: usize = 125;
/// The limit on the reason, without the code before it.
const CLOSE_REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const LENGTH_IN_2_BYTES: u8 = 126;
const LENGTH_IN_8_BYTES: u8 = 127;

pub type MaskKey = [u8; 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    Continuation = 0x0,
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xa,
}

impl Opcode {
    fn of(bits: u8) -> Result<Opcode, Violation> {
        Ok(match bits {
            0x0 => Opcode::Continuation,
            0x1 => Opcode::Text,
            0x2 => Opcode::Binary,
            0x8 => Opcode::Close,
            0x9 => Opcode::Ping,
            0xa => Opcode::Pong,
            _ => return Err(Violation::UnknownOpcode),
        })
    }

    pub fn is_control(self) -> bool {
        self as u8 >= Opcode::Close as u8
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// True for the last, or only, frame of its message.
    pub fin: bool,
    pub opcode: Opcode,
    pub mask: Option<MaskKey>,
    pub payload_bytes: u64,
}

/// The header at the start of these bytes, and its length; None while it is incomplete. Invalid headers are refused as
/// early as possible.
pub fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, Violation> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    if first & RESERVED != 0 {
        return Err(Violation::ReservedBits);
    }
    let (fin, opcode) = (first & FIN != 0, Opcode::of(first & 0x0f)?);
    if opcode.is_control() && !fin {
        return Err(Violation::FragmentedControl);
    }
    let Some(&second) = bytes.get(1) else { return Ok(None) };
    let short_length = second & !MASKED;
    if opcode.is_control() && usize::from(short_length) > CONTROL_BYTES_MAX {
        return Err(Violation::LongControl);
    }
    let Some((payload_bytes, length_bytes)) = parse_length(short_length, &bytes[2..])? else { return Ok(None) };
    let mut end = 2 + length_bytes;
    let mut mask = None;
    if second & MASKED != 0 {
        let Some(key) = bytes[end..].first_chunk::<4>() else { return Ok(None) };
        mask = Some(*key);
        end += key.len();
    }
    Ok(Some((Header { fin, opcode, mask, payload_bytes }, end)))
}

/// The payload's length, and the number of bytes that encode it.
fn parse_length(short_length: u8, bytes: &[u8]) -> Result<Option<(u64, usize)>, Violation> {
    let (length, length_bytes, least) = match short_length {
        LENGTH_IN_2_BYTES => match bytes.first_chunk() {
            Some(two) => (u64::from(u16::from_be_bytes(*two)), 2, u64::from(LENGTH_IN_2_BYTES)),
            None => return Ok(None),
        },
        LENGTH_IN_8_BYTES => match bytes.first_chunk() {
            Some(eight) => (u64::from_be_bytes(*eight), 8, 1 << 16),
            None => return Ok(None),
        },
        _ => (u64::from(short_length), 0, 0),
    };
    if length < least {
        return Err(Violation::WastefulLength);
    }
    if length > i64::MAX as u64 {
        return Err(Violation::ImpossibleLength);
    }
    Ok(Some((length, length_bytes)))
}

impl Header {
    /// Appends the header in the fewest bytes; the caller appends the payload, masked.
    pub fn write(&self, out: &mut Vec<u8>) {
        let masked = if self.mask.is_some() { MASKED } else { 0 };
        out.push(self.opcode as u8 | if self.fin { FIN } else { 0 });
        if self.payload_bytes < u64::from(LENGTH_IN_2_BYTES) {
            out.push(masked | self.payload_bytes as u8);
        } else if let Ok(length) = u16::try_from(self.payload_bytes) {
            out.push(masked | LENGTH_IN_2_BYTES);
            out.extend_from_slice(&length.to_be_bytes());
        } else {
            out.push(masked | LENGTH_IN_8_BYTES);
            out.extend_from_slice(&self.payload_bytes.to_be_bytes());
        }
        if let Some(key) = self.mask {
            out.extend_from_slice(&key);
        }
    }
}

/// Appends a message, or a ping or pong of at most 125 bytes, in one frame. Clients mask with an unpredictable key.
pub fn write_frame(out: &mut Vec<u8>, opcode: Opcode, mask: Option<MaskKey>, payload: &[u8]) {
    Header { fin: true, opcode, mask, payload_bytes: payload.len() as u64 }.write(out);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = mask {
        apply_mask(&mut out[start..], key);
    }
}

/// Appends a close frame. A reason needs a code, and is truncated to fit.
pub fn write_close(out: &mut Vec<u8>, mask: Option<MaskKey>, code: Option<u16>, reason: &str) {
    let mut payload = [0; CONTROL_BYTES_MAX];
    let mut length = 0;
    if let Some(code) = code {
        let mut cut = reason.len().min(CLOSE_REASON_BYTES_MAX);
        while !reason.is_char_boundary(cut) {
            cut -= 1;
        }
        length = 2 + cut;
        payload[..2].copy_from_slice(&code.to_be_bytes());
        payload[2..length].copy_from_slice(&reason.as_bytes()[..cut]);
    }
    write_frame(out, Opcode::Close, mask, &payload[..length]);
}

/// Masks or unmasks in place: eight bytes at a time, which compilers widen further.
pub fn apply_mask(bytes: &mut [u8], key: MaskKey) {
    let [a, b, c, d] = key;
    let key_twice = [a, b, c, d, a, b, c, d];
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ u64::from_ne_bytes(key_twice)).to_ne_bytes();
    }
    for (byte, key_byte) in rest.iter_mut().zip(key_twice) {
        *byte ^= key_byte;
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
