//! Ways to put the same words so that a stricter template takes them: questions in a row merged, the system
//! prompt folded into the first question, an answer before any question joined to it.

use serde::Serialize;

use super::marks::Mark;
use crate::chat::Role;

/// A message and who wrote each part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// As whose the template shows it.
    pub role: Role,
    parts: Vec<(Role, String)>,
}

/// A message as templates read it.
#[derive(Debug, Serialize)]
pub struct Shown {
    role: Role,
    content: String,
}

/// Messages in a form, and what is to be said about it.
#[derive(Debug)]
pub struct Form {
    /// The messages.
    pub messages: Vec<Message>,
    /// One sentence for each change.
    pub notes: Vec<&'static str>,
}

const FOLDED: &str = "This model's template takes no system prompt: it stands before the first question";
const MERGED: &str = "This model's template wants turns to alternate: questions in a row were joined";
const LED: &str = "This model's template wants a question first: an answer before it was joined to it";

impl Message {
    /// A message of one part.
    pub fn new(role: Role, text: String) -> Self {
        Self { role, parts: vec![(role, text)] }
    }

    /// Its text with marks; blank lines between its parts.
    pub fn content(&self, mark: Mark<'_>) -> String {
        let texts: Vec<String> = self.parts.iter().map(|(role, text)| mark.on(*role, text)).collect();
        texts.join("\n\n")
    }

    /// It as the template reads it.
    pub fn shown(&self, mark: Mark<'_>) -> Shown {
        Shown { role: self.role, content: self.content(mark) }
    }
}

/// The forms of these messages that differ, least changed first.
pub fn of(messages: &[Message]) -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::new();
    for (lead, fold, merge) in [
        (false, false, false),
        (false, false, true),
        (false, true, false),
        (false, true, true),
        (true, false, true),
        (true, true, true),
    ] {
        let mut form = Form { messages: messages.to_vec(), notes: Vec::new() };
        form.change(lead, led, LED);
        form.change(fold, folded, FOLDED);
        form.change(merge, merged, MERGED);
        if forms.iter().all(|f| f.messages != form.messages) {
            forms.push(form);
        }
    }
    forms
}

impl Form {
    fn change(&mut self, wanted: bool, how: fn(Vec<Message>) -> Vec<Message>, note: &'static str) {
        if wanted {
            let changed = how(self.messages.clone());
            if changed != self.messages {
                self.messages = changed;
                self.notes.push(note);
            }
        }
    }

    /// Whether everything that the user wrote is in the text, but for blanks. Of answers templates may leave
    /// out what was thought.
    pub fn kept(&self, text: &str) -> bool {
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        let text = dense(text);
        let mut at = 0;
        self.parts().filter(|(role, _)| *role != Role::Assistant).all(|(_, part)| {
            let part = dense(part);
            match text[at..].find(&part) {
                Some(found) => {
                    at += found + part.len();
                    true
                }
                // A template may show the system prompt after the questions.
                None => text.contains(&part),
            }
        })
    }

    /// Whose a text is in which the messages could not be marked: found by what they say.
    pub fn owners(&self, text: &str, open: Option<&Message>) -> Vec<(usize, Role)> {
        let mut owners = Vec::new();
        let mut at = 0;
        for (role, part) in self.parts().chain(open.iter().flat_map(|m| &m.parts)) {
            let part = part.trim();
            let Some(found) = text[at..].find(part).filter(|_| !part.is_empty()) else { continue };
            if owners.is_empty() && *role != Role::System {
                owners.push((at + found, Role::System));
            }
            at += found + part.len();
            owners.push((at, *role));
        }
        owners.push((text.len(), Role::Assistant));
        owners
    }

    fn parts(&self) -> impl Iterator<Item = &(Role, String)> {
        self.messages.iter().flat_map(|m| &m.parts)
    }
}

/// Where the conversation begins after the system prompt.
fn start(messages: &[Message]) -> usize {
    usize::from(messages.first().is_some_and(|m| m.role == Role::System))
}

/// The message put before the question that follows it; a question of its own where none does.
fn joined_to_next(messages: &mut Vec<Message>, at: usize) {
    let before = messages.remove(at);
    match messages.get_mut(at).filter(|m| m.role == Role::User) {
        Some(question) => question.parts.splice(..0, before.parts).for_each(drop),
        None => messages.insert(at, Message { role: Role::User, ..before }),
    }
}

/// The system prompt put before the first question.
fn folded(mut messages: Vec<Message>) -> Vec<Message> {
    if start(&messages) > 0 {
        joined_to_next(&mut messages, 0);
    }
    messages
}

/// An answer that stands before the first question joined to it.
fn led(mut messages: Vec<Message>) -> Vec<Message> {
    let at = start(&messages);
    if messages.get(at).is_some_and(|m| m.role == Role::Assistant) {
        joined_to_next(&mut messages, at);
    }
    messages
}

/// Turns of the same side in a row made one.
fn merged(messages: Vec<Message>) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::new();
    for message in messages {
        match out.last_mut().filter(|last| last.role == message.role) {
            Some(last) => last.parts.extend(message.parts),
            None => out.push(message),
        }
    }
    out
}
