//! One answer on its way: prompt, sampler, text, stamps.

use std::collections::VecDeque;
use std::time::Instant;

use super::loopguard::LoopGuard;
use super::origin::tokens_hash;
use super::protocol::{Cells, JobId};
use super::sampler::{Grammar, Sampler};
use super::sequences::{SeqId, Token};
use super::strategy::beam::Search;
use super::utf8::Utf8Stream;
use crate::chat::{Origin, Timings, Usage};

/// A job that has its prompt in tokens.
#[derive(Debug)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The prompt's tokens; those before `read` are in the cache.
    pub prompt: Vec<Token>,
    /// Prompt tokens in the cache.
    pub read: usize,
    /// Prompt tokens that were there before it began.
    pub reused: usize,
    /// Prompt tokens that each decode call has read.
    pub batches: Vec<usize>,
    /// Whose the cells are, the answer's among them.
    pub cells: Cells,
    /// The seed in use.
    pub seed: u32,
    /// Chooses its tokens.
    pub sampler: Sampler,
    /// Go on past end tokens.
    pub ignore_eog: bool,
    /// Tell how probable each token was, and so many others.
    pub records: Option<u32>,
    /// Its beams, while it is a beam search.
    pub beams: Option<Beams>,
    /// It waits for a choice by hand.
    pub waits: bool,
    /// The next token is the chain's choice, although the mode is by hand.
    pub chain: bool,
    /// Tokens that were chosen by hand and come next.
    pub forced: VecDeque<Token>,
    /// Looks whether it repeats itself.
    pub guard: LoopGuard,
    /// What was told of that: rounds and tokens of a round.
    pub repeats: (u32, u32),
    /// Whether it was told that it loops.
    pub looped: bool,
    /// The token that was chosen and is to be decoded next; none before the first.
    pub next: Option<Token>,
    /// Tokens of the answer so far, the next one included.
    pub answer: Vec<Token>,
    /// Text that is told with its end.
    pub rest: String,
    /// Bytes that are not text yet.
    pub text: Utf8Stream,
    /// Its stamps.
    pub clock: Clock,
}

/// A beam search and the sequences that hold its beams.
#[derive(Debug)]
pub struct Beams {
    /// Which beams there are. With each answer that ended its ticket in `kept`.
    pub search: Search<u32>,
    /// The sequence of each living beam; the last token of a beam is not in it yet.
    pub seqs: Vec<SeqId>,
    /// Where each living beam stands in the grammar.
    pub grammars: Vec<Option<Grammar>>,
    /// The sequences of answers that ended, by ticket.
    pub kept: Vec<(u32, SeqId)>,
    /// Tickets given so far.
    pub tickets: u32,
    /// Tokens that all agree on and that have been told.
    pub agreed: usize,
    /// Rounds.
    pub rounds: u32,
}

impl Job {
    /// Prompt tokens that have to be decoded.
    pub fn fresh(&self) -> usize {
        self.prompt.len() - self.reused
    }

    /// A chunk of the prompt is decoded.
    pub fn has_read(&mut self, chunk: usize) {
        self.read += chunk;
        self.batches.push(chunk);
    }

    /// Of the prompt no more is in the cache than this: what was read behind it is read again.
    #[must_use]
    pub fn back_to(mut self, read: usize) -> Self {
        self.reused = self.reused.min(read);
        let mut at = self.reused;
        self.batches.retain(|chunk| {
            at += chunk;
            at <= read
        });
        Self { read, ..self }
    }

    /// What it came from, where `before` says what was known before it began.
    pub fn origin(&self, before: &Origin, threads: u32) -> Origin {
        Origin {
            prompt_sha256: tokens_hash(&self.prompt),
            batches: self.batches.iter().map(|n| u32::try_from(*n).unwrap_or(u32::MAX)).collect(),
            threads,
            ..before.clone()
        }
    }

    /// Tokens of the answer so far.
    pub fn n(&self) -> u32 {
        u32::try_from(self.answer.len()).unwrap_or(u32::MAX)
    }

    /// Its tokens for the record.
    pub fn usage(&self) -> Usage {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Usage {
            prompt_tokens: count(self.prompt.len()),
            reused_tokens: count(self.reused),
            completion_tokens: self.n(),
        }
    }
}

/// The stamps of a job, taken where the thing happens.
#[derive(Debug)]
pub struct Clock {
    arrived: Instant,
    prefill_began: Instant,
    prefill_ms: f64,
    first: Option<Instant>,
    last: Option<Instant>,
    gaps: Vec<f32>,
    paused: Option<Instant>,
}

impl Clock {
    /// A clock for a request that arrived then and whose prefill begins now.
    pub fn new(arrived: Instant) -> Self {
        let now = Instant::now();
        Self { arrived, prefill_began: now, prefill_ms: 0.0, first: None, last: None, gaps: Vec::new(), paused: None }
    }

    /// Milliseconds since prefill began.
    pub fn prefill_so_far(&self) -> f64 {
        ms(self.prefill_began, Instant::now())
    }

    /// Somebody else takes their time.
    pub fn waits(&mut self) {
        self.paused = Some(Instant::now());
    }

    /// It goes on: what was waited is no time of the answer's.
    pub fn goes_on(&mut self) {
        let Some(waited) = self.paused.take().map(|at| at.elapsed()) else { return };
        self.arrived += waited;
        for stamp in [&mut self.first, &mut self.last].into_iter().flatten() {
            *stamp += waited;
        }
    }

    /// The last chunk of the prompt is decoded.
    pub fn prefill_done(&mut self) {
        self.prefill_ms = self.prefill_so_far();
    }

    /// A token was chosen. Gives the milliseconds since the one before, or since the request arrived.
    pub fn token(&mut self) -> f64 {
        let now = Instant::now();
        let gap = ms(self.last.unwrap_or(self.arrived), now);
        if self.first.is_none() {
            self.first = Some(now);
        } else {
            self.gaps.push(gap as f32);
        }
        self.last = Some(now);
        gap
    }

    /// The figures of the whole answer.
    pub fn timings(&self) -> Timings {
        let mut timings = Timings { prefill_ms: self.prefill_ms, ..Timings::default() };
        let (Some(first), Some(last)) = (self.first, self.last) else { return timings };
        timings.ttft_ms = ms(self.arrived, first);
        timings.decode_ms = ms(first, last);
        if !self.gaps.is_empty() {
            timings.tpot_ms = timings.decode_ms / self.gaps.len() as f64;
            timings.tokens_per_second = 1000.0 / timings.tpot_ms;
            timings.itl_p95_ms = percentile(&self.gaps, 0.95);
        }
        timings
    }
}

fn ms(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1000.0
}

/// The smallest value that at least this share of the values does not exceed (nearest-rank percentile).
fn percentile(values: &[f32], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_nearest_rank() {
        let values: Vec<f32> = (1..=20u8).rev().map(f32::from).collect();
        assert_eq!(percentile(&values, 0.95), 19.0);
        assert_eq!(percentile(&values[..1], 0.95), 20.0);
        assert_eq!(percentile(&[], 0.95), 0.0);
    }

    #[test]
    fn tpot_is_decode_time_by_gaps() {
        let mut clock = Clock::new(Instant::now());
        for _ in 0..5 {
            clock.token();
        }
        let timings = clock.timings();
        assert!((timings.tpot_ms * 4.0 - timings.decode_ms).abs() < 1e-9);
        assert!(timings.ttft_ms >= 0.0);
    }
}
