//! How a job begins: its prompt in tokens, what the cache has of it, its sampler.

use super::measure::Refusal;
use super::{Session, Waiting};
use crate::chat::{KNOBS, Mode, Sampling};
use crate::engine::job::{Clock, Job};
use crate::engine::loopguard::LoopGuard;
use crate::engine::prompt::{self, Rendered};
use crate::engine::protocol::{Cells, EngineEvent, Problem, Prompt};
use crate::engine::sampler::Sampler;
use crate::engine::tokens::Encoded;

impl Session<'_> {
    pub(super) fn begin(&mut self, waiting: Waiting) -> Result<Job, Refusal> {
        let (encoded, mut notes) = self.encode(&waiting.prompt)?;
        if encoded.tokens.len() >= self.context.n_ctx() as usize {
            return Err(self.too_long(&waiting.prompt, &encoded));
        }
        self.keep_what_goes(&encoded.tokens);
        let restored = self.bring_back(&encoded.tokens);
        let vocabulary = &self.vocabulary;
        let reuse = self.ledger.reuse(&mut self.context, &encoded.tokens, |t| vocabulary.plain(t));
        self.tidy();
        self.parts = encoded.parts;
        notes.extend(unused(&waiting.sampling));
        self.has_logits = false;
        let seed = waiting.sampling.seed.0.unwrap_or_else(fresh_seed);
        let sampler = Sampler::new(waiting.sampling, &self.vocabulary, seed)?;
        let job = Job {
            id: waiting.job,
            read: reuse.kept,
            reused: reuse.kept,
            batches: Vec::new(),
            prompt: encoded.tokens,
            cells: encoded.cells,
            seed,
            sampler,
            ignore_eog: waiting.ignore_eog,
            records: waiting.records,
            beams: None,
            waits: false,
            chain: false,
            guard: LoopGuard::default(),
            repeats: (0, 0),
            looped: false,
            forced: std::collections::VecDeque::new(),
            next: None,
            answer: Vec::new(),
            rest: String::new(),
            text: crate::engine::utf8::Utf8Stream::default(),
            clock: Clock::new(waiting.arrived),
        };
        let usage = job.usage();
        (self.sink)(EngineEvent::Started {
            job: job.id,
            prompt_tokens: usage.prompt_tokens,
            reused_tokens: usage.reused_tokens,
            restored_tokens: u32::try_from(restored).unwrap_or(u32::MAX),
            cells: job.cells,
            seed,
            because: reuse.because,
            notes,
        });
        Ok(job)
    }

    pub(super) fn encode(&self, prompt: &Prompt) -> Result<(Encoded, Vec<String>), Problem> {
        let rendered: Rendered = match prompt {
            Prompt::Chat { system, turns } => prompt::render(&self.template, system, turns, self.vocabulary.guard())?,
            Prompt::Raw(text) => prompt::raw(text, self.vocabulary.guard()),
            Prompt::Tokens(tokens) => {
                if tokens.is_empty() || tokens.iter().any(|t| !self.vocabulary.has(*t)) {
                    return Err(Problem::new(
                        "The prompt has tokens that the model does not know",
                        "Use ids below its vocabulary's size",
                    ));
                }
                let cells = Cells { user: u32::try_from(tokens.len()).unwrap_or(u32::MAX), ..Default::default() };
                return Ok((Encoded { tokens: tokens.clone(), cells, parts: Vec::new() }, Vec::new()));
            }
        };
        let encoded = self.vocabulary.encode(&rendered);
        if encoded.tokens.is_empty() {
            return Err(Problem::new("There is nothing to continue: the prompt is empty", "Type some text first"));
        }
        Ok((encoded, rendered.notes))
    }
}

/// What a beam search does not use, where it was set; as the Transformers library does, which warns of it.
fn unused(sampling: &Sampling) -> Option<String> {
    let plain = Sampling::default();
    let differs = |s: &&crate::chat::Spec| sampling.get(s.knob) != plain.get(s.knob);
    let set = KNOBS.iter().filter(|s| !s.modes.contains(&sampling.mode)).filter(differs);
    let names: Vec<&str> = set.map(|s| s.name).collect();
    (sampling.mode == Mode::Beam && !names.is_empty())
        .then(|| format!("Beam search does not use {}: they only count where a token is drawn", names.join(", ")))
}

/// A seed for an answer that asks for a new one: from the system's random keys.
fn fresh_seed() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    // −1 and 2^32 − 1 mean "random" elsewhere, so such a seed could not be given back.
    (random as u32).min(u32::MAX - 1)
}
