//! Showing the cache and what is kept of it, and deciding by hand what stays.

use super::Session;
use crate::chat::Role;
use crate::engine::protocol::{CacheMap, EngineEvent, Held, Holder};
use crate::engine::sequences::{MAIN, SeqId, Token, common};
use crate::engine::states::FIRST_ID;

/// Tokens whose text tells what a sequence is.
const TOLD: usize = 24;
/// Most lines that are told.
const LINES: usize = 100;

/// A sequence of tokens with what is known of it.
struct Line {
    seq: u32,
    holder: Holder,
    tokens: Vec<Token>,
    /// Tokens that only it has.
    own: usize,
    age: Option<u64>,
    pinned: bool,
}

impl Session<'_> {
    /// Tells who holds which cells, and what is kept outside.
    pub(super) fn tell_map(&self) {
        let (memory, files) = self.states.bytes();
        (self.sink)(EngineEvent::Map(CacheMap {
            n_ctx: self.context.n_ctx(),
            used: number(self.ledger.used()),
            parts: self.messages(),
            held: arrange(self.lines(), |seq, tokens, shared| self.label(seq, tokens, shared)),
            memory,
            files,
        }));
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        for seq in self.ledger.sequences() {
            let holder = if seq == MAIN { Holder::Main } else { Holder::Branch };
            let tokens = self.ledger.all_tokens(seq);
            lines.push(Line { seq, holder, tokens, own: self.ledger.own(seq), age: Some(0), pinned: false });
        }
        lines.retain(|line| !line.tokens.is_empty());
        for kept in self.states.lines().into_iter().take(LINES) {
            // What is in the cache too is told once, if nobody has said that it is to stay.
            let there = lines.iter().any(|line| line.holder.is_cell() && line.tokens.starts_with(&kept.tokens));
            if !there || kept.pinned {
                let holder = if kept.filed { Holder::File } else { Holder::Memory };
                let (seq, own, age, pinned) = (kept.id, kept.own, kept.age, kept.pinned);
                lines.push(Line { seq, holder, tokens: kept.tokens, own, age, pinned });
            }
        }
        lines
    }

    /// Tokens of the system prompt of the sequence at work.
    pub(super) fn system(&self) -> usize {
        self.parts.first().filter(|(role, _)| *role == Role::System).map_or(0, |(_, n)| *n as usize)
    }

    /// A sequence by what was said in it: from the beginning of the turn on in which it parts from the others, the one
    /// at work from the first question on. Of one that parts nowhere, the end.
    fn label(&self, seq: SeqId, tokens: &[Token], shared: usize) -> String {
        // A control token as a character that no text has.
        let text = |tokens: &[Token]| {
            let bytes = tokens.iter().flat_map(|t| self.vocabulary.plain(*t).unwrap_or_else(|| vec![CONTROL as u8]));
            words(&String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()))
        };
        let end = tokens.len();
        let mark = |t: &Token| self.vocabulary.plain(*t).is_none();
        let turn = tokens[..shared].iter().rposition(mark).filter(|at| at + TOLD > shared).unwrap_or(shared);
        let from = if seq == MAIN { self.system().min(end) } else { turn };
        let said = if seq != MAIN && shared == end { String::new() } else { text(&tokens[from..end.min(from + TOLD)]) };
        if said.is_empty() { format!("… {}", text(&tokens[end.saturating_sub(TOLD)..])) } else { said }
    }

    /// Whose the tokens of the sequence at work are, message by message.
    fn messages(&self) -> Vec<(Role, u32)> {
        let mut left = number(self.ledger.len());
        let mut messages: Vec<(Role, u32)> = Vec::new();
        for (role, n) in self.parts.iter().copied().chain([(Role::Assistant, u32::MAX)]) {
            let n = n.min(left);
            left -= n;
            match messages.last_mut() {
                Some((last, sum)) if *last == role => *sum += n,
                _ if n > 0 => messages.push((role, n)),
                _ => {}
            }
        }
        messages
    }

    /// Gives a sequence up, in the cache or outside; not the one that an answer is being written in.
    pub(super) fn drop_sequence(&mut self, seq: SeqId) {
        if seq >= FIRST_ID {
            let filed = self.states.give_up(seq).unwrap_or_default();
            self.remove_files(filed);
        } else if seq == MAIN && self.job.is_none() {
            self.ledger.clear(&mut self.context);
            self.has_logits = false;
        }
        self.tell_map();
    }

    /// Keeps a sequence until nothing else can go, or no longer. What is kept of the one at work is what it holds now.
    pub(super) fn pin(&mut self, seq: SeqId) {
        if seq == MAIN {
            self.keep(MAIN);
            let tokens = self.ledger.tokens();
            if let Some(id) = self.states.line_of(tokens) {
                self.states.pin(id);
            }
        } else {
            self.states.pin(seq);
        }
        self.tell_map();
    }
}

/// Where a text has a control token.
const CONTROL: char = '\0';

/// What was said in a text with the marks of a template: without them, and without the role that stands behind one.
fn words(text: &str) -> String {
    const ROLES: [&str; 5] = ["system", "user", "assistant", "model", "tool"];
    let said = text.split(CONTROL).map(|part| match part.split_once('\n').unwrap_or((part, "")) {
        (role, rest) if ROLES.contains(&role.trim()) => rest.trim(),
        _ => part.trim(),
    });
    said.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The sequence at work first, then always the one that begins most like the one before.
fn arrange(mut left: Vec<Line>, label: impl Fn(SeqId, &[Token], usize) -> String) -> Vec<Held> {
    let mut before: Vec<Vec<Token>> = Vec::new();
    let mut held = Vec::new();
    while !left.is_empty() {
        let next = before.last().map_or(0, |last| {
            // The first of equals: they come by their last use.
            let most = left.iter().map(|line| common(last, &line.tokens)).max().unwrap_or(0);
            left.iter().position(|line| common(last, &line.tokens) == most).unwrap_or(0)
        });
        let line = left.remove(next);
        let shared = before.iter().map(|b| common(b, &line.tokens)).max().unwrap_or(0);
        held.push(Held {
            seq: line.seq,
            holder: line.holder,
            tokens: number(line.tokens.len()),
            shared: number(shared),
            own: number(line.own),
            age: line.age,
            pinned: line.pinned,
            text: label(line.seq, &line.tokens, shared),
        });
        before.push(line.tokens);
    }
    held
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_drawn_once_below_what_it_is_shared_with() {
        let line = |seq, tokens: &[Token]| Line {
            seq,
            holder: if seq == MAIN { Holder::Main } else { Holder::Memory },
            tokens: tokens.to_vec(),
            own: 1,
            age: None,
            pinned: false,
        };
        let lines =
            vec![line(0, &[1, 2, 5, 5]), line(1000, &[5, 5, 5]), line(1001, &[1, 2, 3, 4, 5, 1]), line(1002, &[1, 2])];
        let held = arrange(lines, |_, tokens, shared| format!("{:?}", &tokens[shared..]));
        let facts: Vec<_> = held.iter().map(|h| (h.seq, h.tokens, h.shared, h.text.as_str())).collect();
        assert_eq!(
            facts,
            [(0, 4, 0, "[1, 2, 5, 5]"), (1001, 6, 2, "[3, 4, 5, 1]"), (1002, 2, 2, "[]"), (1000, 3, 0, "[5, 5, 5]")]
        );
    }

    #[test]
    fn a_sequence_is_told_by_what_was_said() {
        assert_eq!(words("\0system\nBe brief.\0\n\0user\nWhy is\nthe sky"), "Be brief. Why is\nthe sky");
        assert_eq!(words("\0model\n\0assistant"), "");
        assert_eq!(words("\0user\0\n\nmodel trains"), "model trains");
        assert_eq!(words("users come"), "users come");
    }
}
