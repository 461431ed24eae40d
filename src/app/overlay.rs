//! What stands over the screen and takes every key: help, palette, boxes that ask.

use std::path::PathBuf;

use super::commands::{COMMANDS, Row};
use super::full::Full;
use super::input::Input;
use super::search::Search;
use crate::chat::{ConversationId, MessageId, Preset};
use crate::engine::protocol::CacheMap;

/// Something over the screen.
#[derive(Debug)]
pub enum Overlay {
    /// All keys and commands, scrolled by so many lines.
    Help(usize),
    /// Lines to read, scrolled by so many.
    Text {
        /// Its heading.
        title: &'static str,
        /// What it says.
        lines: Vec<String>,
        /// The first line shown.
        top: usize,
    },
    /// Commands by their words.
    Palette {
        /// What is looked for.
        query: String,
        /// Which hit is chosen.
        at: usize,
    },
    /// Words in all conversations.
    Search(Box<Search>),
    /// A question that wants a text.
    Ask {
        /// What the text is for.
        what: Asked,
        /// The text.
        input: Box<Input>,
    },
    /// A question that wants yes or no: move this conversation to the trash?
    Delete(ConversationId, String),
    /// What to do about a full context.
    Full(Box<Full>),
    /// A question that wants yes or no: a context longer than the model was trained on?
    Beyond {
        /// Its cells.
        n_ctx: u32,
        /// What is sent when it is there.
        then: Option<(ConversationId, MessageId)>,
    },
    /// Presets to choose from.
    Presets {
        /// All of them.
        list: Vec<Preset>,
        /// Which is chosen.
        at: usize,
    },
    /// Who holds which cells of the cache; `None` until the engine has said it.
    Cache {
        /// The map.
        map: Option<CacheMap>,
        /// Which sequence is chosen.
        at: usize,
    },
    /// Models to choose from; `None` until they are listed.
    Models {
        /// Name and file.
        list: Option<Vec<(String, PathBuf)>>,
        /// Which is chosen.
        at: usize,
    },
}

/// What a text is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The title of a conversation.
    Title(ConversationId),
    /// The tags of a conversation.
    Tags(ConversationId),
    /// The system prompt of the open conversation.
    System,
    /// What comes next in an answer by hand.
    Token,
}

impl Asked {
    /// The box's heading.
    pub fn title(&self) -> &'static str {
        match self {
            Self::Title(_) => "Title",
            Self::Tags(_) => "Tags, divided by blanks",
            Self::System => "System prompt of this conversation",
            Self::Token => "What comes next",
        }
    }
}

/// The rows that hold every word of a query, those whose names begin with it first.
pub fn hits(query: &str) -> Vec<&'static Row> {
    let query = query.to_lowercase();
    let words: Vec<&str> = query.split_whitespace().collect();
    let text = |r: &Row| format!("{} {} {}", r.slash, r.hint, r.help).to_lowercase();
    let mut rows: Vec<&Row> = COMMANDS.iter().filter(|r| words.iter().all(|w| text(r).contains(w))).collect();
    rows.sort_by_key(|r| r.slash.is_empty() || !r.slash.starts_with(query.trim()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Command;

    #[test]
    fn words_find_commands() {
        assert_eq!(hits("regen")[0].command, Command::Regenerate);
        assert!(hits("last answer").iter().any(|r| r.command == Command::CopyAnswer));
        assert_eq!(hits("").len(), COMMANDS.len());
        assert!(hits("no such thing").is_empty());
    }
}
