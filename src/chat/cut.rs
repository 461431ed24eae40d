//! What is sent of a conversation that is longer than the context: its path from a cut on. What stands before
//! the cut stays in the file and on the screen.

use serde::{Deserialize, Serialize};

use super::conversation::{Conversation, Message, MessageId};

/// What happens when a conversation does not fit into the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// The person is asked.
    #[default]
    Ask,
    /// The oldest turns are not sent any more.
    Drop,
    /// The model writes a summary, which is sent in the place of the oldest turns.
    Summarise,
    /// The model is loaded again with a larger context.
    Larger,
}

impl Overflow {
    /// Every one, in the order in which they are offered.
    pub const ALL: [Self; 4] = [Self::Ask, Self::Drop, Self::Summarise, Self::Larger];

    /// The name as it is typed, saved and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Drop => "drop",
            Self::Summarise => "summarise",
            Self::Larger => "larger",
        }
    }

    /// The one of that name.
    ///
    /// # Errors
    /// Says what was given and what there is.
    pub fn named(text: &str) -> Result<Self, String> {
        let text = text.trim().to_lowercase().replace("summarize", "summarise");
        Self::ALL.into_iter().find(|o| o.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("overflow is '{text}'; it must be one of {names}")
        })
    }
}

/// A place from which on a conversation is sent. It counts on every path on which something follows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The last message that is left out; those before it on the path are left out too.
    pub after: MessageId,
    /// Tokens of all that is left out, as they were counted when the cut was made.
    pub tokens: u32,
    /// What the model wrote to stand for what is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// What is sent of a path.
#[derive(Debug)]
pub struct Sent<'a> {
    /// The system prompt, the summary behind it where there is one; empty for none.
    pub system: String,
    /// The messages, oldest first.
    pub messages: Vec<&'a Message>,
}

impl Conversation {
    /// The last cut on a path, and how many messages of the path it leaves out.
    pub fn cut_on(&self, path: &[&Message]) -> Option<(usize, &Cut)> {
        if self.cuts.is_empty() {
            return None;
        }
        // The last message is never left out: nothing would be there to answer.
        let before = &path[..path.len().saturating_sub(1)];
        before.iter().enumerate().rev().find_map(|(i, m)| Some((i + 1, self.cuts.iter().find(|c| c.after == m.id)?)))
    }

    /// What is sent of the path to a message, it included.
    pub fn sent_to(&self, last: MessageId) -> Sent<'_> {
        let mut messages = self.path_to(last);
        let cut = self.cut_on(&messages);
        let summary = cut.and_then(|(_, cut)| cut.summary.as_deref());
        let summary = summary.map(|s| format!("Summary of the conversation before:\n{s}"));
        let system = Some(self.system.clone()).filter(|s| summary.is_none() || !s.trim().is_empty());
        let system = system.into_iter().chain(summary).collect::<Vec<_>>().join("\n\n");
        messages.drain(..cut.map_or(0, |(n, _)| n));
        Sent { system, messages }
    }

    /// A cut was made; one at the same place is replaced. One after a message that is not there counts nowhere.
    pub(super) fn cut(&mut self, cut: Cut) {
        self.uncut(cut.after);
        self.cuts.push(cut);
    }

    /// The cut after that message was undone.
    pub(super) fn uncut(&mut self, after: MessageId) {
        self.cuts.retain(|c| c.after != after);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chat::{ConversationId, Entry, Role, Sampling};

    /// Questions and answers in a line, ids from 1 on.
    fn line(n: MessageId) -> Conversation {
        let mut c = Conversation::new(ConversationId::new(1, 1), 0, Sampling::default());
        c.system = "Be brief.".into();
        for id in 1..=n {
            let role = if id % 2 == 1 { Role::User } else { Role::Assistant };
            let parent = (id > 1).then_some(id - 1);
            c.apply(&Entry::Message(Message::new(id, parent, role, format!("text {id}"), 0)));
        }
        c
    }

    fn cut(after: MessageId, summary: Option<&str>) -> Entry {
        Entry::Cut(Cut { after, tokens: 10, summary: summary.map(str::to_owned) })
    }

    fn sent(c: &Conversation, last: MessageId) -> Vec<MessageId> {
        c.sent_to(last).messages.iter().map(|m| m.id).collect()
    }

    #[test]
    fn a_cut_counts_on_every_path_that_goes_on_after_it_and_can_be_undone() {
        let mut c = line(7);
        c.apply(&cut(2, None));
        c.apply(&cut(4, None));
        assert_eq!(sent(&c, 7), [5, 6, 7]);
        assert_eq!(sent(&c, 4), [3, 4], "what is to be gone on with is sent");
        assert_eq!(sent(&c, 2), [1, 2]);
        // Another try of what follows the cut has it too; another try of what it leaves out does not.
        c.apply(&Entry::Message(Message::new(8, Some(4), Role::User, "another", 0)));
        assert_eq!(sent(&c, 8), [8]);
        c.apply(&Entry::Message(Message::new(9, Some(1), Role::Assistant, "another", 0)));
        assert_eq!(sent(&c, 9), [1, 9]);
        c.apply(&Entry::Uncut { after: 4 });
        assert_eq!(sent(&c, 7), [3, 4, 5, 6, 7]);
        c.apply(&Entry::Uncut { after: 2 });
        assert_eq!(sent(&c, 7).len(), 7);
    }

    #[test]
    fn a_summary_stands_behind_the_system_prompt() {
        let mut c = line(5);
        c.apply(&cut(4, Some("They spoke of foxes.")));
        assert_eq!(c.sent_to(5).system, "Be brief.\n\nSummary of the conversation before:\nThey spoke of foxes.");
        c.system.clear();
        assert_eq!(c.sent_to(5).system, "Summary of the conversation before:\nThey spoke of foxes.");
        assert_eq!(c.sent_to(4).system, "");
    }

    #[test]
    fn names_are_read_and_others_refused() {
        for overflow in Overflow::ALL {
            assert_eq!(Overflow::named(overflow.name()), Ok(overflow));
        }
        assert_eq!(Overflow::named("Summarize"), Ok(Overflow::Summarise));
        assert_eq!(
            Overflow::named("shift").unwrap_err(),
            "overflow is 'shift'; it must be one of ask, drop, summarise, larger"
        );
    }

    proptest! {
        /// Whatever is cut: system prompt and the newest messages are sent, and the fold holds every message.
        #[test]
        fn a_cut_keeps_the_system_prompt_and_the_newest_and_loses_nothing(
            n in 1u32..30,
            cuts in proptest::collection::vec((1u32..40, any::<bool>()), 0..8),
        ) {
            let whole = line(n);
            let mut c = whole.clone();
            let mut lines = Vec::new();
            for (after, undone) in cuts {
                let entry = if undone { Entry::Uncut { after } } else { cut(after, None) };
                lines.push(serde_json::to_string(&entry).unwrap());
                c.apply(&entry);
            }
            prop_assert_eq!(&c.messages, &whole.messages);
            let now = c.sent_to(n);
            prop_assert!(now.system.starts_with("Be brief."));
            let ids: Vec<MessageId> = now.messages.iter().map(|m| m.id).collect();
            let first = c.cuts.iter().map(|cut| cut.after).filter(|after| *after < n).max().unwrap_or(0) + 1;
            prop_assert_eq!(ids, (first..=n).collect::<Vec<_>>());
            // What was written says the same when it is read again.
            let mut read = whole;
            lines.iter().for_each(|l| read.apply(&serde_json::from_str(l).unwrap()));
            prop_assert_eq!(read, c);
        }
    }
}
