//! An answer on its way into its conversation: begun, grown, checkpointed, ended or broken off.

use std::time::{Duration, Instant};

use super::event::Effect;
use super::figures::Phase;
use super::{App, Chat};
use crate::chat::{
    ConversationId, Entry, Finish, LoopGuard, Made, Message, MessageState, Role, Sampling, Timings, TokenRecord, Usage,
};
use crate::engine::protocol::Alternative;

/// How often an answer that grows is written to disk.
const CHECKPOINT: Duration = Duration::from_secs(1);

impl App {
    /// The engine has begun: the answer becomes a message.
    pub(super) fn begin_answer(&mut self) {
        let at = self.now.wall_ms;
        let checkpoint = self.now.mono + CHECKPOINT;
        let Some(mut job) = self.engine.job.take() else { return };
        let mut effects = std::mem::take(&mut self.effects);
        job.checkpoint_at = Some(checkpoint);
        if let Some(chat) = self.chat_mut(&job.chat) {
            let continued = chat.conversation.message(job.message).filter(|m| m.role == Role::Assistant).map(|m| m.id);
            job.answer = continued.or_else(|| {
                let id = chat.conversation.next_id();
                let parent = Some(job.message);
                let message = Message::new(id, parent, Role::Assistant, "", at);
                let message = Message { state: MessageState::Open, ..message };
                chat.record(vec![Entry::Message(message)], false, None, &mut effects);
                Some(id)
            });
        }
        self.effects = effects;
        self.engine.job = Some(job);
    }

    pub(super) fn append(&mut self, text: &str) {
        let Some(job) = &mut self.engine.job else { return };
        if let Some(summary) = &mut job.summary {
            summary.text.push_str(text);
            return;
        }
        let (Some(id), false) = (job.answer, text.is_empty()) else { return };
        job.unsaved.push_str(text);
        let chat = job.chat.clone();
        if let Some(chat) = self.chat_mut(&chat) {
            // Into memory at once; into the file with the next checkpoint.
            chat.conversation.apply(&Entry::Append { id, text: text.to_owned() });
        }
    }

    /// Writes what came since the last checkpoint.
    pub(super) fn checkpoint(&mut self) {
        let now = self.now.mono;
        let Some(job) = self.engine.job.as_mut().filter(|j| j.checkpoint_at.is_some_and(|at| at <= now)) else {
            return;
        };
        job.checkpoint_at = Some(now + CHECKPOINT);
        let text = std::mem::take(&mut job.unsaved);
        if let (Some(id), false) = (job.answer, text.is_empty()) {
            let chat = job.chat.clone();
            self.write_only(&chat, vec![Entry::Append { id, text }], false);
        }
    }

    /// Writes entries that are in memory already.
    fn write_only(&mut self, chat: &ConversationId, entries: Vec<Entry>, sync: bool) {
        if self.chat_mut(chat).is_some_and(|c| c.is_ours()) {
            let request = crate::chat::StoreRequest::Append { id: chat.clone(), entries, sync, ticket: None };
            self.effects.push(Effect::Store(request));
        }
    }

    pub(super) fn remember_token(&mut self, record: Option<TokenRecord>) {
        if let (Some(job), Some(record)) = (&mut self.engine.job, record) {
            job.records.push(record);
        }
    }

    pub(super) fn looped(&mut self, period: u32) {
        let Some(job) = &mut self.engine.job else { return };
        job.looped = true;
        let then = match job.settings.loop_guard {
            LoopGuard::Stop => ", and was stopped",
            LoopGuard::Mark | LoopGuard::Off => ". Esc stops it",
        };
        let s = if period == 1 { "" } else { "s" };
        self.tell(format!("The answer repeats itself, every {period} token{s}{then}; F12 goes on with a penalty"));
    }

    /// The answers of a beam search: the first is the one that was written, the others are tries beside it.
    pub(super) fn take_alternatives(&mut self, made: &Made, alternatives: Vec<Alternative>) {
        let Some((chat, id)) = self.engine.job.as_ref().and_then(|j| Some((j.chat.clone(), j.answer?))) else { return };
        let continued = self.engine.job.as_ref().is_some_and(|j| j.message == id);
        let mut alternatives = alternatives.into_iter();
        if let (Some(best), Some(job)) = (alternatives.next(), &mut self.engine.job) {
            job.records.extend(best.records);
        }
        let at = self.now.wall_ms;
        let mut effects = Vec::new();
        let Some(chat) = self.chat_mut(&chat) else { return };
        // An answer that was begun before has one beginning, and the others would lack it.
        if continued {
            return;
        }
        let parent = chat.conversation.message(id).and_then(|m| m.parent);
        let mut entries = Vec::new();
        for (n, other) in (0..).zip(alternatives) {
            let made = other.made(made);
            let message = Message::new(chat.conversation.next_id() + n, parent, Role::Assistant, other.text, at);
            entries.push(Entry::Message(Message { made: Some(made), tokens: other.records, ..message }));
        }
        if !entries.is_empty() {
            entries.push(Entry::Head { id: Some(id) });
            chat.record(entries, true, None, &mut effects);
        }
        self.effects.append(&mut effects);
    }

    pub(super) fn end_answer(&mut self, made: Made) {
        let Some(job) = self.engine.job.take() else { return };
        let filled = job.answer.filter(|_| self.is_filled(&job.chat, made.finish));
        if let Some(id) = job.answer {
            let mut entries = Vec::new();
            if !job.unsaved.is_empty() {
                entries.push(Entry::Append { id, text: job.unsaved });
            }
            let tokens = Entry::Tokens { id, tokens: job.records };
            for entry in [tokens, Entry::Done { id, made }] {
                if matches!(&entry, Entry::Tokens { tokens, .. } if tokens.is_empty()) {
                    continue;
                }
                if let Some(chat) = self.chat_mut(&job.chat) {
                    chat.conversation.apply(&entry);
                }
                entries.push(entry);
            }
            self.write_only(&job.chat, entries, true);
        }
        self.let_go(&job.chat);
        match filled {
            Some(answer) => self.measure(answer, false),
            None => self.send_queued(&job.chat),
        }
    }

    /// Questions that waited go back to the input box, where it is empty; else they go on waiting.
    pub(super) fn give_back_queued(&mut self, id: &ConversationId) {
        if self.chat.conversation.id == *id && self.input.is_empty() && !self.chat.queued.is_empty() {
            let queued = std::mem::take(&mut self.chat.queued);
            self.input.set(&queued.join("\n"));
            self.typed();
        }
    }

    /// Ends the running answer as broken off; what came of it is kept. Its queued questions go back to the
    /// input box, because there is nothing to answer them; where something is typed there, they go on waiting.
    pub(super) fn break_off(&mut self, why: &str, finish: Finish) {
        let Some(job) = &self.engine.job else { return };
        tracing::info!("answer broken off: {why}");
        let id = job.chat.clone();
        let Some(chat) = self.chat_mut(&id) else { return };
        let sampling: Sampling = chat.conversation.sampling.clone();
        let queued = std::mem::take(&mut chat.queued);
        let (usage, timings): (Usage, Timings) = (self.engine.figures.usage, self.engine.figures.timings);
        let model = self.engine.model_name();
        // Of a search that nobody ends any more the leader is kept.
        let leader = std::mem::take(&mut self.engine.beams).into_iter().next();
        if let Some(leader) = leader {
            self.append(&leader.text);
        }
        let looped = self.engine.job.as_ref().is_some_and(|j| j.looped);
        let earlier = self.engine.job.as_mut().map(|j| std::mem::take(&mut j.earlier)).unwrap_or_default();
        self.end_answer(Made { usage, timings, earlier, looped, ..Made::new(&model, sampling, finish) });
        self.engine.figures.phase = Phase::Done;
        if let Some(chat) = self.chat_mut(&id) {
            chat.queued = queued;
        }
        self.give_back_queued(&id);
    }

    /// A conversation in the background whose answer ended is not needed any more.
    pub(super) fn let_go(&mut self, id: &ConversationId) {
        let waits = self.asks.iter().any(|a| a.chat == *id);
        if !waits && self.background.get(id).is_some_and(|c| c.queued.is_empty()) {
            let now = self.now.mono;
            if let Some(mut chat) = self.background.remove(id) {
                self.close(&mut chat, now);
            }
        }
    }

    /// Gives a conversation's file back.
    pub(super) fn close(&mut self, chat: &mut Chat, now: Instant) {
        chat.save_all(now, &mut self.effects);
        if chat.is_ours() && chat.has_file {
            let id = chat.conversation.id.clone();
            self.effects.push(Effect::Store(crate::chat::StoreRequest::Close(id)));
        }
    }
}
