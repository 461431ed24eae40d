//! A conversation as another program names it, on its way to one of ours.

use std::collections::BTreeMap;

use crate::chat::{
    Conversation, ConversationId, Finish, Knob, Made, Message, MessageId, Role, Sampling, Timings, Usage,
};

use super::found::{self, Found};
use super::graft::{self, Node};

/// Where a conversation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This program.
    Own,
    /// llama.cpp's web page.
    WebUi,
    /// `ChatGPT`.
    OpenAi,
    /// LM Studio.
    LmStudio,
    /// oterm.
    Oterm,
    /// aichat.
    Aichat,
    /// `ShareGPT`.
    ShareGpt,
    /// Chat messages, whoever wrote them.
    Messages,
}

impl Source {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "llmchat",
            Self::WebUi => "llama.cpp",
            Self::OpenAi => "ChatGPT",
            Self::LmStudio => "LM Studio",
            Self::Oterm => "oterm",
            Self::Aichat => "aichat",
            Self::ShareGpt => "ShareGPT",
            Self::Messages => "messages",
        }
    }
}

/// What cannot come in, singular and plural.
pub(super) struct Lost;

impl Lost {
    pub const IMAGES: [&str; 2] = ["image", "images"];
    pub const SOUNDS: [&str; 2] = ["recording", "recordings"];
    pub const FILES: [&str; 2] = ["file", "files"];
    pub const TOOLS: [&str; 2] = ["tool call or result", "tool calls and results"];
    pub const SYSTEM: [&str; 2] = ["later system message", "later system messages"];
    pub const HIDDEN: [&str; 2] = ["hidden message", "hidden messages"];
    pub const THOUGHTS: [&str; 2] = ["summary of a thought", "summaries of thoughts"];
    pub const OTHER: [&str; 2] = ["part of an unknown kind", "parts of unknown kinds"];

    /// What a kind's name means.
    pub fn of_kind(kind: &str) -> [&'static str; 2] {
        let kind = kind.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|w| kind.contains(w));
        match () {
            () if has(&["image"]) => Self::IMAGES,
            () if has(&["audio", "video"]) => Self::SOUNDS,
            () if has(&["file", "pdf", "document"]) => Self::FILES,
            () if has(&["tool", "function"]) => Self::TOOLS,
            () => Self::OTHER,
        }
    }
}

/// What of a conversation cannot come in.
#[derive(Debug, Default)]
pub(super) struct Losses {
    counts: BTreeMap<[&'static str; 2], usize>,
    notes: Vec<String>,
}

impl Losses {
    pub fn count(&mut self, what: [&'static str; 2], n: usize) {
        if n > 0 {
            *self.counts.entry(what).or_default() += n;
        }
    }

    pub fn note(&mut self, sentence: String) {
        self.notes.push(sentence);
    }

    fn told(self) -> Vec<String> {
        let counted =
            self.counts.into_iter().map(|([one, many], n)| format!("{n} {}", if n == 1 { one } else { many }));
        counted.chain(self.notes).collect()
    }
}

/// What an answer's figures are known to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub usage: Usage,
    pub timings: Timings,
}

/// A message that can come in.
#[derive(Clone, Debug)]
pub(super) struct Words {
    pub role: Role,
    pub text: String,
    pub model: Option<String>,
    pub figures: Figures,
}

/// A conversation before its messages have numbers.
pub(super) struct Draft {
    pub source: Source,
    /// What it is called where it comes from; none where it has no name of its own.
    pub key: Option<String>,
    pub title: Option<String>,
    pub created: i64,
    pub system: String,
    /// Settings: the name of a slider and its value.
    pub settings: Vec<(&'static str, String)>,
    pub nodes: Vec<Node>,
    /// The last message that was shown.
    pub head: Option<String>,
    pub lost: Losses,
}

impl Draft {
    pub fn new(source: Source) -> Self {
        let (key, title, head) = (None, None, None);
        let (system, lost) = (String::new(), Losses::default());
        Self { source, key, title, created: 0, system, settings: Vec::new(), nodes: Vec::new(), head, lost }
    }

    /// A message behind the last one, by the role's name.
    pub fn say(&mut self, role: &str, text: String, at: i64, model: Option<String>) {
        let parent = self.nodes.last().map(|n| n.key.clone());
        let words = self.words(role, text, model);
        self.nodes.push(Node { key: self.nodes.len().to_string(), parent, words, at });
    }

    /// What a message says, if it can come in: the first system message is the system prompt, and what is neither
    /// asked nor answered is counted as lost.
    pub fn words(&mut self, role: &str, text: String, model: Option<String>) -> Option<Words> {
        let empty = text.trim().is_empty();
        let role = match role.trim().to_lowercase().as_str() {
            "user" | "human" | "me" | "prompter" => Role::User,
            "assistant" | "gpt" | "model" | "bot" | "ai" | "chatgpt" | "ollama" | "bing" | "bard" => Role::Assistant,
            "system" | "developer" => {
                if self.system.trim().is_empty() {
                    self.system = text;
                } else if !empty && self.system != text {
                    self.lost.count(Lost::SYSTEM, 1);
                }
                return None;
            }
            "tool" | "function" | "observation" | "function_call" => {
                self.lost.count(Lost::TOOLS, 1);
                return None;
            }
            _ => {
                self.lost.count(Lost::OTHER, usize::from(!empty));
                return None;
            }
        };
        (!empty).then_some(Words { role, text, model, figures: Figures::default() })
    }

    /// The conversation, with the settings of a new one below its own.
    ///
    /// # Errors
    /// If nothing is said in it.
    pub fn finish(mut self, base: &Sampling) -> Result<Found, String> {
        let grafted = graft::graft(&self.nodes);
        if grafted.messages.is_empty() {
            let title = self.title.as_deref().and_then(found::title_line);
            let name = title.map_or_else(|| "it".to_owned(), |title| format!("“{title}”"));
            return Err(format!("nothing is said in {name}"));
        }
        if grafted.circles > 0 {
            self.lost.note(format!("{} messages follow each other in a circle, which was cut", grafted.circles));
        }
        if grafted.orphans > 0 {
            self.lost.note(format!("{} messages follow one that is not there; they begin a branch", grafted.orphans));
        }
        let mut sampling = base.clone();
        for (name, value) in &self.settings {
            let set = Knob::named(name).map(|knob| knob.spec().parse(&mut sampling, value));
            if let Some(Err(error)) = set {
                self.lost.note(format!("a setting: {error}"));
            }
        }
        let answer = |words: &Words| Made {
            usage: words.figures.usage,
            timings: words.figures.timings,
            ..Made::new(words.model.as_deref().unwrap_or(self.source.name()), sampling.clone(), Finish::Stop)
        };
        let messages: Vec<Message> = grafted
            .messages
            .iter()
            .map(|(id, parent, words, at)| Message {
                made: (words.role == Role::Assistant).then(|| answer(words)),
                ..Message::new(*id, *parent, words.role, words.text.as_str(), *at)
            })
            .collect();
        let head: Option<MessageId> =
            self.head.and_then(|key| grafted.ids.get(&key).copied().flatten()).or(messages.last().map(|m| m.id));
        let first = messages.iter().map(|m| m.at).filter(|at| *at > 0).min().unwrap_or(0);
        let created = if self.created > 0 { self.created } else { first };
        let question = messages.iter().find(|m| m.role == Role::User).unwrap_or(&messages[0]);
        let title = self.title.as_deref().and_then(found::title_line).or_else(|| found::title_line(&question.text));
        let system = if self.system.trim().is_empty() { String::new() } else { self.system };
        // The id comes last: it is made from what is there.
        let unnamed = ConversationId::new(0, 0);
        let conversation =
            Conversation { title, system, messages, head, ..Conversation::new(unnamed, created, sampling) };
        Ok(Found::new(self.source, self.key, conversation, self.lost.told()))
    }
}
