//! What the tests with real models share: the models, and an engine's process.
#![allow(dead_code)] // Each test binary uses its own part of it.

pub mod tiny;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use llmchat::chat::{Finish, Mode, Role, Sampling, Seed, Timings, Usage};
use llmchat::engine::client::Client;
use llmchat::engine::protocol::{
    Because, ContextParams, EngineEvent, EngineNews, ModelInfo, Problem, Prompt, Request, Turn,
};
use llmchat::paths::Paths;

/// Longest time that anything here may take on a slow machine.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// Log-probabilities of a cold run and of one whose batches or cells were others differ by up to 0.3: the order of a sum
/// decides its last bit, and the models' activations are rounded to 8 bits. Two tokens nearer than this may change places.
const NOISE: f32 = 0.5;

/// How an answer compares with that of a cold run.
#[derive(Debug, PartialEq)]
pub enum Cold {
    /// Token for token the same.
    Same,
    /// Another one from a place on where the two tokens are nearer than rounding.
    Tie,
    /// Another one.
    Other(String),
}

/// The default model.
pub fn smollm() -> PathBuf {
    model("default")
}

/// The base model with sliding windows and without a template.
pub fn gemma() -> PathBuf {
    model("test")
}

fn model(role: &str) -> PathBuf {
    let known = llmchat::model::known_models();
    let file = &known.iter().find(|m| m.role == role).unwrap().file;
    let path = Paths::new().unwrap().models().join(file);
    assert!(path.is_file(), "{} is missing; run scripts/fetch-model all", path.display());
    path
}

pub fn greedy(max_tokens: u32) -> Sampling {
    Sampling { mode: Mode::Greedy, max_tokens, ..Sampling::default() }
}

pub fn seeded(seed: u32, max_tokens: u32) -> Sampling {
    Sampling { seed: Seed(Some(seed)), max_tokens, ..Sampling::default() }
}

pub fn params() -> ContextParams {
    ContextParams { n_ctx: Some(2048), threads: 2, gpu_layers: 0, ..ContextParams::default() }
}

/// A conversation: question, answer, question …
pub fn chat(texts: &[&str]) -> Prompt {
    let turns = texts.iter().enumerate().map(|(i, text)| Turn {
        role: if i % 2 == 0 { Role::User } else { Role::Assistant },
        text: (*text).to_owned(),
    });
    Prompt::Chat { system: String::new(), turns: turns.collect() }
}

/// An answer with what was said about it.
#[derive(Debug)]
pub struct Answer {
    pub text: String,
    pub tokens: u32,
    pub finish: Finish,
    pub usage: Usage,
    pub timings: Timings,
    pub because: Option<Because>,
    pub seed: u32,
}

/// One engine at a time: several on two cores only make each other slow.
static TURN: Mutex<()> = Mutex::new(());

fn spawn(news: Sender<EngineNews>) -> Client {
    let command = [env!("CARGO_BIN_EXE_llmchat").to_owned(), "engine".to_owned()];
    let client = Client::spawn(&command, move |n| {
        let _ = news.send(n);
    });
    client.unwrap()
}

/// A real engine in its own process.
pub struct Engine {
    pub client: Client,
    news: Receiver<EngineNews>,
    jobs: u64,
    pub info: Option<ModelInfo>,
    _turn: MutexGuard<'static, ()>,
}

impl Engine {
    pub fn spawn() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, news) = channel();
        Self { client: spawn(sender), news, jobs: 0, info: None, _turn: turn }
    }

    pub fn load(path: PathBuf, params: ContextParams) -> Self {
        let mut engine = Self::spawn();
        engine.try_load(path, params).unwrap();
        engine
    }

    /// The same in a new process, after the old one has had its time to end.
    pub fn restart(&mut self, path: PathBuf, params: ContextParams) {
        let (sender, news) = channel();
        let client = spawn(sender);
        self.client = client;
        self.news = news;
        self.try_load(path, params).unwrap();
    }

    pub fn try_load(&mut self, path: PathBuf, params: ContextParams) -> Result<(), Problem> {
        self.client.send(&Request::Load { path, params });
        loop {
            match self.event() {
                EngineEvent::Loaded(info) => {
                    self.info = Some(*info);
                    return Ok(());
                }
                EngineEvent::LoadFailed(problem) => return Err(problem),
                _ => {}
            }
        }
    }

    pub fn news(&self) -> EngineNews {
        self.news.recv_timeout(DEADLINE).expect("the engine says something")
    }

    pub fn event(&self) -> EngineEvent {
        match self.news() {
            EngineNews::Event(event) => event,
            other => panic!("{other:?}"),
        }
    }

    pub fn start(&mut self, prompt: Prompt, sampling: Sampling) -> u64 {
        self.start_with(prompt, sampling, None)
    }

    /// The same with the probabilities of its tokens and so many others.
    pub fn start_with(&mut self, prompt: Prompt, sampling: Sampling, records: Option<u32>) -> u64 {
        self.jobs += 1;
        self.client.send(&Request::Generate { job: self.jobs, prompt, sampling, ignore_eog: false, records });
        self.jobs
    }

    pub fn cancel(&self) {
        self.client.send(&Request::Cancel { job: self.jobs });
    }

    /// Waits for the end of the running job; `each` sees every event of it.
    pub fn wait(&self, mut each: impl FnMut(&EngineEvent)) -> Result<Answer, Problem> {
        let (mut text, mut tokens, mut because) = (String::new(), 0, None);
        loop {
            let event = self.event();
            each(&event);
            match event {
                EngineEvent::Started { because: said, .. } => because = said,
                EngineEvent::Token { text: piece, n, .. } => {
                    text += &piece;
                    tokens = n;
                }
                EngineEvent::Beams { agreed, n, .. } => {
                    text += &agreed;
                    tokens = n;
                }
                EngineEvent::Finished { text: rest, finish, usage, timings, seed, .. } => {
                    return Ok(Answer { text: text + &rest, tokens, finish, usage, timings, because, seed });
                }
                EngineEvent::Failed { problem, .. } => return Err(problem),
                _ => {}
            }
        }
    }

    pub fn ask(&mut self, prompt: Prompt, sampling: Sampling) -> Answer {
        self.start(prompt, sampling);
        self.wait(|_| {}).unwrap()
    }

    /// The same with nothing in the cache.
    pub fn ask_cold(&mut self, prompt: Prompt, sampling: Sampling) -> Answer {
        self.client.send(&Request::ClearCache);
        self.ask(prompt, sampling)
    }

    /// How a run with nothing in the cache compares with this greedy answer.
    pub fn cold_says(&mut self, prompt: &Prompt, longest: u32, warm: &str) -> Cold {
        let told = self.ask_cold(prompt.clone(), greedy(longest));
        if told.text == warm {
            return Cold::Same;
        }
        let common = told.text.chars().zip(warm.chars()).take_while(|(a, b)| a == b).count();
        self.client.send(&Request::ClearCache);
        let mut records = Vec::new();
        self.start_with(prompt.clone(), greedy(longest), Some(8));
        self.wait(|event| {
            if let EngineEvent::Token { text, record: Some(record), .. } = event {
                records.push((text.clone(), record.clone()));
            }
        })
        .unwrap();
        // Somewhere up to there both parted; one run's token may begin with the other's.
        let mut at = 0;
        for (text, record) in &records {
            let rest: String = warm.chars().skip(at).collect();
            let near = |(other, log): &(String, f32)| {
                let fits = if other.is_empty() { rest.is_empty() } else { rest.starts_with(other.as_str()) };
                fits && other != text && record.logprob - log < NOISE
            };
            if at <= common && record.others.iter().any(near) {
                return Cold::Tie;
            }
            at += text.chars().count();
        }
        Cold::Other(format!("{:?} is not {warm:?}; {records:?}", told.text))
    }
}
