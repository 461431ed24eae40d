//! What is told of the KV cache.

use serde::{Deserialize, Serialize};

use crate::chat::Role;

/// Why no more of what the cache holds was reused for a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// The texts differ from there on.
    Changed,
    /// The text is the same, but was written in other tokens than it is read in.
    OtherTokens,
    /// The sliding window before that point is gone.
    WindowGone,
    /// The state of this model is one piece, which cannot be cut back.
    Whole,
    /// The cache was not what the ledger says, and was cleared.
    Untrusted,
}

impl Because {
    /// In the few words that a panel has room for.
    pub fn text(self) -> &'static str {
        match self {
            Self::Changed => "text differs there",
            Self::OtherTokens => "other tokens there",
            Self::WindowGone => "window is gone",
            Self::Whole => "state is one piece",
            Self::Untrusted => "cache was in doubt",
        }
    }
}

/// KV cells of a prompt or answer by whose they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cells {
    /// Of the system prompt and the template before the first turn.
    pub system: u32,
    /// Of the person's turns.
    pub user: u32,
    /// Of the model's turns, the running answer among them; in a beam search, of all its beams.
    pub assistant: u32,
    /// Of what lies beside the conversation: a search's other answers.
    #[serde(default)]
    pub others: u32,
}

impl Cells {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.system + self.user + self.assistant + self.others
    }

    /// The same of a cache in which so many cells are in use: those of no role are others'.
    #[must_use]
    pub fn among(self, used: u32) -> Self {
        Self { others: used.saturating_sub(self.system + self.user + self.assistant), ..self }
    }

    /// Those of one role.
    pub fn of(&mut self, role: Role) -> &mut u32 {
        match role {
            Role::System => &mut self.system,
            Role::User => &mut self.user,
            Role::Assistant => &mut self.assistant,
        }
    }
}

/// Who holds which cells of the cache, and what is kept outside: the sequence at work first, then those that begin
/// most like the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheMap {
    /// Cells that there are.
    pub n_ctx: u32,
    /// Cells that any sequence holds.
    pub used: u32,
    /// Whose the tokens of the sequence at work are, message by message.
    pub parts: Vec<(Role, u32)>,
    /// The sequences, in the cache and kept outside of it.
    pub held: Vec<Held>,
    /// Bytes of memory for what is kept outside.
    pub memory: u64,
    /// Bytes of files.
    pub files: u64,
}

impl CacheMap {
    /// The share of the reserved cells that hold nothing, 0 to 1: in this cache, and if each sequence had one of its own.
    #[must_use]
    pub fn waste(&self) -> (f64, f64) {
        let empty = |used: u64, all: u64| if all == 0 { 0.0 } else { 1.0 - used as f64 / all as f64 };
        let tokens = self.held.iter().map(|h| u64::from(h.tokens)).sum();
        let all = u64::from(self.n_ctx);
        (empty(u64::from(self.used), all), empty(tokens, all * self.held.len() as u64))
    }
}

/// A sequence of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Its id.
    pub seq: u32,
    /// What it is.
    pub holder: Holder,
    /// Its tokens.
    pub tokens: u32,
    /// How many of the first of them a sequence before it in the list has too.
    pub shared: u32,
    /// Tokens whose cells or bytes would be free without it.
    pub own: u32,
    /// How many prompts ago it was at work; `None` before this run.
    pub age: Option<u64>,
    /// It goes last.
    pub pinned: bool,
    /// How the part begins that is not shared.
    pub text: String,
}

/// What a sequence of the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// It is being read and written, or was last.
    Main,
    /// A beam, or one of the answers of a search.
    Branch,
    /// An earlier prompt left it, and it is in memory outside of the cache.
    Memory,
    /// The same, some of it in files.
    File,
}

impl Holder {
    /// Whether it is in the cache.
    pub fn is_cell(self) -> bool {
        matches!(self, Self::Main | Self::Branch)
    }
}
