//! The input box: text, folded pastes, history.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_textarea::{CursorMove, TextArea, WrapMode};
use unicode_segmentation::UnicodeSegmentation;

use crate::text::{Wrapped, sanitise_line};

/// A paste of more lines than this is folded to one token …
const FOLD_LINES: usize = 8;
/// … and so is one of more characters.
const FOLD_CHARS: usize = 2000;
/// Most lines of the box.
const TALLEST: u16 = 8;
/// Questions that Up goes back through.
const HISTORY: usize = 500;

/// The input box.
#[derive(Debug)]
pub struct Input {
    /// The widget: text with cursor, selection, undo.
    pub area: TextArea<'static>,
    /// Folded pastes: the token that stands for each, and its text.
    pastes: Vec<(String, String)>,
    history: Vec<String>,
    /// Where in the history the box stands, and what was typed before going there.
    browsing: Option<(usize, String)>,
}

impl Default for Input {
    fn default() -> Self {
        Self { area: area(""), pastes: Vec::new(), history: Vec::new(), browsing: None }
    }
}

fn area(text: &str) -> TextArea<'static> {
    let mut area = TextArea::new(text.split('\n').map(str::to_owned).collect());
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_cursor_line_style(ratatui::style::Style::default());
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area
}

impl Input {
    /// The text as it will be sent: folded pastes unfolded.
    pub fn text(&self) -> String {
        self.pastes.iter().fold(self.typed(), |text, (token, paste)| text.replace(token.as_str(), paste))
    }

    /// The text as it stands in the box.
    pub fn typed(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Whether nothing is typed.
    pub fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Puts another text into the box.
    pub fn set(&mut self, text: &str) {
        self.pastes.clear();
        self.browsing = None;
        self.area = area("");
        if is_long(text) {
            self.paste(text);
        } else {
            self.area = area(text);
        }
    }

    /// Takes the text out of the box and remembers it.
    pub fn take(&mut self) -> String {
        let text = self.text();
        self.remember(&text);
        self.set("");
        text
    }

    /// Adds a question to the history.
    pub fn remember(&mut self, text: &str) {
        if !text.trim().is_empty() && self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
            if self.history.len() > HISTORY {
                self.history.remove(0);
            }
        }
    }

    /// Puts text at the cursor.
    pub fn insert(&mut self, text: &str) {
        self.area.insert_str(text);
    }

    /// One edit, whatever its length; a long text is folded to a token.
    pub fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        if is_long(&text) {
            let lines = text.lines().count();
            let size =
                if lines > 1 { format!("{lines} lines") } else { format!("{} characters", text.chars().count()) };
            let token = format!("[paste {}: {size}]", self.pastes.len() + 1);
            self.area.insert_str(&token);
            self.pastes.push((token, text));
        } else {
            self.area.insert_str(&text);
        }
    }

    /// Puts the text of every folded paste into the box.
    pub fn unfold(&mut self) -> bool {
        let any = !self.pastes.is_empty();
        if any {
            let text = self.text();
            self.pastes.clear();
            self.area = area(&text);
        }
        any
    }

    /// A key that is no command. Tells whether the text changed.
    pub fn key(&mut self, key: &KeyEvent) -> bool {
        let (control, alt) = (key.modifiers.contains(KeyModifiers::CONTROL), key.modifiers.contains(KeyModifiers::ALT));
        let a = &mut self.area;
        match key.code {
            KeyCode::Char('u') if control => a.delete_line_by_head(),
            KeyCode::Char('k') if control => a.delete_line_by_end(),
            KeyCode::Char('w') if control => a.delete_word(),
            KeyCode::Char('y') if control => a.redo(),
            KeyCode::Char('d') if control => a.delete_next_char(),
            KeyCode::Char('d') if alt => a.delete_next_word(),
            KeyCode::Backspace if alt || control => a.delete_word(),
            KeyCode::Char('a') if control => moved(a, CursorMove::Head),
            KeyCode::Char('e') if control => moved(a, CursorMove::End),
            KeyCode::Char('b') if alt => moved(a, CursorMove::WordBack),
            KeyCode::Char('f') if alt => moved(a, CursorMove::WordForward),
            KeyCode::Left if control => moved(a, CursorMove::WordBack),
            KeyCode::Right if control => moved(a, CursorMove::WordForward),
            KeyCode::Backspace => self.cluster(false, ratatui_textarea::TextArea::delete_char),
            KeyCode::Delete => self.cluster(true, ratatui_textarea::TextArea::delete_next_char),
            KeyCode::Left if !key.modifiers.contains(KeyModifiers::SHIFT) => {
                self.cluster(false, |a| moved(a, CursorMove::Back));
                false
            }
            KeyCode::Right if !key.modifiers.contains(KeyModifiers::SHIFT) => {
                self.cluster(true, |a| moved(a, CursorMove::Forward));
                false
            }
            KeyCode::Char(c) if !control && !alt => {
                a.insert_char(c);
                true
            }
            KeyCode::Char(_) => false,
            _ => a.input(*key),
        }
    }

    /// Repeats an edit of one character for every character of the cluster beside the cursor, so that what
    /// looks like one character is one.
    fn cluster(&mut self, forward: bool, edit: impl Fn(&mut TextArea<'static>) -> bool) -> bool {
        let cursor = self.area.cursor();
        let (row, column) = (cursor.0, cursor.1);
        let line = self.area.lines().get(row).cloned().unwrap_or_default();
        let at = line.char_indices().nth(column).map_or(line.len(), |(i, _)| i);
        let cluster = if forward { line[at..].graphemes(true).next() } else { line[..at].graphemes(true).next_back() };
        let n = cluster.map_or(1, |c| c.chars().count());
        let mut changed = false;
        for _ in 0..n {
            changed |= edit(&mut self.area);
        }
        changed
    }

    /// Enter after a backslash: the backslash becomes a new line. Tells whether it did.
    pub fn continue_line(&mut self) -> bool {
        let cursor = self.area.cursor();
        let line = self.area.lines().get(cursor.0).map_or("", String::as_str);
        let escaped = cursor.1 > 0 && line.chars().nth(cursor.1 - 1) == Some('\\');
        if escaped {
            self.area.delete_char();
            self.area.insert_newline();
        }
        escaped
    }

    /// The question before, if the cursor stands in the first line.
    pub fn earlier(&mut self) -> bool {
        if self.area.cursor().0 > 0 {
            self.area.move_cursor(CursorMove::Up);
            return false;
        }
        let at = self.browsing.as_ref().map_or(self.history.len(), |(at, _)| *at);
        let Some(before) = at.checked_sub(1) else { return false };
        let typed = self.browsing.take().map_or_else(|| self.text(), |(_, typed)| typed);
        let text = self.history[before].clone();
        self.set(&text);
        self.browsing = Some((before, typed));
        true
    }

    /// The question after, if the cursor stands in the last line.
    pub fn later(&mut self) -> bool {
        if self.area.cursor().0 + 1 < self.area.lines().len() {
            self.area.move_cursor(CursorMove::Down);
            return false;
        }
        let Some((at, typed)) = self.browsing.take() else { return false };
        match self.history.get(at + 1).cloned() {
            Some(text) => {
                self.set(&text);
                self.browsing = Some((at + 1, typed));
            }
            None => self.set(&typed),
        }
        true
    }

    /// Lines that the box wants for this many columns.
    pub fn height(&self, columns: u16) -> u16 {
        let lines = self.area.lines().iter().map(|line| {
            let line = sanitise_line(line);
            // Blanks at the end are typed and take room, and so does the cursor behind them.
            let words = line.trim_end();
            let line = format!("{words}{}_", "_".repeat(line.len() - words.len()));
            Wrapped::new(&line, usize::from(columns)).height()
        });
        let shown: usize = lines.sum();
        u16::try_from(shown).unwrap_or(TALLEST).clamp(1, TALLEST)
    }
}

fn moved(area: &mut TextArea<'static>, to: CursorMove) -> bool {
    area.move_cursor(to);
    false
}

fn is_long(text: &str) -> bool {
    text.len() > FOLD_CHARS || text.lines().count() > FOLD_LINES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(input: &mut Input, code: KeyCode) {
        input.key(&KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn a_long_paste_is_folded_and_sent_whole() {
        let mut input = Input::default();
        press(&mut input, KeyCode::Char('a'));
        let long = "line\r\n".repeat(31);
        input.paste(&long);
        assert_eq!(input.typed(), "a[paste 1: 31 lines]");
        assert_eq!(input.text(), format!("a{}", "line\n".repeat(31)));
        assert!(input.unfold());
        assert_eq!(input.typed(), input.text());
        assert!(!input.unfold());
    }

    #[test]
    fn a_cluster_is_one_character() {
        let mut input = Input::default();
        input.paste("a👩‍👩‍👧e\u{301}");
        press(&mut input, KeyCode::Backspace);
        assert_eq!(input.text(), "a👩‍👩‍👧");
        press(&mut input, KeyCode::Left);
        press(&mut input, KeyCode::Delete);
        assert_eq!(input.text(), "a");
    }

    #[test]
    fn history_goes_back_and_keeps_what_was_typed() {
        let mut input = Input::default();
        input.set("one");
        input.take();
        input.set("two");
        input.take();
        input.set("half");
        assert!(input.earlier() && input.text() == "two");
        assert!(input.earlier() && input.text() == "one");
        assert!(!input.earlier());
        assert!(input.later() && input.later() && input.text() == "half");
        assert!(!input.later());
    }

    #[test]
    fn backslash_enter_breaks_the_line() {
        let mut input = Input::default();
        input.paste("one\\");
        assert!(input.continue_line());
        assert_eq!(input.text(), "one\n");
        assert!(!input.continue_line());
    }
}
