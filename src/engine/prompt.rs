//! From a conversation to the text that is tokenised: the template, its refusals, and the guard that keeps
//! control tokens out of what people and files say.
//!
//! ```text
//! turns ─► Message ─► forms: as they are, merged, folded, … until the template takes one and keeps the words
//!                        ─► marked text: which bytes are whose ─► cuts and owners ─► Rendered
//! ```

mod forms;
mod marks;

use super::guard::{CUT, Guard, parts};
use super::protocol::{Problem, Turn};
use super::template::{Template, TemplateError};
use crate::chat::Role;
use forms::{Form, Message};
use marks::{Found, Mark};

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
    /// Whose the text is, up to each of these ends in bytes of the joined segments. What the template writes
    /// before the first message is the system's, before another message of that message's, and after the last
    /// of the assistant.
    pub owners: Vec<(usize, Role)>,
    /// What was changed to make it, one sentence each.
    pub notes: Vec<String>,
}

const REPLACED: &str = "A character of the text is a control token of this model and was replaced";
const LOSSY: &str = "This model's template leaves out or changes some of the text";

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
    let mut replaced = false;
    let mut clean = |role: Role, text: &str| {
        let (text, changed) = guard.clean(text);
        replaced |= changed;
        Message::new(role, text)
    };
    let mut messages = Vec::new();
    if !system.trim().is_empty() {
        messages.push(clean(Role::System, system));
    }
    // An answer that was stopped before its first token says nothing, to a template neither.
    let said = turns.iter().filter(|t| t.role != Role::Assistant || !t.text.trim().is_empty());
    messages.extend(said.map(|turn| clean(turn.role, &turn.text)));
    // The answer was begun after the template's prompt for it, so there it goes on.
    let open = messages.pop_if(|m| m.role == Role::Assistant);
    let mut rendered = match template {
        ChatTemplate::Raw(_) => raw_chat(&messages, open.as_ref(), guard),
        ChatTemplate::Jinja(template) => adapted(template, &messages, open.as_ref(), guard)?,
    };
    if replaced {
        rendered.notes.push(REPLACED.to_owned());
    }
    Ok(rendered)
}

/// Text to continue as it stands; control texts in it are text.
pub fn raw(text: &str, guard: &Guard) -> Rendered {
    let (text, replaced) = guard.clean(text);
    let mut rendered = finish(&Found::of(&Message::new(Role::User, text).content(Mark::Ends)), guard);
    rendered.owners = rendered.owners.first().map(|(end, _)| (*end, Role::User)).into_iter().collect();
    rendered.notes.extend(replaced.then(|| REPLACED.to_owned()));
    rendered
}

/// Texts with blank lines between them.
fn raw_chat(messages: &[Message], open: Option<&Message>, guard: &Guard) -> Rendered {
    let texts: Vec<String> = messages.iter().chain(open).map(|m| m.content(Mark::Ends)).collect();
    finish(&Found::of(&texts.join("\n\n")), guard)
}

/// Renders the messages in the first form that the template takes and that keeps the words.
fn adapted(
    template: &Template,
    messages: &[Message],
    open: Option<&Message>,
    guard: &Guard,
) -> Result<Rendered, Problem> {
    let mut refusal: Option<TemplateError> = None;
    // A form in which words are lost is the last resort, not an answer.
    let mut lossy = None;
    for form in forms::of(messages) {
        match template.render(&contents(&form.messages, Mark::None), true, None) {
            Ok(text) if form.kept(&text) => return guarded(template, &form, text, open, guard),
            Ok(text) => {
                lossy.get_or_insert((form, text));
            }
            Err(error) => {
                refusal.get_or_insert(error);
            }
        }
    }
    if let Some((form, text)) = lossy {
        let mut rendered = guarded(template, &form, text, open, guard)?;
        rendered.notes.push(LOSSY.to_owned());
        return Ok(rendered);
    }
    let why = refusal.map_or_else(|| "there is nothing to render".to_owned(), |error| error.to_string());
    Err(Problem::new(capital(&why), "Change the question, or start a new chat"))
}

/// Cuts a rendered form. Rendered again with marks around the messages it tells which bytes are whose; where
/// the template does not let the marks through, the messages are sealed instead.
fn guarded(
    template: &Template,
    form: &Form,
    text: String,
    open: Option<&Message>,
    guard: &Guard,
) -> Result<Rendered, Problem> {
    let again = |mark: Mark| template.render(&contents(&form.messages, mark), true, None);
    let ending = |mark: Mark| open.map(|m| m.content(mark)).unwrap_or_default();
    let found = again(Mark::Ends).map(|marked| Found::of(&(marked + &ending(Mark::Ends))));
    let text = text + &ending(Mark::None);
    let found = found.ok().filter(|found| found.text == text);
    let mut rendered = match &found {
        Some(found) if found.whole => finish(found, guard),
        _ => {
            let sealed = again(Mark::Sealed(guard)).map_err(|e| {
                Problem::new(capital(&e.to_string()), "Take control texts such as <|…|> out of the messages")
            })?;
            let sealed = sealed + &ending(Mark::Sealed(guard));
            let segments = sealed.split(CUT).filter(|s| !s.is_empty()).map(str::to_owned).collect();
            let plain = sealed.replace(CUT, "");
            let owners = found.filter(|f| f.text == plain).map_or_else(|| form.owners(&plain, open), |f| f.owners());
            Rendered { segments, owners, notes: Vec::new() }
        }
    };
    rendered.notes.extend(form.notes.iter().map(|note| (*note).to_owned()));
    Ok(rendered)
}

fn contents(messages: &[Message], mark: Mark<'_>) -> Vec<forms::Shown> {
    messages.iter().map(|m| m.shown(mark)).collect()
}

fn finish(found: &Found, guard: &Guard) -> Rendered {
    let cuts = guard.cuts(&found.text, &found.spans);
    let segments = parts(&found.text, &cuts).filter(|s| !s.is_empty()).map(str::to_owned).collect();
    Rendered { segments, owners: found.owners(), notes: Vec::new() }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod tests;
