//! Two alternatives side by side: what differs in their words, their settings and their figures.

use std::ops::Range;
use std::time::Duration;

use super::made::{how, seed, size};
use super::tokens::perplexity;
use super::{App, Focus};
use crate::chat::{KNOBS, Made, Message, MessageId, Role};
use crate::text::{Difference, Wrapped, difference};

/// The longest time that comparing words may take.
const PATIENCE: Duration = Duration::from_millis(150);
/// Columns between the two.
pub const BETWEEN: usize = 3;
/// Lines that do not scroll: what is compared, and which tries they are.
pub const HEAD: usize = 2;

/// Two messages side by side.
#[derive(Debug)]
pub struct Comparison {
    /// The left one and the right one.
    pub sides: [Side; 2],
    /// What is known of both.
    pub facts: Vec<Fact>,
    /// Words that both have, and words of each.
    pub alike: (usize, usize, usize),
    /// Lines that are scrolled away.
    pub top: usize,
}

/// One of the two.
#[derive(Debug)]
pub struct Side {
    /// The message.
    pub id: MessageId,
    /// Which try it is, and of how many.
    pub nth: (usize, usize),
    /// Its words.
    pub text: Wrapped,
    /// Bytes of them that the other one does not have.
    pub differs: Vec<Range<usize>>,
    columns: usize,
}

/// Something that is known of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What.
    pub label: &'static str,
    /// Of the left one, and of the right one.
    pub values: [String; 2],
}

impl Fact {
    /// Whether it tells the two apart.
    pub fn differs(&self) -> bool {
        self.values[0] != self.values[1]
    }
}

impl Comparison {
    /// Columns of each side on a screen of that width.
    pub fn columns(width: u16) -> usize {
        (usize::from(width).saturating_sub(BETWEEN) / 2).max(1)
    }

    /// Lines of what scrolls: facts, a line, the longer text.
    pub fn height(&self) -> usize {
        self.facts.len() + 1 + self.sides.iter().map(|s| s.text.height()).max().unwrap_or(0)
    }

    /// Lays the texts out for a screen of that width.
    pub(super) fn fit(&mut self, width: u16) {
        let columns = Self::columns(width);
        for side in self.sides.iter_mut().filter(|s| s.columns != columns) {
            side.columns = columns;
            side.text = Wrapped::new(side.text.text(), columns);
        }
    }
}

impl App {
    /// Compares the selected message with another try of it.
    pub(super) fn compare_selected(&mut self) {
        if let Some(id) = self.chat.transcript.selected {
            self.compare_tries(id);
        }
    }

    /// Compares the last answer with another try of it.
    pub(super) fn compare_last(&mut self) {
        let path = self.chat.conversation.path();
        let last = path.iter().rev().find(|m| m.role == Role::Assistant).or(path.last()).map(|m| m.id);
        match last {
            Some(id) => self.compare_tries(id),
            None => self.tell("There is no answer yet"),
        }
    }

    /// Compares a message with the try before it, or with the next one.
    pub(super) fn compare_tries(&mut self, id: MessageId) {
        let tries = self.chat.conversation.tries(id);
        let at = tries.iter().position(|t| *t == id).unwrap_or(0);
        match (at.checked_sub(1).and_then(|before| tries.get(before)), tries.get(at + 1)) {
            (Some(before), _) => self.compare(*before, id),
            (None, Some(after)) => self.compare(id, *after),
            (None, None) => self.tell("There is only one try of this message; r answers once more, e asks otherwise"),
        }
    }

    /// Puts two messages side by side.
    pub(super) fn compare(&mut self, left: MessageId, right: MessageId) {
        let columns = Comparison::columns(self.size.0);
        let conversation = &self.chat.conversation;
        let (Some(left), Some(right)) = (conversation.message(left), conversation.message(right)) else { return };
        let mut facts = facts(left, right);
        // Of two that are no tries of one place, what each stands behind.
        if left.parent != right.parent {
            let before = |m: &Message| m.parent.and_then(|p| conversation.message(p)).map(|p| p.text.trim().to_owned());
            let values = [left, right].map(|m| before(m).unwrap_or_default());
            facts.insert(0, Fact { label: "after", values });
        }
        let side = |message: &Message| {
            let tries = conversation.tries(message.id);
            let nth = tries.iter().position(|t| *t == message.id).unwrap_or(0) + 1;
            let text = Wrapped::new(message.text.trim(), columns);
            Side { id: message.id, nth: (nth, tries.len()), text, differs: Vec::new(), columns }
        };
        let (mut left, mut right) = (side(left), side(right));
        let found = difference(left.text.text(), right.text.text(), self.now.mono + PATIENCE);
        let Difference { left: only_left, right: only_right, alike, words } = found;
        (left.differs, right.differs) = (only_left, only_right);
        self.comparison = Some(Comparison { sides: [left, right], facts, alike: (alike, words.0, words.1), top: 0 });
        self.go(Focus::Compare);
    }

    /// Puts the try before or after in the place of the right one.
    pub(super) fn compare_other(&mut self, by: isize) {
        let Some([left, right]) = self.comparison.as_ref().map(|c| [c.sides[0].id, c.sides[1].id]) else { return };
        let tries: Vec<MessageId> = self.chat.conversation.tries(right).into_iter().filter(|t| *t != left).collect();
        let at = tries.iter().position(|t| *t == right).and_then(|at| at.checked_add_signed(by));
        match at.and_then(|at| tries.get(at)) {
            Some(other) => self.compare(left, *other),
            None => self.tell("No more tries that way"),
        }
    }

    pub(super) fn swap_comparison(&mut self) {
        if let Some([left, right]) = self.comparison.as_ref().map(|c| [c.sides[0].id, c.sides[1].id]) {
            self.compare(right, left);
        }
    }

    pub(super) fn scroll_comparison(&mut self, by: isize) {
        let room = self.areas().map_or(1, |a| usize::from(a.footer.y)).saturating_sub(HEAD).max(1);
        if let Some(comparison) = &mut self.comparison {
            let last = comparison.height().saturating_sub(room);
            comparison.top = comparison.top.min(last).saturating_add_signed(by).min(last);
        }
    }

    /// Goes on with the right one.
    pub(super) fn take_right(&mut self) {
        if let Some(id) = self.comparison.as_ref().map(|c| c.sides[1].id) {
            if self.chat.conversation.is_deleted(id) {
                self.tell("This is deleted; the tree brings it back");
            } else {
                self.show_message(id);
            }
        }
    }
}

/// What is known of two messages; where neither has something, it is left out.
fn facts(left: &Message, right: &Message) -> Vec<Fact> {
    let both = [left, right];
    let mut facts = Vec::new();
    let mut add = |label, values: [String; 2]| {
        if values.iter().any(|v| !v.is_empty()) {
            facts.push(Fact { label, values });
        }
    };
    let made = |of: &dyn Fn(&Made) -> String| both.map(|m| m.made.as_ref().map(of).unwrap_or_default());
    let known = |value: f64, text: String| if value > 0.0 { text } else { String::new() };
    add("size", both.map(size));
    add("model", made(&|m| m.model.clone()));
    add("made by", made(&how));
    add("seed", made(&|m| seed(m).map(|s| s.to_string()).unwrap_or_default()));
    add("end", made(&|m| m.finish.label().split(';').next().unwrap_or_default().to_owned()));
    add("prompt", made(&|m| format!("{} tok, {} read", m.usage.prompt_tokens, m.usage.fresh_tokens())));
    add("prefill", made(&|m| known(m.timings.prefill_ms, format!("{:.0} ms", m.timings.prefill_ms))));
    add("first", made(&|m| known(m.timings.ttft_ms, format!("after {:.0} ms", m.timings.ttft_ms))));
    add("speed", made(&|m| known(m.timings.tokens_per_second, format!("{:.1} tok/s", m.timings.tokens_per_second))));
    add("score", made(&|m| m.score.map(|s| format!("{s:.3}")).unwrap_or_default()));
    let surprise = |m: &Message| perplexity(m.tokens.iter().map(|t| t.logprob));
    add("ppl", both.map(|m| surprise(m).map(|p| format!("{p:.2}")).unwrap_or_default()));
    // Of all settings those that tell the two apart.
    if let (Some(left), Some(right)) = (&left.made, &right.made) {
        let (left, right) = (&left.sampling, &right.sampling);
        let differs = KNOBS.iter().filter(|spec| spec.format(left) != spec.format(right));
        differs.for_each(|spec| add(spec.label, [spec.format(left), spec.format(right)]));
        for (label, values) in [
            ("chain", [left.order_text(), right.order_text()]),
            ("bias", [left.bias_text(), right.bias_text()]),
            ("grammar", [left, right].map(|s| s.grammar.lines().next().unwrap_or_default().to_owned())),
        ] {
            if values[0] != values[1] {
                add(label, values);
            }
        }
    }
    facts
}
