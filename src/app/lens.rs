//! The microscope: the candidates of the next token, choosing by hand, and the tokens of what is there.

use super::event::Effect;
use super::{App, Focus, State};
use crate::chat::{Entry, Message, MessageId, MessageState, Mode, Role, TokenRecord};
use crate::engine::protocol::{Glance, Pick, Prompt, Request};

/// A token less probable than this is surprising: −ln p in nats, about one in twenty.
pub const SURPRISING: f32 = 3.0;

/// What the microscope shows.
#[derive(Debug, Default)]
pub struct Lens {
    /// The candidates are to be shown.
    pub open: bool,
    /// The last candidates that were told.
    pub glance: Option<Glance>,
    /// Which candidate is chosen.
    pub at: usize,
    /// What the engine was told: whether somebody looks.
    watching: bool,
}

/// Tokens that are gone through one by one.
#[derive(Debug)]
pub struct Tokens {
    /// What they are.
    pub title: String,
    /// The answer that they are; none for a prompt or what is being typed.
    pub message: Option<MessageId>,
    /// The text of each, and how probable it was.
    pub list: Vec<(String, Option<TokenRecord>)>,
    /// Which one is chosen.
    pub at: usize,
}

impl Tokens {
    /// The perplexity: e to the mean surprise of the tokens that have one.
    pub fn perplexity(&self) -> Option<f64> {
        let known: Vec<&TokenRecord> = self.list.iter().filter_map(|(_, r)| r.as_ref()).collect();
        perplexity(known.iter().map(|r| r.logprob))
    }
}

/// e to the mean of −ln p; none without a token.
pub fn perplexity(logs: impl Iterator<Item = f32>) -> Option<f64> {
    let (n, sum) = logs.fold((0u32, 0.0), |(n, sum), log| (n + 1, sum + f64::from(log)));
    (n > 0).then(|| (-sum / f64::from(n)).exp())
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
            self.effects.push(Effect::Engine(Request::Watch { on: wanted }));
            self.look();
        }
    }

    /// Asks for the candidates under the settings as they are; while tokens stream they come by themselves.
    pub(super) fn look(&mut self) {
        if self.lens.watching && self.engine.state == State::Ready && self.engine.job.is_none() {
            let sampling = self.chat.conversation.sampling.clone();
            self.effects.push(Effect::Engine(Request::Look { sampling }));
        }
    }

    pub(super) fn toggle_lens(&mut self) {
        self.lens.open = !self.lens.open;
        if self.lens.open {
            self.show_panel = true;
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
        let most = self.lens.glance.as_ref().map_or(0, |g| g.candidates.len().saturating_sub(1));
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
        let token = self.lens.glance.as_ref().and_then(|g| g.candidates.get(self.lens.at)).map(|c| c.token);
        if let Some(token) = token {
            self.pick(Pick::Token(token));
        }
    }

    /// From choosing by hand back to drawing.
    pub(super) fn let_run(&mut self) {
        self.set_sampling(|s| s.mode = Mode::Sample);
        self.go(Focus::Input);
    }

    /// Goes through the tokens of the selected or the last answer.
    pub(super) fn open_tokens(&mut self) {
        let selected = self.chat.transcript.selected.filter(|_| self.focus == Focus::Messages);
        let message = selected.and_then(|id| self.chat.conversation.message(id)).or_else(|| self.chat.head());
        let Some(message) = message.filter(|m| !m.tokens.is_empty()) else {
            self.tell("Nothing is known of this message's tokens; answers from now on keep theirs");
            return;
        };
        let list = split(message);
        self.tokens = Some(Tokens { title: "answer".to_owned(), message: Some(message.id), list, at: 0 });
        self.go(Focus::Tokens);
    }

    /// How probable the model finds the words of this conversation.
    pub(super) fn score_prompt(&mut self) {
        if self.engine.state != State::Ready || self.engine.job.is_some() {
            self.tell("The engine is busy; try again when it is idle");
            return;
        }
        let Some(last) = self.chat.conversation.head else {
            self.tell("There is nothing to read yet");
            return;
        };
        let job = self.next_number();
        let system = self.chat.conversation.system.clone();
        let prompt = Prompt::Chat { system, turns: self.chat.turns_to(last) };
        self.scoring = Some(job);
        self.effects.push(Effect::Engine(Request::Score { job, prompt }));
        self.tell("Reading the conversation from its beginning …");
    }

    pub(super) fn scored(&mut self, job: u64, list: Vec<(String, Option<TokenRecord>)>) {
        if self.scoring.take_if(|s| *s == job).is_some() {
            self.notice = None;
            self.tokens = Some(Tokens { title: "prompt".to_owned(), message: None, list, at: 0 });
            self.go(Focus::Tokens);
        }
    }

    /// Where the tokens of what is being typed begin and end.
    pub(super) fn split_input(&mut self) {
        let text = self.input.text();
        if text.is_empty() || self.engine.state != State::Ready {
            self.tell("Type something first; the model must be loaded");
            return;
        }
        self.effects.push(Effect::Engine(Request::Split { text }));
    }

    pub(super) fn was_split(&mut self, text: &str, tokens: Vec<String>) {
        if text == self.input.text() {
            let list = tokens.into_iter().map(|t| (t, None)).collect();
            self.tokens = Some(Tokens { title: "what you type".to_owned(), message: None, list, at: 0 });
            self.go(Focus::Tokens);
        }
    }

    pub(super) fn step_token(&mut self, by: isize) {
        if let Some(tokens) = &mut self.tokens {
            tokens.at = tokens.at.saturating_add_signed(by).min(tokens.list.len().saturating_sub(1));
        }
    }

    /// To the next token, or the one before, that was surprising.
    pub(super) fn next_surprise(&mut self, forward: bool) {
        let Some(tokens) = &mut self.tokens else { return };
        let surprising =
            |i: &usize| tokens.list.get(*i).and_then(|(_, r)| r.as_ref()).is_some_and(|r| -r.logprob > SURPRISING);
        let found = if forward {
            (tokens.at + 1..tokens.list.len()).find(surprising)
        } else {
            (0..tokens.at).rev().find(surprising)
        };
        match found {
            Some(at) => tokens.at = at,
            None => self.tell("No more surprising token that way"),
        }
    }

    /// Takes another candidate at the chosen token and lets the model go on from there, as a new try.
    pub(super) fn reroll(&mut self, nth: usize) {
        let Some((id, at)) = self.tokens.as_ref().and_then(|t| Some((t.message?, t.at))) else {
            self.tell("Only a token of an answer can be taken otherwise");
            return;
        };
        if !self.may_change() {
            return;
        }
        let Some(old) = self.chat.conversation.message(id) else { return };
        let Some((other, logprob)) = old.tokens.get(at).and_then(|r| r.others.get(nth)).cloned() else {
            self.tell("There is no such candidate here");
            return;
        };
        let begin: String = split(old).into_iter().take(at).map(|(text, _)| text).collect();
        let rank = u32::try_from(nth + 1).unwrap_or(1) + u32::from(old.tokens[at].rank as usize <= nth + 1);
        let mut tokens = old.tokens[..at].to_vec();
        tokens.push(TokenRecord {
            bytes: u32::try_from(other.len()).unwrap_or(0),
            logprob,
            rank,
            others: old.tokens[at].others.iter().filter(|(text, _)| *text != other).cloned().collect(),
        });
        let parent = old.parent;
        let new = self.chat.conversation.next_id();
        let message = Message {
            state: MessageState::Open,
            tokens,
            ..Message::new(new, parent, Role::Assistant, begin + &other, self.now.wall_ms)
        };
        let ticket = self.next_number();
        self.chat.record(vec![Entry::Message(message)], true, Some(ticket), &mut self.effects);
        self.tokens = None;
        self.go(Focus::Input);
        self.chat.transcript.follow();
        self.ask(new, Some(ticket));
    }
}

/// The text of each token of an answer, and how probable it was.
fn split(message: &Message) -> Vec<(String, Option<TokenRecord>)> {
    let bytes = message.text.as_bytes();
    let mut at = 0;
    let mut list: Vec<(String, Option<TokenRecord>)> = Vec::with_capacity(message.tokens.len());
    for record in &message.tokens {
        let end = (at + record.bytes as usize).min(bytes.len());
        list.push((String::from_utf8_lossy(&bytes[at..end]).into_owned(), Some(record.clone())));
        at = end;
    }
    if at < bytes.len() {
        list.push((String::from_utf8_lossy(&bytes[at..]).into_owned(), None));
    }
    list
}
