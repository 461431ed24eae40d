//! A conversation that is longer than the context: what can be done about it, with the numbers of each choice;
//! asked in a box, or done by itself where the conversation says so.

use crossterm::event::{KeyCode, KeyEvent};

use super::event::Effect;
use super::figures::Phase;
use super::full::{Counted, Full, Model, Plan, counted};
use super::overlay::Overlay;
use super::{App, State};
use crate::chat::{ConversationId, Cut, Edit, Entry, Finish, Message, MessageId, Overflow, Role};
use crate::engine::protocol::{JobId, Problem, Prompt, Request, Size};

/// Prompts with fewer fresh tokens do not tell how fast the model reads.
const TELLING: u32 = 32;

/// A prompt whose size the engine was asked for.
#[derive(Debug)]
pub(super) struct Measuring {
    job: JobId,
    chat: ConversationId,
    message: MessageId,
    /// The person asked, so the person chooses.
    by_hand: bool,
}

impl App {
    /// The engine refused the running job, because its prompt leaves no room for an answer.
    pub(super) fn too_long(&mut self, problem: &Problem, size: &Size) {
        let Some(job) = self.engine.job.take() else { return };
        self.engine.figures.phase = Phase::Done;
        if job.summary.is_some() {
            self.not_summarised(&job.chat, &format!("{}; nothing has changed", problem.what));
            return;
        }
        match self.full(&job.chat, job.message, size, true) {
            Some(full) => self.overflows(full, problem),
            None => self.error(problem.to_string()),
        }
        self.let_go(&job.chat);
    }

    /// Does what its conversation says, or asks.
    fn overflows(&mut self, full: Full, problem: &Problem) {
        let how = self.chat_mut(&full.chat).map_or(Overflow::Ask, |chat| chat.conversation.overflow);
        let by_itself = full.plan(how).ok().filter(|plan| {
            // What somebody must say yes to, or what would break another answer off, is asked.
            match plan {
                Plan::Larger { beyond, .. } => self.engine.job.is_none() && (!beyond || self.engine.may_go_beyond()),
                Plan::Drop { .. } | Plan::Summarise { .. } => true,
            }
        });
        match by_itself {
            Some(plan) => self.carry_out(full, plan),
            None if self.chat.conversation.id == full.chat => self.offer(full),
            None => {
                let title = self.chat_mut(&full.chat).map(|c| c.title().to_owned()).unwrap_or_default();
                self.error(format!("“{title}”: {}. Open it and press F7 to choose what is done", problem.what));
            }
        }
    }

    /// Opens the box, unless that would take the keys of somebody who types.
    fn offer(&mut self, full: Full) {
        if self.overlay.is_none() && self.input.is_empty() {
            self.overlay = Some(Overlay::Full(Box::new(full)));
        } else {
            self.error(format!("{}. /overflow shows what can be done", full.heading()));
        }
    }

    fn full(&mut self, id: &ConversationId, message: MessageId, size: &Size, asked: bool) -> Option<Full> {
        let info = self.engine.info.clone()?;
        let figures = &self.engine.figures;
        let now = Some((figures.usage.fresh_tokens(), figures.timings.prefill_ms));
        let refused = self.engine.too_large;
        let chat = self.chat_mut(id)?;
        let path = chat.conversation.path_to(message);
        let gone = chat.conversation.cut_on(&path).map_or((0, 0), |(n, cut)| (n, cut.tokens));
        let read = |m: &&Message| m.made.as_ref().map(|made| (made.usage.fresh_tokens(), made.timings.prefill_ms));
        let rate = path.iter().rev().filter_map(read).chain(now).find(|(n, ms)| *n >= TELLING && *ms > 0.0);
        let sent = chat.conversation.sent_to(message).messages;
        let prompt = Counted {
            turns: sent.iter().zip(&size.turns).map(|(m, n)| (m.id, m.role, *n)).collect(),
            gone,
            tokens: size.tokens,
            n_ctx: size.n_ctx,
            longest: chat.conversation.sampling.max_tokens,
        };
        let model = Model {
            trained: info.n_ctx_train,
            token_bytes: info.kv_bytes_per_token,
            reserved_bytes: info.kv_bytes_reserved,
            free_bytes: size.free_bytes,
            has_template: info.has_template,
            load_ms: info.load_ms,
            ms_per_token: rate.map(|(n, ms)| ms / f64::from(n)),
            refused,
        };
        Some(Full::new(id.clone(), message, asked, prompt, model))
    }

    fn carry_out(&mut self, full: Full, plan: Plan) {
        match plan {
            Plan::Drop { turns } => self.cut(&full, turns, None),
            Plan::Summarise { turns } => self.summarise(full, turns),
            Plan::Larger { n_ctx, beyond: true } if !self.engine.may_go_beyond() => {
                self.overlay = Some(Overlay::Beyond { n_ctx, then: full.then() });
            }
            Plan::Larger { n_ctx, .. } => self.enlarge(n_ctx, full.then()),
        }
    }

    /// Leaves so many of the oldest turns out from now on, and asks again.
    pub(super) fn cut(&mut self, full: &Full, turns: usize, summary: Option<String>) {
        let Some((after, tokens)) = full.left_out(turns) else { return };
        let ticket = self.next_number();
        let mut effects = Vec::new();
        let Some(chat) = self.chat_mut(&full.chat) else { return };
        let told = if summary.is_some() { "; a summary stands for them, /cut shows it" } else { "" };
        chat.edit(Edit::Cut, vec![Entry::Cut(Cut { after, tokens, summary })], true, Some(ticket), &mut effects);
        self.effects.append(&mut effects);
        self.tell(format!("{}{told}. /uncut sends them again", full.no_longer_sent(turns)));
        if full.asked {
            self.ask_in(full.chat.clone(), full.message, Some(ticket));
        }
    }

    /// Loads the model again with that context, and sends what did not fit.
    pub(super) fn enlarge(&mut self, n_ctx: u32, then: Option<(ConversationId, MessageId)>) {
        self.set_context(n_ctx);
        self.tell(format!("The model is loaded again with a context of {} tokens", counted(n_ctx)));
        if let Some((chat, message)) = then {
            self.ask_in(chat, message, None);
        }
    }

    /// An answer has filled the context: what can be done depends on what leads to it.
    pub(super) fn measure(&mut self, message: MessageId, by_hand: bool) {
        let job = self.next_number();
        let prompt = Prompt::to(&self.chat.conversation, message);
        self.measuring = Some(Measuring { job, chat: self.chat.conversation.id.clone(), message, by_hand });
        self.effects.push(Effect::Engine(Request::Measure { job, prompt }));
    }

    pub(super) fn measured(&mut self, job: JobId, size: &Size) {
        let Some(measured) = self.measuring.take_if(|m| m.job == job) else { return };
        if self.chat.conversation.id != measured.chat || self.chat.conversation.head != Some(measured.message) {
            return;
        }
        if self.is_busy() {
            return;
        }
        let asked = !measured.by_hand || self.chat.head().is_some_and(is_unanswered);
        let Some(full) = self.full(&measured.chat, measured.message, size, asked) else { return };
        if measured.by_hand {
            self.overlay = Some(Overlay::Full(Box::new(full)));
        } else {
            let problem = Problem::new(full.heading(), "");
            self.overflows(full, &problem);
        }
    }

    /// Whether it was this that the engine could not do; the person must hear of it.
    pub(super) fn not_measured(&mut self, job: JobId) -> bool {
        self.measuring.take_if(|m| m.job == job).is_some()
    }

    /// `/overflow`: the choices now; with a name, what happens from now on.
    pub(super) fn show_overflow(&mut self) {
        match self.chat.conversation.head {
            Some(head) if self.engine.state == State::Ready => {
                if self.may_change() {
                    self.measure(head, true);
                }
            }
            _ => self.tell_overflow(),
        }
    }

    pub(super) fn set_overflow(&mut self, text: &str) -> bool {
        match Overflow::named(text) {
            Ok(overflow) if self.chat.is_ours() => {
                self.chat.edit(Edit::Overflow, vec![Entry::Overflow { overflow }], true, None, &mut self.effects);
                self.tell_overflow();
                true
            }
            Ok(_) => self.may_change(),
            Err(why) => {
                self.error(why);
                false
            }
        }
    }

    fn tell_overflow(&mut self) {
        self.tell(match self.chat.conversation.overflow {
            Overflow::Ask => "When the context is full you are asked",
            Overflow::Drop => "When the context is full the oldest turns are left out",
            Overflow::Summarise => "When the context is full the oldest turns are summarised",
            Overflow::Larger => "When the context is full the model is loaded with a larger one",
        });
    }

    /// `/cut`: what is not sent, and what stands for it.
    pub(super) fn show_cut(&mut self) {
        let path = self.chat.conversation.path();
        let Some((n, cut)) = self.chat.conversation.cut_on(&path) else {
            self.tell("All of this conversation is sent");
            return;
        };
        let mut lines = vec![
            format!(
                "The first {n} messages ({} tokens) are no longer sent. They stay in the file.",
                counted(cut.tokens)
            ),
            "/uncut sends them again.".to_owned(),
        ];
        match &cut.summary {
            Some(summary) => {
                lines.extend([String::new(), "In their place the model reads this summary:".to_owned(), String::new()]);
                lines.extend(summary.lines().map(str::to_owned));
            }
            None => lines.push("Nothing stands in their place.".to_owned()),
        }
        self.overlay = Some(Overlay::Text { title: "What is not sent", lines, top: 0 });
    }

    /// `/uncut`: what the last cut left out is sent again.
    pub(super) fn undo_cut(&mut self) {
        if !self.may_change() {
            return;
        }
        let path = self.chat.conversation.path();
        let Some((_, cut)) = self.chat.conversation.cut_on(&path) else {
            self.tell("All of this conversation is sent");
            return;
        };
        let mut entries = vec![Entry::Uncut { after: cut.after }];
        let asks = !matches!(self.chat.conversation.overflow, Overflow::Drop | Overflow::Summarise);
        if !asks {
            // Done by itself, the next question would bring the cut back.
            entries.push(Entry::Overflow { overflow: Overflow::Ask });
        }
        self.chat.edit(Edit::Cut, entries, true, None, &mut self.effects);
        let asked = if asks { "" } else { "; when it does not fit you are asked again" };
        self.tell(format!("What the cut left out is sent again{asked}"));
    }

    /// A key in the box with the choices.
    pub(super) fn full_key(&mut self, key: &KeyEvent, mut full: Box<Full>) {
        let chosen = match key.code {
            KeyCode::Up => {
                full.choose(-1);
                None
            }
            KeyCode::Down => {
                full.choose(1);
                None
            }
            KeyCode::Left => {
                full.keep(-1);
                None
            }
            KeyCode::Right => {
                full.keep(1);
                None
            }
            KeyCode::Enter => Some(full.chosen()),
            KeyCode::Char(c) => {
                let nth = c.to_digit(10).and_then(|d| usize::try_from(d).ok()).and_then(|d| d.checked_sub(1));
                nth.and_then(|nth| Full::CHOICES.get(nth).copied())
            }
            _ => None,
        };
        match chosen.map(|how| (how, full.plan(how))) {
            Some((how, Ok(plan))) => {
                // What is chosen without need is done once.
                if full.is_full() && self.chat.conversation.overflow != how {
                    let entries = vec![Entry::Overflow { overflow: how }];
                    self.chat.edit(Edit::Overflow, entries, true, None, &mut self.effects);
                }
                self.carry_out(*full, plan);
            }
            Some((_, Err(why))) => {
                self.tell(why);
                self.overlay = Some(Overlay::Full(full));
            }
            None => self.overlay = Some(Overlay::Full(full)),
        }
    }

    /// The box was left: all stays as it is.
    pub(super) fn leave_full(&mut self, chat: &ConversationId, asked: bool) {
        self.give_back_queued(chat);
        if asked {
            let last = self.chat.head().map(|m| m.role);
            self.tell(match last {
                Some(Role::User) => {
                    "Nothing has changed. F8 takes the question back, /overflow shows the choices again"
                }
                _ => "Nothing has changed. /overflow shows the choices again",
            });
        }
    }

    /// Whether an answer of the shown conversation has filled the context, so that it is measured before
    /// anything else is sent.
    pub(super) fn is_filled(&self, chat: &ConversationId, finish: Finish) -> bool {
        finish == Finish::ContextFull && self.chat.conversation.id == *chat && self.chat.is_ours()
    }

    /// The line of the transcript where the conversation is cut.
    pub fn cut_line(&self) -> Option<String> {
        let path = self.chat.conversation.path();
        let (n, cut) = self.chat.conversation.cut_on(&path)?;
        let s = if n == 1 { " above is" } else { "s above are" };
        let tokens = counted(cut.tokens);
        Some(match cut.summary {
            Some(_) => format!("{n} message{s} sent as a summary ({tokens} tokens, /cut)"),
            None => format!("{n} message{s} no longer sent ({tokens} tokens)"),
        })
    }
}

/// Whether something is still to be said where a path ends.
fn is_unanswered(message: &Message) -> bool {
    message.role == Role::User || message.made.as_ref().is_some_and(|m| m.finish == Finish::ContextFull)
}
