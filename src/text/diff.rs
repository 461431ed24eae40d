//! What differs between two texts, word by word.

use std::ops::Range;
use std::time::Instant;

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};
use unicode_segmentation::UnicodeSegmentation;

/// What differs between two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Bytes of the left text that the right one does not have.
    pub left: Vec<Range<usize>>,
    /// Bytes of the right text that the left one does not have.
    pub right: Vec<Range<usize>>,
    /// Words that both have, in the same order.
    pub alike: usize,
    /// Words of each.
    pub words: (usize, usize),
}

/// Compares two texts. By `until` it is done: of texts that are very long and very different, what is left then
/// counts as different.
pub fn difference(left: &str, right: &str, until: Instant) -> Difference {
    let (old, new) = (words(left), words(right));
    let text = |words: &[(usize, &'_ str)]| words.iter().map(|(_, w)| (*w).to_owned()).collect::<Vec<_>>();
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &text(&old), &text(&new), Some(until));
    let mut found = Difference { words: (count(&old), count(&new)), ..Difference::default() };
    for (nth, op) in ops.iter().enumerate() {
        let (l, r) = (op.old_range(), op.new_range());
        if let DiffOp::Equal { .. } = op {
            let alike = count(&old[l.clone()]);
            found.alike += alike;
            // A blank between two words that differ is no common ground.
            if alike > 0 || nth == 0 || nth + 1 == ops.len() {
                continue;
            }
        }
        add(&mut found.left, bytes(&old, l, left.len()));
        add(&mut found.right, bytes(&new, r, right.len()));
    }
    found
}

/// The words of a text, and the blanks and marks between them, each with where it begins.
fn words(text: &str) -> Vec<(usize, &str)> {
    text.split_word_bound_indices().collect()
}

fn count(words: &[(usize, &str)]) -> usize {
    words.iter().filter(|(_, word)| word.chars().any(char::is_alphanumeric)).count()
}

fn bytes(words: &[(usize, &str)], range: Range<usize>, end: usize) -> Range<usize> {
    let at = |n: usize| words.get(n).map_or(end, |(at, _)| *at);
    at(range.start)..at(range.end)
}

/// Adds a range to those before it; one that goes on where the last one ends makes it longer.
fn add(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    match ranges.last_mut().filter(|last| last.end == range.start) {
        Some(last) => last.end = range.end,
        None => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn compare(left: &str, right: &str) -> Difference {
        difference(left, right, Instant::now() + Duration::from_secs(20))
    }

    fn marked(text: &str, ranges: &[Range<usize>]) -> Vec<String> {
        ranges.iter().map(|r| text[r.clone()].to_owned()).collect()
    }

    #[test]
    fn words_that_differ_are_found_whole() {
        let (left, right) = ("The red fox came down.", "The old grey fox came home.");
        let found = compare(left, right);
        assert_eq!(marked(left, &found.left), ["red", "down"]);
        assert_eq!(marked(right, &found.right), ["old grey", "home"]);
        assert_eq!((found.alike, found.words), (3, (5, 6)));
        let same = compare(left, left);
        assert_eq!((same.left.len(), same.right.len(), same.alike), (0, 0, 5));
        assert_eq!(marked(right, &compare("", right).right), [right]);
        let (left, right) = ("日本語です", "日本人です");
        assert_eq!(marked(left, &compare(left, right).left), ["語"]);
    }

    proptest! {
        /// What is left of each text without what differs is the same, but for blanks.
        #[test]
        fn the_rest_is_alike(left in "[a-c日é .\n]{0,60}", right in "[a-c日é .\n]{0,60}") {
            let found = compare(&left, &right);
            let rest = |text: &str, ranges: &[Range<usize>]| {
                let keep = |(at, _): &(usize, char)| !ranges.iter().any(|r| r.contains(at));
                text.char_indices().filter(keep).map(|(_, c)| c).filter(|c| !c.is_whitespace()).collect::<String>()
            };
            prop_assert_eq!(rest(&left, &found.left), rest(&right, &found.right));
        }
    }
}
