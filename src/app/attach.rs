//! Putting files and what commands print into the question that is being typed.

use super::event::Effect;
use super::{App, Focus, counted};
use crate::chat::{Content, ConversationId, Entry};
use crate::engine::protocol::{JobId, Prompt, Request, Size};

/// Text that the engine counts before its mark is put into the question.
#[derive(Debug)]
pub(super) struct Counting {
    job: JobId,
    chat: ConversationId,
    content: Content,
}

impl App {
    /// `/read` and `/run`.
    pub(super) fn attach(&mut self, effect: Effect) {
        if self.chat.is_ours() {
            self.effects.push(effect);
        } else {
            self.error("This conversation is only read here; nothing can be asked in it");
        }
    }

    /// What was read.
    pub(super) fn attached(&mut self, read: Result<(Vec<Content>, Option<String>), String>) {
        let (contents, note) = match read {
            Ok(read) => read,
            Err(why) => {
                self.error(why);
                return;
            }
        };
        for content in contents {
            // The words are kept before anything refers to them.
            if self.chat.conversation.content(&content.id).is_none() {
                self.chat.record(vec![Entry::Content(content.clone())], true, None, &mut self.effects);
            }
            let chat = self.chat.conversation.id.clone();
            if self.engine.info.is_some() {
                let job = self.next_number();
                self.effects.push(Effect::Engine(Request::Measure { job, prompt: Prompt::Raw(content.text.clone()) }));
                self.counting.push(Counting { job, chat, content });
            } else {
                self.put_mark(&chat, &content, None);
            }
        }
        if let Some(note) = note {
            self.tell(note);
        }
    }

    /// The engine has counted a text, or cannot. Tells whether it was for this.
    pub(super) fn counted(&mut self, job: JobId, size: Option<&Size>) -> bool {
        let Some(at) = self.counting.iter().position(|c| c.job == job) else { return false };
        let Counting { chat, content, .. } = self.counting.remove(at);
        let tokens = size.map(|size| size.tokens);
        self.put_mark(&chat, &content, tokens);
        if let Some(size) = size.filter(|size| size.tokens >= size.n_ctx) {
            self.error(format!(
                "{} has {} tokens and the context holds {}: take a part of it, or a larger context (-c)",
                content.name,
                counted(size.tokens),
                counted(size.n_ctx)
            ));
        }
        true
    }

    /// Every text that waits for an engine that is gone gets its mark without a count.
    pub(super) fn count_no_more(&mut self) {
        for Counting { chat, content, .. } in std::mem::take(&mut self.counting) {
            self.put_mark(&chat, &content, None);
        }
    }

    fn put_mark(&mut self, chat: &ConversationId, content: &Content, tokens: Option<u32>) {
        if self.chat.conversation.id != *chat {
            self.tell(format!("{} is not put in: another conversation is open now", content.name));
            return;
        }
        self.go(Focus::Input);
        self.input.insert(&format!("{} ", content.mark(tokens)));
        self.typed();
    }

    /// Shows what the selected message, or the question that is being typed, refers to.
    pub(super) fn show_contents(&mut self) {
        let c = &self.chat.conversation;
        let text = match self.selected().and_then(|id| c.message(id)) {
            Some(message) => message.text.clone(),
            None => self.input.text(),
        };
        let contents = c.contents_of(&text);
        if contents.is_empty() {
            self.tell("It refers to no file; /read and /run put one into a question");
            return;
        }
        let mut lines = Vec::new();
        for content in contents {
            lines.push(format!("── {} ──", content.name));
            lines.extend(content.text.lines().map(crate::text::sanitise_line));
            lines.push(String::new());
        }
        self.overlay = Some(super::Overlay::Text { title: "What the question refers to (Esc closes)", lines, top: 0 });
    }
}
