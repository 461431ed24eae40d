//! Tokens one by one: of an answer, of the prompt, of what is being typed.

use super::event::Effect;
use super::{App, Focus, State};
use crate::chat::{Edit, Entry, Message, MessageId, MessageState, Role, TokenRecord};
use crate::engine::protocol::{Prompt, Request};

/// A token less probable than this is surprising: −ln p in nats, a probability below 5 %.
pub const SURPRISING: f32 = 3.0;

/// Tokens that are gone through one by one.
#[derive(Debug)]
pub struct Tokens {
    /// What they are.
    pub title: String,
    /// The answer that they are; none for a prompt.
    pub message: Option<MessageId>,
    /// The text of each, and how probable it was.
    pub list: Vec<(String, Option<TokenRecord>)>,
    /// Which one is chosen.
    pub at: usize,
}

/// What is being typed, as the model's vocabulary splits it.
#[derive(Debug, Default)]
pub struct Split {
    /// The text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<String>,
    /// The engine was asked for a newer one.
    pub(super) asked: bool,
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
    /// Goes through the tokens of the selected or the last answer.
    pub(super) fn open_tokens(&mut self) {
        let selected = self.chat.transcript.selected.filter(|_| self.focus == Focus::Messages);
        let message = selected.and_then(|id| self.chat.conversation.message(id)).or_else(|| self.chat.head());
        let Some(message) = message.filter(|m| !m.tokens.is_empty()) else {
            self.tell("Only answers keep their tokens, and older ones have none; /surprise reads what was asked");
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
        let prompt = Prompt::to(&self.chat.conversation, last);
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

    /// Shows where the tokens of what is being typed begin and end, from now on or not any more.
    pub(super) fn split_input(&mut self) {
        self.split = if self.split.is_some() { None } else { Some(Split::default()) };
        self.split_again();
    }

    /// Asks for the tokens of what is typed by now; one question at a time.
    pub(super) fn split_again(&mut self) {
        let text = self.input.text();
        let ready = self.engine.state == State::Ready;
        let Some(split) = self.split.as_mut().filter(|s| ready && !s.asked && s.text != text) else { return };
        split.asked = true;
        self.effects.push(Effect::Engine(Request::Split { text }));
    }

    pub(super) fn was_split(&mut self, text: String, tokens: Vec<String>) {
        if self.split.is_some() {
            self.split = Some(Split { text, tokens, asked: false });
            self.split_again();
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
        self.chat.edit(Edit::Reroll, vec![Entry::Message(message)], true, Some(ticket), &mut self.effects);
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
