//! The oldest turns in the model's own words: it reads them part by part, each time with its summary of the parts
//! before, so that every word is read whatever the context holds.

use std::collections::VecDeque;

use super::App;
use super::full::Full;
use crate::chat::{ConversationId, Finish, LoopGuard, Mode, Role, Sampling};
use crate::engine::protocol::{Prompt, Turn};

/// Tokens of the template and of what the model is told, at most.
const AROUND: u32 = 96;
/// Tokens of a part that its turns may take by their count: alone they are split a little differently.
const SURE: f64 = 0.85;

/// A summary on its way.
#[derive(Debug)]
pub(super) struct Summary {
    full: Full,
    turns: usize,
    /// What is still to be read.
    parts: VecDeque<String>,
    all: usize,
    /// The summary of what was read; empty at the beginning.
    before: String,
    /// What is being written.
    pub(super) text: String,
}

impl Summary {
    /// What the model is asked for the next part.
    pub(super) fn prompt(&self) -> Prompt {
        let words = self.full.summary_tokens() / 2;
        let before = match self.before.as_str() {
            "" => String::new(),
            before => format!("\nWhat was said before it, already summarised; keep that too:\n{before}\n"),
        };
        let part = self.parts.front().map(String::as_str).unwrap_or_default();
        let text = format!(
            "Summarise the conversation below between a user and an assistant in at most {words} words. \
             Keep facts, names, numbers, decisions and open questions. Add nothing.\n{before}\n\
             The conversation:\n{part}"
        );
        Prompt::Chat { system: String::new(), turns: vec![Turn { role: Role::User, text }] }
    }

    /// How its tokens are chosen.
    pub(super) fn sampling(&self) -> Sampling {
        let max_tokens = self.full.summary_tokens();
        Sampling { mode: Mode::Greedy, max_tokens, loop_guard: LoopGuard::Stop, ..Sampling::default() }
    }

    fn told(&self) -> String {
        let part = self.all - self.parts.len() + 1;
        let part = if self.all > 1 { format!(", part {part} of {}", self.all) } else { String::new() };
        format!("The oldest {} messages are being summarised{part}; Esc stops it", self.turns)
    }
}

impl App {
    /// Has the model summarise the first turns; the cut is made when the summary is there.
    pub(super) fn summarise(&mut self, full: Full, turns: usize) {
        let room = full.n_ctx().saturating_sub(2 * full.summary_tokens() + AROUND);
        let Some(chat) = self.chat_mut(&full.chat) else { return };
        // As it was sent: with the words of files, and not with their marks.
        let text =
            |id| chat.conversation.message(id).map(|m| chat.conversation.spoken(m.text.trim())).unwrap_or_default();
        let said: Vec<_> = full.first(turns).iter().map(|(id, role, tokens)| (*role, text(*id), *tokens)).collect();
        let said = said.iter().map(|(role, text, tokens)| (*role, text.as_ref(), *tokens));
        let parts = parts(said, (f64::from(room) * SURE) as u32);
        let path = chat.conversation.path_to(full.message);
        let before = chat.conversation.cut_on(&path).and_then(|(_, cut)| cut.summary.clone()).unwrap_or_default();
        let summary = Summary { all: parts.len(), full, turns, parts: parts.into(), before, text: String::new() };
        self.ask_for(summary);
    }

    fn ask_for(&mut self, summary: Summary) {
        let (chat, message) = (summary.full.chat.clone(), summary.full.message);
        self.tell_on(summary.told());
        self.ask_summary(chat, message, Box::new(summary));
    }

    /// The model has written what it was asked for.
    pub(super) fn summarised(&mut self, finish: Finish) {
        let Some(mut job) = self.engine.job.take() else { return };
        let Some(mut summary) = job.summary.take() else { return };
        let text = std::mem::take(&mut summary.text).trim().to_owned();
        if finish == Finish::Cancelled {
            self.not_summarised(&job.chat, "The summary was stopped; nothing has changed");
        } else if text.is_empty() {
            self.not_summarised(&job.chat, "The model wrote no summary; nothing has changed");
        } else {
            summary.parts.pop_front();
            summary.before = text;
            if summary.parts.is_empty() {
                self.cut(&summary.full, summary.turns, Some(summary.before));
            } else {
                self.ask_for(*summary);
            }
        }
        self.let_go(&job.chat);
    }

    pub(super) fn not_summarised(&mut self, chat: &ConversationId, why: &str) {
        self.give_back_queued(chat);
        self.error(why.to_owned());
    }
}

/// The turns as text, in parts of at most so many tokens. A turn longer than a part is taken apart.
fn parts<'a>(turns: impl Iterator<Item = (Role, &'a str, u32)>, room: u32) -> Vec<String> {
    let room = room.max(1) as usize;
    let mut parts: Vec<(usize, String)> = Vec::new();
    for (role, text, tokens) in turns {
        let name = if role == Role::Assistant { "Assistant" } else { "User" };
        let pieces = (tokens as usize).div_ceil(room).max(1);
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(chars.len().div_ceil(pieces).max(1)) {
            let said = format!("{name}: {}", piece.iter().collect::<String>());
            let tokens = (tokens as usize).div_ceil(pieces);
            match parts.last_mut().filter(|(used, _)| used + tokens <= room) {
                Some((used, part)) => {
                    *used += tokens;
                    *part += "\n\n";
                    *part += &said;
                }
                None => parts.push((tokens, said)),
            }
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_in_one_part_and_no_part_is_longer_than_its_room() {
        let long: String = (0..500).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
        let turns = [(Role::User, "short", 5), (Role::Assistant, long.as_str(), 100), (Role::User, "last", 5)];
        let parts = parts(turns.into_iter(), 40);
        let said = parts.join("\n\n").replace("\n\nAssistant: ", "");
        assert_eq!(said, format!("User: short{long}\n\nUser: last"));
        assert!(parts.len() >= 3, "{parts:?}");
        assert!(parts.iter().all(|p| p.len() <= 40 * 5 + 30), "five letters a token: {parts:?}");
    }

    #[test]
    fn what_fits_is_one_part() {
        let turns = [(Role::User, "one", 5), (Role::Assistant, "two", 5)];
        assert_eq!(parts(turns.into_iter(), 40), ["User: one\n\nAssistant: two"]);
    }
}
