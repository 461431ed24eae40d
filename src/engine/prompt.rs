//! From a conversation to the text that is tokenised: the template, its refusals, and the guard that keeps
//! control tokens out of what people and files say.

use serde::Serialize;

use super::guard::{CUT, Guard};
use super::protocol::{Problem, Turn};
use super::template::{Template, TemplateError};
use crate::chat::Role;

/// How conversations become prompts for this model.
#[derive(Debug)]
pub enum ChatTemplate {
    /// By its template.
    Jinja(Box<Template>),
    /// By joining the texts: it has no template, or one that cannot be parsed. The sentence says which.
    Raw(String),
}

/// A prompt's text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text, split where no token may reach across; each part is tokenised on its own.
    pub segments: Vec<String>,
    /// Whose the text is, up to each of these ends in bytes of the joined segments.
    pub owners: Vec<(usize, Role)>,
    /// What was changed to make it, one sentence each.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Message {
    role: Role,
    content: String,
}

/// A way to put the same words so that a stricter template takes them, and how it is told.
struct Form {
    change: fn(Vec<Message>) -> Vec<Message>,
    notes: &'static [&'static str],
}

const FOLDED: &str = "This model's template takes no system prompt: it stands before the first question";
const MERGED: &str = "This model's template wants turns to alternate: questions in a row were joined";
const FORMS: [Form; 4] = [
    Form { change: |m| m, notes: &[] },
    Form { change: merged, notes: &[MERGED] },
    Form { change: folded, notes: &[FOLDED] },
    Form { change: |m| merged(folded(m)), notes: &[FOLDED, MERGED] },
];

impl ChatTemplate {
    /// The template of a model, as its file carries it.
    pub fn new(source: Option<&str>, bos: &str, eos: &str) -> Self {
        match source.map(|source| Template::parse(source, bos, eos)) {
            None => Self::Raw("This model has no chat template: your text is continued as it stands".to_owned()),
            Some(Ok(template)) => Self::Jinja(Box::new(template)),
            Some(Err(error)) => {
                tracing::warn!("{error}");
                Self::Raw("This model's chat template cannot be read: your text is continued as it stands".to_owned())
            }
        }
    }

    /// Whether there is a template.
    pub fn is_some(&self) -> bool {
        matches!(self, Self::Jinja(_))
    }

    /// What is to be said about it on the screen.
    pub fn notes(&self) -> Vec<String> {
        match self {
            Self::Jinja(_) => Vec::new(),
            Self::Raw(note) => vec![note.clone()],
        }
    }
}

/// Renders a conversation. A last turn of the assistant is continued.
///
/// # Errors
/// If the template refuses the conversation in every form that loses nothing.
pub fn render(template: &ChatTemplate, system: &str, turns: &[Turn], guard: &Guard) -> Result<Rendered, Problem> {
    let mut notes = Vec::new();
    let mut clean = |text: &str| {
        let (text, changed) = guard.cut(text);
        if changed {
            notes.push("A character of the text is a control token of this model and was replaced".to_owned());
        }
        text
    };
    let mut messages = Vec::new();
    if !system.trim().is_empty() {
        messages.push(Message { role: Role::System, content: clean(system) });
    }
    for turn in turns.iter().filter(|t| t.role != Role::Assistant || !t.text.trim().is_empty()) {
        messages.push(Message { role: turn.role, content: clean(&turn.text) });
    }
    let open = messages.pop_if(|m| m.role == Role::Assistant);
    let (mut text, shown) = match template {
        ChatTemplate::Raw(_) => (joined(&messages, open.is_some()), messages),
        ChatTemplate::Jinja(template) => adapted(template, &messages, &mut notes)?,
    };
    if let Some(open) = &open {
        text.push_str(&open.content);
    }
    let mut rendered = split(&text);
    rendered.owners = owners(&rendered.segments.concat(), &shown);
    notes.dedup();
    rendered.notes = notes;
    Ok(rendered)
}

/// Text to continue as it stands; control texts in it are text.
pub fn raw(text: &str, guard: &Guard) -> Rendered {
    let mut rendered = split(&guard.cut(text).0);
    rendered.owners = vec![(text.len(), Role::User)];
    rendered
}

/// Texts with blank lines between them.
fn joined(messages: &[Message], goes_on: bool) -> String {
    let texts: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
    texts.join("\n\n") + if goes_on { "\n\n" } else { "" }
}

/// Renders the messages in the first form that the template takes and that keeps the system prompt.
fn adapted(
    template: &Template,
    messages: &[Message],
    notes: &mut Vec<String>,
) -> Result<(String, Vec<Message>), Problem> {
    let has_system = messages.first().is_some_and(|m| m.role == Role::System);
    let mut refusal: Option<TemplateError> = None;
    // A template that ignores a system prompt is the last resort, not an answer.
    let mut without_system = None;
    for form in &FORMS {
        let shown = (form.change)(messages.to_vec());
        match template.render(&shown, true, None) {
            Ok(text) => {
                let kept = !has_system || text.contains(messages[0].content.trim());
                if kept {
                    notes.extend(form.notes.iter().map(|s| (*s).to_owned()));
                    return Ok((text, shown));
                }
                without_system.get_or_insert((text, shown));
            }
            Err(error) => {
                refusal.get_or_insert(error);
            }
        }
    }
    if let Some((text, shown)) = without_system {
        notes.push("This model's template leaves the system prompt out".to_owned());
        return Ok((text, shown));
    }
    let why = refusal.map_or_else(|| "there is nothing to render".to_owned(), |error| error.to_string());
    Err(Problem::new(capital(&why), "Edit the last question, or start a new chat with Ctrl-N"))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// The system prompt put before the first question.
fn folded(mut messages: Vec<Message>) -> Vec<Message> {
    if messages.first().is_some_and(|m| m.role == Role::System) {
        let system = messages.remove(0);
        match messages.first_mut().filter(|m| m.role == Role::User) {
            Some(user) => user.content = format!("{}\n\n{}", system.content, user.content),
            None => messages.insert(0, Message { role: Role::User, content: system.content }),
        }
    }
    messages
}

/// Turns of the same side in a row made one.
fn merged(messages: Vec<Message>) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::new();
    for message in messages {
        match out.last_mut().filter(|last| last.role == message.role) {
            Some(last) => last.content = format!("{}\n\n{}", last.content, message.content),
            None => out.push(message),
        }
    }
    out
}

fn split(text: &str) -> Rendered {
    let segments = text.split(CUT).filter(|s| !s.is_empty()).map(str::to_owned).collect();
    Rendered { segments, ..Rendered::default() }
}

/// Finds the contents in the text, in their order. What the template writes before a content belongs to it;
/// what comes after the last is the beginning of the answer.
fn owners(text: &str, messages: &[Message]) -> Vec<(usize, Role)> {
    let mut owners = Vec::new();
    let mut at = 0;
    for message in messages {
        let content = message.content.replace(CUT, "");
        let content = content.trim();
        if let Some(found) = text[at..].find(content).filter(|_| !content.is_empty()) {
            if owners.is_empty() && message.role != Role::System {
                owners.push((at + found, Role::System));
            }
            at += found + content.len();
            owners.push((at, message.role));
        }
    }
    owners.push((text.len(), Role::Assistant));
    owners
}

#[cfg(test)]
mod tests;
