//! The messages as lines: wrapped once, kept, and found again by their place.

use std::collections::HashMap;

use super::chat::mark;
use crate::chat::{Conversation, Message, MessageId, Role};
use crate::text::Wrapped;

/// Columns that the text of a message is set in by.
pub const INDENT: u16 = 2;
/// Lines of a message beside its text: its head, and a blank one after it.
const AROUND: usize = 2;
/// Lines of a cut after a message: the line itself, and a blank one after it.
const CUT: usize = 2;

/// Where the view of the messages stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scroll {
    /// At the end; new text moves it.
    #[default]
    Follow,
    /// This line of this message is the first one shown; new text does not move it.
    At(MessageId, usize),
}

/// The lines of the path that is shown.
#[derive(Debug, Default)]
pub struct Transcript {
    /// What is selected, if the focus is here.
    pub selected: Option<MessageId>,
    scroll: Scroll,
    columns: usize,
    blocks: HashMap<MessageId, Block>,
    /// The path, and the line on which each message begins.
    path: Vec<(MessageId, usize)>,
    /// The message after which the line of a cut stands.
    cut: Option<MessageId>,
    lines: usize,
}

#[derive(Debug)]
struct Block {
    wrapped: Wrapped,
    /// Bytes of the message's text that are in it.
    taken: usize,
}

/// What a line of the view shows.
#[derive(Debug, PartialEq, Eq)]
pub enum Row<'a> {
    /// The head of a message.
    Head(MessageId),
    /// A line of its text.
    Text(MessageId, &'a str),
    /// The line after it: how it ended, where that is to be said.
    Foot(MessageId),
    /// The line of a cut.
    Cut,
    /// A blank line.
    Gap,
}

impl Transcript {
    /// Brings the lines up to date. Only what changed is wrapped: an answer that grows, its last line.
    pub fn update(&mut self, conversation: &Conversation, columns: usize) {
        if columns != self.columns {
            self.blocks.clear();
            self.columns = columns;
        }
        let text_columns = columns.saturating_sub(usize::from(INDENT)).max(1);
        self.path.clear();
        let mut line = 0;
        let path = conversation.path();
        self.cut = conversation.cut_on(&path).map(|(_, cut)| cut.after);
        for message in &path {
            self.path.push((message.id, line));
            line += AROUND + self.block(message, text_columns);
            line += if self.cut == Some(message.id) { CUT } else { 0 };
        }
        // The last line is only there where it says something.
        let marked = path.last().is_some_and(|m| mark(m).is_some());
        self.lines = if marked { line } else { line.saturating_sub(1) };
        if let Scroll::At(id, _) = self.scroll
            && self.start(id).is_none()
        {
            self.scroll = Scroll::Follow;
        }
        if self.selected.is_some_and(|id| self.start(id).is_none()) {
            self.selected = self.path.last().map(|(id, _)| *id);
        }
    }

    fn block(&mut self, message: &Message, columns: usize) -> usize {
        // The space that a model puts before its first word is not shown.
        let text = if message.role == Role::Assistant { message.text.trim_start() } else { &message.text };
        let block = self
            .blocks
            .entry(message.id)
            .or_insert_with(|| Block { wrapped: Wrapped::new(text, columns), taken: text.len() });
        if text.len() > block.taken && text.is_char_boundary(block.taken) {
            block.wrapped.push(&text[block.taken..]);
        } else if text.len() != block.taken {
            block.wrapped = Wrapped::new(text, columns);
        }
        block.taken = text.len();
        block.wrapped.height()
    }

    /// Lines of the whole path.
    pub fn lines(&self) -> usize {
        self.lines
    }

    fn start(&self, id: MessageId) -> Option<usize> {
        let at = self.path.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.path[at].1)
    }

    /// The first line shown in a view of that height.
    pub fn top(&self, height: usize) -> usize {
        let last = self.lines.saturating_sub(height);
        match self.scroll {
            Scroll::Follow => last,
            Scroll::At(id, line) => {
                // In a wider window a message has fewer lines; its own last one is meant then.
                let line = self.blocks.get(&id).map_or(line, |b| line.min(b.wrapped.height()));
                self.start(id).map_or(last, |start| (start + line).min(last))
            }
        }
    }

    /// Whether the view is at the end.
    pub fn follows(&self) -> bool {
        self.scroll == Scroll::Follow
    }

    /// Moves the view by lines in a view of that height.
    pub fn scroll_by(&mut self, lines: isize, height: usize) {
        let top = self.top(height).saturating_add_signed(lines);
        self.scroll_to(top, height);
    }

    /// Makes that line the first one shown; at the end the view follows.
    pub fn scroll_to(&mut self, top: usize, height: usize) {
        if top >= self.lines.saturating_sub(height) {
            self.scroll = Scroll::Follow;
            return;
        }
        let at = self.path.partition_point(|(_, start)| *start <= top).saturating_sub(1);
        self.scroll = self.path.get(at).map_or(Scroll::Follow, |(id, start)| Scroll::At(*id, top - start));
    }

    /// Goes to the end.
    pub fn follow(&mut self) {
        self.scroll = Scroll::Follow;
    }

    /// Selects the message so many places on, and shows it.
    pub fn select(&mut self, by: isize, height: usize) {
        let last = self.path.len().saturating_sub(1);
        let now = self.selected.and_then(|id| self.path.iter().position(|(p, _)| *p == id));
        let to = now.map_or(last, |at| at.saturating_add_signed(by).min(last));
        self.select_nth(to, height);
    }

    /// Selects that message, if it is on the path, and shows it.
    pub fn show(&mut self, id: MessageId, height: usize) {
        if let Some(nth) = self.path.iter().position(|(p, _)| *p == id) {
            self.select_nth(nth, height);
        }
    }

    fn select_nth(&mut self, to: usize, height: usize) {
        let Some((id, start)) = self.path.get(to).copied() else { return };
        self.selected = Some(id);
        let end = self.path.get(to + 1).map_or(self.lines, |(_, next)| *next);
        let top = self.top(height);
        if start < top {
            self.scroll_to(start, height);
        } else if end > top + height {
            self.scroll_to(start.min(end.saturating_sub(height)).max(end.saturating_sub(height).min(start)), height);
        }
    }

    /// The message on a line.
    pub fn at(&self, line: usize) -> Option<MessageId> {
        let at = self.path.partition_point(|(_, start)| *start <= line);
        self.path.get(at.checked_sub(1)?).map(|(id, _)| *id)
    }

    /// What to draw from line `top` on.
    pub fn rows(&self, top: usize, height: usize) -> impl Iterator<Item = Row<'_>> {
        (top..(top + height).min(self.lines)).filter_map(move |line| {
            let at = self.path.partition_point(|(_, start)| *start <= line).checked_sub(1)?;
            let (id, start) = self.path[at];
            let block = self.blocks.get(&id)?;
            Some(match line - start {
                0 => Row::Head(id),
                n if n <= block.wrapped.height() => Row::Text(id, block.wrapped.line(n - 1)),
                n if n == block.wrapped.height() + 1 => Row::Foot(id),
                n if n == block.wrapped.height() + AROUND => Row::Cut,
                _ => Row::Gap,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{ConversationId, Entry, Sampling};

    fn conversation(texts: &[&str]) -> Conversation {
        let mut c = Conversation::new(ConversationId::new(1, 1), 0, Sampling::default());
        for (i, text) in (1..).zip(texts) {
            let role = if i % 2 == 1 { Role::User } else { Role::Assistant };
            let parent = (i > 1).then_some(i - 1);
            c.apply(&Entry::Message(Message::new(i, parent, role, *text, 0)));
        }
        c
    }

    #[test]
    fn new_text_does_not_pull_a_view_that_was_scrolled_up() {
        let mut c = conversation(&["one two three four five six seven", "a b c d e f g h i j k"]);
        let mut t = Transcript::default();
        t.update(&c, 8);
        t.scroll_by(-3, 4);
        assert!(!t.follows());
        let first = |t: &Transcript| format!("{:?}", t.rows(t.top(4), 1).next());
        let before = first(&t);
        c.apply(&Entry::Append { id: 2, text: " and many more words that come".into() });
        t.update(&c, 8);
        assert_eq!(first(&t), before);
        // The same message stays at the top when the window changes.
        let id = t.at(t.top(4));
        t.update(&c, 30);
        assert_eq!(t.at(t.top(2)), id);
        t.scroll_by(1000, 4);
        assert!(t.follows());
    }

    #[test]
    fn a_growing_answer_is_the_same_as_a_whole_one() {
        let mut c = conversation(&["q", ""]);
        let mut t = Transcript::default();
        for piece in [" He", "llo wor", "ld,\n\nthis ", "is it"] {
            c.apply(&Entry::Append { id: 2, text: piece.into() });
            t.update(&c, 9);
        }
        let mut whole = Transcript::default();
        whole.update(&c, 9);
        assert_eq!(
            format!("{:?}", t.rows(0, 99).collect::<Vec<_>>()),
            format!("{:?}", whole.rows(0, 99).collect::<Vec<_>>())
        );
    }

    #[test]
    fn selecting_shows_what_is_selected() {
        let c = conversation(&["1", "2", "3", "4", "5", "6"]);
        let mut t = Transcript::default();
        t.update(&c, 20);
        t.select(0, 4);
        assert_eq!(t.selected, Some(6));
        for expected in [5, 4, 3, 2, 1, 1] {
            t.select(-1, 4);
            assert_eq!(t.selected, Some(expected));
            assert!(t.rows(t.top(4), 4).any(|r| r == Row::Head(expected)));
        }
    }
}
