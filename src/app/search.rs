//! Looking for words in all conversations.

use crossterm::event::{KeyCode, KeyEvent};

use super::event::Effect;
use super::overlay::Overlay;
use super::{App, is_text};
use crate::chat::{Hit, StoreRequest};

/// A search, and what is found by now.
#[derive(Debug, Default)]
pub struct Search {
    /// As it is typed.
    pub query: String,
    /// The places, what was said last first; of one conversation behind each other.
    pub hits: Vec<Hit>,
    /// Whether every conversation was looked at; none before the answer has come.
    pub all: Option<bool>,
    /// Which place is chosen.
    pub at: usize,
    number: u64,
}

impl App {
    /// Opens the search, with words or without.
    pub(super) fn search(&mut self, query: &str) {
        let mut search = Search { query: query.to_owned(), ..Search::default() };
        self.look_for(&mut search);
        self.overlay = Some(Overlay::Search(Box::new(search)));
    }

    /// Asks for the places anew.
    fn look_for(&mut self, search: &mut Search) {
        search.number = self.next_number();
        search.at = 0;
        search.all = None;
        if search.query.trim().is_empty() {
            search.hits.clear();
        } else {
            let (number, query) = (search.number, search.query.clone());
            self.effects.push(Effect::Store(StoreRequest::Search { number, query }));
        }
    }

    /// What the store has found.
    pub(super) fn found(&mut self, number: u64, mut hits: Vec<Hit>, all: bool) {
        if self.library.found(number, &mut hits) {
            return;
        }
        if let Some(Overlay::Search(search)) = &mut self.overlay
            && search.number == number
        {
            search.hits = grouped(hits);
            search.at = search.at.min(search.hits.len().saturating_sub(1));
            search.all = Some(all);
        }
    }

    /// The search after a key.
    pub(super) fn search_key(&mut self, key: &KeyEvent, mut search: Box<Search>, step: isize) -> Option<Overlay> {
        let last = search.hits.len().saturating_sub(1);
        match key.code {
            KeyCode::Enter => {
                if let Some(hit) = search.hits.get(search.at) {
                    self.open_at(&hit.id.clone(), hit.message);
                    return None;
                }
            }
            KeyCode::Backspace => {
                search.query.pop();
                self.look_for(&mut search);
            }
            KeyCode::PageDown => search.at = (search.at + self.view_height() / 2).min(last),
            KeyCode::PageUp => search.at = search.at.saturating_sub(self.view_height() / 2),
            KeyCode::Char(c) if is_text(key) => {
                search.query.push(c);
                self.look_for(&mut search);
            }
            _ => search.at = search.at.saturating_add_signed(step).min(last),
        }
        Some(Overlay::Search(search))
    }

    /// The search after a paste.
    pub(super) fn search_paste(&mut self, text: &str) {
        if let Some(Overlay::Search(mut search)) = self.overlay.take() {
            search.query.push_str(text.lines().next().unwrap_or_default());
            self.look_for(&mut search);
            self.overlay = Some(Overlay::Search(search));
        }
    }
}

/// The places of one conversation behind each other, at the place of its first one.
fn grouped(hits: Vec<Hit>) -> Vec<Hit> {
    let mut groups: Vec<Vec<Hit>> = Vec::new();
    let mut place = std::collections::HashMap::new();
    for hit in hits {
        let at = *place.entry(hit.id.clone()).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(hit),
            None => groups.push(vec![hit]),
        }
    }
    groups.concat()
}
