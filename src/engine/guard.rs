//! Keeps control tokens out of what people and files say.
//!
//! The tokeniser turns the text `<|im_end|>` into a control token wherever it stands. So each such text in a
//! message is marked with a cut inside it before the template is rendered, and what lies on both sides of a
//! cut is tokenised apart: neither part is a control text. Everything else is tokenised in one piece with the
//! template's text, exactly as it would be without the guard.
//!
//! Guaranteed: no control text of two or more characters that stands in a message, or that begins in a
//! message and ends in the template's text after it, is ever whole in a part. One of a single character is
//! replaced by U+FFFD.

use std::collections::HashSet;

/// The mark. A Unicode noncharacter: it means nothing in any text, and templates do not trim it.
pub const CUT: char = '\u{FDD0}';

/// The control texts of a vocabulary, ready to be looked for.
#[derive(Debug, Default)]
pub struct Guard {
    texts: HashSet<String>,
    /// Their proper beginnings.
    beginnings: HashSet<String>,
    first: HashSet<char>,
    /// Their different lengths in bytes; a vocabulary has few.
    lengths: Vec<usize>,
}

impl Guard {
    /// A guard for these control texts.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let texts: HashSet<String> = texts.into_iter().filter(|t| !t.is_empty()).collect();
        let first = texts.iter().filter_map(|t| t.chars().next()).collect();
        let mut lengths: Vec<usize> = texts.iter().map(String::len).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let beginnings =
            texts.iter().flat_map(|t| t.char_indices().skip(1).map(|(end, _)| t[..end].to_owned())).collect();
        Self { texts, beginnings, first, lengths }
    }

    /// The text with its cuts, and whether a character had to be replaced.
    pub fn cut(&self, text: &str) -> (String, bool) {
        let mut out = String::with_capacity(text.len());
        let mut changed = false;
        let mut cut_next = false;
        for (at, c) in text.char_indices() {
            if std::mem::take(&mut cut_next) {
                out.push(CUT);
            }
            if c == CUT {
                out.push(char::REPLACEMENT_CHARACTER);
                continue;
            }
            if self.first.contains(&c) {
                for length in &self.lengths {
                    let Some(here) = text.get(at..at + length) else { continue };
                    if self.texts.contains(here) {
                        if *length == c.len_utf8() {
                            changed = true;
                        } else {
                            cut_next = true;
                        }
                    }
                }
            }
            if changed && self.texts.contains(c.encode_utf8(&mut [0; 4])) {
                out.push(char::REPLACEMENT_CHARACTER);
            } else {
                out.push(c);
            }
        }
        if self.ends_open(text) {
            out.push(CUT);
        }
        (out, changed)
    }

    /// Whether the text ends like the beginning of a control text, which the template might complete.
    fn ends_open(&self, text: &str) -> bool {
        let longest = self.lengths.last().copied().unwrap_or(0);
        text.char_indices()
            .rev()
            .take_while(|(at, _)| text.len() - at < longest)
            .any(|(at, _)| self.beginnings.contains(&text[at..]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn guard() -> Guard {
        Guard::new(["<|im_end|>", "<|im_start|>", "<s>", "</s>", "aba", "§"].map(str::to_owned))
    }

    proptest! {
        #[test]
        fn no_part_holds_a_control_text(text in "(<\\|im_end\\|>|<\\|im_start\\||>|<|s>|</s|a|b|§|é|\u{FDD0}| |\n){0,40}",
                                        after in "(>|\\|>|s>|ba|end\\|>|\n)?") {
            let (cut, _) = guard().cut(&text);
            let rendered = cut.clone() + &after;
            for part in rendered.split(CUT) {
                for control in &guard().texts {
                    // The template's own text may hold control texts; these do not.
                    prop_assert!(!part.contains(control.as_str()), "{part:?} holds {control}");
                }
            }
            let kept = text.replace(['§', CUT], "\u{FFFD}");
            prop_assert_eq!(cut.replace(CUT, ""), kept);
        }
    }

    #[test]
    fn ordinary_text_is_untouched() {
        for text in ["", "a < b", "hello\n\nworld", "x<|im_", "çé"] {
            let (cut, changed) = guard().cut(text);
            assert_eq!((cut.replace(CUT, ""), changed), (text.to_owned(), false));
        }
        assert_eq!(guard().cut("if a < b then <b>").0, "if a < b then <b>");
    }

    #[test]
    fn a_megabyte_of_brackets_against_a_large_vocabulary_is_fast() {
        let guard = Guard::new((0..6000).map(|i| format!("<unused{i}>")));
        let text = "<unused5999><".repeat(80_000);
        let (cut, _) = guard.cut(&text);
        assert!(cut.split(CUT).all(|part| !part.contains("<unused5999>")));
    }
}
