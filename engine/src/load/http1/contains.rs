//! Finds out whether a body contains each of some texts. Bodies arrive in pieces cut anywhere, so each text has a
//! Knuth-Morris-Pratt automaton, whose whole state is one number. Nothing of the body is kept.

/// The texts that the body of one step's response must contain.
pub struct Needles {
    needles: Vec<Needle>,
}

struct Needle {
    text: Vec<u8>,
    /// `borders[n]`: the longest proper border of the first n bytes.
    borders: Vec<u32>,
}

impl Needles {
    pub fn new(texts: &[String]) -> Needles {
        Needles { needles: texts.iter().map(|text| Needle::new(text.as_bytes())).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.needles.is_empty()
    }

    /// Feeds the next piece of the body. `matched` is the state, which is empty at the start of a body.
    pub fn feed(&self, matched: &mut Vec<u32>, piece: &[u8]) {
        matched.resize(self.needles.len(), 0);
        for (needle, matched) in self.needles.iter().zip(matched) {
            *matched = needle.feed(*matched, piece);
        }
    }

    /// True if every text has occurred.
    pub fn all_found(&self, matched: &[u32]) -> bool {
        self.needles.iter().enumerate().all(|(i, needle)| {
            needle.text.is_empty() || matched.get(i).is_some_and(|&matched| matched as usize == needle.text.len())
        })
    }
}

impl Needle {
    fn new(text: &[u8]) -> Needle {
        let mut borders = vec![0u32; text.len() + 1];
        let mut border = 0usize;
        for i in 1..text.len() {
            while border > 0 && text[border] != text[i] {
                border = borders[border] as usize;
            }
            border += usize::from(text[border] == text[i]);
            borders[i + 1] = border as u32;
        }
        Needle { text: text.to_vec(), borders }
    }

    /// Returns the length of the longest prefix of the text that ends at the end of the piece. Once the whole text is
    /// found, the state stays.
    fn feed(&self, matched: u32, piece: &[u8]) -> u32 {
        let mut matched = matched as usize;
        for &byte in piece {
            if matched == self.text.len() {
                break;
            }
            while matched > 0 && self.text[matched] != byte {
                matched = self.borders[matched] as usize;
            }
            matched += usize::from(self.text[matched] == byte);
        }
        matched as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(texts: &[&str], pieces: &[&[u8]]) -> bool {
        let needles = Needles::new(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>());
        let mut matched = Vec::new();
        pieces.iter().for_each(|piece| needles.feed(&mut matched, piece));
        needles.all_found(&matched)
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_search_of_the_whole(text in "[ab]{0,6}", body in "[ab]{0,40}", cut in 0usize..40) {
            let (a, b) = body.as_bytes().split_at(cut.min(body.len()));
            prop_assert_eq!(found(&[&text], &[a, b]), body.contains(&text));
        }
    }

    #[test]
    fn every_text_must_occur() {
        assert!(found(&["world", "hello"], &[b"hello wo", b"rld"]));
        assert!(!found(&["world", "hullo"], &[b"hello world"]));
        assert!(found(&[""], &[]));
    }
}
