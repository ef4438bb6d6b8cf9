//! Protocol violations of a peer after the handshake, with the close code and the reason for each.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    ReservedBits,
    UnknownOpcode,
    FragmentedControl,
    LongControl,
    /// A length in more bytes than it needs.
    WastefulLength,
    /// A length of 2^63 or more.
    ImpossibleLength,
    /// A client's frame without a mask.
    Unmasked,
    /// A server's frame with a mask.
    Masked,
    /// A continuation of no message.
    StrayContinuation,
    /// A new message within another one.
    InterruptedMessage,
    MessageTooBig,
    /// A text message, or the reason of a close frame, that is not UTF-8.
    InvalidText,
    /// A close frame with one byte.
    ShortClose,
    /// A close code that may not be sent.
    CloseCode,
}

impl Violation {
    /// The code for the close frame that answers it (RFC 6455, 7.4.1).
    pub fn close_code(self) -> u16 {
        match self {
            Violation::InvalidText => 1007,
            Violation::MessageTooBig => 1009,
            _ => 1002,
        }
    }

    /// The reason in words, short enough for a close frame.
    pub fn text(self) -> &'static str {
        match self {
            Violation::ReservedBits => "reserved bits are set, but no extension was agreed on",
            Violation::UnknownOpcode => "an opcode that RFC 6455 does not know",
            Violation::FragmentedControl => "a control frame in fragments",
            Violation::LongControl => "a control frame of more than 125 bytes",
            Violation::WastefulLength => "a length in more bytes than it needs",
            Violation::ImpossibleLength => "a length beyond 2^63",
            Violation::Unmasked => "a client's frame without a mask",
            Violation::Masked => "a server's frame with a mask",
            Violation::StrayContinuation => "a continuation of no message",
            Violation::InterruptedMessage => "a new message before the last one was complete",
            Violation::MessageTooBig => "a message that is too long",
            Violation::InvalidText => "a text that is not UTF-8",
            Violation::ShortClose => "a close frame of one byte",
            Violation::CloseCode => "a close code that may not be sent",
        }
    }
}
