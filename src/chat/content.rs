//! What is put into a question: a file, or what a command printed. The text of the message has a mark in its place, the
//! words are in the conversation once.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::conversation::Conversation;
use super::origin::hex;

/// Letters of an id.
const ID: usize = 12;
/// Letters of the longest name in a mark.
const LONGEST_NAME: usize = 80;

/// Text that a question refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Made of its text: what is put in twice is there once.
    pub id: String,
    /// The file, or the command.
    pub name: String,
    /// Its words.
    pub text: String,
}

impl Content {
    /// Names a text.
    pub fn new(name: &str, text: String) -> Self {
        let id = hex(&Sha256::digest(&text))[..ID].to_owned();
        let plain = |c: char| if c.is_control() || "[]·#".contains(c) { '_' } else { c };
        let name: String = name.chars().map(plain).collect();
        let long = name.chars().count().saturating_sub(LONGEST_NAME);
        let name = if long > 0 { format!("…{}", name.chars().skip(long + 1).collect::<String>()) } else { name };
        Self { id, name, text }
    }

    /// What stands for it in a question, such as `[notes.txt · 12.0 KiB · 3,104 tokens · #0123456789ab]`.
    pub fn mark(&self, tokens: Option<u32>) -> String {
        let size = match self.text.len() {
            n if n < 1024 => format!("{n} bytes"),
            n if n < 1 << 20 => format!("{:.1} KiB", n as f64 / 1024.0),
            n => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
        };
        let tokens = tokens.map(|n| format!("{n} tokens · ")).unwrap_or_default();
        format!("[{} · {size} · {tokens}#{}]", self.name, self.id)
    }

    /// As the model reads it: between fences that are longer than any in it.
    fn told(&self) -> String {
        let longest = self.text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        let end = if self.text.ends_with('\n') { "" } else { "\n" };
        format!("{}\n{fence}\n{}{end}{fence}", self.name, self.text)
    }
}

/// The marks in a text, and the ids in them.
fn marks(text: &str) -> Vec<(Range<usize>, &str)> {
    let mut marks = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(" · #").map(|at| from + at) {
        let begin = at + " · #".len();
        let id: &str = text.get(begin..begin + ID).unwrap_or_default();
        let whole = id.len() == ID && id.bytes().all(|b| b.is_ascii_hexdigit()) && text[begin + ID..].starts_with(']');
        if let Some(start) = text[from..at].rfind('[').map(|start| from + start).filter(|_| whole) {
            marks.push((start..begin + ID + 1, id));
        }
        from = begin;
    }
    marks
}

/// A text without its marks; if it is nothing but marks, the names in them.
pub fn unmarked(text: &str) -> String {
    let (mut rest, mut names, mut at) = (String::new(), Vec::new(), 0);
    for (mark, _) in marks(text) {
        rest.push_str(&text[at..mark.start]);
        names.push(text[mark.start + 1..mark.end].split(" · ").next().unwrap_or_default());
        at = mark.end;
    }
    rest.push_str(&text[at..]);
    if rest.trim().is_empty() { names.join(", ") } else { rest.trim_start().to_owned() }
}

impl Conversation {
    /// What a text refers to, in its order.
    pub fn contents_of(&self, text: &str) -> Vec<&Content> {
        marks(text).into_iter().filter_map(|(_, id)| self.content(id)).collect()
    }

    /// The text of that id.
    pub fn content(&self, id: &str) -> Option<&Content> {
        self.contents.iter().find(|content| content.id == id)
    }

    /// A text as the model reads it: with the words in the place of each mark. A mark of which there are no words is text.
    pub fn spoken<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.contents.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut spoken = String::new();
        let mut at = 0;
        for (mark, id) in marks(text) {
            if let Some(content) = self.content(id) {
                spoken.push_str(&text[at..mark.start]);
                spoken.push_str(&content.told());
                at = mark.end;
            }
        }
        if at == 0 {
            return Cow::Borrowed(text);
        }
        spoken.push_str(&text[at..]);
        Cow::Owned(spoken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{ConversationId, Entry, Sampling};

    #[test]
    fn a_mark_stands_for_the_words_and_a_broken_one_for_itself() {
        let mut c = Conversation::new(ConversationId::new(1, 1), 0, Sampling::default());
        let notes = Content::new("a[b]·#\u{1b}.txt", "one\n```\ntwo".into());
        let list = Content::new("$ ls", "x\n".into());
        for content in [&notes, &list, &notes] {
            c.apply(&Entry::Content(content.clone()));
        }
        assert_eq!(c.contents.len(), 2, "the same words are there once");
        let mark = notes.mark(Some(3));
        assert_eq!(mark, format!("[a_b____.txt · 11 bytes · 3 tokens · #{}]", notes.id));
        let text = format!("[see] {mark} and {}", list.mark(None));
        let told = "[see] a_b____.txt\n````\none\n```\ntwo\n```` and $ ls\n```\nx\n```";
        assert_eq!(c.spoken(&text), told);
        assert_eq!(c.contents_of(&text).iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["a_b____.txt", "$ ls"]);
        let broken = mark.replace(']', "");
        assert!(matches!(c.spoken(&broken), Cow::Borrowed(_)));
        assert_eq!(c.spoken("[x · #000000000000] · #"), "[x · #000000000000] · #");
        assert_eq!(c.spoken("é · #é"), "é · #é");
        assert_eq!((unmarked(&format!("{mark} Why?")).as_str(), unmarked(&mark).as_str()), ("Why?", "a_b____.txt"));
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let content = Content::new(&format!("{}/notes.txt", "é".repeat(200)), String::new());
        assert!(content.name.ends_with("é/notes.txt") && content.name.chars().count() == LONGEST_NAME);
    }
}
