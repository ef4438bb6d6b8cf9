//! Extracts numbers and words from messages in any format: a text marks the place, and the number or word follows it,
//! directly or after white space, which many writers of JSON put there. So the engine reads stamps, running counts and
//! request numbers without understanding the rest of a message.

use memchr::memmem::Finder;

/// A text that marks places in messages.
pub struct Mark {
    finder: Finder<'static>,
}

impl Mark {
    pub fn new(text: &str) -> Mark {
        Mark { finder: Finder::new(text).into_owned() }
    }

    #[inline]
    pub fn is_in(&self, message: &[u8]) -> bool {
        self.finder.find(message).is_some()
    }

    /// The number after the first occurrence of the text that is followed by digits. None if there is no such occurrence,
    /// or if the number exceeds 64 bits.
    #[inline]
    pub fn number_after(&self, message: &[u8]) -> Option<u64> {
        self.followers(message).find_map(leading_number)
    }

    /// The first word that follows the text, directly or after an opening quotation mark. A word ends at a quotation
    /// mark, a comma, a closing brace or white space.
    pub fn word_after<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        let ends = |byte: &u8| matches!(byte, b'"' | b',' | b'}') || byte.is_ascii_whitespace();
        let unquoted = self.followers(message).map(|rest| rest.strip_prefix(b"\"").unwrap_or(rest));
        let mut words = unquoted.map(|rest| rest.split(ends).next().unwrap_or_default());
        words.find(|word| !word.is_empty())
    }

    /// The rest of the message after each occurrence and the white space behind it.
    #[inline]
    fn followers<'a>(&self, message: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let at = from + self.finder.find(message.get(from..)?)?;
            // Occurrences may overlap.
            from = at + 1;
            message.get(at + self.finder.needle().len()..).map(<[u8]>::trim_ascii_start)
        })
    }
}

#[inline]
fn leading_number(text: &[u8]) -> Option<u64> {
    let mut digits = text.iter().map(|byte| byte.wrapping_sub(b'0')).take_while(|digit| *digit < 10).peekable();
    digits.peek()?;
    digits.try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit)))
}

/// True if a comma-separated header value contains a token, in any case.
pub fn has_token(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

/// The place of a running count in answers, and of the label that says what is counted.
pub struct Tally {
    label: Option<Mark>,
    count: Mark,
}

impl Tally {
    pub fn new(label_after: Option<&str>, count_after: &str) -> Tally {
        Tally { label: label_after.map(Mark::new), count: Mark::new(count_after) }
    }

    /// Reads the label and the count of an answer. The label is empty if the answer has none.
    #[inline]
    pub fn read<'a>(&self, message: &'a [u8]) -> Option<(&'a [u8], u64)> {
        let count = self.count.number_after(message)?;
        let label = self.label.as_ref().and_then(|label| label.word_after(message));
        Some((label.unwrap_or_default(), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_follow_their_text() {
        let mark = Mark::new("\"rid\":");
        assert_eq!(mark.number_after(br#"{"rid":12,"data":1}"#), Some(12));
        assert_eq!(mark.number_after(br#"{"rid":0}"#), Some(0));
        assert_eq!(mark.number_after(br#"{"rid":007"#), Some(7));
        assert_eq!(
            mark.number_after(b"{\"rid\": 12,\n\"rid\":\n3}"),
            Some(12),
            "as Python and pretty printers write it"
        );
        for none in [&br#"{"rid": }"#[..], br#"{"rid":"12"}"#, br#"{"rid":-1}"#, br#"{"rid":"#, br#"{"ri":12}"#, b""] {
            assert_eq!(mark.number_after(none), None);
        }
        assert_eq!(mark.number_after(br#"{"rid":null,"data":{"rid":5}}"#), Some(5), "the first that is a number");
        assert_eq!(mark.number_after(br#"{"rid":18446744073709551615}"#), Some(u64::MAX));
        assert_eq!(mark.number_after(br#"{"rid":18446744073709551616}"#), None);
        assert_eq!(mark.number_after(br#"{"rid":99999999999999999999999,"rid":3}"#), Some(3));
        assert_eq!(Mark::new("aa").number_after(b"aaa5"), Some(5), "occurrences overlap");
        assert_eq!(Mark::new("").number_after(b"a 41b2"), Some(41));
        assert_eq!(Mark::new("").number_after(b""), None);
    }

    #[test]
    fn words_end_where_json_ends_them() {
        let mark = Mark::new("\"pid\":");
        for (message, word) in [
            (&br#"{"pid":17,"count":2}"#[..], Some(&b"17"[..])),
            (br#"{"count":2,"pid":17}"#, Some(b"17")),
            (br#"{"pid":w-1 }"#, Some(b"w-1")),
            (br#"{"pid":w-1"#, Some(b"w-1")),
            (br#"{"pid": 17, "count": 2}"#, Some(b"17")),
            (br#"{"pid":}"#, None),
            (br#"{"pid":"x","pid":17}"#, Some(b"x")),
            (br#"{"pid": "x"}"#, Some(b"x")),
            (br#"{"pid":"","pid":17}"#, Some(b"17")),
            (b"{}", None),
        ] {
            assert_eq!(mark.word_after(message), word);
        }
        let quoted = Mark::new("\"worker\":\"");
        assert_eq!(quoted.word_after(br#"{"worker":"two","n":1}"#), Some(&b"two"[..]));
        assert_eq!(quoted.word_after(br#"{"worker":"","n":1}"#), None);
        assert!(mark.is_in(br#"{"pid":}"#) && !mark.is_in(b"pid"));
    }

    #[test]
    fn counts_have_a_label_or_the_empty_one() {
        let message = br#"{"event":"pong","data":{"count":31,"pid":4711}}"#;
        assert_eq!(Tally::new(None, "\"count\":").read(message), Some((&b""[..], 31)));
        assert_eq!(Tally::new(Some("\"pid\":"), "\"count\":").read(message), Some((&b"4711"[..], 31)));
        assert_eq!(Tally::new(Some("\"worker\":"), "\"count\":").read(message), Some((&b""[..], 31)));
        assert_eq!(Tally::new(Some("\"pid\":"), "\"sum\":").read(message), None);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_search_at_every_place(text in "[ab1]{0,4}", message in "[ab12 ]{0,40}") {
            let mark = Mark::new(&text);
            let follower = |at| message.get(at..)?.strip_prefix(&text);
            let number = |rest: &str| {
                let rest = rest.trim_ascii_start();
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                rest[..end].parse().ok()
            };
            let expected: Option<u64> = (0..=message.len()).filter_map(follower).find_map(number);
            prop_assert_eq!(mark.number_after(message.as_bytes()), expected);
            prop_assert_eq!(mark.is_in(message.as_bytes()), message.contains(&text));
        }

        #[test]
        fn no_message_makes_it_panic(text in "\\PC{0,3}", message in prop::collection::vec(any::<u8>(), 0..60)) {
            let mark = Mark::new(&text);
            let (number, word) = (mark.number_after(&message), mark.word_after(&message));
            prop_assert!((number.is_none() && word.is_none()) || mark.is_in(&message));
        }
    }
}
