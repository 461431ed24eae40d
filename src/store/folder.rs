//! The folder of conversations: names, listing, finding.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use crate::chat::{ConversationId, Entry, MessageId, Role, Summary};

/// How much of a long title or question the list shows.
const LONGEST_TITLE: usize = 80;

/// Makes a folder that only its owner can look into.
pub fn make(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Opens a file. Anything else of that name, such as a pipe that nobody fills, keeps nobody waiting.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

/// Opens a file for reading, with the same care.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true))
}

/// Makes the names in a folder durable.
pub fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The name of a conversation's file. The slug is for people; only the id counts.
pub fn file_name(id: &ConversationId, title: Option<&str>) -> String {
    format!("{}.jsonl", id.file_stem(title))
}

/// Whether a file has no slug yet. Only such a one is renamed: a name that changes is bad for backups.
pub fn is_plain(path: &Path, id: &ConversationId) -> bool {
    path.file_stem().is_some_and(|stem| stem == id.as_str())
}

pub(super) fn conversations(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "jsonl") && path.is_file() {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// The id in a file's name.
pub(super) fn id_of(path: &Path) -> Option<ConversationId> {
    // Two groups of an id: time and salt.
    let plain: Vec<&str> = path.file_stem()?.to_str()?.splitn(3, '-').take(2).collect();
    ConversationId::parse(&plain.join("-"))
}

/// The file of a conversation.
pub fn path_of(folder: &Path, id: &ConversationId) -> Option<PathBuf> {
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        name.strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with(['.', '-']))
    };
    conversations(folder).ok()?.into_iter().find(named)
}

/// The rows of the list, kept for as long as their files do not change.
#[derive(Debug, Default)]
pub struct Listing(HashMap<PathBuf, (u64, SystemTime, Summary)>);

impl Listing {
    /// Every conversation of a folder, youngest change first. A folder that is not there holds none.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&mut self, folder: &Path) -> io::Result<Vec<Summary>> {
        let paths = match conversations(folder) {
            Ok(paths) => paths,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut known = std::mem::take(&mut self.0);
        for path in paths {
            let Some((size, changed)) = path.metadata().ok().and_then(|m| Some((m.len(), m.modified().ok()?))) else {
                continue;
            };
            let row = known.remove(&path).filter(|row| (row.0, row.1) == (size, changed));
            if let Some(row) = row.or_else(|| Some((size, changed, summary(&path, changed)?))) {
                self.0.insert(path, row);
            }
        }
        let mut list: Vec<Summary> = self.0.values().map(|row| row.2.clone()).collect();
        list.sort_by(|a, b| b.changed.cmp(&a.changed).then_with(|| b.id.cmp(&a.id)));
        Ok(list)
    }
}

fn summary(path: &Path, changed: SystemTime) -> Option<Summary> {
    let name = path.file_stem()?.to_str()?;
    let changed = changed.duration_since(UNIX_EPOCH).ok()?.as_millis();
    let mut summary = Summary {
        id: id_of(path)?,
        title: String::new(),
        changed: i64::try_from(changed).unwrap_or(i64::MAX),
        messages: 0,
        damage: None,
    };
    if let Err(error) = glance(path, &mut summary) {
        summary.damage = Some(format!("cannot be read: {error}"));
    }
    if summary.title.is_empty() {
        summary.title = if summary.damage.is_some() { name.to_owned() } else { "New conversation".to_owned() };
    }
    Some(summary)
}

/// As much of a message as the list needs.
#[derive(Deserialize)]
struct Brief {
    id: MessageId,
    #[serde(default)]
    parent: Option<MessageId>,
}

/// What stands in a file, seen without folding it.
#[derive(Default)]
struct Seen {
    /// Each message and what it follows.
    parents: BTreeMap<MessageId, Option<MessageId>>,
    deleted: BTreeSet<MessageId>,
    question: Option<(MessageId, String)>,
}

impl Seen {
    fn message(&mut self, line: &[u8]) {
        let Ok(Brief { id, parent }) = serde_json::from_slice(line) else { return };
        self.parents.insert(id, parent);
        if self.question.is_none()
            && let Ok(Entry::Message(message)) = serde_json::from_slice(line)
            && message.role == Role::User
        {
            self.question = Some((id, message.text));
        }
    }

    /// The messages that are not deleted: neither themselves nor with what they follow, which is older.
    fn standing(&self) -> BTreeSet<MessageId> {
        let mut gone = BTreeSet::new();
        for (id, parent) in &self.parents {
            if self.deleted.contains(id) || parent.is_some_and(|p| gone.contains(&p)) {
                gone.insert(*id);
            }
        }
        self.parents.keys().copied().filter(|id| !gone.contains(id)).collect()
    }
}

/// Fills a summary from a file's lines without folding them. Lines that are cut are no entries and say nothing.
fn glance(path: &Path, summary: &mut Summary) -> io::Result<()> {
    let mut input = BufReader::with_capacity(64 << 10, open_to_read(path)?);
    let mut seen = Seen::default();
    let mut line = Vec::new();
    let mut nth = 0;
    while input.read_until(b'\n', &mut line)? > 0 {
        let kind = line.strip_prefix(b"{\"type\":\"").and_then(|rest| rest.split(|b| *b == b'"').next());
        match kind {
            _ if nth == 0 => {
                let is_ours = matches!(serde_json::from_slice(&line), Ok(Entry::Header { .. }));
                summary.damage = (!is_ours).then(|| "does not begin like a conversation of this program".to_owned());
            }
            Some(b"message") => seen.message(&line),
            Some(b"title" | b"delete" | b"restore") => match serde_json::from_slice(&line) {
                Ok(Entry::Title { text }) => summary.title = text,
                Ok(Entry::Delete { id }) => drop(seen.deleted.insert(id)),
                Ok(Entry::Restore { id }) => drop(seen.deleted.remove(&id)),
                _ => {}
            },
            _ => {}
        }
        nth += 1;
        line.clear();
    }
    if nth == 0 {
        summary.damage = Some("is empty".to_owned());
    }
    let standing = seen.standing();
    summary.messages = standing.len();
    if summary.title.is_empty() {
        summary.title = seen.question.filter(|(id, _)| standing.contains(id)).map(|(_, text)| text).unwrap_or_default();
    }
    let line = summary.title.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    summary.title = line.trim().chars().take(LONGEST_TITLE).collect();
    Ok(())
}
