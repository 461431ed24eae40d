//! Looking and choosing by hand: the microscope on the next token, the probabilities of a prompt.

use std::time::{Duration, Instant};

use super::Session;
use crate::chat::{Mode, Sampling, TokenRecord};
use crate::engine::job::Job;
use crate::engine::protocol::{EngineEvent, Glance, JobId, Pick, Problem, Prompt};
use crate::engine::sampler::{self, Sampler};
use crate::engine::sequences::{MAIN, Token};

/// How often a glance is told while tokens stream: as often as a screen shows it,
const OFTEN: Duration = Duration::from_millis(33);
/// and so seldom that it takes no more than this share of the time: a large vocabulary takes milliseconds to look at.
const SHARE: u32 = 200;
/// Rows of a prompt that are scored together: each needs the logits of a whole vocabulary.
const SCORED: usize = 32;

impl Session<'_> {
    /// A job gets other settings, from its next token on.
    pub(super) fn steer(&mut self, id: JobId, sampling: Sampling) {
        let Some(job) = self.job.as_mut().filter(|j| j.id == id) else { return };
        if let Err(problem) = job.sampler.change(sampling, &self.vocabulary, &job.answer) {
            (self.sink)(EngineEvent::Refused { job: id, problem });
            return;
        }
        if job.waits && job.sampler.sampling().mode != Mode::Hand {
            job.waits = false;
            job.clock.goes_on();
        } else if job.waits
            && let Some(job) = self.job.take()
        {
            self.glance(&job.sampler);
            self.job = Some(job);
        }
    }

    pub(super) fn wait_for_hand(&mut self, mut job: Job) -> Job {
        job.waits = true;
        job.clock.waits();
        self.glance(&job.sampler);
        (self.sink)(EngineEvent::Waiting { job: job.id });
        job
    }

    pub(super) fn pick(&mut self, id: JobId, pick: Pick) {
        let Some(job) = self.job.as_mut().filter(|j| j.id == id && j.waits) else { return };
        let tokens = match pick {
            Pick::Chain => Vec::new(),
            Pick::Token(token) => vec![token],
            Pick::Text(text) => self.vocabulary.tokens(&text),
        };
        let unknown = tokens
            .iter()
            .find(|t| !self.vocabulary.has(**t))
            .map(|t| Problem::new(format!("There is no token {t}"), "Choose one of those that are shown"));
        if let Some(problem) = unknown.or_else(|| tokens.first().and_then(|t| job.sampler.forbids(*t))) {
            (self.sink)(EngineEvent::Refused { job: id, problem });
            (self.sink)(EngineEvent::Waiting { job: id });
            return;
        }
        job.clock.goes_on();
        job.chain = tokens.is_empty();
        job.forced = tokens.into();
        job.waits = false;
    }

    pub(super) fn glance_is_due(&mut self) -> bool {
        let now = Instant::now();
        let pause = OFTEN.max(self.glance_took.get() * SHARE);
        let due = self.glanced.is_none_or(|at| now.duration_since(at) >= pause);
        if due {
            self.glanced = Some(now);
        }
        due
    }

    /// Tells the candidates behind the main sequence, if their logits are there.
    pub(super) fn glance(&self, sampler: &Sampler) {
        if self.has_logits {
            self.glance_at(sampler, -1, self.ledger.tokens());
        }
    }

    /// Tells the candidates behind a row of the last decode call, before which `history` stands.
    pub(super) fn glance_at(&self, sampler: &Sampler, row: i32, history: &[Token]) {
        let most = if self.watched > 0 { self.watched } else { Glance::CANDIDATES as usize };
        let began = Instant::now();
        if let Ok(mut glance) = sampler.look(self.context.get_logits_ith(row), history, &self.vocabulary, most) {
            glance.chosen = self.chosen;
            (self.sink)(EngineEvent::Glance(glance));
        }
        self.glance_took.set(began.elapsed());
    }

    /// The same under other settings, without a job. Logits that a stop has cost are computed again.
    pub(super) fn look(&mut self, sampling: Sampling) {
        if let Some(job) = self.job.take_if(|j| j.waits) {
            self.glance(&job.sampler);
            self.job = Some(job);
        } else if self.job.is_none()
            && let Ok(sampler) = Sampler::new(sampling, &self.vocabulary, 0)
        {
            if !self.has_logits {
                self.restore_logits();
            }
            self.glance(&sampler);
        }
    }

    /// Decodes the last token of the main sequence again. Where that fails, the logits stay unknown.
    fn restore_logits(&mut self) {
        let Some(last) = self.ledger.take_last(&mut self.context) else { return };
        if self.fill_main(&[last], true).is_ok() {
            match self.compute(1, None) {
                Ok(()) => {
                    self.ledger.extend(&[last]);
                    self.has_logits = true;
                }
                Err(_) => self.ledger.repair(&mut self.context),
            }
        }
    }

    /// Reads a prompt from its beginning and tells how probable each token was.
    pub(super) fn score(&mut self, id: JobId, prompt: &Prompt) {
        if self.job.is_some() {
            let problem = Problem::new("An answer is being written", "Wait for its end, or stop it with Esc");
            (self.sink)(EngineEvent::Failed { job: id, problem, size: None });
            return;
        }
        let scored = self.scored(id, prompt);
        (self.sink)(match scored {
            Ok(tokens) => EngineEvent::Scored { job: id, tokens },
            Err(problem) => {
                self.ledger.clear(&mut self.context);
                EngineEvent::Failed { job: id, problem, size: None }
            }
        });
    }

    fn scored(&mut self, id: JobId, prompt: &Prompt) -> Result<Vec<(String, Option<TokenRecord>)>, Problem> {
        let (encoded, _) = self.encode(prompt)?;
        let tokens = encoded.tokens;
        if tokens.len() > self.context.n_ctx() as usize {
            return Err(Problem::new(
                format!("The text has {} tokens and the context holds {}", tokens.len(), self.context.n_ctx()),
                "Shorten it, or start again with a larger context (-c)",
            ));
        }
        // From the beginning, so that every token's logits are told.
        self.keep_what_goes(&[]);
        self.ledger.clear(&mut self.context);
        self.parts = encoded.parts;
        let text = |token: Token| String::from_utf8_lossy(&self.vocabulary.text_or_name(token)).into_owned();
        let mut scored: Vec<(String, Option<TokenRecord>)> =
            tokens.first().map(|t| (text(*t), None)).into_iter().collect();
        let texts: Vec<String> = tokens.iter().map(|t| text(*t)).collect();
        let began = Instant::now();
        for (nth, chunk) in tokens.chunks(SCORED).enumerate() {
            let from = self.ledger.len();
            self.fill(chunk.iter().enumerate().map(|(i, token)| (*token, from + i, MAIN, true)))?;
            self.compute(chunk.len(), None).map_err(|error| {
                Problem::new(format!("The text could not be read ({error})"), "Ask again; F5 starts the engine again")
            })?;
            self.ledger.extend(chunk);
            let [done, total] = [self.ledger.len(), tokens.len()].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            (self.sink)(EngineEvent::Prefill { job: id, done, total, ms: began.elapsed().as_secs_f64() * 1000.0 });
            for i in 0..chunk.len() {
                let next = nth * SCORED + i + 1;
                if let Some(token) = tokens.get(next) {
                    let logits = self.context.get_logits_ith(i32::try_from(i).unwrap_or(0));
                    scored.push((
                        texts[next].clone(),
                        Some(sampler::record(logits, *token, &self.vocabulary, TokenRecord::OTHERS)),
                    ));
                }
            }
        }
        self.has_logits = true;
        Ok(scored)
    }
}
