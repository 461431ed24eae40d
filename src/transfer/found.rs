//! A conversation that was found in a file, and whether it is here already.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::draft::Source;
use crate::chat::{Conversation, ConversationId, Role, hex};

/// Longest title that is taken over.
const LONGEST_TITLE: usize = 200;

/// A conversation that can come in.
#[derive(Debug)]
pub struct Found {
    /// Where it is from.
    pub source: Source,
    /// It, with the id that it gets here.
    pub conversation: Conversation,
    /// What of it cannot come in, a few words each.
    pub lost: Vec<String>,
    /// The id that it gets where an older state of it is here.
    grown: ConversationId,
}

/// What an import does with a conversation.
#[derive(Debug, PartialEq)]
pub enum Arrival {
    /// It comes in.
    New(Box<Conversation>),
    /// It was brought in before, or comes from here.
    Here(ConversationId),
    /// It was brought in before and has grown since: it comes in beside the older state.
    Grown {
        /// It.
        conversation: Box<Conversation>,
        /// The older state.
        beside: ConversationId,
        /// How many of its messages that one does not have.
        more: usize,
    },
}

impl Found {
    pub(super) fn new(source: Source, key: Option<String>, mut conversation: Conversation, lost: Vec<String>) -> Self {
        let said = digest(&conversation);
        let key = key.map_or_else(|| said.clone(), |key| format!("{key}\n{}", first_words(&conversation)));
        let name = |key: &str| {
            let created = conversation.created.clamp(0, 9_999_999_999_999);
            let hash = hex(&Sha256::digest(format!("{}\n{key}", source.name())));
            ConversationId::parse(&format!("{created:013}-{}", &hash[..16]))
                .unwrap_or_else(|| ConversationId::new(created, 0))
        };
        let (id, grown) = (name(&key), name(&format!("{key}\n{said}")));
        conversation.id = id;
        Self { source, conversation, lost, grown }
    }

    /// One of ours, which keeps its id.
    pub(super) fn own(conversation: Conversation) -> Self {
        let id = conversation.id.clone();
        let mut found = Self::new(Source::Own, Some(id.to_string()), conversation, Vec::new());
        if is_ours(&id) {
            found.conversation.id = id;
        }
        found
    }

    /// What comes of it, where `known` tells what is here under an id.
    pub fn arrival(mut self, known: impl Fn(&ConversationId) -> Option<Conversation>) -> Arrival {
        let Some(here) = known(&self.conversation.id) else { return Arrival::New(Box::new(self.conversation)) };
        let more = missing(&self.conversation, &here);
        if more == 0 {
            return Arrival::Here(here.id);
        }
        if let Some(later) = known(&self.grown).filter(|later| missing(&self.conversation, later) == 0) {
            return Arrival::Here(later.id);
        }
        self.conversation.id = self.grown;
        Arrival::Grown { conversation: Box::new(self.conversation), beside: here.id, more }
    }

    /// When something was said in it last, Unix milliseconds; 0 where that is not known.
    pub fn changed(conversation: &Conversation) -> i64 {
        conversation.messages.iter().map(|m| m.at).chain([conversation.created]).max().unwrap_or(0)
    }
}

/// Whether an id has the shape of those that are made here, and thus names a file as they do.
fn is_ours(id: &ConversationId) -> bool {
    id.as_str().split_once('-').is_some_and(|(time, salt)| {
        time.len() == 13
            && time.bytes().all(|b| b.is_ascii_digit())
            && (8..=16).contains(&salt.len())
            && salt.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// How many messages of one conversation another does not have.
fn missing(of: &Conversation, other: &Conversation) -> usize {
    let mut there: HashMap<(Role, &str), usize> = HashMap::new();
    for m in &other.messages {
        *there.entry((m.role, m.text.as_str())).or_default() += 1;
    }
    let mut missing = 0;
    for m in &of.messages {
        match there.get_mut(&(m.role, m.text.as_str())).filter(|n| **n > 0) {
            Some(n) => *n -= 1,
            None => missing += 1,
        }
    }
    missing
}

/// What was said, in a few characters.
fn digest(c: &Conversation) -> String {
    let mut hash = Sha256::new();
    hash.update(&c.system);
    for m in &c.messages {
        hash.update(format!("\n{:?} {:?} {}\n", m.parent, m.role, m.text.len()));
        hash.update(&m.text);
    }
    hex(&hash.finalize())
}

/// Two programs' conversations may have one name; they do not begin with the same words.
fn first_words(c: &Conversation) -> &str {
    c.messages.first().map_or("", |m| m.text.as_str())
}

/// The first line of a text that says something, as a title: not too long, nothing in it that is not shown.
pub(super) fn title_line(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|l| !l.is_empty())?;
    let shown: String = line.chars().filter(|c| !c.is_control()).take(LONGEST_TITLE).collect();
    Some(shown.trim().to_owned()).filter(|t| !t.is_empty())
}
