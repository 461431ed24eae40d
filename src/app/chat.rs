//! One open conversation: its words, its file, its view.

use std::time::{Duration, Instant};

use super::event::Effect;
use super::transcript::Transcript;
use crate::chat::{
    Access, Conversation, Edit, Entry, Finish, Message, MessageId, Role, Sampling, StoreRequest, unmarked,
};

/// How long typing or a slider must rest before it is saved.
const REST: Duration = Duration::from_millis(700);
/// Typing that never rests is saved this often.
const RESTLESS: Duration = Duration::from_secs(1);
/// Longest title made from a question.
const LONGEST_TITLE: usize = 60;

/// An open conversation.
#[derive(Debug)]
pub struct Chat {
    /// What is in it.
    pub conversation: Conversation,
    /// Whether it can be changed here.
    pub access: Access,
    /// What stands above the input until it is no longer true, such as a failed save.
    pub banner: Option<String>,
    /// Its lines.
    pub transcript: Transcript,
    /// Questions that wait for the running answer.
    pub queued: Vec<String>,
    /// Whether a file was begun for it; before its first word it has none.
    pub has_file: bool,
    /// What stands in the input box.
    pub typed: String,
    /// It is to be saved then; since when it waits for that.
    draft_at: Option<(Instant, Instant)>,
    /// Sliders that moved are to be saved then.
    sampling_at: Option<Instant>,
}

impl Chat {
    /// A conversation with or without a file.
    pub fn new(conversation: Conversation, access: Access, has_file: bool) -> Self {
        Self {
            typed: conversation.draft.clone(),
            conversation,
            access,
            banner: None,
            transcript: Transcript::default(),
            queued: Vec::new(),
            has_file,
            draft_at: None,
            sampling_at: None,
        }
    }

    /// Whether it can be changed here.
    pub fn is_ours(&self) -> bool {
        self.access == Access::Write
    }

    /// Its title, as it is shown.
    pub fn title(&self) -> &str {
        self.conversation.title.as_deref().unwrap_or("New conversation")
    }

    /// Makes its file if there is none.
    pub fn ensure_file(&mut self, effects: &mut Vec<Effect>) {
        if !self.has_file && self.is_ours() {
            self.has_file = true;
            effects.push(Effect::Store(StoreRequest::Create(Box::new(self.conversation.clone()))));
        }
    }

    /// Applies entries and has them written.
    pub fn record(&mut self, entries: Vec<Entry>, sync: bool, ticket: Option<u64>, effects: &mut Vec<Effect>) {
        if !self.is_ours() {
            return;
        }
        // Before applying: the request to make the file holds what is there by now.
        self.ensure_file(effects);
        for entry in &entries {
            self.conversation.apply(entry);
        }
        let id = self.conversation.id.clone();
        effects.push(Effect::Store(StoreRequest::Append { id, entries, sync, ticket }));
    }

    /// The same for an edit, which can be undone.
    pub fn edit(
        &mut self,
        what: Edit,
        entries: Vec<Entry>,
        sync: bool,
        ticket: Option<u64>,
        effects: &mut Vec<Effect>,
    ) {
        let step = Entry::Step { what, message: None };
        self.record(std::iter::once(step).chain(entries).collect(), sync, ticket, effects);
    }

    /// Shows the path to a message. In a conversation that is only read the file is not told of it.
    pub fn show_path(&mut self, head: Option<MessageId>, effects: &mut Vec<Effect>) {
        let entry = Entry::Head { id: head };
        if self.is_ours() {
            self.record(vec![entry], false, None, effects);
        } else {
            self.conversation.apply(&entry);
        }
    }

    /// The text in the input box changed.
    pub fn typed(&mut self, text: String, now: Instant, effects: &mut Vec<Effect>) {
        self.typed = text;
        if self.is_ours() {
            self.ensure_file(effects);
            let since = self.draft_at.map_or(now, |(_, since)| since);
            self.draft_at = Some(((now + REST).min(since + RESTLESS), since));
        }
    }

    /// A question waits for the running answer. Until it is sent, the file has it as a part of the draft.
    pub fn queue(&mut self, question: String, effects: &mut Vec<Effect>) {
        self.queued.push(question);
        let draft = self.new_draft();
        self.record(draft.into_iter().collect(), false, None, effects);
    }

    /// What was written and not sent, if the file has another text for it.
    fn new_draft(&self) -> Option<Entry> {
        let parts = self.queued.iter().chain([&self.typed]).filter(|part| !part.is_empty());
        let text = parts.map(String::as_str).collect::<Vec<_>>().join("\n");
        (text != self.conversation.draft).then_some(Entry::Draft { text })
    }

    /// The conversation gets other settings. One without a file gets them with its first word. Moves without a rest
    /// between them are one edit.
    pub fn slide(&mut self, sampling: Sampling, now: Instant, effects: &mut Vec<Effect>) {
        if self.has_file && self.is_ours() {
            if self.sampling_at.is_none() {
                self.edit(Edit::Settings, Vec::new(), false, None, effects);
            }
            self.sampling_at = Some(now + REST);
        }
        self.conversation.sampling = sampling;
    }

    /// When something is to be saved.
    pub fn wake_at(&self) -> Option<Instant> {
        [self.draft_at.map(|at| at.0), self.sampling_at].into_iter().flatten().min()
    }

    /// Saves what has rested by then.
    pub fn save_rested(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let mut entries = Vec::new();
        if self.draft_at.take_if(|(at, _)| *at <= now).is_some() {
            entries.extend(self.new_draft());
        }
        if self.sampling_at.take_if(|at| *at <= now).is_some() {
            entries.push(Entry::Sampling { sampling: self.conversation.sampling.clone() });
        }
        if !entries.is_empty() {
            self.record(entries, false, None, effects);
        }
    }

    /// Saves everything that waits to be saved.
    pub fn save_all(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.save_rested(now + REST + REST, effects);
    }

    /// The entries of a new question, and its id. The first one gives the conversation its title.
    pub fn question(&mut self, text: &str, at: i64) -> (MessageId, Vec<Entry>) {
        let id = self.conversation.next_id();
        // What waited to be saved is sent now, or saved with it.
        self.draft_at = None;
        let parent = self.conversation.head;
        let mut entries = Vec::new();
        if !self.conversation.history.awaits_question() {
            entries.push(Entry::Step { what: Edit::Question, message: None });
        }
        entries.push(Entry::Message(Message::new(id, parent, Role::User, text, at)));
        if self.conversation.title.is_none() {
            entries.push(Entry::Title { text: title_of(text) });
        }
        entries.extend(self.new_draft());
        (id, entries)
    }

    /// The last message of the path.
    pub fn head(&self) -> Option<&Message> {
        self.conversation.head.and_then(|id| self.conversation.message(id))
    }

    /// The last question of the path.
    pub fn last_question(&self) -> Option<MessageId> {
        self.conversation.path().iter().rev().find(|m| m.role == Role::User).map(|m| m.id)
    }
}

/// A title from the first question: its first line, not too long.
pub fn title_of(question: &str) -> String {
    let question = unmarked(question);
    let line = question.lines().find(|l| !l.trim().is_empty()).unwrap_or("New conversation").trim();
    let mut title: String = line.chars().take(LONGEST_TITLE).collect();
    if title.len() < line.len() {
        title.push('…');
    }
    title
}

/// How an answer's end is marked beside its head; nothing where the model ended it by itself.
pub fn mark(message: &Message) -> Option<&'static str> {
    match (&message.made, message.role) {
        (Some(made), _) if made.finish == Finish::Stop => made.looped.then_some("repeats itself"),
        (Some(made), _) => Some(made.finish.label()),
        (None, Role::Assistant) if message.state == crate::chat::MessageState::Complete => Some("broken off"),
        _ => None,
    }
}
