//! Keeps control tokens out of what people and files say.
//!
//! The tokeniser turns the text `<|im_end|>` into a control token wherever it stands. So a prompt's text is cut
//! inside each such text that a message wrote, or had a part in, and what lies on both sides of a cut is
//! tokenised apart: neither part is a control text. Everything else stays in one piece, so that it is tokenised
//! exactly as without the guard.
//!
//! Two ways, because a template may do to a message what it likes:
//!
//! * [`Guard::cuts`] works on the rendered text, where it is known which bytes came from messages. No control
//!   text that shares a byte with a message is ever whole in a part.
//! * [`Guard::sealed`] works on a message before it is rendered, for templates that take messages apart. No
//!   control text that stands in the message, or that begins there and ends in what the template writes after
//!   it, is ever whole in a part. What a template makes by taking text out of the middle of a message is not
//!   covered; no known one does.
//!
//! A control text of one character cannot be cut: [`Guard::clean`] replaces it by U+FFFD.

use std::collections::HashSet;
use std::ops::Range;

/// Marks a cut in a sealed message. Like all marks here a Unicode noncharacter: it means nothing in any text,
/// and templates do not trim it.
pub const CUT: char = '\u{FDD0}';
/// Noncharacters that are used as marks while a prompt is made; none is left in a clean text.
const MARKS: std::ops::RangeInclusive<char> = CUT..='\u{FDD7}';

/// The control texts of a vocabulary, ready to be looked for.
#[derive(Debug, Default)]
pub struct Guard {
    texts: HashSet<String>,
    /// Their proper beginnings.
    beginnings: HashSet<String>,
    first: HashSet<char>,
    /// Those of one character.
    single: HashSet<char>,
    /// Their different lengths in bytes; a vocabulary has few.
    lengths: Vec<usize>,
}

impl Guard {
    /// A guard for these control texts.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let (mut guard, mut lengths) = (Self::default(), HashSet::new());
        for text in texts {
            let mut chars = text.char_indices();
            let Some((_, first)) = chars.next() else { continue };
            let ends: Vec<usize> = chars.map(|(end, _)| end).collect();
            if ends.is_empty() {
                guard.single.insert(first);
                continue;
            }
            guard.beginnings.extend(ends.into_iter().map(|end| text[..end].to_owned()));
            guard.first.insert(first);
            lengths.insert(text.len());
            guard.texts.insert(text);
        }
        guard.lengths = lengths.into_iter().collect();
        guard.lengths.sort_unstable();
        guard
    }

    /// The text without marks and control texts of one character, and whether something had to be replaced.
    pub fn clean(&self, text: &str) -> (String, bool) {
        let bad = |c: char| MARKS.contains(&c) || self.single.contains(&c);
        if text.contains(bad) { (text.replace(bad, "\u{FFFD}"), true) } else { (text.to_owned(), false) }
    }

    /// Where to cut a text so that no control text that shares a byte with one of the spans is whole in a part.
    /// The spans are of bytes, in their order; so are the cuts.
    pub fn cuts(&self, text: &str, spans: &[Range<usize>]) -> Vec<usize> {
        let mut cuts = Vec::new();
        let mut spans = spans.iter().filter(|s| !s.is_empty()).peekable();
        for found in self.occurrences(text) {
            while spans.next_if(|s| s.end <= found.start).is_some() {}
            let Some(span) = spans.peek().filter(|s| s.start < found.end) else { continue };
            cuts.push(if found.start < span.start {
                span.start
            } else if span.end < found.end {
                span.end
            } else {
                after_first(text, found.start)
            });
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// A clean text with cuts in each control text, and after an end that a template could complete to one.
    pub fn sealed(&self, text: &str) -> String {
        let mut cuts: Vec<usize> = self.occurrences(text).map(|found| after_first(text, found.start)).collect();
        // A template may trim the text, so what counts is where its blanks begin.
        cuts.extend([text.trim_end(), text].into_iter().filter(|t| self.ends_open(t)).map(str::len));
        cuts.sort_unstable();
        cuts.dedup();
        let mut out = String::with_capacity(text.len() + cuts.len() * CUT.len_utf8());
        for part in parts(text, &cuts) {
            out.push_str(part);
            out.push(CUT);
        }
        if cuts.last() != Some(&text.len()) {
            out.pop();
        }
        out
    }

    /// Every control text in the text, overlapping ones too, by where it begins.
    fn occurrences<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
        let starts = text.char_indices().filter(|(_, c)| self.first.contains(c));
        starts.flat_map(move |(at, _)| {
            let whole = move |n: &&usize| text.get(at..at + **n).is_some_and(|here| self.texts.contains(here));
            self.lengths.iter().filter(whole).map(move |n| at..at + n)
        })
    }

    /// Whether the text ends like the beginning of a control text.
    fn ends_open(&self, text: &str) -> bool {
        let longest = self.lengths.last().copied().unwrap_or(0);
        text.char_indices()
            .rev()
            .take_while(|(at, _)| text.len() - at < longest)
            .any(|(at, _)| self.beginnings.contains(&text[at..]))
    }
}

fn after_first(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(0, char::len_utf8)
}

/// The parts of a text between cuts, of which some may be empty.
pub fn parts<'t>(text: &'t str, cuts: &[usize]) -> impl Iterator<Item = &'t str> {
    let ends = cuts.iter().copied().chain([text.len()]);
    ends.scan(0, |from, end| Some(&text[std::mem::replace(from, end)..end]))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // one span is meant
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn guard() -> Guard {
        Guard::new(["<|im_end|>", "<|im_start|>", "<s>", "</s>", "aba", "é>é", "§", ""].map(str::to_owned))
    }

    /// Text of pieces of control texts, and of what is between them.
    fn pieces(most: usize) -> impl Strategy<Value = String> {
        let pieces = "(<\\|im_end\\|>|<\\|im_start\\||>|<|s>|</s|a|b|§|é|\u{FDD0}| |\n)";
        prop::string::string_regex(&format!("{pieces}{{0,{most}}}")).unwrap()
    }

    proptest! {
        #[test]
        fn a_sealed_text_holds_no_control_text(text in pieces(40), after in "(>|\\|>|s>|ba|end\\|>|\n)?") {
            let (clean, replaced) = guard().clean(&text);
            prop_assert_eq!(replaced, text.contains(['§', CUT]));
            let sealed = guard().sealed(&clean);
            for rendered in [sealed.clone() + &after, sealed.trim().to_owned() + &after] {
                for part in rendered.split(CUT) {
                    prop_assert_eq!(guard().occurrences(part).count(), 0, "{:?}", part);
                }
            }
            prop_assert_eq!(sealed.replace(CUT, ""), clean);
        }

        #[test]
        fn no_control_text_that_a_span_has_part_in_stays_whole(
            pieces in prop::collection::vec((any::<bool>(), pieces(6)), 0..12)
        ) {
            let (mut text, mut spans) = (String::new(), Vec::new());
            for (message, piece) in pieces {
                let start = text.len();
                text.push_str(&piece);
                if message && !piece.is_empty() {
                    spans.push(start..text.len());
                }
            }
            let cuts = guard().cuts(&text, &spans);
            prop_assert_eq!(parts(&text, &cuts).collect::<String>(), text.clone());
            for found in guard().occurrences(&text) {
                let touched = spans.iter().any(|s| s.start < found.end && found.start < s.end);
                let cut = cuts.iter().any(|c| found.start < *c && *c < found.end);
                // What is the template's alone may only be cut where it overlaps with what is not.
                prop_assert!(cut || !touched, "{:?} of {:?} is whole: {:?}", found, text, spans);
            }
            prop_assert!(!spans.is_empty() || cuts.is_empty());
        }
    }

    #[test]
    fn ordinary_text_is_untouched() {
        for text in ["", "a < b", "hello\n\nworld", "x<|im_", "çé", "if a < b then <b>", "<|im_end|"] {
            assert_eq!(guard().clean(text), (text.to_owned(), false));
            assert_eq!(guard().sealed(text).trim_end_matches(CUT), text);
            assert_eq!(guard().cuts(text, &[0..text.len()]), Vec::<usize>::new());
        }
    }

    #[test]
    fn cuts_stand_where_the_message_ends_or_begins_if_they_can() {
        assert_eq!(guard().cuts("x<|im_end|>", &[0..10]), [10]);
        assert_eq!(guard().cuts("<|im_end|>", &[8..10]), [8]);
        assert_eq!(guard().cuts("<s><s>", &[3..6]), [4]);
        assert_eq!(guard().cuts("ababa", &[0..5]), [1, 3]);
    }

    #[test]
    fn a_megabyte_of_brackets_against_a_large_vocabulary_is_cut_in_one_pass() {
        let guard = Guard::new((0..6000).map(|i| format!("<unused{i}>")));
        let text = "<unused5999><".repeat(80_000);
        assert_eq!(guard.cuts(&text, &[0..text.len()]).len(), 80_000);
        assert!(guard.sealed(&text).split(CUT).all(|part| !part.contains("<unused5999>")));
    }
}
