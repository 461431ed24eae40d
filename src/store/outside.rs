//! What is done with conversations while no chat holds them: listed, read, brought in, checked. Reading takes no lock
//! and changes nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::folder;
use super::journal::{Fault, Journal, NotOurs};
use super::read::Contents;
use super::worker::only_read;
use crate::chat::{Conversation, ConversationId};

/// A conversation as its file tells it.
#[derive(Debug)]
pub struct Loaded {
    /// It.
    pub conversation: Conversation,
    /// What had to be passed over, one sentence each.
    pub notes: Vec<String>,
}

/// How a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Whole.
    Fine,
    /// It had a torn end, which is set aside in a file of its own now.
    Repaired,
    /// It has a torn end that opening it would set aside.
    Torn,
    /// Another program writes it just now.
    InUse,
    /// It can be read, and something of it is damaged.
    Damaged,
    /// It cannot be read.
    Unreadable,
}

impl State {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Repaired => "repaired",
            Self::Torn => "torn",
            Self::InUse => "in use",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What was seen of a file.
#[derive(Debug)]
pub struct Checked {
    /// The file.
    pub path: PathBuf,
    /// How it is.
    pub state: State,
    /// What is to be said, one sentence each.
    pub notes: Vec<String>,
    /// How many messages it holds.
    pub messages: usize,
}

/// The file of every conversation of a folder, by the names alone.
///
/// # Errors
/// If the folder cannot be read.
pub fn files(folder: &Path) -> Result<HashMap<ConversationId, PathBuf>, String> {
    let paths = folder::conversations(folder)?;
    Ok(paths.into_iter().filter_map(|path| Some((folder::id_of(&path)?, path))).collect())
}

/// Reads a conversation.
///
/// # Errors
/// If the file cannot be read or holds none.
pub fn load(path: &Path, id: &ConversationId) -> Result<Loaded, String> {
    let Contents { conversation, notes, .. } = only_read(path, id)?;
    Ok(Loaded { conversation, notes })
}

/// Writes a conversation from elsewhere as a new file, which gets the time of its last words (Unix milliseconds, 0 for
/// now) so that it stands among the others where it belongs. It is on disk when this returns.
///
/// # Errors
/// If it cannot be written, or is there already.
pub fn bring_in(folder: &Path, conversation: &Conversation, changed: i64) -> Result<PathBuf, String> {
    let path = folder.join(folder::file_name(&conversation.id, conversation.title.as_deref()));
    let failed = |fault: Fault| format!("{} cannot be written: {fault}", path.display());
    Journal::new(path.clone()).append(&conversation.entries(), true).map_err(failed)?;
    if let Some(changed) = u64::try_from(changed).ok().filter(|ms| *ms > 0) {
        let changed = UNIX_EPOCH.checked_add(Duration::from_millis(changed)).map(|t| t.min(SystemTime::now()));
        let file = std::fs::File::options().append(true).open(&path);
        if let (Ok(file), Some(changed)) = (file, changed) {
            // Only the order in the list depends on it.
            let _ = file.set_modified(changed);
        }
    }
    Ok(path)
}

/// Looks at every file of a folder. With `repair`, torn ends are set aside as opening a conversation does.
///
/// # Errors
/// If the folder cannot be read.
pub fn check(folder: &Path, repair: bool) -> Result<Vec<Checked>, String> {
    let mut paths = folder::conversations(folder)?;
    paths.sort();
    let mut seen: HashMap<ConversationId, PathBuf> = HashMap::new();
    let mut checked = Vec::new();
    for path in paths {
        let mut one = match folder::id_of(&path) {
            Some(id) => {
                let mut one = look(&path, &id, repair);
                if let Some(other) = seen.insert(id, path.clone()) {
                    one.damaged(format!("{} has the same id; only one of both is shown", other.display()));
                }
                one
            }
            None => blank(State::Unreadable, "its name holds no id; give it one as the other files have".to_owned()),
        };
        one.path = path;
        checked.push(one);
    }
    Ok(checked)
}

fn blank(state: State, note: String) -> Checked {
    Checked { path: PathBuf::new(), state, notes: vec![note], messages: 0 }
}

fn look(path: &Path, id: &ConversationId, repair: bool) -> Checked {
    if !repair {
        return match only_read(path, id) {
            Ok(contents) => judge(&contents, State::Torn),
            Err(why) => blank(State::Unreadable, why),
        };
    }
    match Journal::open(path, id) {
        Ok((_, contents)) => judge(&contents, State::Repaired),
        Err(NotOurs::ReadOnly(contents, why)) => {
            let mut one = judge(&contents, State::Torn);
            one.damaged(why);
            one
        }
        Err(NotOurs::Unreadable(why)) => blank(State::Unreadable, why),
        Err(NotOurs::Locked) => blank(State::InUse, "another llmchat has it open; it is not looked at".to_owned()),
        Err(NotOurs::Failed(error)) => match only_read(path, id) {
            Ok(contents) => {
                let mut one = judge(&contents, State::Torn);
                one.damaged(format!("it cannot be written: {error}"));
                one
            }
            Err(why) => blank(State::Unreadable, why),
        },
    }
}

/// How what was read is; `torn` is the state of a file with a torn end and nothing else.
fn judge(contents: &Contents, torn: State) -> Checked {
    let c = &contents.conversation;
    let is_torn = contents.size > contents.whole;
    let mut one = Checked {
        path: PathBuf::new(),
        state: if is_torn { torn } else { State::Fine },
        notes: Vec::new(),
        messages: c.messages.len(),
    };
    if is_torn {
        let bytes = contents.size - contents.whole;
        let how = if torn == State::Repaired { "were set aside" } else { "can be set aside" };
        one.notes.push(format!("its last line is not whole; {bytes} bytes of it {how}"));
    }
    if contents.broken > 0 {
        one.damaged(format!("{} damaged lines are passed over; they stay in the file", contents.broken));
    }
    let ids: std::collections::HashSet<_> = c.messages.iter().map(|m| m.id).collect();
    let hangs = |p: Option<_>, id| p.is_some_and(|p| p >= id || !ids.contains(&p));
    let hanging = c.messages.iter().filter(|m| hangs(m.parent, m.id)).count();
    if hanging > 0 {
        one.damaged(format!("{hanging} messages follow one that is not there; what was before them is not shown"));
    }
    one
}

impl Checked {
    fn damaged(&mut self, note: String) {
        self.state = State::Damaged;
        self.notes.push(note);
    }
}
