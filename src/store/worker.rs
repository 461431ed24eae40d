//! The thread that writes, so that no key waits for a disk.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::folder;
use super::journal::{Fault, Journal, NotOurs};
use super::librarian::{Librarian, Sink, Wish};
use super::outside::bring_in;
use super::read::{Contents, read};
use crate::chat::{Access, Conversation, ConversationId, Edit, Entry, StoreEvent, StoreRequest};

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
    done: Receiver<Vec<String>>,
}

impl Worker {
    /// Starts it over a folder, which is made when it is needed; what makes listing and searching fast is kept in the
    /// cache folder, if one is given. `sink` hears the answers on threads of the store.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        folder: PathBuf,
        cache: Option<PathBuf>,
        sink: impl Fn(StoreEvent) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            let desk = Desk {
                folder,
                cache,
                librarian: None,
                held: HashMap::new(),
                taken: HashSet::new(),
                sink: Arc::new(sink),
            };
            let _ = finished.send(desk.work(&queue));
        })?;
        Ok(Self { jobs, done })
    }

    /// Asks for something; never waits.
    pub fn send(&self, request: StoreRequest) {
        let _ = self.jobs.send(Job::Request(request));
    }

    /// Writes everything that waits and ends; what to tell the user if something could not be saved, one sentence
    /// each. Does not wait for ever: a disk that hangs keeps nobody here.
    pub fn finish(self) -> Vec<String> {
        let _ = self.jobs.send(Job::Finish);
        let late = "The disk has not answered in time: the last words may not be saved".to_owned();
        self.done.recv_timeout(PATIENCE).unwrap_or_else(|_| vec![late])
    }
}

/// A conversation that is ours to write.
struct Held {
    journal: Journal,
    /// Tickets that wait since a write failed.
    failing: Option<Vec<u64>>,
    /// Nobody needs it any more, once it is written.
    closing: bool,
}

impl Held {
    fn new(journal: Journal) -> Self {
        Self { journal, failing: None, closing: false }
    }
}

struct Desk {
    folder: PathBuf,
    cache: Option<PathBuf>,
    /// There as soon as something is listed.
    librarian: Option<Librarian>,
    held: HashMap<ConversationId, Held>,
    /// Files that other programs changed or took while they were held. What still comes for them is in the
    /// copies that the app made.
    taken: HashSet<ConversationId>,
    sink: Sink,
}

impl Desk {
    fn work(mut self, queue: &Receiver<Job>) -> Vec<String> {
        loop {
            let job = if self.held.values().any(|h| h.failing.is_some()) {
                queue.recv_timeout(RETRY)
            } else {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match job {
                Ok(Job::Request(request)) => self.carry_out(request),
                Err(RecvTimeoutError::Timeout) => self.retry(),
                Ok(Job::Finish) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let held = std::mem::take(&mut self.held);
        held.into_values().filter_map(|mut h| h.journal.settle().err().map(|why| rescue(h.journal, &why))).collect()
    }

    fn carry_out(&mut self, request: StoreRequest) {
        match request {
            StoreRequest::List => self.wish(Wish::List),
            StoreRequest::Search { number, query } => self.wish(Wish::Search(number, query)),
            StoreRequest::Open(id) => {
                let answer = self.open(&id).unwrap_or_else(|reason| StoreEvent::Failed { id: Some(id), reason });
                (self.sink)(answer);
            }
            StoreRequest::Create(conversation) => self.create(*conversation),
            StoreRequest::Append { id, entries, sync, ticket } => self.append(&id, &entries, sync, ticket),
            StoreRequest::Close(id) => self.close(&id),
            StoreRequest::Trash(id) => {
                let moved = self.trash(&id);
                self.answer(id.clone(), moved, StoreEvent::Trashed(id));
            }
            StoreRequest::Restore(id) => {
                let moved = self.restore(&id);
                self.answer(id.clone(), moved, StoreEvent::Restored(id));
            }
            StoreRequest::Change(id, what, entry) => {
                let changed = self.change(&id, what, *entry);
                match changed {
                    Ok(()) => self.wish(Wish::List),
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

    fn trash_folder(&self) -> PathBuf {
        self.folder.join("trash")
    }

    fn wish(&mut self, wish: Wish) {
        if self.librarian.is_none() {
            match Librarian::start(self.folder.clone(), self.cache.clone(), self.sink.clone()) {
                Ok(librarian) => self.librarian = Some(librarian),
                Err(error) => {
                    let reason = format!("The conversations cannot be listed: {error}");
                    (self.sink)(StoreEvent::Failed { id: None, reason });
                }
            }
        }
        if let Some(librarian) = &self.librarian {
            librarian.wish(wish);
        }
    }

    fn find(&self, id: &ConversationId) -> Result<PathBuf, String> {
        folder::path_of(&self.folder, id)
            .ok_or_else(|| format!("The conversation {id} is not in {} any more", self.folder.display()))
    }

    fn open(&mut self, id: &ConversationId) -> Result<StoreEvent, String> {
        let (contents, access) = if let Some(held) = self.held.get_mut(id) {
            held.closing = false;
            let mut contents = held.journal.contents(id)?;
            // It was whole when it was opened, and what came since is ours.
            contents.notes.clear();
            (contents, Access::Write)
        } else {
            let path = self.find(id)?;
            match Journal::open(&path, id) {
                Ok((journal, contents)) => {
                    self.held.insert(id.clone(), Held::new(journal));
                    self.taken.remove(id);
                    (contents, Access::Write)
                }
                Err(NotOurs::ReadOnly(contents, why)) => (*contents, Access::ReadOnly(why)),
                Err(NotOurs::Unreadable(reason)) => return Err(reason),
                Err(NotOurs::Locked) => {
                    let mut contents = only_read(&path, id)?;
                    // A line or an answer that is not whole is being written just now.
                    contents.notes.clear();
                    let why = "another llmchat has it open; it is only shown".to_owned();
                    (contents, Access::ReadOnly(why))
                }
                Err(NotOurs::Failed(error)) => {
                    let why = format!("the file cannot be written ({error}); it is only shown");
                    (only_read(&path, id)?, Access::ReadOnly(why))
                }
            }
        };
        Ok(StoreEvent::Opened { conversation: Box::new(contents.conversation), access, notes: contents.notes })
    }

    fn create(&mut self, conversation: Conversation) {
        let id = conversation.id.clone();
        let path = self.folder.join(folder::file_name(&id, conversation.title.as_deref()));
        let mut journal = Journal::new(path);
        let written = journal.append(&conversation.entries(), true);
        self.held.insert(id.clone(), Held::new(journal));
        (self.sink)(StoreEvent::Opened {
            conversation: Box::new(conversation),
            access: Access::Write,
            notes: Vec::new(),
        });
        self.after_write(&id, written, None);
    }

    fn append(&mut self, id: &ConversationId, entries: &[Entry], sync: bool, ticket: Option<u64>) {
        let Some(held) = self.held.get_mut(id) else {
            if !self.taken.contains(id) {
                let reason = "Not saved: the conversation is not open for writing here. Copy what matters with y";
                (self.sink)(StoreEvent::SaveFailed { id: id.clone(), reason: reason.to_owned() });
            }
            return;
        };
        let title = entries.iter().rev().find_map(|e| if let Entry::Title { text } = e { Some(text) } else { None });
        if let Some(title) = title.filter(|_| folder::is_plain(held.journal.path(), id)) {
            // The name is a courtesy; the id in it is what counts.
            let _ = held.journal.rename(self.folder.join(folder::file_name(id, Some(title))));
        }
        let written = held.journal.append(entries, sync || ticket.is_some());
        self.after_write(id, written, ticket);
    }

    /// Tells what became of a write. Every ticket gets an answer.
    fn after_write(&mut self, id: &ConversationId, written: Result<(), Fault>, ticket: Option<u64>) {
        let Some(held) = self.held.get_mut(id) else { return };
        match written {
            Ok(()) => {
                let waiting = held.failing.take();
                let recovered = waiting.is_some();
                if held.closing {
                    self.held.remove(id);
                }
                for ticket in waiting.into_iter().flatten().chain(ticket) {
                    (self.sink)(StoreEvent::Saved { id: id.clone(), ticket });
                }
                if recovered {
                    (self.sink)(StoreEvent::SaveRecovered { id: id.clone() });
                }
            }
            Err(Fault::Io(error)) => {
                let first = held.failing.is_none();
                held.failing.get_or_insert_default().extend(ticket);
                if first || ticket.is_some() {
                    (self.sink)(StoreEvent::SaveFailed { id: id.clone(), reason: sentence(&error) });
                }
            }
            Err(fault @ Fault::Taken(_)) => {
                let closing = held.closing;
                let reason = fault.to_string();
                if let Some(held) = self.held.remove(id) {
                    self.taken.insert(id.clone());
                    if closing {
                        // The app does not have it any more, so nobody else can make a copy.
                        let reason = rescue(held.journal, &fault);
                        (self.sink)(StoreEvent::Failed { id: None, reason });
                    } else {
                        (self.sink)(StoreEvent::Taken { id: id.clone(), reason });
                    }
                }
            }
        }
    }

    fn retry(&mut self) {
        let failing = self.held.iter().filter(|(_, h)| h.failing.is_some()).map(|(id, _)| id.clone());
        for id in failing.collect::<Vec<_>>() {
            self.settle(&id);
        }
    }

    fn settle(&mut self, id: &ConversationId) {
        if let Some(held) = self.held.get_mut(id) {
            let written = held.journal.settle();
            self.after_write(id, written, None);
        }
    }

    /// Lets go of a file as soon as it is written.
    fn close(&mut self, id: &ConversationId) {
        if let Some(held) = self.held.get_mut(id) {
            held.closing = true;
            self.settle(id);
        }
    }

    fn change(&mut self, id: &ConversationId, what: Edit, entry: Entry) -> Result<(), String> {
        let entries = [Entry::Step { what, message: None }, entry];
        let was_held = self.held.contains_key(id);
        if let StoreEvent::Opened { access: Access::ReadOnly(why), .. } = self.open(id)? {
            return Err(format!("It cannot be changed: {why}"));
        }
        self.append(id, &entries, true, None);
        if !was_held {
            self.close(id);
        }
        Ok(())
    }

    fn trash(&mut self, id: &ConversationId) -> Result<(), String> {
        let trash = self.trash_folder();
        let path = if let Some(held) = self.held.get_mut(id) {
            held.journal.settle().map_err(|e| format!("It cannot be deleted before it is saved: {e}"))?;
            held.journal.path().to_owned()
        } else {
            self.find(id)?
        };
        // The lock is kept while the file moves. A file that is no conversation can be moved all the same.
        let lock = if self.held.contains_key(id) { None } else { Some(Journal::open(&path, id)) };
        if let Some(Err(NotOurs::Locked)) = lock {
            return Err("Another llmchat has this conversation open, so it is not deleted. Close it there".to_owned());
        }
        move_file(&path, &trash)?;
        self.held.remove(id);
        Ok(())
    }

    fn restore(&mut self, id: &ConversationId) -> Result<(), String> {
        let trash = self.trash_folder();
        let path = folder::path_of(&trash, id)
            .ok_or_else(|| format!("The conversation {id} is not in {}", trash.display()))?;
        move_file(&path, &self.folder)
    }
}

pub(super) fn only_read(path: &Path, id: &ConversationId) -> Result<Contents, String> {
    let file = folder::open_to_read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    read(file, id)
}

fn move_file(path: &Path, to: &Path) -> Result<(), String> {
    let target = to.join(path.file_name().unwrap_or_default());
    let moved = folder::make(to).and_then(|()| {
        if target.exists() {
            return Err(std::io::Error::other("a file of that name is there already"));
        }
        std::fs::rename(path, &target)
    });
    // It has moved; a folder that cannot be synced may only forget it when the power fails.
    let _ = folder::sync(to);
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

/// Last try for a conversation that cannot be written where it belongs: whole, as a copy beside it where somebody else
/// has the file, else in a file of the temporary folder. Says where it is.
fn rescue(mut journal: Journal, why: &Fault) -> String {
    let name = journal.path().display().to_string();
    if let Some(copy) = matches!(why, Fault::Taken(_)).then(|| copy_beside(&mut journal)).flatten() {
        let told = format!("What was written here is in a copy, {}, because {why}: {name}", copy.display());
        tracing::warn!("{told}");
        return told;
    }
    let stem = journal.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let written = journal.bytes().and_then(|bytes| {
        let mut file = tempfile::Builder::new().prefix(&format!("{stem}-")).suffix(".jsonl").tempfile()?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        Ok(file.keep()?.1)
    });
    let told = match written {
        Ok(path) => {
            format!("{name} could not be saved ({why}). The whole conversation is in {}: move it there", path.display())
        }
        Err(error) => format!("{name} could not be saved ({why}), and the temporary folder failed too ({error})"),
    };
    tracing::error!("{told}");
    told
}

/// Saves the conversation of a journal as another one.
fn copy_beside(journal: &mut Journal) -> Option<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis();
    let id = ConversationId::new(i64::try_from(now).ok()?, std::process::id().wrapping_mul(0x9E37_79B1));
    let mut copy = journal.contents(&id).ok()?.conversation;
    copy.title = copy.title.map(|title| format!("{title} (copy)"));
    bring_in(journal.path().parent()?, &copy, 0).ok()
}

#[cfg(test)]
mod tests;
