//! A conversation: a tree of messages, of which one path is shown. It is the fold of its journal's entries.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::content::Content;
use super::cut::{Cut, Overflow};
use super::filing::Filing;
use super::history::History;
use super::journal::Entry;
use super::metrics::{Made, TokenRecord};
use super::sampling::Sampling;

/// Longest part of a title in a file's name.
const LONGEST_SLUG: usize = 40;

/// Names a conversation and its file: ASCII letters, digits and dashes only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConversationId(String);

impl ConversationId {
    /// An id from the time (Unix milliseconds) and a number that differs between processes; ids sort by time.
    pub fn new(now_ms: i64, salt: u32) -> Self {
        Self(format!("{now_ms:013}-{salt:08x}"))
    }

    /// The id in that text, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (!text.is_empty() && text.len() <= 64 && text.chars().all(plain)).then(|| Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How a file of this conversation is called, without its end. The part of the title is for people; only the id
    /// counts, so whatever the title is, the name is a plain one.
    pub fn file_stem(&self, title: Option<&str>) -> String {
        let slug = slug(title.unwrap_or_default());
        if slug.is_empty() { self.0.clone() } else { format!("{self}-{slug}") }
    }
}

/// ASCII letters and digits of a title, with single dashes between.
fn slug(title: &str) -> String {
    let mut slug = String::new();
    for c in title.chars() {
        if slug.len() >= LONGEST_SLUG {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names a message within its conversation; larger ids are younger.
pub type MessageId = u32;

/// Who wrote a message. The system prompt is not a message but a property of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The system prompt, where roles name the owner of KV cells or of a part of the prompt.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// Whether a message is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageState {
    /// Whole, or an answer that ended (`Made::finish` says how).
    #[default]
    Complete,
    /// An answer that is still being written, or was when everything died.
    Open,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// The message that it answers or follows.
    pub parent: Option<MessageId>,
    /// Who wrote it.
    pub role: Role,
    /// What it says.
    pub text: String,
    /// When it was begun, Unix milliseconds.
    #[serde(default)]
    pub at: i64,
    /// Whether it is whole.
    #[serde(default)]
    pub state: MessageState,
    /// How an answer was made; there when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// How probable each token of an answer was, in their order; empty where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<TokenRecord>,
}

impl Message {
    /// A whole message.
    pub fn new(id: MessageId, parent: Option<MessageId>, role: Role, text: impl Into<String>, at: i64) -> Self {
        let (state, made, tokens) = (MessageState::Complete, None, Vec::new());
        Self { id, parent, role, text: text.into(), at, state, made, tokens }
    }
}

/// A conversation as its journal tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// Its id.
    pub id: ConversationId,
    /// When it was begun, Unix milliseconds.
    pub created: i64,
    /// Its title; none until the first question or a rename gives one.
    pub title: Option<String>,
    /// The system prompt; empty for none.
    pub system: String,
    /// The settings of the next answer.
    pub sampling: Sampling,
    /// Every message, in the order of their ids, which need not be dense.
    pub messages: Vec<Message>,
    /// The last message of the path that is shown.
    pub head: Option<MessageId>,
    /// What stands in the input box and was not sent.
    pub draft: String,
    /// Places from which on it is sent, in the order in which they were made.
    pub cuts: Vec<Cut>,
    /// What happens when it does not fit into the context.
    pub overflow: Overflow,
    /// What the list does with it.
    pub filing: Filing,
    /// What its questions refer to.
    pub contents: Vec<Content>,
    /// Messages that are deleted, with all that follows them.
    pub deleted: BTreeSet<MessageId>,
    /// What can be undone and done again.
    pub history: History,
}

impl Conversation {
    /// An empty conversation.
    pub fn new(id: ConversationId, created: i64, sampling: Sampling) -> Self {
        Self {
            id,
            created,
            title: None,
            system: String::new(),
            sampling,
            messages: Vec::new(),
            head: None,
            draft: String::new(),
            cuts: Vec::new(),
            overflow: Overflow::default(),
            filing: Filing::default(),
            contents: Vec::new(),
            deleted: BTreeSet::new(),
            history: History::default(),
        }
    }

    /// The message of that id.
    pub fn message(&self, id: MessageId) -> Option<&Message> {
        let at = self.messages.binary_search_by_key(&id, |m| m.id).ok()?;
        self.messages.get(at)
    }

    fn message_mut(&mut self, id: MessageId) -> Option<&mut Message> {
        let at = self.messages.binary_search_by_key(&id, |m| m.id).ok()?;
        self.messages.get_mut(at)
    }

    /// The next free message id.
    pub fn next_id(&self) -> MessageId {
        self.messages.last().map_or(1, |m| m.id.saturating_add(1))
    }

    /// The path that is shown: from the first message to the head. Ends early at a parent that is missing
    /// or not older than its child, so that a damaged file cannot make it loop.
    pub fn path(&self) -> Vec<&Message> {
        self.head.map_or_else(Vec::new, |head| self.path_to(head))
    }

    /// The path from the first message to this one, with the same care.
    pub fn path_to(&self, last: MessageId) -> Vec<&Message> {
        let mut path = Vec::new();
        let mut next = Some(last);
        while let Some(message) = next.and_then(|id| self.message(id)) {
            path.push(message);
            next = message.parent.filter(|p| *p < message.id);
        }
        path.reverse();
        path
    }

    /// Applies one entry of the journal. Entries about messages that are not there change nothing.
    pub fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Header { .. } | Entry::Unknown => {}
            Entry::Message(message) => {
                // Found by halving: files from elsewhere may hold hundreds of thousands.
                match self.messages.binary_search_by_key(&message.id, |m| m.id) {
                    Ok(at) => self.messages[at] = message.clone(),
                    Err(at) => self.messages.insert(at, message.clone()),
                }
                // What follows the head stands if it is not deleted itself; else its whole path is to be seen.
                let follows = self.head.is_some_and(|head| head < message.id && message.parent == Some(head));
                let stands = follows && !self.deleted.contains(&message.id);
                self.head = if stands { Some(message.id) } else { self.standing(message.id) };
            }
            Entry::Append { id, text } => {
                if let Some(message) = self.message_mut(*id) {
                    message.text.push_str(text);
                }
            }
            Entry::Done { id, made } => {
                if let Some(message) = self.message_mut(*id) {
                    message.state = MessageState::Complete;
                    message.made = Some(made.clone());
                }
            }
            Entry::Tokens { id, tokens } => {
                if let Some(message) = self.message_mut(*id) {
                    message.tokens.extend_from_slice(tokens);
                }
            }
            Entry::Head { id } => self.head = id.and_then(|id| self.standing(id)),
            Entry::Title { text } => self.title = Some(text.clone()).filter(|t| !t.is_empty()),
            Entry::System { text } => self.system.clone_from(text),
            Entry::Sampling { sampling } => self.sampling = sampling.clone().sanitised(),
            Entry::Draft { text } => self.draft.clone_from(text),
            Entry::Cut(cut) => self.cut(cut.clone()),
            Entry::Uncut { after } => self.uncut(*after),
            Entry::Overflow { overflow } => self.overflow = *overflow,
            Entry::Filed(filing) => self.filing = filing.clone(),
            Entry::Content(content) => {
                if self.content(&content.id).is_none() {
                    self.contents.push(content.clone());
                }
            }
            Entry::Delete { id } => {
                if self.message(*id).is_some() {
                    self.deleted.insert(*id);
                    // What is deleted is never shown.
                    self.head = self.head.and_then(|head| self.standing(head));
                }
            }
            Entry::Restore { id } => drop(self.deleted.remove(id)),
            Entry::Step { what, message } => self.step(*what, *message),
            Entry::Undo => self.undone(),
            Entry::Redo => self.redone(),
        }
    }
}
