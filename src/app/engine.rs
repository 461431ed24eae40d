//! The engine as the app sees it: what it does, what it was asked, what it said, and how it ended.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::App;
use super::event::Effect;
use super::figures::{Figures, Phase};
use super::summary::Summary;
use crate::chat::{ConversationId, Edit, Entry, Finish, Made, MessageId, MessageState, Role, Sampling, TokenRecord};
use crate::engine::protocol::{
    BeamLine, Cells, ContextParams, EngineEvent, EngineNews, JobId, ModelInfo, Pick, Problem, Prompt, Request,
};

/// After so much silence during work the engine is called stuck.
const SILENCE: Duration = Duration::from_secs(20);
/// After so much silence a stop is called not obeyed.
const DISOBEYED: Duration = Duration::from_secs(2);

/// What the engine is doing.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It was started and loads the model: this share of it is there.
    Loading(f32),
    /// It has a model.
    Ready,
    /// It has none, and this is why.
    Failed(Problem),
    /// It is gone, and this is how.
    Dead(String),
}

/// A question whose turn has not come.
#[derive(Debug)]
pub struct Ask {
    /// In which conversation.
    pub chat: ConversationId,
    /// The message to answer, or the answer to continue.
    message: MessageId,
    /// What `Saved` must repeat before the engine is asked.
    ticket: Option<u64>,
    /// Not its answer is asked for, but a summary of what leads to it.
    summary: Option<Box<Summary>>,
}

/// An answer that runs.
#[derive(Debug)]
pub struct Job {
    pub(super) id: JobId,
    /// In which conversation.
    pub chat: ConversationId,
    /// What is answered, or the answer that is continued.
    pub(super) message: MessageId,
    /// The answer, once it began.
    pub answer: Option<MessageId>,
    /// Text that is not in the file yet.
    pub(super) unsaved: String,
    /// How probable its tokens were; those of a continued answer's beginning are on its message.
    pub(super) records: Vec<TokenRecord>,
    /// It waits for a choice.
    pub by_hand: bool,
    /// Choices that were made before it waited.
    pub(super) picks: VecDeque<Pick>,
    pub(super) looped: bool,
    /// It writes a summary, and no answer begins.
    pub(super) summary: Option<Box<Summary>>,
    /// The settings that it has now, and those before with the token until which they counted.
    pub(super) settings: Sampling,
    pub(super) earlier: Vec<(u32, Sampling)>,
    pub(super) checkpoint_at: Option<Instant>,
    pub(super) heard_at: Instant,
    pub(super) stopped_at: Option<Instant>,
    pub(super) told_stuck: bool,
}

impl Job {
    /// Whether it was told to stop and has not ended yet.
    pub fn is_stopping(&self) -> bool {
        self.stopped_at.is_some()
    }
}

/// The engine and its work.
#[derive(Debug)]
pub struct Engine {
    /// What it is doing.
    pub state: State,
    /// The model that is loaded.
    pub info: Option<ModelInfo>,
    /// The answer that runs.
    pub job: Option<Job>,
    /// The beams of the answer that runs, best first, then what ended.
    pub beams: Vec<BeamLine>,
    /// How often their lead changed.
    pub overtakes: u32,
    /// Figures of the answer that runs, or ran last.
    pub figures: Figures,
    /// Whose the cells of the cache are.
    pub cells: Cells,
    path: Option<PathBuf>,
    params: ContextParams,
    /// How the context before the one that is being made was made, to go back to if that fails.
    before: Option<ContextParams>,
    /// A context that could not be made.
    pub(super) too_large: Option<u32>,
    loading_heard_at: Option<Instant>,
}

impl Engine {
    pub(super) fn new(params: ContextParams) -> Self {
        Self {
            state: State::Loading(0.0),
            info: None,
            job: None,
            beams: Vec::new(),
            overtakes: 0,
            figures: Figures::default(),
            cells: Cells::default(),
            path: None,
            params,
            before: None,
            too_large: None,
            loading_heard_at: None,
        }
    }

    /// The model's name, or its file's before it is loaded.
    pub fn model_name(&self) -> String {
        let file = || self.path.as_ref().and_then(|p| p.file_stem()).map(|s| s.to_string_lossy().into_owned());
        self.info.as_ref().map(|i| i.name.clone()).or_else(file).unwrap_or_default()
    }

    /// Whether somebody has said yes to a context longer than the model was trained on.
    pub(super) fn may_go_beyond(&self) -> bool {
        self.params.beyond_trained
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let job = self.job.as_ref();
        let checkpoint = job.and_then(|j| j.checkpoint_at);
        let stop = job.and_then(|j| j.stopped_at).map(|at| at + DISOBEYED);
        let silence = job.map(|j| j.heard_at).or(self.loading_heard_at).map(|at| at + SILENCE);
        let watched = stop.or(silence).filter(|_| job.is_none_or(|j| !j.told_stuck && (!j.by_hand || j.is_stopping())));
        [checkpoint, watched].into_iter().flatten().min()
    }
}

impl App {
    /// Starts an engine with that model.
    pub(super) fn load(&mut self, path: PathBuf) {
        self.break_off("the model was changed", Finish::Failed);
        self.engine.path = Some(path.clone());
        self.engine.info = None;
        self.engine.state = State::Loading(0.0);
        self.engine.cells = Cells::default();
        self.engine.loading_heard_at = Some(self.now.mono);
        let params = self.engine.params.clone();
        self.effects.push(Effect::StartEngine);
        self.effects.push(Effect::Engine(Request::Load { path, params }));
    }

    /// Starts the engine again after it died, hung or failed.
    pub(super) fn restart(&mut self) {
        match self.engine.path.clone() {
            Some(path) => {
                self.load(path);
                self.tell("The engine starts again");
            }
            None => self.error("There is no model to start with. Choose one with /model"),
        }
    }

    /// Another context size: the model is loaded anew with it.
    pub(super) fn set_context(&mut self, n_ctx: u32) {
        self.engine.before = self.engine.info.is_some().then(|| self.engine.params.clone());
        self.engine.params.n_ctx = Some(n_ctx);
        if let Some(path) = self.engine.path.clone() {
            self.load(path);
        }
    }

    /// A context longer than the model was trained on, now that somebody has said yes.
    pub(super) fn go_beyond(&mut self, n_ctx: u32, then: Option<(ConversationId, MessageId)>) {
        self.engine.params.beyond_trained = true;
        self.enlarge(n_ctx, then);
    }

    /// Another context could not be made: the one before is.
    fn load_as_before(&mut self) {
        if let (Some(before), Some(path)) = (self.engine.before.take(), self.engine.path.clone()) {
            self.engine.too_large = self.engine.params.n_ctx;
            self.engine.params = before;
            self.load(path);
        }
    }

    /// Asks for an answer to a message, or for more of an answer, when what leads to it is on disk.
    pub(super) fn ask(&mut self, message: MessageId, ticket: Option<u64>) {
        self.ask_in(self.chat.conversation.id.clone(), message, ticket);
        self.tell_why_it_waits();
    }

    /// Says so where a question has to wait for more than the engine's turn.
    pub(super) fn tell_why_it_waits(&mut self) {
        match &self.engine.state {
            State::Dead(_) => self.error("The engine is gone; the question waits. Press F5 to start it again"),
            State::Failed(problem) => {
                let text = format!("The question waits for a model. {problem}");
                self.error(text);
            }
            State::Loading(_) | State::Ready => {}
        }
    }

    /// The same for a conversation that need not be the one shown.
    pub(super) fn ask_in(&mut self, chat: ConversationId, message: MessageId, ticket: Option<u64>) {
        let mut effects = Vec::new();
        if let Some(chat) = self.chat_mut(&chat) {
            let answer = chat.conversation.message(message).filter(|m| m.role == Role::Assistant);
            // One that is still open was begun by an edit of its own.
            if answer.is_some_and(|m| m.state == MessageState::Complete) {
                let step = Entry::Step { what: Edit::Continue, message: Some(message) };
                chat.record(vec![step], false, None, &mut effects);
            }
        }
        self.effects.append(&mut effects);
        self.asks.push_back(Ask { chat, message, ticket, summary: None });
    }

    /// Asks for a summary of what leads to a message, before anything else.
    pub(super) fn ask_summary(&mut self, chat: ConversationId, message: MessageId, summary: Box<Summary>) {
        self.asks.push_front(Ask { chat, message, ticket: None, summary: Some(summary) });
    }

    /// What was asked for with that ticket is on disk, or cannot be and is kept in memory.
    pub(super) fn may_ask(&mut self, chat: &ConversationId, ticket: Option<u64>) {
        for ask in &mut self.asks {
            if ask.chat == *chat && (ticket.is_none() || ask.ticket == ticket) {
                ask.ticket = None;
            }
        }
    }

    /// A conversation has another id from now on, and a file with all of it in it; its answers follow it.
    pub(super) fn rename_jobs(&mut self, from: &ConversationId, to: &ConversationId) {
        for ask in self.asks.iter_mut().filter(|a| a.chat == *from) {
            ask.chat = to.clone();
        }
        if let Some(job) = self.engine.job.as_mut().filter(|j| j.chat == *from) {
            job.chat = to.clone();
            job.unsaved.clear();
        }
    }

    /// Asks the engine for the next answer, if it is free.
    pub(super) fn ask_next(&mut self) {
        if self.engine.state != State::Ready || self.engine.job.is_some() {
            return;
        }
        let Some(at) = self.asks.iter().position(|a| a.ticket.is_none()) else { return };
        let Some(Ask { chat: id, message, summary, .. }) = self.asks.remove(at) else { return };
        let job = self.next_number();
        let Some(chat) = self.chat_mut(&id) else { return };
        let (prompt, sampling) = match &summary {
            Some(summary) => (summary.prompt(), summary.sampling()),
            None => (Prompt::to(&chat.conversation, message), chat.conversation.sampling.clone()),
        };
        self.look_at(Some(id.clone()));
        self.engine.figures = Figures::default();
        self.engine.job = Some(Job {
            id: job,
            chat: id,
            message,
            answer: None,
            unsaved: String::new(),
            records: Vec::new(),
            by_hand: false,
            picks: VecDeque::new(),
            looped: false,
            summary,
            settings: sampling.clone(),
            earlier: Vec::new(),
            checkpoint_at: None,
            heard_at: self.now.mono,
            stopped_at: None,
            told_stuck: false,
        });
        self.effects.push(Effect::Engine(Request::Generate {
            job,
            prompt,
            sampling,
            ignore_eog: false,
            records: Some(TokenRecord::OTHERS),
        }));
    }

    /// Stops the answer that runs or waits in the conversation that is shown. Tells whether there was one.
    pub(super) fn stop(&mut self) -> bool {
        let id = self.chat.conversation.id.clone();
        let now = self.now.mono;
        if let Some(job) = self.engine.job.as_mut().filter(|j| j.chat == id) {
            if job.stopped_at.is_none() {
                job.stopped_at = Some(now);
                let job = job.id;
                self.effects.push(Effect::Engine(Request::Cancel { job }));
            }
            return true;
        }
        let before = self.asks.len();
        self.asks.retain(|a| a.chat != id);
        before != self.asks.len()
    }

    /// The running answer gets the settings of its conversation.
    pub(super) fn steer(&mut self) {
        let id = &self.chat.conversation.id;
        let n = self.engine.figures.usage.completion_tokens;
        if let Some(job) = self.engine.job.as_mut().filter(|j| j.chat == *id && j.summary.is_none()) {
            let sampling = self.chat.conversation.sampling.clone();
            let before = std::mem::replace(&mut job.settings, sampling.clone());
            // Several moves before one token are one, and before the first they are none.
            if n > job.earlier.last().map_or(0, |(until, _)| *until) {
                job.earlier.push((n, before));
            }
            self.effects.push(Effect::Engine(Request::Sampling { job: job.id, sampling }));
        }
    }

    pub(super) fn engine_news(&mut self, news: EngineNews) {
        match news {
            EngineNews::Event(event) => self.engine_event(event),
            EngineNews::Garbage(line) => self.error(format!("The engine wrote a line that is no event: {line}")),
            EngineNews::Died { how, last_words } => {
                self.count_no_more();
                let why = last_words.last().map(|w| format!(": {w}")).unwrap_or_default();
                let during =
                    if matches!(self.engine.state, State::Loading(_)) { " while loading the model" } else { "" };
                self.break_off(&how, Finish::Failed);
                self.engine.loading_heard_at = None;
                self.engine.cells = Cells::default();
                self.error(format!("The engine {how}{during}. Press F5 to start it again{why}"));
                self.engine.state = State::Dead(how);
            }
        }
    }

    #[allow(clippy::too_many_lines)] // One arm an event, and the match is exhaustive: that is its point.
    fn engine_event(&mut self, event: EngineEvent) {
        let now = self.now.mono;
        if self.engine.loading_heard_at.is_some() {
            self.engine.loading_heard_at = Some(now);
        }
        match event {
            EngineEvent::Hello { .. } => {}
            EngineEvent::Glance(glance) => self.glanced(glance),
            EngineEvent::Scored { job, tokens } => self.scored(job, tokens),
            EngineEvent::Split { text, tokens } => self.was_split(text, tokens),
            EngineEvent::Measured { job, size, .. } => {
                if !self.counted(job, Some(&size)) {
                    self.measured(job, &size);
                }
            }
            EngineEvent::Unusable { problem } => self.rules_refused(&problem),
            EngineEvent::Waiting { job } => {
                if self.heard(job) {
                    self.waits_for_hand();
                }
            }
            EngineEvent::Map(map) => self.mapped(map),
            EngineEvent::Repeats { job, rounds, period } => {
                if self.heard(job) {
                    self.engine.figures.repeats = Some((rounds, period)).filter(|(rounds, _)| *rounds > 0);
                }
            }
            EngineEvent::Looped { job, period } => {
                if self.heard(job) {
                    self.looped(period);
                }
            }
            EngineEvent::Beams { job, n, gap_ms, agreed, beams, overtakes, cells } => {
                if self.heard(job) {
                    self.engine.cells = cells;
                    self.engine.figures.token(n, gap_ms);
                    self.engine.beams = beams;
                    self.engine.overtakes = overtakes;
                    self.append(&agreed);
                }
            }
            EngineEvent::Loading { fraction } => self.engine.state = State::Loading(fraction),
            EngineEvent::Loaded(info) => {
                self.engine.loading_heard_at = None;
                // What is wrong with the settings must be read first.
                if let Some(note) = info.notes.first().filter(|_| self.notice.as_ref().is_none_or(|n| !n.is_error)) {
                    self.tell(note.clone());
                }
                self.engine.info = Some(*info);
                self.engine.before = None;
                self.engine.state = State::Ready;
                self.look_at(None);
                if let Some(split) = &mut self.split {
                    *split = super::Split::default();
                }
                self.split_again();
                self.effects.extend(self.engine.path.clone().map(Effect::RememberModel));
            }
            EngineEvent::LoadFailed(problem) => {
                self.engine.loading_heard_at = None;
                self.error(problem.to_string());
                self.engine.state = State::Failed(problem);
                self.load_as_before();
            }
            EngineEvent::Threads { threads, .. } => {
                if let Some(info) = &mut self.engine.info {
                    info.threads = threads;
                }
            }
            EngineEvent::Started {
                job, prompt_tokens, reused_tokens, restored_tokens, cells, because, notes, ..
            } => {
                if self.heard(job) {
                    self.engine.figures.started(prompt_tokens, reused_tokens);
                    self.engine.figures.restored = restored_tokens;
                    self.engine.figures.because = because;
                    self.engine.cells = cells;
                    if self.engine.job.as_ref().is_some_and(|j| j.summary.is_none()) {
                        if let Some(note) = notes.first() {
                            self.tell(note.clone());
                        }
                        self.begin_answer();
                    }
                }
            }
            EngineEvent::Prefill { job, done, ms, .. } => {
                if self.heard(job) {
                    self.engine.figures.prefill(done, ms);
                }
            }
            EngineEvent::Token { job, text, n, gap_ms, record } => {
                if self.heard(job) {
                    // A search that was given up for another mode has no beams any more.
                    self.engine.beams.clear();
                    self.remember_token(record);
                    self.engine.figures.token(n, gap_ms);
                    self.engine.cells.assistant += 1;
                    self.append(&text);
                }
            }
            EngineEvent::Finished {
                job,
                text,
                finish,
                usage,
                timings,
                seed,
                sampling,
                cells,
                alternatives,
                origin,
            } => {
                if self.heard(job) {
                    self.engine.beams.clear();
                    if self.engine.figures.phase != Phase::Waiting {
                        self.engine.cells = cells;
                    }
                    self.look_at_cache();
                    self.engine.figures.finished(usage, timings);
                    self.append(&text);
                    if self.engine.job.as_ref().is_some_and(|j| j.summary.is_some()) {
                        self.summarised(finish);
                        return;
                    }
                    let model = self.engine.model_name();
                    let looped = self.engine.job.as_ref().is_some_and(|j| j.looped);
                    let score = alternatives.first().map(|a| a.score);
                    let earlier = self.engine.job.as_mut().map(|j| std::mem::take(&mut j.earlier)).unwrap_or_default();
                    let sampling = *sampling;
                    let made = Made { model, sampling, seed, finish, usage, timings, score, earlier, looped, origin };
                    self.take_alternatives(&made, alternatives);
                    self.end_answer(made);
                }
            }
            EngineEvent::Refused { job, problem } => {
                if self.heard(job) {
                    self.engine.job.iter_mut().for_each(|j| j.picks.clear());
                    self.error(problem.to_string());
                }
            }
            EngineEvent::Failed { job, .. } if self.counted(job, None) => {}
            EngineEvent::Failed { job, problem, size } => {
                if self.scoring.take_if(|s| *s == job).is_some() || self.not_measured(job) {
                    self.error(problem.to_string());
                } else if self.heard(job) {
                    if let Some(size) = size {
                        self.too_long(&problem, &size);
                    } else {
                        self.break_off(&problem.what, Finish::Failed);
                        self.error(problem.to_string());
                    }
                }
            }
        }
    }

    /// Whether an event is about the answer that runs; those of earlier ones come late and mean nothing.
    fn heard(&mut self, id: JobId) -> bool {
        let now = self.now.mono;
        let Some(job) = self.engine.job.as_mut().filter(|j| j.id == id) else { return false };
        job.heard_at = now;
        job.told_stuck = false;
        true
    }

    /// Tells when the engine is silent for too long.
    pub(super) fn watch_engine(&mut self) {
        let now = self.now.mono;
        if self.engine.loading_heard_at.take_if(|at| now.duration_since(*at) >= SILENCE).is_some() {
            self.error("The engine has said nothing for 20 seconds while loading. Wait, or press F5 to start it again");
        }
        let Some(job) = &mut self.engine.job else { return };
        let disobeyed = job.stopped_at.is_some_and(|at| now.duration_since(at) >= DISOBEYED);
        let silent = !job.by_hand && now.duration_since(job.heard_at) >= SILENCE;
        if !job.told_stuck && (disobeyed || silent) {
            job.told_stuck = true;
            self.error(if disobeyed {
                "The engine does not stop. Press F5 to start it again; the text so far is kept"
            } else {
                "The engine has said nothing for 20 seconds. Wait, or press F5 to start it again; the text is kept"
            });
        }
    }
}
