//! The folder of conversations: names, listing, finding.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::chat::{ConversationId, Entry, Role, Summary};

/// A file up to this size is read whole for the list; of a larger one its two ends.
const READ_WHOLE: u64 = 512 << 10;
/// How much of a long title or question the list shows.
const LONGEST_TITLE: usize = 80;
/// Longest slug in a file's name.
const LONGEST_SLUG: usize = 40;

/// Makes a folder that only its owner can look into.
pub fn make(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// The name of a conversation's file. The slug is for people; only the id counts.
pub fn file_name(id: &ConversationId, title: Option<&str>) -> String {
    let slug = slug(title.unwrap_or_default());
    if slug.is_empty() { format!("{id}.jsonl") } else { format!("{id}-{slug}.jsonl") }
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

fn conversations(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "jsonl") && path.is_file() {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// The file of a conversation.
pub fn path_of(folder: &Path, id: &ConversationId) -> Option<PathBuf> {
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        name.strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with(['.', '-']))
    };
    conversations(folder).ok()?.into_iter().find(named)
}

/// Every conversation of a folder, youngest change first. A folder that is not there holds none.
///
/// # Errors
/// If the folder cannot be read.
pub fn list(folder: &Path) -> io::Result<Vec<Summary>> {
    let paths = match conversations(folder) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut list: Vec<Summary> = paths.iter().filter_map(|path| summary(path)).collect();
    list.sort_by(|a, b| b.changed.cmp(&a.changed).then_with(|| b.id.cmp(&a.id)));
    Ok(list)
}

fn summary(path: &Path) -> Option<Summary> {
    let name = path.file_stem()?.to_str()?;
    // Two groups of an id: time and salt.
    let plain: Vec<&str> = name.splitn(3, '-').take(2).collect();
    let by_name = ConversationId::parse(&plain.join("-"))?;
    let facts = path.metadata().ok()?;
    let changed = facts.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_millis();
    let mut summary = Summary {
        id: by_name,
        title: String::new(),
        changed: i64::try_from(changed).unwrap_or(i64::MAX),
        messages: 0,
        damage: None,
    };
    match ends(path, facts.len()) {
        Ok(bytes) => glance(&bytes, &mut summary),
        Err(error) => summary.damage = Some(format!("cannot be read: {error}")),
    }
    if summary.title.is_empty() {
        summary.title = if summary.damage.is_some() { name.to_owned() } else { "New conversation".to_owned() };
    }
    Some(summary)
}

fn ends(path: &Path, size: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(if size <= READ_WHOLE { size } else { READ_WHOLE / 2 }).read_to_end(&mut bytes)?;
    if size > READ_WHOLE {
        bytes.push(b'\n');
        file.seek(SeekFrom::Start(size - READ_WHOLE / 2))?;
        file.take(READ_WHOLE / 2).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Fills a summary from a file's lines without folding them. Lines that are cut are no entries and say nothing.
fn glance(bytes: &[u8], summary: &mut Summary) {
    let mut question = String::new();
    for (nth, line) in bytes.split(|b| *b == b'\n').enumerate() {
        if nth == 0 {
            match serde_json::from_slice(line) {
                Ok(Entry::Header { id, .. }) => summary.id = id,
                _ => summary.damage = Some("does not begin like a conversation of this program".to_owned()),
            }
        } else if line.starts_with(b"{\"type\":\"message\"") {
            summary.messages += 1;
            if question.is_empty()
                && let Ok(Entry::Message(message)) = serde_json::from_slice(line)
                && message.role == Role::User
            {
                question = message.text;
            }
        } else if line.starts_with(b"{\"type\":\"title\"")
            && let Ok(Entry::Title { text }) = serde_json::from_slice(line)
        {
            summary.title = text;
        }
    }
    if summary.title.is_empty() {
        summary.title = question;
    }
    let line = summary.title.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    summary.title = line.trim().chars().take(LONGEST_TITLE).collect();
}
