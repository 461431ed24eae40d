//! The map of the cache: who holds which cells, and deciding by hand what stays.

use crossterm::event::{KeyCode, KeyEvent};

use super::event::Effect;
use super::{App, Overlay, State};
use crate::engine::protocol::{CacheMap, Cells, Holder, Request};

impl App {
    /// Opens the map, which the engine then fills.
    pub(super) fn show_cache(&mut self) {
        if self.engine.state == State::Ready {
            self.overlay = Some(Overlay::Cache { map: None, at: 0 });
            self.look_at_cache();
        } else {
            self.tell("The cache is the engine's, which has no model at work. F5 starts it again");
        }
    }

    /// Asks for the map anew, if it is shown.
    pub(super) fn look_at_cache(&mut self) {
        if matches!(self.overlay, Some(Overlay::Cache { .. })) {
            self.effects.push(Effect::Engine(Request::Map));
        }
    }

    pub(super) fn mapped(&mut self, told: CacheMap) {
        let of = |holder| told.held.iter().filter(move |h| h.holder == holder);
        let running: u32 = of(Holder::Main).map(|h| h.tokens).chain(of(Holder::Branch).map(|h| h.own)).sum();
        if running == 0 {
            self.engine.cells = Cells::default();
        }
        self.engine.cells = self.engine.cells.among(told.used);
        if let Some(Overlay::Cache { map, at }) = &mut self.overlay {
            *at = (*at).min(told.held.len().saturating_sub(1));
            *map = Some(told);
        }
    }

    /// The overlay after a key.
    pub(super) fn cache_key(&mut self, key: &KeyEvent, mut map: Option<CacheMap>, at: usize) -> Overlay {
        let at = at.min(map.as_ref().map_or(0, |m| m.held.len().saturating_sub(1)));
        if let Some(held) = map.as_ref().and_then(|m| m.held.get(at)) {
            let (seq, holder) = (held.seq, held.holder);
            match (key.code, holder) {
                (KeyCode::Char('d') | KeyCode::Delete, Holder::Main) if self.engine.job.is_some() => {
                    self.tell("An answer is being written there; Esc twice stops it");
                }
                (KeyCode::Char('d') | KeyCode::Delete, Holder::Main | Holder::Memory | Holder::File) => {
                    self.effects.push(Effect::Engine(Request::Drop { seq }));
                    // Before the engine tells it: the next key means the next line.
                    if let Some(map) = map.as_mut().filter(|_| holder != Holder::Main) {
                        map.held.remove(at);
                    }
                }
                (KeyCode::Char('p'), Holder::Main | Holder::Memory | Holder::File) => {
                    self.effects.push(Effect::Engine(Request::Pin { seq }));
                }
                (KeyCode::Char('d' | 'p') | KeyCode::Delete, Holder::Branch) => {
                    self.tell("Beams go by themselves when the next question is asked");
                }
                _ => {}
            }
        }
        Overlay::Cache { map, at }
    }
}
