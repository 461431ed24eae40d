//! The thread that writes, so that no key waits for a disk.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::folder;
use super::journal::{self, Journal, NotOurs};
use crate::chat::{Access, Conversation, ConversationId, Entry, StoreEvent, StoreRequest};

/// How long until lines that could not be written are tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long the end of the program waits for the disk.
const PATIENCE: Duration = Duration::from_millis(800);

enum Job {
    Request(StoreRequest),
    Finish,
}

/// The store's thread.
pub struct Worker {
    jobs: Sender<Job>,
    done: Receiver<()>,
}

impl Worker {
    /// Starts it over a folder, which is made when it is needed. `sink` hears the answers on its thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(folder: PathBuf, sink: impl Fn(StoreEvent) + Send + 'static) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            Desk { folder, open: HashMap::new(), failing: HashMap::new(), sink: Box::new(sink) }.work(&queue);
            let _ = finished.send(());
        })?;
        Ok(Self { jobs, done })
    }

    /// Asks for something; never waits.
    pub fn send(&self, request: StoreRequest) {
        let _ = self.jobs.send(Job::Request(request));
    }

    /// Writes everything that waits and ends. Does not wait for ever: a disk that hangs keeps nobody here.
    pub fn finish(self) {
        let _ = self.jobs.send(Job::Finish);
        let _ = self.done.recv_timeout(PATIENCE);
    }
}

struct Desk {
    folder: PathBuf,
    open: HashMap<ConversationId, Journal>,
    /// Conversations whose last write failed, with the tickets that wait for it.
    failing: HashMap<ConversationId, Vec<u64>>,
    sink: Box<dyn Fn(StoreEvent)>,
}

impl Desk {
    fn work(mut self, queue: &Receiver<Job>) {
        loop {
            let job = if self.failing.is_empty() {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(RETRY)
            };
            match job {
                Ok(Job::Request(request)) => self.carry_out(request),
                Err(RecvTimeoutError::Timeout) => self.retry(),
                Ok(Job::Finish) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.retry();
        for (id, journal) in &mut self.open {
            if journal.settle().is_err() {
                rescue(id, journal);
            }
        }
    }

    fn carry_out(&mut self, request: StoreRequest) {
        match request {
            StoreRequest::List => self.list(),
            StoreRequest::Open(id) => {
                let answer = self.open(&id).unwrap_or_else(|reason| StoreEvent::Failed { id: Some(id), reason });
                (self.sink)(answer);
            }
            StoreRequest::Create(conversation) => self.create(*conversation),
            StoreRequest::Append { id, entries, sync, ticket } => self.append(&id, &entries, sync, ticket),
            StoreRequest::Close(id) => self.close(&id),
            StoreRequest::Trash(id) => {
                self.close(&id);
                let moved = move_file(&id, &self.folder, &self.trash());
                self.answer(id.clone(), moved, StoreEvent::Trashed(id));
            }
            StoreRequest::Restore(id) => {
                let moved = move_file(&id, &self.trash(), &self.folder);
                self.answer(id.clone(), moved, StoreEvent::Restored(id));
            }
            StoreRequest::Rename(id, title) => {
                let renamed = self.rename(&id, title);
                match renamed {
                    Ok(()) => self.list(),
                    Err(reason) => (self.sink)(StoreEvent::Failed { id: Some(id), reason }),
                }
            }
        }
    }

    fn answer(&self, id: ConversationId, result: Result<(), String>, good: StoreEvent) {
        (self.sink)(match result {
            Ok(()) => good,
            Err(reason) => StoreEvent::Failed { id: Some(id), reason },
        });
    }

    fn trash(&self) -> PathBuf {
        self.folder.join("trash")
    }

    fn list(&self) {
        (self.sink)(match folder::list(&self.folder) {
            Ok(list) => StoreEvent::Listed(list),
            Err(error) => StoreEvent::Failed {
                id: None,
                reason: format!(
                    "The conversations in {} cannot be listed: {error}. Check the folder's rights",
                    self.folder.display()
                ),
            },
        });
    }

    fn find(&self, id: &ConversationId) -> Result<PathBuf, String> {
        if let Some(journal) = self.open.get(id) {
            return Ok(journal.path().to_owned());
        }
        folder::path_of(&self.folder, id)
            .ok_or_else(|| format!("The conversation {id} is not in {} any more", self.folder.display()))
    }

    fn open(&mut self, id: &ConversationId) -> Result<StoreEvent, String> {
        let path = self.find(id)?;
        let contents = journal::read(&path)?;
        let access = if self.open.contains_key(id) {
            Access::Write
        } else if contents.newer {
            Access::ReadOnly("a newer version of llmchat wrote this conversation; it is only shown".to_owned())
        } else {
            match Journal::open(&path, &contents) {
                Ok(journal) => {
                    self.open.insert(id.clone(), journal);
                    Access::Write
                }
                Err(NotOurs::Locked) => {
                    Access::ReadOnly("another llmchat has this conversation open; it is only shown".to_owned())
                }
                Err(NotOurs::Failed(error)) => {
                    Access::ReadOnly(format!("the file cannot be written ({error}); it is only shown"))
                }
            }
        };
        Ok(StoreEvent::Opened { conversation: Box::new(contents.conversation), access, notes: contents.notes })
    }

    fn create(&mut self, conversation: Conversation) {
        let id = conversation.id.clone();
        let path = self.folder.join(folder::file_name(&id, conversation.title.as_deref()));
        let made = folder::make(&self.folder).and_then(|()| Journal::create(path, &entries_of(&conversation)));
        (self.sink)(match made {
            Ok(journal) => {
                self.open.insert(id, journal);
                StoreEvent::Opened { conversation: Box::new(conversation), access: Access::Write, notes: Vec::new() }
            }
            Err(error) => StoreEvent::Failed {
                id: Some(id),
                reason: format!(
                    "The conversation cannot be saved in {}: {error}. Free some space or check the folder's rights",
                    self.folder.display()
                ),
            },
        });
    }

    fn append(&mut self, id: &ConversationId, entries: &[Entry], sync: bool, ticket: Option<u64>) {
        let Some(journal) = self.open.get_mut(id) else {
            let reason = "The conversation is not open for writing here, so nothing was saved".to_owned();
            (self.sink)(StoreEvent::SaveFailed { id: id.clone(), reason });
            return;
        };
        let written = journal.append(entries, sync || ticket.is_some());
        if let Some(title) =
            entries.iter().rev().find_map(|e| if let Entry::Title { text } = e { Some(text) } else { None })
        {
            // The name is a courtesy; the id in it is what counts.
            let _ = journal.rename(self.folder.join(folder::file_name(id, Some(title))));
        }
        match written {
            Ok(()) => self.saved(id, ticket),
            Err(error) => {
                let told = self.failing.contains_key(id);
                self.failing.entry(id.clone()).or_default().extend(ticket);
                if !told {
                    (self.sink)(StoreEvent::SaveFailed { id: id.clone(), reason: sentence(&error) });
                }
            }
        }
    }

    fn saved(&mut self, id: &ConversationId, ticket: Option<u64>) {
        let waiting = self.failing.remove(id);
        let recovered = waiting.is_some();
        for ticket in waiting.into_iter().flatten().chain(ticket) {
            (self.sink)(StoreEvent::Saved { id: id.clone(), ticket });
        }
        if recovered {
            (self.sink)(StoreEvent::SaveRecovered { id: id.clone() });
        }
    }

    fn retry(&mut self) {
        let ids: Vec<ConversationId> = self.failing.keys().cloned().collect();
        for id in ids {
            if self.open.get_mut(&id).is_none_or(|journal| journal.settle().is_ok()) {
                self.saved(&id, None);
            }
        }
    }

    fn close(&mut self, id: &ConversationId) {
        if let Some(mut journal) = self.open.remove(id)
            && journal.settle().is_err()
        {
            rescue(id, &journal);
        }
        self.failing.remove(id);
    }

    fn rename(&mut self, id: &ConversationId, title: String) -> Result<(), String> {
        let entry = Entry::Title { text: title };
        if self.open.contains_key(id) {
            self.append(id, &[entry], true, None);
            return Ok(());
        }
        if let StoreEvent::Opened { access: Access::ReadOnly(why), .. } = self.open(id)? {
            return Err(format!("It cannot be renamed: {why}"));
        }
        self.append(id, &[entry], true, None);
        self.close(id);
        Ok(())
    }
}

fn move_file(id: &ConversationId, from: &Path, to: &Path) -> Result<(), String> {
    let path =
        folder::path_of(from, id).ok_or_else(|| format!("The conversation {id} is not in {}", from.display()))?;
    let name = path.file_name().unwrap_or_default();
    let moved = folder::make(to).and_then(|()| std::fs::rename(&path, to.join(name)));
    moved.map_err(|e| format!("{} cannot be moved to {}: {e}", path.display(), to.display()))
}

fn sentence(error: &io::Error) -> String {
    let next = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "check the folder's rights",
        _ => "copy what matters with y",
    };
    format!("Not saved: {error}. It is kept in memory and tried again; {next}")
}

/// Everything that a conversation holds, as the entries that make it.
fn entries_of(conversation: &Conversation) -> Vec<Entry> {
    let c = conversation;
    let version = crate::chat::JOURNAL_VERSION;
    let mut entries = vec![
        Entry::Header { version, id: c.id.clone(), created: c.created },
        Entry::Sampling { sampling: c.sampling.clone() },
    ];
    entries.extend(c.title.clone().map(|text| Entry::Title { text }));
    if !c.system.is_empty() {
        entries.push(Entry::System { text: c.system.clone() });
    }
    entries.extend(c.messages.iter().cloned().map(Entry::Message));
    entries.push(Entry::Head { id: c.head });
    if !c.draft.is_empty() {
        entries.push(Entry::Draft { text: c.draft.clone() });
    }
    entries
}

/// Last try for lines that cannot be written where they belong: a file in the temporary folder.
fn rescue(id: &ConversationId, journal: &Journal) {
    if journal.is_behind() {
        let path = std::env::temp_dir().join(format!("llmchat-rescue-{id}.jsonl"));
        match std::fs::write(&path, journal.pending()) {
            Ok(()) => tracing::error!(
                "lines of {} that could not be saved are in {}",
                journal.path().display(),
                path.display()
            ),
            Err(error) => tracing::error!("lines of {} could not be saved: {error}", journal.path().display()),
        }
    }
}

#[cfg(test)]
mod tests;
