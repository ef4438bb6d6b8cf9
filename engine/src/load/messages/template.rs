//! A text with tokens that are replaced each time it is written: `{id}`, `{stamp}`, `{user}`. Any other brace stays as
//! it is.

pub const ID: &str = "{id}";
const STAMP: &str = "{stamp}";
const USER: &str = "{user}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Id,
    Stamp,
    User,
}

const TOKENS: [(&str, Token); 3] = [(ID, Token::Id), (STAMP, Token::Stamp), (USER, Token::User)];

/// The numbers for the tokens of one message.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    pub id: u64,
    pub stamp_ns: u64,
    pub user: u64,
}

/// A message's bytes, cut at its tokens.
#[derive(Debug)]
pub struct Template {
    /// The bytes before each token, and the token.
    parts: Vec<(Vec<u8>, Token)>,
    rest: Vec<u8>,
}

impl Template {
    pub fn new(text: &str) -> Template {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, token, after)) = cut(rest) {
            parts.push((before.as_bytes().to_vec(), token));
            rest = after;
        }
        Template { parts, rest: rest.as_bytes().to_vec() }
    }

    /// A template of bytes without tokens.
    pub fn of_bytes(bytes: Vec<u8>) -> Template {
        Template { parts: Vec::new(), rest: bytes }
    }

    /// The bytes of the message if it has no tokens, and is therefore always the same.
    #[inline]
    pub fn constant(&self) -> Option<&[u8]> {
        self.parts.is_empty().then_some(&self.rest)
    }

    pub fn is_stamped(&self) -> bool {
        self.parts.iter().any(|(_, token)| *token == Token::Stamp)
    }

    /// Appends one message.
    pub fn write(&self, values: &Values, out: &mut Vec<u8>) {
        for (before, token) in &self.parts {
            out.extend_from_slice(before);
            let number = match token {
                Token::Id => values.id,
                Token::Stamp => values.stamp_ns,
                Token::User => values.user,
            };
            write_number(number, out);
        }
        out.extend_from_slice(&self.rest);
    }
}

/// The text with a zero in place of each token.
pub fn with_zeros(text: &str) -> String {
    let mut out = Vec::new();
    Template::new(text).write(&Values { id: 0, stamp_ns: 0, user: 0 }, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Splits the text at its first token.
fn cut(text: &str) -> Option<(&str, Token, &str)> {
    let mut from = 0;
    while let Some(at) = text[from..].find('{') {
        let (before, rest) = text.split_at(from + at);
        if let Some((name, token)) = TOKENS.iter().find(|(name, _)| rest.starts_with(name)) {
            return Some((before, *token, &rest[name.len()..]));
        }
        from += at + 1;
    }
    None
}

/// Appends the number in decimal; `write!` takes three times as long.
fn write_number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &str, values: &Values) -> String {
        let mut out = Vec::new();
        Template::new(text).write(values, &mut out);
        String::from_utf8(out).unwrap()
    }

    const VALUES: Values = Values { id: 7, stamp_ns: 1_234_567_890_123, user: 0 };

    #[test]
    fn tokens_stand_for_numbers_and_other_braces_for_themselves() {
        for (text, expected) in [
            ("", ""),
            ("{id}", "7"),
            ("{\"id\":{id},\"at\":{stamp},\"u\":\"u{user}\"}", "{\"id\":7,\"at\":1234567890123,\"u\":\"u0\"}"),
            ("{{id}}{id}{ id}{ID}{idé{", "{7}7{ id}{ID}{idé{"),
        ] {
            assert_eq!(written(text, &VALUES), expected);
        }
        assert!(Template::new("a {stamp}").is_stamped() && !Template::new("a {id} stamp}").is_stamped());
        assert_eq!(Template::new("{user").constant(), Some(&b"{user"[..]));
        assert_eq!(Template::new("{user}").constant(), None);
        assert_eq!(Template::of_bytes(b"{id}".to_vec()).constant(), Some(&b"{id}"[..]));
        assert_eq!(with_zeros("[{id},{user}]"), "[0,0]");
    }

    proptest! {
        #[test]
        fn it_agrees_with_replacing(text in "[a{}]{0,3}(\\{id\\}|\\{user\\}|\\{stamp\\}|\\{|é){0,4}[a{}]{0,3}", id: u64, user: u64) {
            let values = Values { id, stamp_ns: u64::MAX, user };
            let number = |name: &str, value: u64| (format!("{{{name}}}"), value.to_string());
            let mut expected = text.clone();
            for (token, value) in [number("id", id), number("user", user), number("stamp", u64::MAX)] {
                expected = expected.replace(&token, &value);
            }
            prop_assert_eq!(written(&text, &values), expected);
        }
    }
}
