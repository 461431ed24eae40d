//! What the panel shows of the answer that runs, from the engine's events.

use std::collections::VecDeque;

use crate::chat::{Timings, Usage};
use crate::engine::protocol::Because;

/// Gaps between tokens that are kept for the sparkline and the percentile.
const KEPT: usize = 256;
/// Gaps that "now" means.
const NOW: usize = 24;

/// How far an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The engine has not begun.
    #[default]
    Waiting,
    /// The prompt is being read.
    Prefill,
    /// Tokens come.
    Decode,
    /// It ended.
    Done,
}

/// Figures of one answer, live or ended.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// How far it is.
    pub phase: Phase,
    /// Tokens; what has come so far.
    pub usage: Usage,
    /// Prompt tokens decoded so far.
    pub read: u32,
    /// Times; what is known so far.
    pub timings: Timings,
    /// Reused tokens that were brought back from memory or a file.
    pub restored: u32,
    /// Why no more of what the cache holds was reused.
    pub because: Option<Because>,
    /// The end of the answer has come before: rounds and tokens of a round.
    pub repeats: Option<(u32, u32)>,
    gaps: VecDeque<f32>,
}

impl Figures {
    /// The figures of an answer that ended.
    pub fn of(usage: Usage, timings: Timings) -> Self {
        Self { phase: Phase::Done, usage, read: usage.fresh_tokens(), timings, ..Self::default() }
    }

    /// The prompt's size is known.
    pub fn started(&mut self, prompt_tokens: u32, reused_tokens: u32) {
        self.phase = Phase::Prefill;
        self.usage = Usage { prompt_tokens, reused_tokens, completion_tokens: 0 };
    }

    /// A part of the prompt was read.
    pub fn prefill(&mut self, done: u32, ms: f64) {
        self.read = done;
        self.timings.prefill_ms = ms;
    }

    /// A token came.
    pub fn token(&mut self, n: u32, gap_ms: f64) {
        self.usage.completion_tokens = n;
        if self.phase != Phase::Decode {
            self.phase = Phase::Decode;
            self.timings.ttft_ms = gap_ms;
            return;
        }
        self.timings.decode_ms += gap_ms;
        self.timings.tpot_ms = self.timings.decode_ms / f64::from(n.saturating_sub(1).max(1));
        self.timings.tokens_per_second = 1000.0 / self.timings.tpot_ms.max(f64::MIN_POSITIVE);
        if self.gaps.len() == KEPT {
            self.gaps.pop_front();
        }
        self.gaps.push_back(gap_ms as f32);
    }

    /// It ended, and the engine gave its own figures.
    pub fn finished(&mut self, usage: Usage, timings: Timings) {
        self.phase = Phase::Done;
        self.usage = usage;
        self.timings = timings;
    }

    /// Prompt tokens a second; none before anything was read.
    pub fn prefill_rate(&self) -> Option<f64> {
        (self.read > 0 && self.timings.prefill_ms > 0.0)
            .then(|| f64::from(self.read) * 1000.0 / self.timings.prefill_ms)
    }

    /// Tokens a second over the last few gaps; none below two tokens.
    pub fn rate_now(&self) -> Option<f64> {
        let last = self.gaps.iter().rev().take(NOW);
        let (n, sum) = last.fold((0u32, 0.0), |(n, sum), gap| (n + 1, sum + f64::from(*gap)));
        (sum > 0.0).then(|| f64::from(n) * 1000.0 / sum)
    }

    /// 95th percentile of the gaps: the engine's at the end, until then of those that are kept.
    pub fn p95(&self) -> Option<f64> {
        if self.phase == Phase::Done {
            return (self.timings.itl_p95_ms > 0.0).then_some(self.timings.itl_p95_ms);
        }
        let mut sorted: Vec<f32> = self.gaps.iter().copied().collect();
        sorted.sort_by(f32::total_cmp);
        let rank = (sorted.len() * 95).div_ceil(100);
        sorted.get(rank.checked_sub(1)?).map(|gap| f64::from(*gap))
    }

    /// Tokens a second of the last gaps, oldest first, at most so many.
    pub fn sparkline(&self, columns: usize) -> Vec<f32> {
        let skip = self.gaps.len().saturating_sub(columns);
        self.gaps.iter().skip(skip).map(|gap| 1000.0 / gap.max(0.01)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_tokens_that_came() {
        let mut f = Figures::default();
        f.started(100, 60);
        f.prefill(40, 80.0);
        assert_eq!(f.prefill_rate(), Some(500.0));
        f.token(1, 90.0);
        assert_eq!((f.phase, f.timings.ttft_ms, f.rate_now()), (Phase::Decode, 90.0, None));
        f.token(2, 10.0);
        f.token(3, 30.0);
        assert_eq!(f.rate_now(), Some(50.0));
        assert_eq!(f.timings.tpot_ms, 20.0);
        assert_eq!(f.p95(), Some(30.0));
        assert_eq!(f.sparkline(1).len(), 1);
    }
}
