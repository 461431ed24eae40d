//! Bytes of tokens to text: a character may be spread over several tokens.

/// Turns a stream of bytes into text, whatever the split. Bytes that can never become a character turn into
/// one U+FFFD for each maximal bad run, as `String::from_utf8_lossy` does.
#[derive(Debug, Default)]
pub struct Utf8Stream {
    /// The beginning of a character whose end has not come yet: at most three bytes.
    held: Vec<u8>,
}

impl Utf8Stream {
    /// Takes more bytes and gives the text that is certain by now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(good) => {
                    text.push_str(good);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(good));
                    let Some(n) = error.error_len() else {
                        rest = bad;
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &bad[n..];
                }
            }
        }
        self.held = rest.to_vec();
        text
    }

    /// The end of the stream: what is held back can no longer become a character.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(bytes: &[u8], cuts: &[usize]) -> String {
        let mut stream = Utf8Stream::default();
        let mut text = String::new();
        let mut at = 0;
        for cut in cuts.iter().map(|c| c % (bytes.len() + 1)).collect::<std::collections::BTreeSet<_>>() {
            text += &stream.push(&bytes[at..cut]);
            at = cut;
        }
        text += &stream.push(&bytes[at..]);
        text + &stream.finish()
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_text(text in ".*", cuts in proptest::collection::vec(0usize..400, 0..12)) {
            prop_assert_eq!(stream(text.as_bytes(), &cuts), text);
        }

        #[test]
        fn bad_bytes_are_replaced_as_in_one_piece(bytes in proptest::collection::vec(any::<u8>(), 0..200),
                                                  cuts in proptest::collection::vec(0usize..400, 0..12)) {
            prop_assert_eq!(stream(&bytes, &cuts), String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_character_comes_out_only_when_it_is_whole() {
        let mut stream = Utf8Stream::default();
        let bear = "🐻".as_bytes();
        assert_eq!(stream.push(&bear[..3]), "");
        assert_eq!(stream.push(&bear[3..]), "🐻");
        assert_eq!(stream.push(&bear[..2]), "");
        assert_eq!(stream.finish(), "\u{FFFD}");
    }
}
