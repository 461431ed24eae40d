//! What the index takes from a conversation file: its lines are seen one by one and not folded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::folder::open_to_read;
use super::read::Lines;
use crate::chat::{Entry, Filing, MessageId, Role};

/// The title among the texts of a conversation,
pub const TITLE: i64 = 0;
/// and the system prompt.
pub const SYSTEM: i64 = -1;
/// Bytes before a place that are looked at to know it again.
const MARKED: u64 = 512;

/// What was said in a message.
#[derive(Debug, PartialEq)]
pub enum Said {
    /// All of it.
    Whole {
        /// What it follows.
        parent: Option<i64>,
        /// 0: a question, 1: an answer, 2: neither.
        role: i64,
        /// When, Unix milliseconds.
        at: i64,
        /// The words.
        text: String,
    },
    /// What came to it.
    More(String),
}

/// What stands in a file, or in what came at its end.
#[derive(Debug, Default, PartialEq)]
pub struct Seen {
    /// Bytes whose lines were seen.
    pub taken: u64,
    /// A hash of the last of them.
    pub mark: Vec<u8>,
    /// When the conversation was begun, Unix milliseconds.
    pub created: i64,
    /// The title; empty for none.
    pub title: String,
    /// How it is filed.
    pub filing: Filing,
    /// What was said, by message.
    pub texts: BTreeMap<i64, Said>,
    /// Messages that were deleted, or are there again.
    pub deleted: BTreeMap<i64, bool>,
    /// What is wrong with the file.
    pub damage: Option<String>,
}

/// What a line is.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
}

/// As much of a message as is needed.
#[derive(Deserialize)]
struct Brief<'a> {
    id: MessageId,
    parent: Option<MessageId>,
    role: Role,
    #[serde(borrow)]
    text: Cow<'a, str>,
    #[serde(default)]
    at: i64,
}

/// Reads a file.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> io::Result<Seen> {
    let mut seen = Seen::default();
    take(&mut open_to_read(path)?, &mut seen)?;
    Ok(seen)
}

/// Reads what came at the end of a file; nothing if it is not the file that was seen any more.
///
/// # Errors
/// If it cannot be read.
pub fn read_on(path: &Path, seen: Seen) -> io::Result<Option<Seen>> {
    let mut seen = seen;
    let mut file = open_to_read(path)?;
    if file.metadata()?.len() < seen.taken || mark(&mut file, seen.taken)? != seen.mark {
        return Ok(None);
    }
    take(&mut file, &mut seen)?;
    Ok(Some(seen))
}

fn mark(file: &mut File, end: u64) -> io::Result<Vec<u8>> {
    let begin = end.saturating_sub(MARKED);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(end - begin).read_to_end(&mut bytes)?;
    Ok(Sha256::digest(bytes)[..16].to_vec())
}

fn take(file: &mut File, seen: &mut Seen) -> io::Result<()> {
    file.seek(SeekFrom::Start(seen.taken))?;
    let mut lines = Lines::new(&mut *file);
    while let Some(line) = lines.next()? {
        // What has no end yet is seen when it has one.
        if !line.ended {
            break;
        }
        if seen.taken == 0 {
            match serde_json::from_slice(lines.bytes()) {
                Ok(Entry::Header { created, .. }) => seen.created = created,
                _ => seen.damage = Some("does not begin like a conversation of this program".to_owned()),
            }
        } else if !line.long {
            seen.line(lines.bytes());
        }
        seen.taken += line.length;
    }
    if seen.taken == 0 {
        seen.damage = Some("is empty".to_owned());
    }
    seen.mark = mark(file, seen.taken)?;
    Ok(())
}

impl Seen {
    /// A line that is damaged, or says nothing of what is looked for, changes nothing.
    fn line(&mut self, line: &[u8]) {
        // Most of a file are the figures of tokens, which are not even parsed where this program wrote them.
        let kind = line.strip_prefix(b"{\"type\":\"").and_then(|rest| rest.split(|b| *b == b'"').next());
        let kind = kind.or_else(|| Some(serde_json::from_slice::<Kind>(line).ok()?.kind.as_bytes()));
        if kind == Some(b"message") {
            if let Ok(Brief { id, parent, role, text, at }) = serde_json::from_slice(line) {
                let role = match role {
                    Role::User => 0,
                    Role::Assistant => 1,
                    Role::System => 2,
                };
                let said = Said::Whole { parent: parent.map(i64::from), role, at, text: text.into_owned() };
                self.texts.insert(i64::from(id), said);
            }
            return;
        }
        if !matches!(kind, Some(b"append" | b"title" | b"system" | b"delete" | b"restore" | b"filed")) {
            return;
        }
        match serde_json::from_slice(line) {
            Ok(Entry::Append { id, text }) => match self.texts.get_mut(&i64::from(id)) {
                Some(Said::Whole { text: old, .. } | Said::More(old)) => *old += &text,
                None => drop(self.texts.insert(i64::from(id), Said::More(text))),
            },
            Ok(Entry::Title { text }) => {
                self.title.clone_from(&text);
                self.head(TITLE, text);
            }
            Ok(Entry::System { text }) => self.head(SYSTEM, text),
            Ok(Entry::Delete { id }) => drop(self.deleted.insert(i64::from(id), true)),
            Ok(Entry::Restore { id }) => drop(self.deleted.insert(i64::from(id), false)),
            Ok(Entry::Filed(filing)) => self.filing = filing,
            _ => {}
        }
    }

    fn head(&mut self, which: i64, text: String) {
        self.texts.insert(which, Said::Whole { parent: None, role: 2, at: self.created, text });
    }
}
