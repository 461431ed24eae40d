//! The conversations that there are, and going from one to another.

use jiff::tz::TimeZone;

use super::event::{Effect, Resume};
use super::shelf::Filter;
use super::{App, Chat, Focus, fresh};
use crate::chat::{Access, ConversationId, Edit, Entry, Finish, History, MessageId, StoreEvent, StoreRequest, Summary};
use crate::engine::protocol::Request;

/// The list of conversations.
#[derive(Debug)]
pub struct Library {
    /// Every one, youngest change first.
    pub items: Vec<Summary>,
    /// Places among them in the order of the list.
    pub(super) shown: Vec<usize>,
    /// So many of the first of these are found by their titles.
    pub(super) titled: usize,
    /// Which one is chosen in the list.
    pub at: usize,
    /// What is looked for.
    pub filter: Filter,
    /// What is archived is shown too.
    pub(super) archived: bool,
    pub(super) zone: TimeZone,
    /// The one that was deleted last.
    trashed: Option<ConversationId>,
    resume: Resume,
    /// The one that was asked for and is not there yet.
    opening: Option<ConversationId>,
    /// What is to be shown of it.
    place: Option<MessageId>,
}

impl Library {
    pub(super) fn new(resume: Resume, zone: TimeZone) -> Self {
        Self {
            items: Vec::new(),
            shown: Vec::new(),
            titled: 0,
            at: 0,
            filter: Filter::default(),
            archived: false,
            zone,
            trashed: None,
            resume,
            opening: None,
            place: None,
        }
    }

    /// The one that is chosen in the list.
    pub fn chosen(&self) -> Option<&Summary> {
        self.items.get(*self.shown.get(self.at)?)
    }
}

impl Library {
    /// Chooses a conversation, if it is shown.
    fn choose(&mut self, id: &ConversationId) {
        let at = self.shown().position(|s| s.id == *id);
        self.at = at.unwrap_or(self.at);
    }
}

impl App {
    pub(super) fn begin_library(&mut self) {
        if let Resume::Id(id) = &self.library.resume {
            let id = id.clone();
            self.open(&id);
        }
        self.list();
    }

    pub(super) fn list(&mut self) {
        self.effects.push(Effect::Store(StoreRequest::List));
    }

    pub(super) fn store_event(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Listed(items) => self.listed(items),
            StoreEvent::Found { number, hits, all } => self.found(number, hits, all),
            StoreEvent::Opened { conversation, access, notes } => {
                let id = conversation.id.clone();
                if self.library.opening.as_ref() == Some(&id) {
                    self.library.opening = None;
                    let mut chat = Chat::new(*conversation, access, true);
                    if let Access::ReadOnly(why) = &chat.access {
                        chat.banner = Some(format!("Read only: {why}"));
                    }
                    self.show(chat);
                    self.go_to_place();
                    if let Some(note) = notes.first() {
                        self.error(note.clone());
                    }
                } else if let Some(chat) = self.chat_mut(&id) {
                    chat.banner = None;
                    self.list();
                }
            }
            StoreEvent::Saved { id, ticket } => {
                self.may_ask(&id, Some(ticket));
                self.list();
            }
            StoreEvent::SaveFailed { id, reason } => {
                match self.chat_mut(&id) {
                    Some(chat) => chat.banner = Some(reason),
                    None => self.error(reason),
                }
                // The words are safe in memory; an answer need not wait for the disk.
                self.may_ask(&id, None);
            }
            StoreEvent::Taken { id, reason } => self.go_on_in_a_copy(&id, &reason),
            StoreEvent::SaveRecovered { id } => {
                if let Some(chat) = self.chat_mut(&id) {
                    chat.banner = None;
                }
                self.tell("Saved again");
            }
            StoreEvent::Trashed(id) => {
                self.library.trashed = Some(id.clone());
                self.tell("Moved to the trash folder; u in the list brings it back");
                if self.chat.conversation.id == id {
                    // Whoever is in the list goes on there.
                    let focus = self.focus;
                    self.new_chat();
                    self.focus = focus;
                }
                self.list();
            }
            StoreEvent::Restored(id) => {
                self.library.trashed = None;
                self.open(&id);
                self.list();
            }
            StoreEvent::Failed { id, reason } => {
                if self.library.opening.as_ref() == id.as_ref() {
                    self.library.opening = None;
                }
                self.error(reason);
            }
        }
    }

    /// Saves a conversation, whose file is not ours any more, in a file of its own.
    fn go_on_in_a_copy(&mut self, id: &ConversationId, reason: &str) {
        let copy = self.new_id();
        let Some(chat) = self.chat_mut(id) else { return };
        chat.conversation.id = copy.clone();
        chat.conversation.title = Some(format!("{} (copy)", chat.title()));
        // What could be undone is in the other file.
        chat.conversation.history = History::default();
        chat.has_file = false;
        let mut effects = Vec::new();
        chat.ensure_file(&mut effects);
        self.effects.append(&mut effects);
        if let Some(chat) = self.background.remove(id) {
            self.background.insert(copy.clone(), chat);
        }
        self.rename_jobs(id, &copy);
        // What waited for the old file need not wait any more.
        self.may_ask(&copy, None);
        self.error(format!("Saved as a copy, because {reason}; the other program's version stays as it is"));
        self.list();
    }

    fn listed(&mut self, items: Vec<Summary>) {
        let chosen = self.library.chosen().map(|s| s.id.clone());
        self.library.items = items;
        self.library.shown.clear();
        self.library.arrange();
        let shown = self.chat.conversation.id.clone();
        if self.focus == Focus::List {
            self.library.choose(&chosen.unwrap_or(shown));
        } else {
            self.library.choose(&shown);
        }
        if std::mem::take(&mut self.library.resume) == Resume::Last {
            // A conversation with words in it comes before one that is only a draft.
            let whole = |s: &&Summary| s.damage.is_none();
            let items = &self.library.items;
            let spoken = items.iter().filter(whole).find(|s| s.messages > 0);
            let last = spoken.or_else(|| items.iter().find(whole)).map(|s| s.id.clone());
            match last {
                Some(id) => self.open(&id),
                None => self.tell("There is no conversation yet; this is a new one"),
            }
        }
    }

    /// An id that no other conversation has.
    pub(super) fn new_id(&mut self) -> ConversationId {
        // Two conversations of one process must not get one id within a millisecond.
        let number = u32::try_from(self.next_number()).unwrap_or(0);
        ConversationId::new(self.now.wall_ms, self.salt.wrapping_add(number).wrapping_mul(0x9E37_79B1))
    }

    fn empty(&mut self) -> Chat {
        let id = self.new_id();
        Chat::new(fresh(self.now, id, &self.defaults), Access::Write, false)
    }

    /// Starts a new conversation.
    pub(super) fn new_chat(&mut self) {
        let chat = self.empty();
        self.show(chat);
    }

    /// Shows a conversation, and a message of it.
    pub(super) fn open_at(&mut self, id: &ConversationId, place: Option<MessageId>) {
        self.library.place = place;
        self.open(id);
        if self.chat.conversation.id == *id {
            self.go_to_place();
        }
    }

    fn go_to_place(&mut self) {
        if let Some(place) = self.library.place.take() {
            self.show_message(place);
        }
    }

    /// Shows a conversation: at once if it is in memory, else when the store has read it.
    pub(super) fn open(&mut self, id: &ConversationId) {
        if self.chat.conversation.id == *id {
            self.focus = Focus::Input;
            return;
        }
        if let Some(chat) = self.background.remove(id) {
            self.library.opening = None;
            self.show(chat);
            return;
        }
        self.library.opening = Some(id.clone());
        self.effects.push(Effect::Store(StoreRequest::Open(id.clone())));
    }

    /// Puts a conversation in the place of the one that is shown. That one stays in memory while an answer for
    /// it runs or waits; else its file is given back.
    pub(super) fn show(&mut self, chat: Chat) {
        let now = self.now.mono;
        let mut old = std::mem::replace(&mut self.chat, chat);
        let id = old.conversation.id.clone();
        let busy = self.engine.job.as_ref().is_some_and(|j| j.chat == id) || self.asks.iter().any(|a| a.chat == id);
        if busy || !old.queued.is_empty() {
            old.save_all(now, &mut self.effects);
            self.background.insert(id, old);
        } else {
            self.close(&mut old, now);
        }
        self.input.set(&self.chat.typed.clone());
        for question in self.chat.conversation.path() {
            if question.role == crate::chat::Role::User {
                self.input.remember(&question.text.clone());
            }
        }
        self.go(Focus::Input);
        self.chat.transcript.follow();
        self.library.choose(&self.chat.conversation.id);
    }

    /// Opens the conversation so many places down the list.
    pub(super) fn step_chat(&mut self, by: isize) {
        let shown = &self.chat.conversation.id;
        let at = self.library.shown().position(|s| s.id == *shown);
        let last = self.library.shown().len().saturating_sub(1);
        let to = at.map_or(0, |at| at.saturating_add_signed(by)).min(last);
        let id = self.library.shown().nth(to).filter(|_| at != Some(to)).map(|s| s.id.clone());
        if let Some(id) = id {
            self.open(&id);
        }
    }

    /// Moves a conversation to the trash folder.
    pub(super) fn trash(&mut self, id: ConversationId) {
        self.asks.retain(|a| a.chat != id);
        // What came of an answer goes with it; the engine's later words about it mean nothing.
        if let Some(job) = self.engine.job.as_ref().filter(|j| j.chat == id).map(|j| j.id) {
            self.break_off("its conversation was deleted", Finish::Cancelled);
            self.effects.push(Effect::Engine(Request::Cancel { job }));
        }
        if self.chat.conversation.id == id && !self.chat.has_file {
            self.new_chat();
            return;
        }
        self.effects.push(Effect::Store(StoreRequest::Trash(id)));
    }

    /// Brings back what was deleted last.
    pub(super) fn restore(&mut self) {
        match self.library.trashed.clone() {
            Some(id) => self.effects.push(Effect::Store(StoreRequest::Restore(id))),
            None => self.tell("Nothing was deleted since the start; deleted files are in the trash folder"),
        }
    }

    /// Gives a conversation another title.
    pub(super) fn rename(&mut self, id: ConversationId, title: &str) {
        let title = title.trim().to_owned();
        if title.is_empty() {
            self.error("A title needs at least one letter; the old one stays");
            return;
        }
        self.change(id, Edit::Title, Entry::Title { text: title });
    }

    /// Writes an edit into a conversation, open here or not.
    pub(super) fn change(&mut self, id: ConversationId, what: Edit, entry: Entry) {
        if let Some(chat) = self.chat_mut(&id)
            && chat.is_ours()
        {
            let mut effects = Vec::new();
            chat.edit(what, vec![entry], true, None, &mut effects);
            self.effects.append(&mut effects);
            self.list();
        } else {
            self.effects.push(Effect::Store(StoreRequest::Change(id, what, Box::new(entry))));
        }
    }
}
