//! What can be undone: for each edit, how its part of the conversation was before. The history is in the journal
//! too, as marks between its entries, so that it is there again when the file is opened.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::conversation::{Conversation, Message, MessageId};
use super::cut::{Cut, Overflow};
use super::filing::Filing;
use super::journal::Entry;
use super::sampling::Sampling;

/// Edits that can be undone; older ones stay as they are.
const KEPT: usize = 200;
/// Bytes of what was before that are kept for them, so that no file can fill the memory; the last edit always is.
const KEPT_BYTES: usize = 64 << 20;
/// About what the record of a token takes.
const TOKEN_BYTES: usize = 200;

/// An edit of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// A question was sent.
    Question,
    /// A question is answered once more.
    Again,
    /// A question was taken back to be changed.
    Change,
    /// An answer goes on.
    Continue,
    /// An answer was taken otherwise from a token on.
    Reroll,
    /// The conversation goes on from an earlier point.
    Branch,
    /// A branch was deleted.
    Delete,
    /// A deleted branch was brought back.
    Restore,
    /// The title changed.
    Title,
    /// The system prompt changed.
    System,
    /// Settings changed.
    Settings,
    /// It is cut, or not any more.
    Cut,
    /// Something else happens when it does not fit.
    Overflow,
    /// It is filed otherwise.
    Filing,
    /// One of a newer program.
    #[serde(other)]
    Other,
}

impl Edit {
    /// As it is told.
    pub fn label(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Again => "another answer",
            Self::Change => "taking a question back",
            Self::Continue => "going on with an answer",
            Self::Reroll => "another token",
            Self::Branch => "going on from an earlier point",
            Self::Delete => "deleting a branch",
            Self::Restore => "bringing a branch back",
            Self::Title => "title",
            Self::System => "system prompt",
            Self::Settings => "settings",
            Self::Cut => "cut",
            Self::Overflow => "what a full context does",
            Self::Filing => "filing",
            Self::Other => "something of a newer program",
        }
    }

    /// Whether the question that is sent next belongs to it: undone are both at once.
    fn prepares(self) -> bool {
        matches!(self, Self::Change | Self::Branch)
    }
}

/// How the part that an edit changes was before it.
#[derive(Clone, Debug, PartialEq)]
enum Before {
    Tree {
        head: Option<MessageId>,
        /// Messages from this id on came with the edit.
        next: MessageId,
        deleted: BTreeSet<MessageId>,
        title: Option<String>,
        /// The message whose words the edit changes.
        message: Option<Box<Message>>,
    },
    Title(Option<String>),
    System(String),
    Settings(Box<Sampling>),
    Limits(Vec<Cut>, Overflow),
    Filing(Filing),
    Nothing,
}

#[derive(Clone, Debug, PartialEq)]
struct Step {
    what: Edit,
    before: Before,
    /// About how much memory it takes.
    bytes: usize,
}

impl Step {
    fn new(what: Edit, before: Before) -> Self {
        Self { what, bytes: before.bytes(), before }
    }
}

/// The newest edits are kept.
fn push(steps: &mut VecDeque<Step>, step: Step) {
    steps.push_back(step);
    let mut bytes: usize = steps.iter().map(|step| step.bytes).sum();
    while steps.len() > KEPT || (bytes > KEPT_BYTES && steps.len() > 1) {
        bytes -= steps.pop_front().map_or(0, |step| step.bytes);
    }
}

/// The edits of a conversation that can be undone, and those that can be done again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    done: VecDeque<Step>,
    undone: VecDeque<Step>,
}

impl History {
    /// Whether the question that is sent next needs no step of its own: the last edit made room for it.
    pub fn awaits_question(&self) -> bool {
        self.undone.is_empty() && self.done.back().is_some_and(|step| step.what.prepares())
    }
}

impl Conversation {
    /// The last edit, and the entries that undo it.
    pub fn undo(&self) -> Option<(Edit, Vec<Entry>)> {
        let step = self.history.done.back()?;
        Some((step.what, std::iter::once(Entry::Undo).chain(self.back_to(&step.before)).collect()))
    }

    /// The edit that was undone last, and the entries that do it again.
    pub fn redo(&self) -> Option<(Edit, Vec<Entry>)> {
        let step = self.history.undone.back()?;
        Some((step.what, std::iter::once(Entry::Redo).chain(self.back_to(&step.before)).collect()))
    }

    /// An edit begins.
    pub(super) fn step(&mut self, what: Edit, message: Option<MessageId>) {
        let step = Step::new(what, self.part(what, message));
        self.history.undone.clear();
        push(&mut self.history.done, step);
    }

    /// The entries that follow undo the last edit.
    pub(super) fn undone(&mut self) {
        if let Some(step) = self.history.done.pop_back() {
            let before = self.part(step.what, step.before.message());
            push(&mut self.history.undone, Step::new(step.what, before));
        }
    }

    /// The entries that follow do again what was undone last.
    pub(super) fn redone(&mut self) {
        if let Some(step) = self.history.undone.pop_back() {
            let before = self.part(step.what, step.before.message());
            push(&mut self.history.done, Step::new(step.what, before));
        }
    }

    /// How the part that an edit changes is now.
    fn part(&self, what: Edit, message: Option<MessageId>) -> Before {
        match what {
            Edit::Question
            | Edit::Again
            | Edit::Change
            | Edit::Continue
            | Edit::Reroll
            | Edit::Branch
            | Edit::Delete
            | Edit::Restore => Before::Tree {
                head: self.head,
                next: self.next_id(),
                deleted: self.deleted.clone(),
                title: self.title.clone(),
                message: message.and_then(|id| self.message(id)).cloned().map(Box::new),
            },
            Edit::Title => Before::Title(self.title.clone()),
            Edit::System => Before::System(self.system.clone()),
            Edit::Settings => Before::Settings(Box::new(self.sampling.clone())),
            Edit::Cut | Edit::Overflow => Before::Limits(self.cuts.clone(), self.overflow),
            Edit::Filing => Before::Filing(self.filing.clone()),
            Edit::Other => Before::Nothing,
        }
    }

    /// The entries that lead from how it is to how a part was. No message goes: one that was not there is deleted,
    /// which can be undone.
    fn back_to(&self, before: &Before) -> Vec<Entry> {
        let titled = |title: &Option<String>| Entry::Title { text: title.clone().unwrap_or_default() };
        match before {
            Before::Tree { head, next, deleted, title, message } => {
                let mut entries = Vec::new();
                if let Some(message) = message.as_deref().filter(|m| self.message(m.id) != Some(m)) {
                    entries.push(Entry::Message(message.clone()));
                }
                let came = |m: &&Message| m.id >= *next && m.parent.is_none_or(|p| p < *next);
                let came = self.messages.iter().filter(came).map(|m| m.id);
                let wanted: BTreeSet<MessageId> = deleted.iter().copied().chain(came).collect();
                entries.extend(self.deleted.difference(&wanted).map(|id| Entry::Restore { id: *id }));
                entries.extend(wanted.difference(&self.deleted).map(|id| Entry::Delete { id: *id }));
                // The first question gives a title; any other change of it is an edit of its own.
                if title.is_none() != self.title.is_none() {
                    entries.push(titled(title));
                }
                entries.push(Entry::Head { id: *head });
                entries
            }
            Before::Title(title) => vec![titled(title)],
            Before::System(text) => vec![Entry::System { text: text.clone() }],
            Before::Settings(sampling) => vec![Entry::Sampling { sampling: (**sampling).clone() }],
            Before::Limits(cuts, overflow) => {
                let gone = self.cuts.iter().map(|cut| Entry::Uncut { after: cut.after });
                let back = cuts.iter().cloned().map(Entry::Cut);
                gone.chain(back).chain([Entry::Overflow { overflow: *overflow }]).collect()
            }
            Before::Filing(filing) => vec![Entry::Filed(filing.clone())],
            Before::Nothing => Vec::new(),
        }
    }
}

impl Before {
    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Self::Tree { deleted, title, message, .. } => {
                let message = message.as_ref().map_or(0, |m| m.text.len() + m.tokens.len() * TOKEN_BYTES);
                deleted.len() * 2 * size_of::<MessageId>() + of(title) + message
            }
            Self::Title(title) => of(title),
            Self::System(text) => text.len(),
            Self::Settings(sampling) => serde_json::to_string(sampling).map_or(0, |text| text.len()),
            Self::Limits(cuts, _) => cuts.iter().map(|cut| size_of::<Cut>() + of(&cut.summary)).sum(),
            Self::Filing(filing) => filing.tags.iter().map(|tag| size_of::<String>() + tag.len()).sum(),
            Self::Nothing => 0,
        }
    }

    fn message(&self) -> Option<MessageId> {
        if let Self::Tree { message: Some(message), .. } = self { Some(message.id) } else { None }
    }
}

#[cfg(test)]
mod tests;
