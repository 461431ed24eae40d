//! Breaking text into lines of a width, and going on where it grows.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::sanitise::Sanitiser;

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// The beginning of a line that fits into so many columns, with `…` where something was cut.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for cluster in text.graphemes(true) {
        used += cluster.width();
        if used > columns {
            break;
        }
        out.push_str(cluster);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

/// A harmless text and its lines. Text can be added at its end; only the last line is broken anew then.
#[derive(Clone, Debug)]
pub struct Wrapped {
    text: String,
    lines: Vec<Range<usize>>,
    columns: usize,
    sanitiser: Sanitiser,
}

impl Wrapped {
    /// Breaks a text into lines of at most so many columns, at least one.
    pub fn new(text: &str, columns: usize) -> Self {
        let mut wrapped =
            Self { text: String::new(), lines: Vec::new(), columns: columns.max(1), sanitiser: Sanitiser::default() };
        wrapped.push(text);
        wrapped
    }

    /// Adds text.
    pub fn push(&mut self, more: &str) {
        self.sanitiser.push(more, &mut self.text);
        // Everything before the last line is final: a greedy break depends only on what stands before it.
        let from = self.lines.pop().map_or(0, |last| last.start);
        self.break_from(from);
    }

    /// How many lines there are; an empty text has one.
    pub fn height(&self) -> usize {
        self.lines.len()
    }

    /// A line without the blanks at its end.
    pub fn line(&self, n: usize) -> &str {
        self.lines.get(n).map_or("", |range| self.text[range.clone()].trim_end())
    }

    /// The whole text, as harmless as its lines.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Which bytes of the text a line shows.
    pub fn span(&self, n: usize) -> Range<usize> {
        self.lines.get(n).map_or(0..0, |range| range.start..range.start + self.line(n).len())
    }

    fn break_from(&mut self, from: usize) {
        let mut start = from;
        // Where the line may be broken: after its last blank, and its width up to there.
        let mut gap = (from, 0);
        let mut used = 0;
        for (offset, cluster) in self.text[from..].grapheme_indices(true) {
            let at = from + offset;
            if cluster == "\n" {
                self.lines.push(start..at);
                start = at + 1;
                gap = (start, 0);
                used = 0;
                continue;
            }
            let w = cluster.width();
            if cluster == " " {
                // Blanks may hang over the edge; they are not drawn there.
                used += 1;
                gap = (at + 1, used);
                continue;
            }
            while used + w > self.columns && at > start {
                let (end, before) = if gap.0 > start { gap } else { (at, used) };
                self.lines.push(start..end);
                start = end;
                used -= before;
                gap = (start, 0);
            }
            used += w;
        }
        self.lines.push(start..self.text.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str, columns: usize) -> Vec<String> {
        let wrapped = Wrapped::new(text, columns);
        (0..wrapped.height()).map(|n| wrapped.line(n).to_owned()).collect()
    }

    #[test]
    fn words_stay_whole_where_they_can() {
        assert_eq!(lines("the fox came down", 8), ["the fox", "came", "down"]);
        assert_eq!(lines("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(lines("a\n\nb\n", 9), ["a", "", "b", ""]);
        assert_eq!(lines("", 9), [""]);
        assert_eq!(lines("日本語です", 4), ["日本", "語で", "す"]);
        assert_eq!(lines("👩‍👩‍👧👩‍👩‍👧", 2), ["👩‍👩‍👧", "👩‍👩‍👧"]);
        assert_eq!(lines("  indented", 20), ["  indented"]);
    }

    #[test]
    fn fitting_is_by_columns() {
        assert_eq!([fit("hello", 5), fit("hello", 4), fit("日本", 3), fit("x", 0)], ["hello", "hel…", "日…", ""]);
    }

    proptest! {
        #[test]
        fn growing_is_the_same_as_whole(parts in proptest::collection::vec("[a-e日é \n👍]{0,12}", 0..8), columns in 1usize..20) {
            let whole = Wrapped::new(&parts.concat(), columns);
            let mut grown = Wrapped::new("", columns);
            for part in &parts {
                grown.push(part);
            }
            prop_assert_eq!(&grown.lines, &whole.lines);
        }

        #[test]
        fn no_character_is_lost_and_no_line_too_wide(text in "[ -~日é\n👍]{0,120}", columns in 2usize..30) {
            let wrapped = Wrapped::new(&text, columns);
            let joined: String = wrapped.lines.iter().map(|l| &wrapped.text[l.clone()]).collect();
            prop_assert_eq!(joined, text.replace('\n', ""));
            for n in 0..wrapped.height() {
                prop_assert!(width(wrapped.line(n)) <= columns, "{:?}", wrapped.line(n));
            }
        }
    }
}
