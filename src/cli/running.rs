//! An engine at work for a command without a screen: start it, wait for the model, run jobs one by one.

use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::chat::{Finish, Origin, Sampling, Timings, TokenRecord, Usage};
use crate::engine::client::Client;
use crate::engine::protocol::{
    Alternative, ContextParams, EngineEvent, EngineNews, ModelInfo, Pick, Problem, Prompt, Request,
};

/// Silence of the engine that is told.
const SILENCE: Duration = Duration::from_secs(20);
/// The cache of a long conversation is some hundred MiB, which a slow disk takes in such a time.
const KEEPING: Duration = Duration::from_secs(10);

/// A loaded model.
pub struct Running {
    client: Client,
    heard: Receiver<Heard>,
    jobs: u64,
    /// That the engine is silent was told.
    told: bool,
    /// What is known of the model.
    pub info: ModelInfo,
}

/// How a job ended.
pub struct Done {
    /// Why.
    pub finish: Finish,
    /// Its tokens.
    pub usage: Usage,
    /// Its times.
    pub timings: Timings,
    /// The seed that was used.
    pub seed: u32,
    /// The settings that were used.
    pub sampling: Sampling,
    /// The answers of a beam search.
    pub alternatives: Vec<Alternative>,
    /// What it came from.
    pub origin: Option<Box<Origin>>,
}

/// What to do.
pub struct Ask<'a> {
    /// What to continue.
    pub prompt: Prompt,
    /// How to choose tokens.
    pub sampling: &'a Sampling,
    /// Go on past the model's end tokens.
    pub ignore_eog: bool,
    /// Tell how probable each token was, and so many others.
    pub records: Option<u32>,
}

/// How an answer goes on.
#[derive(Debug)]
pub enum Wish {
    /// As it does.
    More,
    /// Not at all.
    Stop,
    /// With this text, where the engine waits for a choice.
    Write(String),
}

enum Heard {
    Engine(EngineNews),
    Interrupt,
}

/// Why there is no answer.
pub enum Failure {
    /// Something is wrong.
    Problem(Problem),
    /// The user interrupted before there was anything.
    Interrupted,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl Running {
    /// Starts an engine and loads the model. From here on INT and TERM stop the running job.
    ///
    /// # Errors
    /// If the engine cannot be started, dies, or cannot load the model.
    pub fn start(command: &[String], model: &Path, params: &ContextParams) -> Result<Self, Failure> {
        let (sender, heard) = mpsc::channel();
        let news = sender.clone();
        let client = Client::spawn(command, move |n| {
            let _ = news.send(Heard::Engine(n));
        })
        .map_err(|e| {
            Problem::new(
                format!("The engine '{}' cannot be started: {e}", command.join(" ")),
                "Check engine.command in the config",
            )
        })?;
        interrupts(sender);
        client.send(&Request::Load { path: model.to_owned(), params: params.clone() });
        let mut told = false;
        loop {
            match hear(&heard, &mut told) {
                Ok(Heard::Engine(EngineNews::Event(EngineEvent::Loaded(info)))) => {
                    return Ok(Self { client, heard, jobs: 0, told, info: *info });
                }
                Ok(Heard::Engine(EngineNews::Event(EngineEvent::LoadFailed(problem)))) => return Err(problem.into()),
                Ok(Heard::Engine(EngineNews::Died { how, last_words })) => return Err(died(&how, &last_words).into()),
                Ok(Heard::Engine(EngineNews::Garbage(line))) => {
                    return Err(Problem::new(
                        format!("'{}' is no engine of llmchat; it says: {line}", command.join(" ")),
                        "Check engine.command in the config",
                    )
                    .into());
                }
                Ok(Heard::Engine(_)) => {}
                Ok(Heard::Interrupt) | Err(_) => return Err(Failure::Interrupted),
            }
        }
    }

    /// Ends the engine, which has time to keep its cache in files: nobody waits for the next question here.
    pub fn close(self) {
        self.client.close(KEEPING);
    }

    /// Forgets every cached token.
    pub fn clear_cache(&self) {
        self.client.send(&Request::ClearCache);
    }

    /// Looks at so many candidates.
    pub fn watch(&self, candidates: u32) {
        self.client.send(&Request::Watch { candidates });
    }

    /// Splits text as it is split in a prompt.
    ///
    /// # Errors
    /// If the engine dies.
    pub fn split(&mut self, text: &str) -> Result<Vec<String>, Failure> {
        self.client.send(&Request::Split { text: text.to_owned() });
        self.answer(|event| match event {
            EngineEvent::Split { tokens, .. } => Some(tokens),
            _ => None,
        })
    }

    /// Tells how probable the model finds each token of a prompt; the first one has nothing before it.
    ///
    /// # Errors
    /// If the engine dies or refuses, or the user interrupts.
    pub fn score(&mut self, prompt: Prompt) -> Result<Vec<(String, Option<TokenRecord>)>, Failure> {
        self.jobs += 1;
        self.client.send(&Request::Score { job: self.jobs, prompt });
        self.answer(|event| match event {
            EngineEvent::Scored { tokens, .. } => Some(tokens),
            _ => None,
        })
    }

    /// The hash of a prompt's tokens, without reading it.
    ///
    /// # Errors
    /// If the engine dies or refuses, or the user interrupts.
    pub fn hash(&mut self, prompt: Prompt) -> Result<String, Failure> {
        self.jobs += 1;
        self.client.send(&Request::Measure { job: self.jobs, prompt });
        self.answer(|event| match event {
            EngineEvent::Measured { prompt_sha256, .. } => Some(prompt_sha256),
            _ => None,
        })
    }

    /// Waits for the event that is meant.
    fn answer<T>(&mut self, mut wanted: impl FnMut(EngineEvent) -> Option<T>) -> Result<T, Failure> {
        loop {
            match hear(&self.heard, &mut self.told) {
                Ok(Heard::Engine(EngineNews::Event(EngineEvent::Failed { problem, .. }))) => {
                    return Err(problem.into());
                }
                Ok(Heard::Engine(EngineNews::Event(event))) => {
                    if let Some(answer) = wanted(event) {
                        return Ok(answer);
                    }
                }
                Ok(Heard::Engine(EngineNews::Died { how, last_words })) => return Err(died(&how, &last_words).into()),
                Ok(Heard::Engine(EngineNews::Garbage(_))) => {}
                Ok(Heard::Interrupt) | Err(_) => return Err(Failure::Interrupted),
            }
        }
    }

    /// Runs one job to its end. `heard` sees its events, the last one too. An interrupt stops the answer, which then
    /// ends as cancelled.
    ///
    /// # Errors
    /// If the engine dies or refuses the job.
    pub fn generate(&mut self, ask: Ask<'_>, mut heard: impl FnMut(&EngineEvent)) -> Result<Done, Failure> {
        self.generate_while(ask, |event| {
            heard(event);
            Wish::More
        })
    }

    /// The same, and `heard` says how it goes on; where it is stopped, the answer ends as cancelled.
    ///
    /// # Errors
    /// As [`Self::generate`].
    pub fn generate_while(
        &mut self,
        ask: Ask<'_>,
        mut heard: impl FnMut(&EngineEvent) -> Wish,
    ) -> Result<Done, Failure> {
        self.jobs += 1;
        let job = self.jobs;
        let Ask { prompt, sampling, ignore_eog, records } = ask;
        let mut stopped = false;
        self.client.send(&Request::Generate { job, prompt, sampling: sampling.clone(), ignore_eog, records });
        loop {
            match hear(&self.heard, &mut self.told) {
                Ok(Heard::Engine(EngineNews::Event(event))) => {
                    let wish = heard(&event);
                    match event {
                        EngineEvent::Failed { problem, .. } => return Err(problem.into()),
                        EngineEvent::Waiting { job } => self.client.send(&match wish {
                            Wish::Write(text) => Request::Pick { job, pick: Pick::Text(text) },
                            // Nobody is here who could choose.
                            Wish::More | Wish::Stop => Request::Cancel { job },
                        }),
                        EngineEvent::Finished {
                            finish, usage, timings, seed, sampling, alternatives, origin, ..
                        } => {
                            let sampling = *sampling;
                            return Ok(Done { finish, usage, timings, seed, sampling, alternatives, origin });
                        }
                        _ if matches!(wish, Wish::Stop) && !stopped => {
                            stopped = true;
                            self.client.send(&Request::Cancel { job });
                        }
                        _ => {}
                    }
                }
                Ok(Heard::Engine(EngineNews::Died { how, last_words })) => return Err(died(&how, &last_words).into()),
                Ok(Heard::Engine(EngineNews::Garbage(_))) => {}
                Ok(Heard::Interrupt) => self.client.send(&Request::Cancel { job }),
                Err(_) => return Err(Failure::Interrupted),
            }
        }
    }
}

/// The next thing that is heard. A long silence is told, once.
fn hear(heard: &Receiver<Heard>, told: &mut bool) -> Result<Heard, mpsc::RecvError> {
    if !*told {
        match heard.recv_timeout(SILENCE) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                *told = true;
                eprintln!("note: the engine has said nothing for {} seconds; Ctrl-C ends it", SILENCE.as_secs());
            }
            other => return other.map_err(|_| mpsc::RecvError),
        }
    }
    heard.recv()
}

fn died(how: &str, last_words: &[String]) -> Problem {
    let why = last_words.last().map(|line| format!(": {line}")).unwrap_or_default();
    Problem::new(format!("The engine {how}{why}"), "Try again; the log file has the details")
}

/// Sends INT and TERM into the channel; a second one ends the program at once.
#[cfg(unix)]
fn interrupts(sender: mpsc::Sender<Heard>) {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]) else { return };
    std::thread::spawn(move || {
        for (nth, _) in signals.forever().enumerate() {
            if nth > 0 || sender.send(Heard::Interrupt).is_err() {
                std::process::exit(130);
            }
        }
    });
}

#[cfg(not(unix))]
fn interrupts(_: mpsc::Sender<Heard>) {}
