//! `ask --in`: a conversation that goes on without the screen. As in the chat, the question is on disk before the model
//! sees it, and the answer about once a second.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::context::now;
use super::conversations;
use crate::app::title_of;
use crate::chat::{
    Access, Conversation, Edit, Entry, Made, Message, MessageId, MessageState, Role, StoreEvent, StoreRequest,
    TokenRecord,
};
use crate::engine::protocol::{Alternative, Prompt};
use crate::paths::Paths;
use crate::store::Worker;

/// How much of an answer may be lost.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// How long a disk may take to keep a question.
const PATIENCE: Duration = Duration::from_secs(30);

/// A conversation that is ours to write, and the answer that comes.
pub struct Kept {
    store: Worker,
    events: Receiver<StoreEvent>,
    /// The conversation as it is by now.
    pub conversation: Conversation,
    answer: Option<Growing>,
}

fn step(what: Edit) -> Entry {
    Entry::Step { what, message: None }
}

/// An answer on its way.
struct Growing {
    id: MessageId,
    /// Bytes of it that are written.
    written: usize,
    at: Instant,
}

impl Kept {
    /// Opens a conversation for writing.
    ///
    /// # Errors
    /// If there is none, or it is only to be read.
    pub fn open(paths: &Paths, which: &str) -> Result<Self, String> {
        let (id, _) = conversations::pick(paths, which)?;
        let (sender, events) = channel();
        let store = Worker::start(paths.conversations(), None, move |event| drop(sender.send(event)))
            .map_err(|e| format!("The conversation cannot be opened: {e}"))?;
        store.send(StoreRequest::Open(id));
        match events.recv_timeout(PATIENCE) {
            Ok(StoreEvent::Opened { access: Access::ReadOnly(why), .. }) => {
                Err(format!("The conversation cannot go on here: {why}"))
            }
            Ok(StoreEvent::Opened { conversation, notes, .. }) => {
                notes.iter().for_each(|note| eprintln!("note: {}", crate::text::sanitise(note)));
                Ok(Self { store, events, conversation: *conversation, answer: None })
            }
            Ok(StoreEvent::Failed { reason, .. }) => Err(reason),
            _ => Err("The conversation cannot be opened: the disk does not answer".to_owned()),
        }
    }

    /// Writes a question, and a new system prompt where one is given; the prompt that leads to its answer.
    ///
    /// # Errors
    /// If it is not on disk: then it is not to be asked.
    pub fn question(&mut self, text: &str, system: Option<&str>) -> Result<Prompt, String> {
        let c = &self.conversation;
        let id = c.next_id();
        let mut entries = Vec::new();
        if let Some(system) = system.filter(|s| *s != c.system) {
            entries.extend([step(Edit::System), Entry::System { text: system.to_owned() }]);
        }
        // As in the chat, which undoes it as one edit.
        if !entries.is_empty() || !c.history.awaits_question() {
            entries.push(step(Edit::Question));
        }
        entries.push(Entry::Message(Message::new(id, c.head, Role::User, text, now())));
        if c.title.is_none() {
            entries.push(Entry::Title { text: title_of(text) });
        }
        self.record(entries, Some(1));
        match self.events.recv_timeout(PATIENCE) {
            Ok(StoreEvent::Saved { .. }) => {}
            Ok(StoreEvent::SaveFailed { reason, .. } | StoreEvent::Taken { reason, .. }) => {
                return Err(format!("The question is not saved and was not asked: {reason}"));
            }
            _ => return Err("The question is not saved and was not asked: the disk does not answer".to_owned()),
        }
        Ok(Prompt::to(&self.conversation, id))
    }

    fn record(&mut self, entries: Vec<Entry>, ticket: Option<u64>) {
        entries.iter().for_each(|entry| self.conversation.apply(entry));
        let id = self.conversation.id.clone();
        self.store.send(StoreRequest::Append { id, entries, sync: ticket.is_some(), ticket });
    }

    /// The answer is so far; about once a second it is written.
    pub fn grow(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let due = self.answer.as_ref().is_none_or(|a| a.at.elapsed() >= CHECKPOINT);
        if due {
            self.write(text);
        }
    }

    /// Writes what is new of the answer; the first time it begins it. Its id.
    fn write(&mut self, text: &str) -> MessageId {
        let Some(Growing { id, written, .. }) = self.answer else {
            let id = self.conversation.next_id();
            let message = Message::new(id, self.conversation.head, Role::Assistant, text, now());
            self.record(vec![Entry::Message(Message { state: MessageState::Open, ..message })], None);
            self.answer = Some(Growing { id, written: text.len(), at: Instant::now() });
            return id;
        };
        if let Some(more) = text.get(written..).filter(|more| !more.is_empty()) {
            self.record(vec![Entry::Append { id, text: more.to_owned() }], None);
        }
        self.answer = Some(Growing { id, written: text.len().max(written), at: Instant::now() });
        id
    }

    /// Writes the end of the answer and gives the conversation back.
    ///
    /// # Errors
    /// If it is not on disk.
    pub fn end(
        mut self,
        text: &str,
        tokens: Vec<TokenRecord>,
        made: &Made,
        others: &[Alternative],
    ) -> Result<(), String> {
        let question = match &self.answer {
            Some(answer) => self.conversation.message(answer.id).and_then(|m| m.parent),
            None => self.conversation.head,
        };
        let id = self.write(text);
        let mut entries = Vec::new();
        if !tokens.is_empty() {
            entries.push(Entry::Tokens { id, tokens });
        }
        entries.push(Entry::Done { id, made: made.clone() });
        for (next, other) in (id + 1..).zip(others) {
            let message = Message::new(next, question, Role::Assistant, other.text.as_str(), now());
            let made = Some(other.made(made));
            entries.push(Entry::Message(Message { made, tokens: other.records.clone(), ..message }));
        }
        entries.push(Entry::Head { id: Some(id) });
        self.record(entries, None);
        let unsaved = self.store.finish().into_iter().next();
        let taken = self.events.try_iter().find_map(|event| match event {
            StoreEvent::Taken { reason, .. } => Some(format!("The answer is not saved: {reason}")),
            _ => None,
        });
        unsaved.or(taken).map_or(Ok(()), Err)
    }
}
