//! The step loop's body: gather rows, decode, distribute. One session is one loaded model and its context.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use llama_cpp_2::DecodeError;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::token::LlamaToken;

use super::job::{Clock, Job};
use super::native::{NODES, Native};
use super::prompt::{self, ChatTemplate, Rendered};
use super::protocol::{EngineEvent, JobId, ModelInfo, Problem, Prompt, Request};
use super::sampler::Sampler;
use super::sequences::{Cache, Ledger, Token};
use super::threads::{Change, Governor, cores};
use super::tokens::{Encoded, Vocabulary};
use crate::chat::{Finish, Sampling};

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
    governor: Governor,
    waiting: VecDeque<Waiting>,
    job: Option<Job>,
    info: ModelInfo,
    /// Graph nodes of a decode call: how far one is, is told by it. 0 where they cannot be counted.
    nodes: u32,
    sink: Sink,
}

impl Cache for LlamaContext<'_> {
    fn remove_from(&mut self, position: usize) -> bool {
        self.clear_kv_cache_seq(Some(0), u32::try_from(position).ok(), None).unwrap_or(false)
    }
    fn clear(&mut self) {
        self.clear_kv_cache();
    }
    fn pos_min(&self) -> i32 {
        self.kv_cache_seq_pos_min(0)
    }
    fn pos_max(&self) -> i32 {
        self.kv_cache_seq_pos_max(0)
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
    /// Cells that a windowed layer looks back, where it keeps no more than those.
    pub window: Option<usize>,
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
            ledger: Ledger::new(parts.window),
            governor: Governor::new(cores(), parts.threads),
            waiting: VecDeque::new(),
            job: None,
            info: parts.info,
            nodes: 0,
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
        if self.fill(&[self.vocabulary.any()], true).is_ok() && self.compute(1, None).is_ok() {
            self.nodes = NODES.load(Ordering::Relaxed);
        }
        self.ledger.clear(&mut self.context);
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.job.is_none() && self.waiting.is_empty()
    }

    /// Takes a request that is not about loading.
    pub fn request(&mut self, request: Request, arrived: Instant) {
        match request {
            Request::Generate { job, prompt, sampling, ignore_eog } => {
                self.waiting.push_back(Waiting { job, prompt, sampling, ignore_eog, arrived });
            }
            Request::Sampling { job: id, sampling } => {
                if let Some(job) = self.job.as_mut().filter(|j| j.id == id) {
                    job.sampler.change(sampling, job.seed, self.ledger.tokens(), job.n);
                } else if let Some(waiting) = self.waiting.iter_mut().find(|w| w.job == id) {
                    waiting.sampling = sampling;
                }
            }
            Request::Cancel { job } => self.cancel(job),
            Request::ClearCache => {
                if self.job.is_none() {
                    self.ledger.clear(&mut self.context);
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

    /// Ends every job, because the model goes.
    pub fn stop_all(&mut self) {
        while let Some(id) = self.job.as_ref().map(|j| j.id).or(self.waiting.front().map(|w| w.job)) {
            self.cancel(id);
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
                    sampling: w.sampling,
                    cells: super::protocol::Cells::default(),
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
                Err(problem) => (self.sink)(EngineEvent::Failed { job: id, problem }),
            }
            return;
        }
        let Some(job) = self.job.take() else { return };
        let id = job.id;
        match if job.read < job.prompt.len() { self.prefill(job) } else { self.decode(job) } {
            Ok(job) => self.job = job,
            Err(problem) => {
                self.ledger.clear(&mut self.context);
                (self.sink)(EngineEvent::Failed { job: id, problem });
            }
        }
    }

    fn begin(&mut self, waiting: Waiting) -> Result<Job, Problem> {
        let (encoded, mut notes) = self.encode(waiting.prompt)?;
        let n_ctx = self.context.n_ctx() as usize;
        if encoded.tokens.len() >= n_ctx {
            return Err(Problem::new(
                format!(
                    "The conversation has {} tokens and the context holds {n_ctx}, the answer included",
                    encoded.tokens.len()
                ),
                "Start a new chat with Ctrl-N, shorten the question, or start again with a larger context (-c)",
            ));
        }
        let vocabulary = &self.vocabulary;
        let reuse = self.ledger.reuse(&mut self.context, &encoded.tokens, |t| vocabulary.plain(t));
        notes.extend(reuse.why);
        let seed = waiting.sampling.seed.0.unwrap_or_else(fresh_seed);
        let sampler = Sampler::new(waiting.sampling, self.vocabulary.size(), seed, &reuse.tokens);
        let job = Job {
            id: waiting.job,
            read: reuse.kept,
            reused: reuse.kept,
            prompt: reuse.tokens,
            cells: encoded.cells,
            seed,
            sampler,
            ignore_eog: waiting.ignore_eog,
            next: None,
            n: 0,
            text: super::utf8::Utf8Stream::default(),
            clock: Clock::new(waiting.arrived),
        };
        let usage = job.usage();
        (self.sink)(EngineEvent::Started {
            job: job.id,
            prompt_tokens: usage.prompt_tokens,
            reused_tokens: usage.reused_tokens,
            cells: job.cells,
            seed,
            notes,
        });
        Ok(job)
    }

    fn encode(&self, prompt: Prompt) -> Result<(Encoded, Vec<String>), Problem> {
        let rendered: Rendered = match prompt {
            Prompt::Chat { system, turns } => prompt::render(&self.template, &system, &turns, self.vocabulary.guard())?,
            Prompt::Raw(text) => prompt::raw(&text, self.vocabulary.guard()),
            Prompt::Tokens(tokens) => {
                if tokens.is_empty() || tokens.iter().any(|t| !self.vocabulary.has(*t)) {
                    return Err(Problem::new(
                        "The prompt has tokens that the model does not know",
                        "Use ids below its vocabulary's size",
                    ));
                }
                let cells = super::protocol::Cells {
                    user: u32::try_from(tokens.len()).unwrap_or(u32::MAX),
                    ..Default::default()
                };
                return Ok((Encoded { tokens, cells }, Vec::new()));
            }
        };
        let encoded = self.vocabulary.encode(&rendered);
        if encoded.tokens.is_empty() {
            return Err(Problem::new("There is nothing to continue: the prompt is empty", "Type some text first"));
        }
        Ok((encoded, rendered.notes))
    }

    fn prefill(&mut self, mut job: Job) -> Result<Option<Job>, Problem> {
        let end = job.prompt.len().min(job.read + self.context.n_batch() as usize);
        let chunk = &job.prompt[job.read..end];
        let last = end == job.prompt.len();
        self.fill(chunk, last)?;
        match self.compute(chunk.len(), Some(progress(&job))) {
            Ok(()) => {}
            Err(stop) => return self.stopped(job, &stop),
        }
        self.ledger.extend(&job.prompt[job.read..end]);
        job.read = end;
        if last {
            job.clock.prefill_done();
        }
        (self.sink)(progress(&job));
        if last { self.choose(job) } else { Ok(Some(job)) }
    }

    fn decode(&mut self, mut job: Job) -> Result<Option<Job>, Problem> {
        let Some(token) = job.next else { return Ok(None) };
        if self.ledger.len() >= self.context.n_ctx() as usize {
            return Ok(self.end(job, Finish::ContextFull));
        }
        let began = Instant::now();
        self.fill(&[token], true)?;
        match self.compute(1, None) {
            Ok(()) => {}
            Err(stop) => return self.stopped(job, &stop),
        }
        self.ledger.extend(&[token]);
        job.next = None;
        let now = Instant::now();
        if let Some(change) = self.governor.step(now.duration_since(began).as_secs_f64() * 1000.0, now) {
            self.tell_change(&change);
        }
        self.use_threads();
        self.choose(job)
    }

    /// Chooses the next token from the logits of the last decode call.
    fn choose(&mut self, mut job: Job) -> Result<Option<Job>, Problem> {
        let token = job.sampler.choose(self.context.get_logits_ith(-1))?;
        if self.vocabulary.is_end(token) && !job.ignore_eog {
            return Ok(self.end(job, Finish::Stop));
        }
        let text = job.text.push(&self.vocabulary.bytes(token));
        let gap_ms = job.clock.token();
        job.n += 1;
        job.cells.assistant += 1;
        job.next = Some(token);
        (self.sink)(EngineEvent::Token { job: job.id, text, n: job.n, gap_ms });
        if job.n >= job.sampler.sampling().max_tokens {
            return Ok(self.end(job, Finish::Length));
        }
        Ok(Some(job))
    }

    fn fill(&mut self, tokens: &[Token], logits: bool) -> Result<(), Problem> {
        self.batch.clear();
        let from = self.ledger.len();
        for (i, token) in tokens.iter().enumerate() {
            let position = i32::try_from(from + i).unwrap_or(i32::MAX);
            self.batch
                .add(LlamaToken(*token), position, &[0], logits && i + 1 == tokens.len())
                .map_err(|e| Problem::new(format!("The batch is too small ({e})"), "Please report this"))?;
        }
        Ok(())
    }

    /// Runs the batch. While a long one runs, `progress` is told with the tokens that are through by now.
    fn compute(&mut self, rows: usize, progress: Option<EngineEvent>) -> Result<(), DecodeError> {
        NODES.store(0, Ordering::Relaxed);
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
            DecodeError::Unknown(2) if job.next.is_none() => {
                let read = self.ledger.len();
                Ok(Some(Job { read, reused: job.reused.min(read), ..job }))
            }
            DecodeError::NoKvCacheSlot => Ok(self.end(job, Finish::ContextFull)),
            other => Err(Problem::new(
                format!("llama.cpp could not compute the next step ({other})"),
                "Ask again; if it stays so, restart the engine with F5",
            )),
        }
    }

    fn finish(&mut self, finish: Finish) {
        if let Some(job) = self.job.take() {
            self.end(job, finish);
        }
    }

    /// Tells a job's end.
    fn end(&mut self, mut job: Job, finish: Finish) -> Option<Job> {
        if !self.ledger.agrees(&self.context) {
            self.ledger.repair(&mut self.context);
        }
        (self.sink)(EngineEvent::Finished {
            job: job.id,
            text: job.text.finish(),
            finish,
            usage: job.usage(),
            timings: job.clock.timings(),
            seed: job.seed,
            sampling: job.sampler.sampling().clone(),
            cells: job.cells,
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

/// A seed for an answer that asks for a new one: from the system's random keys.
fn fresh_seed() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    // −1 and 2^32 − 1 mean "random" elsewhere, so such a seed could not be given back.
    (random as u32).min(u32::MAX - 1)
}
