//! The step loop's body: gather rows, decode, distribute. One session is one loaded model and its context.

mod beams;
mod begin;
mod keep;
mod map;
mod measure;
mod watch;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use llama_cpp_2::DecodeError;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::token::LlamaToken;

use super::job::Job;
use super::native::{NODES, Native, PATIENT};
use super::prompt::ChatTemplate;
use super::protocol::{Alternative, Cells, EngineEvent, JobId, ModelInfo, Problem, Prompt, Request};
use super::sampler::{self, Words};
use super::sequences::{Cache, Ledger, MAIN, SeqId, Shape, Token};
use super::states::{Keeper, States};
use super::strategy::Pace;
use super::threads::{Change, Governor, cores};
use super::tokens::Vocabulary;
use crate::chat::{Finish, LoopGuard, Mode, Role, Sampling};

/// Where events go; called on the step loop's thread and, for progress, on one beside it.
pub type Sink = std::sync::Arc<dyn Fn(EngineEvent) + Send + Sync>;

/// How often progress inside a chunk is told.
const PROGRESS: Duration = Duration::from_millis(50);
/// Below so many tokens a chunk is over before anybody could read its progress.
const LONG_CHUNK: usize = 64;

/// A request to generate that waits for its turn.
#[derive(Debug)]
pub struct Waiting {
    job: JobId,
    prompt: Prompt,
    sampling: Sampling,
    ignore_eog: bool,
    records: Option<u32>,
    arrived: Instant,
}

/// A loaded model at work.
pub struct Session<'m> {
    context: LlamaContext<'m>,
    native: Option<Native>,
    batch: LlamaBatch<'static>,
    vocabulary: Vocabulary<'m>,
    template: ChatTemplate,
    ledger: Ledger,
    /// What the cache held before.
    states: States,
    /// Keeps them in files.
    keeper: Option<Keeper>,
    /// Whose the tokens of the prompt in the main sequence are.
    parts: Vec<(Role, u32)>,
    /// The cache holds something that is not kept yet.
    unkept: bool,
    governor: Governor,
    waiting: VecDeque<Waiting>,
    job: Option<Job>,
    info: ModelInfo,
    /// Graph nodes of a decode call: how far one is, is told by it. 0 where they cannot be counted.
    nodes: u32,
    /// Whether the logits of the last decode call are those behind the main sequence.
    has_logits: bool,
    pace: Pace,
    /// How many candidates somebody looks at.
    watched: usize,
    /// What was chosen from the logits that are there.
    chosen: Option<Token>,
    glanced: Option<Instant>,
    glance_took: std::cell::Cell<Duration>,
    sink: Sink,
}

impl Cache for LlamaContext<'_> {
    fn remove_from(&mut self, seq: SeqId, position: usize) -> bool {
        self.clear_kv_cache_seq(Some(seq), u32::try_from(position).ok(), None).unwrap_or(false)
    }
    fn copy(&mut self, from: SeqId, to: SeqId) {
        // Whole sequences of a unified cache: only the cells' owners change.
        if let (Ok(from), Ok(to)) = (i32::try_from(from), i32::try_from(to)) {
            self.copy_cache(from, to, -1);
        }
    }
    fn clear(&mut self) {
        self.clear_kv_cache();
    }
    fn pos_min(&self, seq: SeqId) -> i32 {
        i32::try_from(seq).map_or(-1, |seq| self.kv_cache_seq_pos_min(seq))
    }
    fn pos_max(&self, seq: SeqId) -> i32 {
        i32::try_from(seq).map_or(-1, |seq| self.kv_cache_seq_pos_max(seq))
    }
}

/// What a session is made of.
pub struct Parts<'m> {
    /// The context.
    pub context: LlamaContext<'m>,
    /// The vocabulary.
    pub vocabulary: Vocabulary<'m>,
    /// The template, or raw completion.
    pub template: ChatTemplate,
    /// What the context's cache can do.
    pub shape: Shape,
    /// States of the cache that are known.
    pub states: States,
    /// Keeps them in files.
    pub keeper: Option<Keeper>,
    /// Threads; 0 to choose.
    pub threads: u32,
    /// What is known of the model.
    pub info: ModelInfo,
    /// When loading began.
    pub began: Instant,
}

impl<'m> Session<'m> {
    /// A session at rest.
    pub fn new(parts: Parts<'m>, sink: Sink) -> Self {
        let native = Native::attach(&parts.context);
        if native.is_none() {
            tracing::warn!("the context's address is not known: threads stay as they are");
        }
        let batch = LlamaBatch::new(parts.context.n_batch() as usize, 1);
        let mut session = Self {
            native,
            batch,
            vocabulary: parts.vocabulary,
            template: parts.template,
            ledger: Ledger::new(parts.shape),
            states: parts.states,
            keeper: parts.keeper,
            parts: Vec::new(),
            unkept: false,
            governor: Governor::new(cores(), parts.threads),
            waiting: VecDeque::new(),
            job: None,
            info: parts.info,
            nodes: 0,
            has_logits: false,
            pace: Pace::default(),
            watched: 0,
            chosen: None,
            glanced: None,
            glance_took: std::cell::Cell::default(),
            sink,
            context: parts.context,
        };
        session.use_threads();
        session.info.threads = session.governor.threads();
        session.warm_up();
        session.info.load_ms = parts.began.elapsed().as_secs_f64() * 1000.0;
        (session.sink)(EngineEvent::Loaded(Box::new(session.info.clone())));
        session
    }

    /// One decode call for nothing: brings the weights into memory, so that the first answer's times are its
    /// own, and tells how many graph nodes a call has.
    fn warm_up(&mut self) {
        if self.fill_main(&[self.vocabulary.any()], true).is_ok() && self.compute(1, None).is_ok() {
            self.nodes = NODES.load(Ordering::Relaxed);
        }
        self.ledger.clear(&mut self.context);
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.job.as_ref().map_or(self.waiting.is_empty(), |job| job.waits)
    }

    /// Takes a request that is not about loading.
    pub fn request(&mut self, request: Request, arrived: Instant) {
        match request {
            Request::Generate { job, prompt, sampling, ignore_eog, records } => {
                self.waiting.push_back(Waiting { job, prompt, sampling, ignore_eog, records, arrived });
            }
            Request::Sampling { job: id, sampling } => {
                if let Some(waiting) = self.waiting.iter_mut().find(|w| w.job == id) {
                    waiting.sampling = sampling;
                } else {
                    self.steer(id, sampling);
                }
            }
            Request::Pick { job, pick } => self.pick(job, pick),
            Request::Watch { candidates } => {
                self.watched = candidates as usize;
                self.glanced = None;
            }
            Request::Look { sampling } => self.look(sampling),
            Request::Check { sampling } => {
                if let Err(problem) = sampler::Sampler::new(sampling, &self.vocabulary, 0) {
                    (self.sink)(EngineEvent::Unusable { problem });
                }
            }
            Request::Map => self.tell_map(),
            Request::Drop { seq } => self.drop_sequence(seq),
            Request::Pin { seq } => self.pin(seq),
            Request::Score { job, prompt } => self.score(job, &prompt),
            Request::Measure { job, prompt } => self.measure(job, &prompt),
            Request::Split { text } => {
                let tokens = self.vocabulary.split(&text);
                (self.sink)(EngineEvent::Split { text, tokens });
            }
            Request::Cancel { job } => self.cancel(job),
            Request::ClearCache => {
                if self.job.is_none() {
                    self.has_logits = false;
                    self.ledger.clear(&mut self.context);
                    self.states.clear();
                }
            }
            Request::Threads { threads } => {
                self.governor = Governor::new(cores(), threads);
                self.use_threads();
                self.tell_threads("set");
            }
            Request::Load { .. } | Request::Shutdown => {}
        }
    }

    /// Ends every job and keeps what the cache holds, because the model goes.
    pub fn close(&mut self) {
        while let Some(id) = self.job.as_ref().map(|j| j.id).or(self.waiting.front().map(|w| w.job)) {
            self.cancel(id);
        }
        if self.wants_rest() {
            self.rest();
        }
    }

    fn cancel(&mut self, id: JobId) {
        if self.job.as_ref().is_some_and(|j| j.id == id) {
            self.finish(Finish::Cancelled);
        } else {
            let at = self.waiting.iter().position(|w| w.job == id);
            if let Some(w) = at.and_then(|at| self.waiting.remove(at)) {
                (self.sink)(EngineEvent::Finished {
                    job: w.job,
                    text: String::new(),
                    finish: Finish::Cancelled,
                    usage: crate::chat::Usage::default(),
                    timings: crate::chat::Timings::default(),
                    seed: 0,
                    sampling: Box::new(w.sampling),
                    cells: Cells::default(),
                    alternatives: Vec::new(),
                    origin: None,
                });
            }
        }
    }

    /// One round: a chunk of a prompt, or one token of an answer.
    pub fn step(&mut self) {
        if self.job.is_none() {
            let Some(waiting) = self.waiting.pop_front() else { return };
            let id = waiting.job;
            match self.begin(waiting) {
                Ok(job) => self.job = Some(job),
                Err(refusal) => (self.sink)(refusal.told(id)),
            }
            return;
        }
        let Some(job) = self.job.take() else { return };
        let id = job.id;
        let stepped = if job.waits {
            Ok(Some(job))
        } else if job.read < job.prompt.len() {
            self.prefill(job)
        } else if job.beams.is_some() {
            self.beam_step(job)
        } else {
            self.decode(job)
        };
        match stepped {
            Ok(job) => self.job = job,
            Err(problem) => {
                self.has_logits = false;
                self.ledger.clear(&mut self.context);
                (self.sink)(EngineEvent::Failed { job: id, problem, size: None });
            }
        }
    }

    fn prefill(&mut self, mut job: Job) -> Result<Option<Job>, Problem> {
        let mut end = job.prompt.len().min(job.read + self.context.n_batch() as usize);
        // A state that cannot be cut is kept before the last token, with which a regenerate begins.
        let apart = self.is_whole() && !self.states.is_off() && end == job.prompt.len();
        if apart && job.read + 1 < end {
            end -= 1;
        }
        let chunk = &job.prompt[job.read..end];
        let last = end == job.prompt.len();
        self.fill_main(chunk, last)?;
        match self.compute(chunk.len(), Some(progress(&job))) {
            Ok(()) => {}
            Err(stop) => return self.stopped(job, &stop),
        }
        self.ledger.extend(&job.prompt[job.read..end]);
        job.has_read(end - job.read);
        if apart && !last {
            self.keep(MAIN);
        }
        if last {
            self.has_logits = true;
            job.clock.prefill_done();
        }
        (self.sink)(progress(&job));
        if last { self.choose(job) } else { Ok(Some(job)) }
    }

    fn decode(&mut self, mut job: Job) -> Result<Option<Job>, Problem> {
        // Without a token that waits to be decoded the logits are there and a choice is due.
        let Some(token) = job.next else { return self.choose(job) };
        if !self.ledger.has_room(1) {
            return Ok(self.end(job, Finish::ContextFull));
        }
        let began = Instant::now();
        self.fill_main(&[token], true)?;
        match self.compute(1, None) {
            Ok(()) => {}
            Err(stop) => return self.stopped(job, &stop),
        }
        self.ledger.extend(&[token]);
        self.has_logits = true;
        job.next = None;
        self.watch_threads(began);
        self.choose(job)
    }

    fn watch_threads(&mut self, began: Instant) {
        let now = Instant::now();
        if let Some(change) = self.governor.step(now.duration_since(began).as_secs_f64() * 1000.0, now) {
            self.tell_change(&change);
        }
        self.use_threads();
    }

    /// Chooses the next token from the logits of the last decode call.
    fn choose(&mut self, mut job: Job) -> Result<Option<Job>, Problem> {
        match job.sampler.sampling().mode {
            Mode::Beam => return self.begin_beams(job),
            Mode::Hand if job.forced.is_empty() && !job.chain => return Ok(Some(self.wait_for_hand(job))),
            _ => {}
        }
        let logits = self.context.get_logits_ith(-1);
        let history = self.ledger.tokens();
        let token = match job.forced.pop_front() {
            Some(token) => {
                if let Some(problem) = job.sampler.forbids(token) {
                    (self.sink)(EngineEvent::Refused { job: job.id, problem });
                    job.forced.clear();
                    return Ok(Some(self.wait_for_hand(job)));
                }
                token
            }
            None => job.sampler.choose(logits, history, &self.vocabulary)?,
        };
        job.chain = false;
        self.chosen = Some(token);
        if self.watched > 0 && self.glance_is_due() {
            self.glance(&job.sampler);
        }
        if self.vocabulary.is_end(token) && !job.ignore_eog {
            return Ok(self.end(job, Finish::Stop));
        }
        let logits = self.context.get_logits_ith(-1);
        let record = job.records.map(|others| sampler::record(logits, token, &self.vocabulary, others));
        job.sampler.accept(token)?;
        job.answer.push(token);
        let text = job.text.push(&self.vocabulary.text(token));
        let gap_ms = job.clock.token();
        job.cells.assistant += 1;
        job.next = Some(token);
        (self.sink)(EngineEvent::Token { job: job.id, text, n: job.n(), gap_ms, record });
        if job.n() >= job.sampler.sampling().max_tokens {
            return Ok(self.end(job, Finish::Length));
        }
        if self.loops(&mut job, token) {
            return Ok(self.end(job, Finish::Loop));
        }
        Ok(Some(job))
    }

    /// Tells an answer that repeats itself. Whether it is to be stopped.
    fn loops(&self, job: &mut Job, token: Token) -> bool {
        if job.looped && job.sampler.sampling().loop_guard != LoopGuard::Stop {
            return false;
        }
        let guard = job.sampler.sampling().loop_guard;
        let has_letter = String::from_utf8_lossy(&self.vocabulary.text(token)).chars().any(char::is_alphabetic);
        if guard == LoopGuard::Off || job.ignore_eog {
            return false;
        }
        let repetition = job.guard.push(token, has_letter);
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let told = repetition.map_or((0, 0), |r| (number(r.rounds), number(r.period)));
        if told != job.repeats {
            job.repeats = told;
            (self.sink)(EngineEvent::Repeats { job: job.id, rounds: told.0, period: told.1 });
        }
        if !repetition.is_some_and(|r| r.loops) {
            return false;
        }
        job.guard.reset();
        job.looped = true;
        (self.sink)(EngineEvent::Looped { job: job.id, period: told.1 });
        guard == LoopGuard::Stop
    }

    /// Puts tokens behind the main sequence into the batch.
    fn fill_main(&mut self, tokens: &[Token], logits: bool) -> Result<(), Problem> {
        let from = self.ledger.len();
        let last = tokens.len().saturating_sub(1);
        self.fill(tokens.iter().enumerate().map(|(i, token)| (*token, from + i, MAIN, logits && i == last)))
    }

    fn fill(&mut self, rows: impl Iterator<Item = (Token, usize, SeqId, bool)>) -> Result<(), Problem> {
        self.batch.clear();
        for (token, position, seq, logits) in rows {
            let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
            self.batch
                .add(LlamaToken(token), number(position), &[number(seq as usize)], logits)
                .map_err(|e| Problem::new(format!("The batch is too small ({e})"), "Please report this"))?;
        }
        Ok(())
    }

    /// Runs the batch. While a long one runs, `progress` is told with the tokens that are through by now.
    fn compute(&mut self, rows: usize, progress: Option<EngineEvent>) -> Result<(), DecodeError> {
        self.has_logits = false;
        self.chosen = None;
        NODES.store(0, Ordering::Relaxed);
        // A recurrent state that a half computed step has changed is lost, and all that was read with it.
        PATIENT.store(rows == 1 && self.ledger.shape().whole, Ordering::Relaxed);
        let Some(progress) = progress.filter(|_| rows >= LONG_CHUNK && self.nodes > 0) else {
            self.context.decode(&mut self.batch)?;
            self.context.synchronize();
            return Ok(());
        };
        let nodes = self.nodes;
        let sink = self.sink.clone();
        let (done, wait) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || tell_progress(&wait, &sink, &progress, rows, nodes));
            let result = self.context.decode(&mut self.batch);
            self.context.synchronize();
            drop(done);
            result
        })
    }

    /// After a decode call that did not go through.
    fn stopped(&mut self, job: Job, error: &DecodeError) -> Result<Option<Job>, Problem> {
        self.ledger.repair(&mut self.context);
        let whole = self.ledger.len() >= job.read;
        match error {
            // Stopped by an urgent request, which says what is to be done. The job's own
            // state is untouched, so if the request is about something else, it simply goes on.
            DecodeError::Unknown(2) if whole => Ok(Some(job)),
            DecodeError::Unknown(2) if job.next.is_none() => Ok(Some(job.back_to(self.ledger.len()))),
            DecodeError::NoKvCacheSlot => Ok(self.end(job, Finish::ContextFull)),
            other => Err(Problem::new(
                format!("llama.cpp could not compute the next step ({other})"),
                "Ask again; if it stays so, restart the engine with F5",
            )),
        }
    }

    fn finish(&mut self, finish: Finish) {
        if let Some(job) = self.job.take() {
            if job.beams.is_some() {
                self.end_beams(job, finish)
            } else {
                self.end(job, finish)
            };
        }
    }

    /// Tells a job's end.
    fn end(&mut self, job: Job, finish: Finish) -> Option<Job> {
        self.end_with(job, finish, Vec::new())
    }

    fn end_with(&mut self, mut job: Job, finish: Finish, alternatives: Vec<Alternative>) -> Option<Job> {
        if job.read < job.prompt.len() {
            job.clock.prefill_done();
        }
        if !self.ledger.agrees(&self.context) {
            self.ledger.repair(&mut self.context);
        }
        self.unkept = true;
        if self.watched > 0 {
            // Where the answer ends, whatever was told last.
            self.glance(&job.sampler);
        }
        (self.sink)(EngineEvent::Finished {
            job: job.id,
            text: std::mem::take(&mut job.rest) + &job.text.finish(),
            finish,
            usage: job.usage(),
            timings: job.clock.timings(),
            seed: job.seed,
            sampling: Box::new(job.sampler.sampling().clone()),
            cells: job.cells.among(u32::try_from(self.ledger.used()).unwrap_or(u32::MAX)),
            alternatives,
            origin: Some(Box::new(job.origin(&self.info.origin, self.governor.threads()))),
        });
        None
    }

    fn use_threads(&self) {
        if let Some(native) = &self.native {
            native.set_threads(self.governor.threads());
        }
    }

    fn tell_change(&self, change: &Change) {
        tracing::info!(threads = change.threads, why = change.why, "threads");
        self.tell_threads(change.why);
    }

    fn tell_threads(&self, why: &str) {
        (self.sink)(EngineEvent::Threads { threads: self.governor.threads(), why: why.to_owned() });
    }
}

/// How far a job's prompt is read.
fn progress(job: &Job) -> EngineEvent {
    EngineEvent::Prefill {
        job: job.id,
        done: u32::try_from(job.read - job.reused).unwrap_or(u32::MAX),
        total: u32::try_from(job.fresh()).unwrap_or(u32::MAX),
        ms: job.clock.prefill_so_far(),
    }
}

fn tell_progress(wait: &mpsc::Receiver<()>, sink: &Sink, progress: &EngineEvent, rows: usize, nodes: u32) {
    let EngineEvent::Prefill { job, done, total, ms } = *progress else { return };
    let began = Instant::now();
    while wait.recv_timeout(PROGRESS) == Err(mpsc::RecvTimeoutError::Timeout) {
        let share = (f64::from(NODES.load(Ordering::Relaxed)) / f64::from(nodes)).min(1.0);
        let through = (share * rows as f64) as u32;
        let ms = ms + began.elapsed().as_secs_f64() * 1000.0;
        sink(EngineEvent::Prefill { job, done: (done + through).min(total), total, ms });
    }
}
