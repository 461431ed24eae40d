//! The choices of a full context and their numbers. Pure arithmetic over what the engine counted.

use crate::chat::{ConversationId, MessageId, Overflow, Role};

/// Who wrote each turn of a prompt, oldest first, and its tokens.
pub type Turns = Vec<(MessageId, Role, u32)>;

/// Tokens that a summary may have: an eighth of the context, within these.
const SUMMARY: (u32, u32) = (48, 512);

/// What of the model counts for the choices.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Tokens that it was trained on at once.
    pub trained: u32,
    /// Bytes that a token takes in the KV cache.
    pub token_bytes: u64,
    /// Bytes of the KV cache that there is.
    pub reserved_bytes: u64,
    /// Bytes of memory that are free beside it, where that is known.
    pub free_bytes: Option<u64>,
    /// Whether it can be told to do something.
    pub has_template: bool,
    /// How long loading it took, in milliseconds.
    pub load_ms: f64,
    /// How long it reads a token in this chat, in milliseconds, where that is known.
    pub ms_per_token: Option<f64>,
    /// A context that could not be made, if one could not.
    pub refused: Option<u32>,
}

/// What was to be sent.
#[derive(Debug)]
pub struct Counted {
    /// Its turns.
    pub turns: Turns,
    /// Messages and tokens that an earlier cut leaves out.
    pub gone: (usize, u32),
    /// Tokens of all of it.
    pub tokens: u32,
    /// Cells of the context.
    pub n_ctx: u32,
    /// Tokens that its answer may have.
    pub longest: u32,
}

/// A prompt that leaves no room, and what can be done about it.
#[derive(Debug)]
pub struct Full {
    pub(super) chat: ConversationId,
    pub(super) message: MessageId,
    /// An answer waits for it; otherwise the conversation is only shortened.
    pub(super) asked: bool,
    turns: Turns,
    gone: (usize, u32),
    tokens: u32,
    n_ctx: u32,
    /// Tokens that an answer should have room for.
    room: u32,
    model: Model,
    /// So many more questions are kept than are proposed.
    more: isize,
    at: usize,
}

/// What a choice would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Leave so many of the oldest turns out.
    Drop {
        /// How many.
        turns: usize,
    },
    /// Put a summary into the place of so many.
    Summarise {
        /// How many.
        turns: usize,
    },
    /// Load the model again.
    Larger {
        /// Cells of the new context.
        n_ctx: u32,
        /// They are more than the model was trained on.
        beyond: bool,
    },
}

impl Full {
    /// What is offered, in its order.
    pub const CHOICES: [Overflow; 3] = [Overflow::Drop, Overflow::Summarise, Overflow::Larger];

    /// The choices for a prompt.
    pub(super) fn new(chat: ConversationId, message: MessageId, asked: bool, prompt: Counted, model: Model) -> Self {
        let Counted { turns, gone, tokens, n_ctx, longest } = prompt;
        let room = longest.min(n_ctx / 4).max(1);
        let mut full = Self { chat, message, asked, turns, gone, tokens, n_ctx, room, model, more: 0, at: 0 };
        full.at = Self::CHOICES.iter().position(|how| full.plan(*how).is_ok()).unwrap_or(0);
        full
    }

    /// Which choice is chosen.
    pub fn chosen(&self) -> Overflow {
        Self::CHOICES[self.at]
    }

    pub(super) fn choose(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(Self::CHOICES.len() - 1);
    }

    /// Keeps so many more questions with their answers, as far as they fit.
    pub(super) fn keep(&mut self, more: isize) {
        let before = self.plan(self.chosen());
        self.more += more;
        if self.plan(self.chosen()) == before {
            self.more -= more;
        }
    }

    /// What is to be sent when it is done.
    pub(super) fn then(&self) -> Option<(ConversationId, MessageId)> {
        self.asked.then(|| (self.chat.clone(), self.message))
    }

    /// Whether there is no room; otherwise the person wants to shorten it all the same.
    pub fn is_full(&self) -> bool {
        self.asked
    }

    /// The box's first line.
    pub fn heading(&self) -> String {
        format!(
            "This conversation has {} tokens and the context holds {}, the answer included",
            counted(self.tokens),
            counted(self.n_ctx)
        )
    }

    /// Tokens that a summary may have.
    pub(super) fn summary_tokens(&self) -> u32 {
        (self.n_ctx / 8).clamp(SUMMARY.0, SUMMARY.1)
    }

    /// Cells of the context.
    pub(super) fn n_ctx(&self) -> u32 {
        self.n_ctx
    }

    /// The ids and tokens of the first turns.
    pub(super) fn first(&self, turns: usize) -> &[(MessageId, Role, u32)] {
        &self.turns[..turns.min(self.turns.len())]
    }

    fn tokens_of(&self, turns: usize) -> u32 {
        self.first(turns).iter().map(|(_, _, n)| n).sum()
    }

    /// Tokens left for the answer without the first turns and with so many put in their place.
    fn left(&self, turns: usize, instead: u32) -> u32 {
        let prompt = self.tokens.saturating_sub(self.tokens_of(turns)) + instead;
        self.n_ctx.saturating_sub(prompt)
    }

    /// How many turns have to go. What stays begins with a question, and the newest one always stays.
    fn to_drop(&self, instead: u32) -> Option<usize> {
        let is_question = |k: &usize| self.turns[*k].1 == Role::User;
        let starts = (1..self.turns.len()).filter(is_question).filter(|k| self.left(*k, instead) > 0);
        let starts: Vec<usize> = starts.collect();
        let enough = starts.iter().position(|k| self.left(*k, instead) >= self.room);
        let proposed = enough.unwrap_or(starts.len().saturating_sub(1));
        let at = proposed.saturating_add_signed(-self.more).min(starts.len().saturating_sub(1));
        starts.get(at).copied()
    }

    /// What a choice would do.
    ///
    /// # Errors
    /// Says why it cannot be done.
    pub fn plan(&self, how: Overflow) -> Result<Plan, String> {
        let too_long = || {
            Err(if self.turns.iter().filter(|t| t.1 == Role::User).count() > 1 {
                "the newest question with its answer does not fit by itself".to_owned()
            } else {
                "nothing is before the newest question".to_owned()
            })
        };
        match how {
            Overflow::Ask => Err("somebody is asked".to_owned()),
            Overflow::Drop => self.to_drop(0).map_or_else(too_long, |turns| Ok(Plan::Drop { turns })),
            Overflow::Summarise if !self.model.has_template => {
                Err("this model has no chat template, so it cannot be told to".to_owned())
            }
            Overflow::Summarise => {
                self.to_drop(self.summary_tokens()).map_or_else(too_long, |turns| Ok(Plan::Summarise { turns }))
            }
            Overflow::Larger => self.larger(),
        }
    }

    /// The context doubled until it is large enough; the trained length where that is enough.
    fn larger(&self) -> Result<Plan, String> {
        let wanted = self.tokens.saturating_add(self.room);
        let trained = self.model.trained;
        let mut n_ctx = self.n_ctx.saturating_mul(2);
        while n_ctx < wanted {
            n_ctx = n_ctx.saturating_mul(2);
        }
        if n_ctx > trained && trained >= wanted && trained > self.n_ctx {
            n_ctx = trained;
        }
        let more = u64::from(n_ctx.saturating_sub(self.n_ctx)).saturating_mul(self.model.token_bytes);
        if self.model.refused.is_some_and(|refused| n_ctx >= refused) {
            return Err(format!("one of {} tokens could not be made", counted(n_ctx)));
        }
        if let Some(free) = self.model.free_bytes.filter(|free| more > *free) {
            let needs = format!("one of {} tokens needs {} more", counted(n_ctx), mebibytes(more));
            return Err(format!("{needs}, and {} of memory are free", mebibytes(free)));
        }
        Ok(Plan::Larger { n_ctx, beyond: n_ctx > trained })
    }

    /// A choice with its numbers.
    pub fn told(&self, how: Overflow) -> String {
        let name = match how {
            Overflow::Ask => "ask",
            Overflow::Drop => "drop the oldest turns",
            Overflow::Summarise => "summarise the oldest turns",
            Overflow::Larger => "a larger context",
        };
        match self.plan(how) {
            Err(why) => format!("{name}: {why}"),
            Ok(Plan::Drop { turns }) => {
                format!("{name}: {}, {}", self.split(turns), self.left_told(turns, 0))
            }
            Ok(Plan::Summarise { turns }) => {
                let summary = self.summary_tokens();
                format!(
                    "{name} by the model in {} tokens: {}, about {}{}",
                    counted(summary),
                    self.split(turns),
                    self.left_told(turns, summary),
                    self.after(self.tokens_of(turns), 0.0)
                )
            }
            Ok(Plan::Larger { n_ctx, beyond }) => {
                let growth = u64::from(n_ctx.saturating_sub(self.n_ctx)) * self.model.token_bytes;
                let beyond = if beyond {
                    format!(", more than the {} that the model was trained on", counted(self.model.trained))
                } else {
                    String::new()
                };
                format!(
                    "{name}: {} tokens{beyond}, {} of KV cache instead of {}{}",
                    counted(n_ctx),
                    mebibytes(self.model.reserved_bytes + growth),
                    mebibytes(self.model.reserved_bytes),
                    self.after(self.tokens, self.model.load_ms)
                )
            }
        }
    }

    fn split(&self, turns: usize) -> String {
        let kept = self.turns.len() - turns;
        let stay = if kept == 1 { "the last one stays".to_owned() } else { format!("the last {kept} stay") };
        format!("{} of {} tokens go, {stay}", messages(turns), counted(self.tokens_of(turns)))
    }

    fn left_told(&self, turns: usize, instead: u32) -> String {
        format!("{} tokens are left for the answer", counted(self.left(turns, instead)))
    }

    /// How long reading takes, where that is known.
    fn after(&self, tokens: u32, beside_ms: f64) -> String {
        let Some(each) = self.model.ms_per_token else { return String::new() };
        format!(", ≈ {:.1} s to read", (beside_ms + each * f64::from(tokens)) / 1000.0)
    }

    /// The last message that is left out with the first turns, and the tokens of all that is.
    pub(super) fn left_out(&self, turns: usize) -> Option<(MessageId, u32)> {
        let (after, ..) = self.first(turns).last()?;
        Some((*after, self.gone.1 + self.tokens_of(turns)))
    }

    pub(super) fn no_longer_sent(&self, turns: usize) -> String {
        let (n, tokens) = (self.gone.0 + turns, self.gone.1 + self.tokens_of(turns));
        let is = if n == 1 { "is" } else { "are" };
        format!("{} {is} no longer sent ({} tokens)", messages(n), counted(tokens))
    }
}

fn messages(n: usize) -> String {
    format!("{n} message{}", if n == 1 { "" } else { "s" })
}

/// A number with commas between its thousands.
pub fn counted(n: u32) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
