//! What is looked for in texts, and what is shown of a text where it is found.

use std::ops::Range;

/// Characters that are shown before and behind what was found.
const AROUND: usize = 40;
/// Letters of the shortest word that the index knows.
const SHORTEST: usize = 3;
/// Letters of a query that narrow the search; what is found is looked at anyway.
const MOST: usize = 24;

/// Words that must all be in a text, each anywhere and in letters of any case; several of them in quotes are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(Vec<String>);

/// A part of a text, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The part.
    pub text: String,
    /// Bytes of it that were looked for.
    pub marks: Vec<Range<usize>>,
}

impl Words {
    /// Reads what somebody typed; nothing if that is no word.
    pub fn parse(query: &str) -> Option<Self> {
        let mut words = Vec::new();
        for (nth, part) in query.split('"').enumerate() {
            let part = part.to_lowercase();
            if nth % 2 == 1 {
                words.push(part.split_whitespace().collect::<Vec<_>>().join(" "));
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words.retain(|word| !word.is_empty());
        (!words.is_empty()).then_some(Self(words))
    }

    /// The query of an index of three letters each that finds these words and perhaps a few more; none if one is too
    /// short.
    pub(super) fn indexed(&self) -> Option<String> {
        let threes = |word: &String| {
            let letters: Vec<char> = word.chars().collect();
            let threes: Vec<String> = letters.windows(SHORTEST).map(|three| three.iter().collect()).collect();
            (!threes.is_empty()).then_some(threes)
        };
        let threes: Option<Vec<Vec<String>>> = self.0.iter().map(threes).collect();
        let quoted = |three: &String| format!("\"{}\"", three.replace('"', "\"\""));
        Some(threes?.concat().iter().take(MOST).map(quoted).collect::<Vec<_>>().join(" AND "))
    }

    /// What stands around the first of the words in a text; nothing if one of them is not there.
    pub fn find(&self, text: &str) -> Option<Excerpt> {
        let lower = Lower::new(text);
        let places: Option<Vec<Range<usize>>> = self.0.iter().map(|word| lower.find(word)).collect();
        let first = places?.into_iter().min_by_key(|place| place.start)?;
        let before: Vec<char> = text[..first.start].chars().rev().take(AROUND).collect();
        let lead = if text[..first.start].chars().nth(AROUND).is_some() { "…" } else { "" };
        let after: String = text[first.end..].chars().take(AROUND).collect();
        let trail = if text[first.end..].chars().nth(AROUND).is_some() { "…" } else { "" };
        let found = &text[first];
        let around = format!("{lead}{}{found}{after}{trail}", before.iter().rev().collect::<String>());
        let text = around.split_whitespace().collect::<Vec<_>>().join(" ");
        let lower = Lower::new(&text);
        let mut marks: Vec<Range<usize>> = self.0.iter().flat_map(|word| lower.all(word)).collect();
        marks.sort_by_key(|mark| mark.start);
        marks.dedup_by(|next, before| {
            let joined = next.start <= before.end;
            before.end = if joined { before.end.max(next.end) } else { before.end };
            joined
        });
        Some(Excerpt { text, marks })
    }
}

/// A text in small letters.
struct Lower {
    text: String,
    /// Where each of its bytes comes from: some letters become longer.
    from: Vec<usize>,
    end: usize,
}

impl Lower {
    fn new(text: &str) -> Self {
        let mut lower = Self { text: String::with_capacity(text.len()), from: Vec::new(), end: text.len() };
        for (at, c) in text.char_indices() {
            for l in c.to_lowercase() {
                lower.from.resize(lower.from.len() + l.len_utf8(), at);
                lower.text.push(l);
            }
        }
        lower
    }

    fn place(&self, at: usize, word: &str) -> Range<usize> {
        let behind = at + word.len();
        let begin = self.from[at];
        // Not into the middle of a letter that became longer.
        let end = self.from[behind - 1..].iter().find(|from| **from > self.from[behind - 1]).copied();
        begin..end.unwrap_or(self.end)
    }

    fn find(&self, word: &str) -> Option<Range<usize>> {
        self.text.find(word).map(|at| self.place(at, word))
    }

    fn all<'a>(&'a self, word: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        self.text.match_indices(word).map(|(at, _)| self.place(at, word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, query: &str) -> Option<(String, Vec<String>)> {
        let excerpt = Words::parse(query)?.find(text)?;
        let marks = excerpt.marks.iter().map(|mark| excerpt.text[mark.clone()].to_owned()).collect();
        Some((excerpt.text, marks))
    }

    #[test]
    fn every_word_must_be_there_and_quotes_make_one_of_several() {
        let text = "A fox\n and a RIVER; the fox swims.";
        let all = "A fox and a RIVER; the fox swims.".to_owned();
        assert_eq!(found(text, "river FOX"), Some((all.clone(), vec!["fox".into(), "RIVER".into(), "fox".into()])));
        assert_eq!(found(text, "\"the  fox\""), Some((all, vec!["the fox".into()])));
        assert_eq!(found(text, "fox sea"), None);
        assert_eq!(Words::parse(" \" \" "), None);
        assert_eq!(Words::parse("ab"), Some(Words(vec!["ab".into()])));
        assert_eq!(Words::parse("fox ab").unwrap().indexed(), None, "too short for the index");
        assert_eq!(Words::parse("fox \"a b\"").unwrap().indexed().unwrap(), "\"fox\" AND \"a b\"");
        assert_eq!(Words::parse("river").unwrap().indexed().unwrap(), "\"riv\" AND \"ive\" AND \"ver\"");
    }

    #[test]
    fn excerpts_are_cut_at_characters_and_lines_are_joined() {
        assert_eq!(found("İstanbul und Straße", "straße").unwrap().1, ["Straße"]);
        assert_eq!(found("İİİ", "i").unwrap().1, ["İİİ"]);
        let long = format!("{}fox{}", "é".repeat(100), "漢".repeat(100));
        assert_eq!(found(&long, "fox").unwrap().0, format!("…{}fox{}…", "é".repeat(40), "漢".repeat(40)));
    }
}
