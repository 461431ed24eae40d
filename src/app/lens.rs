//! The microscope: the candidates of the next token, and choosing by hand.

use super::event::Effect;
use super::{App, Focus, State};
use crate::chat::{ConversationId, Mode};
use crate::engine::protocol::{Glance, Pick, Request};

/// What the microscope shows.
#[derive(Debug, Default)]
pub struct Lens {
    /// The candidates are to be shown.
    pub open: bool,
    /// The last candidates that were told.
    pub(super) glance: Option<Glance>,
    /// The conversation that they are of.
    of: Option<ConversationId>,
    /// Which candidate is chosen.
    pub at: usize,
    /// What the engine was told: whether somebody looks.
    watching: bool,
}

impl App {
    /// Tells the engine whether somebody looks. Closed, the microscope costs nothing.
    pub(super) fn watch(&mut self) {
        if self.engine.state != State::Ready {
            self.lens.watching = false;
            return;
        }
        let wanted = self.lens.open || matches!(self.focus, Focus::Sliders | Focus::Candidates);
        if wanted != self.lens.watching {
            self.lens.watching = wanted;
            let candidates = if wanted { Glance::CANDIDATES } else { 0 };
            self.effects.push(Effect::Engine(Request::Watch { candidates }));
            self.look();
        }
    }

    /// The candidates, if they are of the conversation that is shown.
    pub fn glance(&self) -> Option<&Glance> {
        self.lens.glance.as_ref().filter(|_| self.lens.of.as_ref() == Some(&self.chat.conversation.id))
    }

    /// The engine begins with an answer of a conversation, or with another model.
    pub(super) fn look_at(&mut self, of: Option<ConversationId>) {
        if self.lens.of != of {
            self.lens.glance = None;
            self.lens.of = of;
        }
    }

    /// Asks for the candidates under the settings as they are; while tokens stream they come by themselves.
    pub(super) fn look(&mut self) {
        let ours = self.lens.of.as_ref() == Some(&self.chat.conversation.id);
        if ours && self.lens.watching && self.engine.state == State::Ready && self.engine.job.is_none() {
            let sampling = self.chat.conversation.sampling.clone();
            self.effects.push(Effect::Engine(Request::Look { sampling }));
        }
    }

    pub(super) fn toggle_lens(&mut self) {
        self.lens.open = !self.lens.open;
        if self.lens.open {
            self.show_panel = true;
            if !self.panel_has_room() {
                self.tell("The microscope needs a wider window; F2 shows the panel, m its candidates");
            }
        } else if self.focus == Focus::Candidates {
            self.go(Focus::Input);
        }
    }

    pub(super) fn glanced(&mut self, glance: Glance) {
        self.lens.at = self.lens.at.min(glance.candidates.len().saturating_sub(1));
        self.lens.glance = Some(glance);
    }

    /// The engine waits for a choice.
    pub(super) fn waits_for_hand(&mut self) {
        if self.glance().is_some_and(|g| g.left() == 0) {
            self.error("Bias or grammar leave no token to choose. Take them back, or end the answer with Esc");
        }
        if let Some(job) = &mut self.engine.job {
            job.by_hand = true;
            if !job.picks.is_empty() {
                self.next_pick();
            } else if job.chat == self.chat.conversation.id {
                self.lens.open = true;
                self.show_panel = true;
                self.lens.at = 0;
                if self.overlay.is_none() && matches!(self.focus, Focus::Input | Focus::Candidates) {
                    self.focus = Focus::Candidates;
                }
            }
        }
    }

    /// Whether the running answer waits for a choice.
    pub fn is_by_hand(&self) -> bool {
        self.engine.job.as_ref().is_some_and(|j| j.by_hand && j.chat == self.chat.conversation.id)
    }

    pub(super) fn choose_candidate(&mut self, by: isize) {
        let most = self.glance().map_or(0, |g| g.candidates.len().saturating_sub(1));
        self.lens.at = self.lens.at.saturating_add_signed(by).min(most);
    }

    pub(super) fn pick(&mut self, pick: Pick) {
        let shown = &self.chat.conversation.id;
        let running = self.engine.job.as_mut().filter(|j| j.chat == *shown);
        match running.filter(|j| j.by_hand || j.settings.mode == Mode::Hand) {
            Some(running) => {
                running.picks.push_back(pick);
                self.next_pick();
            }
            None => {
                self.tell("Choose the mode 'hand' on the sliders (F2), then send a question: the model waits for you");
            }
        }
    }

    /// Makes the next choice, when the engine waits for one.
    fn next_pick(&mut self) {
        let Some(running) = self.engine.job.as_mut().filter(|j| j.by_hand) else { return };
        if let Some(pick) = running.picks.pop_front() {
            running.by_hand = false;
            running.heard_at = self.now.mono;
            let job = running.id;
            self.effects.push(Effect::Engine(Request::Pick { job, pick }));
        }
    }

    pub(super) fn pick_candidate(&mut self) {
        // Those of the token before are none of the next one's.
        if self.engine.job.as_ref().is_some_and(|j| !j.by_hand && j.settings.mode == Mode::Hand) {
            return;
        }
        let token = self.glance().and_then(|g| g.candidates.get(self.lens.at)).map(|c| c.token);
        if let Some(token) = token {
            self.pick(Pick::Token(token));
        }
    }

    /// From choosing by hand back to drawing.
    pub(super) fn let_run(&mut self) {
        self.set_sampling(|s| s.mode = Mode::Sample);
        self.go(Focus::Input);
    }
}
