//! How conversations are filed in the list, and what is found in them.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::conversation::{ConversationId, MessageId, Role};

/// Letters of the longest tag.
const LONGEST: usize = 40;

/// What the list does with a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filing {
    /// It stands above all others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// It is put away: only shown when that is asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    /// Words of its owner.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
}

impl Filing {
    /// The tags that somebody typed, divided by commas or blanks, with a `#` or without.
    pub fn tags_of(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| c == ',' || c.is_whitespace()).map(|word| word.trim_start_matches('#'));
        let plain = words.map(|word| word.chars().filter(|c| !c.is_control()).take(LONGEST).collect::<String>());
        plain.filter(|tag| !tag.is_empty()).collect()
    }

    /// The tags as they are typed.
    pub fn typed(&self) -> String {
        self.tags.iter().cloned().collect::<Vec<_>>().join(" ")
    }
}

/// A place where words were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The conversation.
    pub id: ConversationId,
    /// Its title.
    pub title: String,
    /// When its file changed last, Unix milliseconds.
    pub changed: i64,
    /// It is put away.
    pub archived: bool,
    /// The message; none where it is in the title or in the system prompt.
    pub message: Option<MessageId>,
    /// Who wrote it.
    pub role: Option<Role>,
    /// What stands around the words, on one line.
    pub text: String,
    /// The words in it, as bytes.
    pub marks: Vec<Range<usize>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_words() {
        let tags = |text| Filing::tags_of(text).into_iter().collect::<Vec<_>>();
        assert_eq!(tags(" #work, rust rust\u{1b}[31m ,,"), ["rust", "rust[31m", "work"]);
        assert_eq!(tags(&"é".repeat(90)), ["é".repeat(40)]);
        let filing = Filing { tags: Filing::tags_of("b a"), ..Filing::default() };
        assert_eq!(serde_json::to_string(&filing).unwrap(), r#"{"tags":["a","b"]}"#);
        assert_eq!(filing.typed(), "a b");
    }
}
