//! A conversation of this program as one JSON object, a line a message; and its own file read as it is.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::found::Found;
use crate::chat::{
    Content, Conversation, ConversationId, Cut, Entry, Filing, JOURNAL_VERSION, Message, MessageId, MessageState,
    Overflow, Sampling,
};

/// What the object says of itself.
pub(super) const FORMAT: &str = "llmchat conversation";

#[derive(Serialize)]
struct Front<'a> {
    format: &'a str,
    version: u32,
    id: &'a ConversationId,
    created: i64,
    title: &'a Option<String>,
    system: &'a str,
    sampling: &'a Sampling,
    head: Option<MessageId>,
    cuts: &'a [Cut],
    overflow: Overflow,
    filing: &'a Filing,
    contents: &'a [Content],
    draft: &'a str,
}

#[derive(Deserialize)]
struct Whole {
    version: u32,
    id: ConversationId,
    #[serde(default)]
    created: i64,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    system: String,
    #[serde(default)]
    sampling: Sampling,
    #[serde(default)]
    head: Option<MessageId>,
    messages: Vec<Message>,
    #[serde(default)]
    cuts: Vec<Cut>,
    #[serde(default)]
    overflow: Overflow,
    #[serde(default)]
    filing: Filing,
    #[serde(default)]
    contents: Vec<Content>,
    #[serde(default)]
    draft: String,
}

/// Everything that a conversation is.
pub(super) fn render(c: &Conversation) -> String {
    // Without `..`: whatever a conversation gets in addition must be written too. What is deleted is gone by now
    // (`super::render`), and what could be undone belongs to the file here.
    let Conversation {
        id,
        created,
        title,
        system,
        sampling,
        messages,
        head,
        draft,
        cuts,
        overflow,
        filing,
        contents,
        deleted: _,
        history: _,
    } = c;
    let front = Front {
        format: FORMAT,
        version: JOURNAL_VERSION,
        id,
        created: *created,
        title,
        system,
        sampling,
        head: *head,
        cuts,
        overflow: *overflow,
        filing,
        contents,
        draft,
    };
    let front = serde_json::to_string(&front).unwrap_or_default();
    let messages: Vec<String> = messages.iter().map(|m| serde_json::to_string(m).unwrap_or_default()).collect();
    format!("{},\n\"messages\":[\n{}\n]}}", front.strip_suffix('}').unwrap_or(&front), messages.join(",\n"))
}

/// Reads such an object.
///
/// # Errors
/// Says what is wrong with it.
pub(super) fn read(value: Value) -> Result<Found, String> {
    let whole: Whole = serde_json::from_value(value).map_err(|e| format!("it is damaged: {e}"))?;
    if whole.version > JOURNAL_VERSION {
        return Err("a newer llmchat wrote it. Bring this one up to date".to_owned());
    }
    checked(Conversation {
        id: whole.id,
        created: whole.created,
        title: whole.title,
        system: whole.system,
        sampling: whole.sampling.sanitised(),
        messages: whole.messages,
        head: whole.head,
        draft: whole.draft,
        cuts: whole.cuts,
        overflow: whole.overflow,
        filing: whole.filing,
        contents: whole.contents,
        deleted: std::collections::BTreeSet::new(),
        history: crate::chat::History::default(),
    })
}

/// Reads a conversation file.
///
/// # Errors
/// If a line of it is damaged, or a newer version wrote it.
pub(super) fn read_journal(text: &str) -> Result<Found, String> {
    let mut conversation: Option<Conversation> = None;
    for (nth, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let entry: Entry = serde_json::from_str(line).map_err(|e| format!("line {} is damaged: {e}", nth + 1))?;
        match (&mut conversation, entry) {
            (None, Entry::Header { version, .. }) if version > JOURNAL_VERSION => {
                return Err("a newer llmchat wrote it. Bring this one up to date".to_owned());
            }
            (None, Entry::Header { id, created, .. }) => {
                conversation = Some(Conversation::new(id, created, Sampling::default()));
            }
            (None, _) => return Err("its first line is no header".to_owned()),
            (Some(conversation), entry) => conversation.apply(&entry),
        }
    }
    checked(conversation.ok_or("it is empty")?)
}

/// Ids are unique and parents are older than their children; else it would not be the same tree here.
fn checked(mut c: Conversation) -> Result<Found, String> {
    if ConversationId::parse(c.id.as_str()).is_none() {
        return Err("its id is none".to_owned());
    }
    let mut ids = std::collections::HashSet::new();
    for m in &c.messages {
        if !ids.insert(m.id) || m.parent.is_some_and(|p| p >= m.id) {
            return Err(format!("message {} is there twice, or is not younger than the one that it follows", m.id));
        }
    }
    if let Some(m) = c.messages.iter().find(|m| m.parent.is_some_and(|p| !ids.contains(&p))) {
        return Err(format!("message {} follows one that is not there", m.id));
    }
    c.messages.sort_by_key(|m| m.id);
    // An answer that was being written when it was exported does not go on here.
    c.messages.iter_mut().for_each(|m| m.state = MessageState::Complete);
    c.head = c.head.filter(|id| ids.contains(id));
    Ok(Found::own(c))
}
