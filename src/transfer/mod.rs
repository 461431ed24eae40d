//! Conversations out of the program and into it: the formats. Text and bytes only; no file is touched here.
//!
//! ```text
//! Conversation ─► render: markdown · html · plain · json · messages
//! bytes ─► read: what is it? ─► web_ui · openai · lm_studio · oterm · aichat · messages · own
//!             └► Draft (nodes as the other program names them) ─► graft ─► Found ─► arrival: new, here, grown
//! ```
//!
//! What comes from elsewhere is not trusted: parents may form a circle, texts may hold terminal escapes, times may be
//! missing. Nothing of it names a file; ids are made here.

mod aichat;
mod content;
mod draft;
mod embed;
mod found;
mod graft;
mod html;
mod lm_studio;
mod markdown;
mod messages;
mod openai;
mod oterm;
mod own;
mod plain;
mod read;
mod web_ui;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::chat::{Conversation, Message, Role};

pub use draft::Source;
pub use found::{Arrival, Found};
pub use read::{LARGEST, read};

/// What a conversation can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Markdown, for reading.
    Markdown,
    /// A page that needs nothing else, for reading.
    Html,
    /// Plain text, for reading.
    Text,
    /// Everything that the conversation is.
    Json,
    /// A line of chat messages, as training data has them.
    Jsonl,
}

/// A row of the table of formats.
#[derive(Debug)]
pub struct FormatRow {
    /// The format.
    pub format: Format,
    /// Its name, which is also the end of its files' names.
    pub name: &'static str,
    /// Other names of it.
    aliases: &'static [&'static str],
    /// What it is, for the help.
    pub help: &'static str,
    /// Whether several conversations can stand in one file.
    pub several: bool,
    /// Whether the whole conversation can stand in it unseen.
    pub whole: bool,
}

/// Every format, the default first.
pub static FORMATS: [FormatRow; 5] = [
    row(Format::Markdown, "md", &["markdown"], "Markdown, for reading", false, true),
    row(Format::Html, "html", &["htm", "page"], "a page that needs no network, tokens shaded by surprise", false, true),
    row(Format::Text, "txt", &["text", "plain"], "plain text", false, false),
    row(Format::Json, "json", &[], "everything: tree, settings, figures; for import", true, true),
    row(Format::Jsonl, "jsonl", &["messages"], "chat messages, a line a conversation", true, true),
];

const fn row(
    format: Format,
    name: &'static str,
    aliases: &'static [&'static str],
    help: &'static str,
    several: bool,
    whole: bool,
) -> FormatRow {
    FormatRow { format, name, aliases, help, several, whole }
}

impl Format {
    /// Its row.
    pub fn row(self) -> &'static FormatRow {
        let at = FORMATS.iter().position(|r| r.format == self).unwrap_or(0);
        &FORMATS[at]
    }

    /// The format of that name.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim().to_lowercase();
        FORMATS.iter().find(|r| r.name == name || r.aliases.contains(&name.as_str())).map(|r| r.format)
    }

    /// The format that a file's name asks for.
    pub fn of_path(path: &Path) -> Option<Self> {
        Self::named(path.extension()?.to_str()?)
    }
}

/// What stands behind `/export`: a format, a path, or both in that order.
///
/// # Errors
/// If the path's end is no format and none is named.
pub fn target(argument: &str) -> Result<(Format, Option<PathBuf>), String> {
    let argument = argument.trim();
    let (first, rest) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
    if argument.is_empty() {
        return Ok((Format::Markdown, None));
    }
    if let Some(format) = Format::named(first) {
        let path = Some(rest.trim()).filter(|p| !p.is_empty()).map(PathBuf::from);
        return Ok((format, path));
    }
    let path = PathBuf::from(argument);
    let folder = argument.ends_with(['/', std::path::MAIN_SEPARATOR]);
    match Format::of_path(&path) {
        Some(format) => Ok((format, Some(path))),
        None if folder => Ok((Format::Markdown, Some(path))),
        None => Err(format!("'{first}' is no format; there are {}", names())),
    }
}

/// The names of all formats.
pub fn names() -> String {
    FORMATS.iter().map(|r| r.name).collect::<Vec<_>>().join(", ")
}

/// A conversation in a format. With `whole`, Markdown, HTML and JSONL carry unseen what the reader does not see: other
/// branches, settings, probabilities; then they can be imported as they were. What is deleted does not go out.
pub fn render(conversation: &Conversation, format: Format, whole: bool) -> String {
    let standing = conversation.standing_only();
    // Who imports it again finds what it refers to in what is unseen; a reader finds it in its place.
    let spoken = if whole || format == Format::Json { standing } else { spoken(standing) };
    let conversation = &*spoken;
    match format {
        Format::Markdown => markdown::render(conversation, whole),
        Format::Html => html::render(conversation, whole),
        Format::Text => plain::render(conversation),
        Format::Json => own::render(conversation) + "\n",
        Format::Jsonl => messages::render(conversation, whole),
    }
}

/// With the words of files in the place of their marks.
fn spoken(conversation: Cow<'_, Conversation>) -> Cow<'_, Conversation> {
    if conversation.contents.is_empty() {
        return conversation;
    }
    let mut spoken = conversation.clone().into_owned();
    for message in &mut spoken.messages {
        message.text = conversation.spoken(&message.text).into_owned();
    }
    Cow::Owned(spoken)
}

/// Several conversations in one text, where the format can.
pub fn render_all(conversations: &[Conversation], format: Format, whole: bool) -> String {
    match format {
        Format::Json => {
            let all: Vec<String> = conversations.iter().map(|c| own::render(&c.standing_only())).collect();
            format!("[{}]\n", all.join(",\n"))
        }
        _ => conversations.iter().map(|c| render(c, format, whole)).collect(),
    }
}

/// The name of an exported file. Only the id and ASCII letters of the title stand in it.
pub fn file_name(conversation: &Conversation, format: Format) -> String {
    format!("{}.{}", conversation.id.file_stem(conversation.title.as_deref()), format.row().name)
}

/// How the one who wrote a message is called.
fn author(message: &Message) -> &str {
    match message.role {
        Role::System => "System",
        Role::User => "You",
        Role::Assistant => message.made.as_ref().map(|m| m.model.as_str()).filter(|m| !m.is_empty()).unwrap_or("Model"),
    }
}

/// A time as people read it; nothing where it is not known.
fn date(ms: i64) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(ms).ok().filter(|_| ms > 0)?;
    Some(time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// The title, or what stands for it.
fn title(conversation: &Conversation) -> String {
    let title = conversation.title.as_deref().map(str::trim).filter(|t| !t.is_empty());
    crate::text::sanitise_line(title.unwrap_or("Conversation"))
}

/// Text made harmless for a terminal or a page; tabs stay.
fn clean(text: &str) -> String {
    text.split('\t').map(crate::text::sanitise).collect::<Vec<_>>().join("\t")
}

/// The messages that are shown and say something.
fn shown(conversation: &Conversation) -> Vec<&Message> {
    conversation.path().into_iter().filter(|m| !m.text.trim().is_empty()).collect()
}

/// What the reader does not see, in one sentence; nothing where there is nothing.
fn unseen(conversation: &Conversation) -> Option<String> {
    let hidden = conversation.messages.len() - conversation.path().len().min(conversation.messages.len());
    match hidden {
        0 => None,
        1 => Some("1 message on another branch is not shown.".to_owned()),
        n => Some(format!("{n} messages on other branches are not shown.")),
    }
}
