//! The stages of the chain. What each computes and where it comes from is told in docs/decoding.md.

use super::numbers;
use super::pool::Pool;
use crate::chat::{Sampling, Stage};
use crate::engine::sequences::Token;

/// What a stage may look at beside the candidates.
pub struct Around<'a> {
    /// The settings.
    pub sampling: &'a Sampling,
    /// Every token before the one that is chosen.
    pub history: &'a [Token],
    /// Whether a repetition never goes on across this token.
    pub breaks: &'a dyn Fn(Token) -> bool,
    /// A number from 0 to 1, the draw of xtc.
    pub luck: f64,
}

/// Whether a stage changes anything under these settings.
pub fn is_active(stage: Stage, s: &Sampling) -> bool {
    match stage {
        Stage::Penalties => {
            s.repeat_last_n > 0 && (s.repeat_penalty != 1.0 || s.frequency_penalty != 0.0 || s.presence_penalty != 0.0)
        }
        Stage::Dry => s.dry_multiplier > 0.0 && s.dry_penalty_last_n != 0,
        Stage::TopNSigma => s.top_n_sigma > 0.0,
        Stage::TopK => s.top_k > 0,
        Stage::TypicalP => s.typical_p < 1.0,
        Stage::TopP => s.top_p < 1.0,
        Stage::MinP => s.min_p > 0.0,
        Stage::Xtc => s.xtc_probability > 0.0 && s.xtc_threshold <= 0.5,
        Stage::Temperature => s.temperature != 1.0 || s.dynatemp_range > 0.0,
    }
}

/// Applies a stage. At least one candidate stays where there was one. Gives what it does beside cutting.
pub fn apply(stage: Stage, around: &Around<'_>, pool: &mut Pool) -> Option<f32> {
    let s = around.sampling;
    match stage {
        Stage::Penalties => return Some(penalties(around, pool) as f32),
        Stage::Dry => return Some(dry(around, pool) as f32),
        Stage::Temperature => return Some(temperature(s, pool) as f32),
        Stage::TopNSigma => top_n_sigma(s.top_n_sigma, pool),
        Stage::TopK => pool.keep_top(s.top_k as usize),
        Stage::TypicalP => typical(f64::from(s.typical_p), pool),
        Stage::TopP => top_p(f64::from(s.top_p), pool),
        Stage::MinP => pool.keep_from(pool.max() + f64::from(s.min_p).ln()),
        Stage::Xtc => xtc(around, pool),
    }
    None
}

fn recent(history: &[Token], n: usize) -> &[Token] {
    &history[history.len().saturating_sub(n)..]
}

/// Repeat penalty: CTRL (Keskar et al. 2019), with the sign rule of the field; frequency and presence penalty:
/// the API of `OpenAI`. Gives how many tokens it meets.
fn penalties(around: &Around<'_>, pool: &mut Pool) -> usize {
    let s = around.sampling;
    let mut window = recent(around.history, s.repeat_last_n as usize).to_vec();
    window.sort_unstable();
    let counts = window.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as f32));
    pool.adjust(counts, |logit, count| {
        let by = f64::from(s.repeat_penalty);
        let repeated = if logit > 0.0 { logit / by } else { logit * by };
        repeated - f64::from(count) * f64::from(s.frequency_penalty) - f64::from(s.presence_penalty)
    })
}

/// DRY (p-e-w 2024): a token that would go on with a repetition of n tokens loses multiplier · base^(n − allowed).
/// Gives how many do.
fn dry(around: &Around<'_>, pool: &mut Pool) -> usize {
    let s = around.sampling;
    let window = usize::try_from(s.dry_penalty_last_n).map_or(around.history, |n| recent(around.history, n));
    let limit = window.iter().rev().take_while(|t| !(around.breaks)(**t)).count();
    let allowed = s.dry_allowed_length as usize;
    if limit < allowed {
        return 0;
    }
    let mut repeated: Vec<(Token, usize)> = Vec::new();
    for (length, next) in suffix_matches(window).into_iter().zip(window.iter().skip(1)) {
        let length = length.min(limit);
        if length >= allowed {
            repeated.push((*next, length));
        }
    }
    repeated.sort_unstable();
    let longest = repeated.chunk_by(|a, b| a.0 == b.0).filter_map(|run| run.last());
    // Beyond this the power is infinite, and −∞ would forbid what should be improbable.
    let most = f64::from(f32::MAX).ln() / f64::from(s.dry_base).ln().max(1e-6) - 10.0;
    let loss = |length: usize| {
        let power = ((length - allowed) as f64).min(most);
        (f64::from(s.dry_multiplier) * f64::from(s.dry_base).powf(power)) as f32
    };
    pool.adjust(longest.map(|(token, length)| (*token, loss(*length))), |logit, loss| logit - f64::from(loss))
}

/// For each place but the last: how many tokens up to it are the same as those up to the end. The Z-function
/// (Gusfield 1997) of the reversed tokens.
pub(super) fn suffix_matches(tokens: &[Token]) -> Vec<usize> {
    let n = tokens.len();
    let at = |i: usize| tokens[n - 1 - i];
    let mut z = vec![0; n];
    let (mut left, mut right) = (0, 0);
    for i in 1..n {
        let mut length: usize = if i < right { z[i - left].min(right - i) } else { 0 };
        while i + length < n && at(length) == at(i + length) {
            length += 1;
        }
        if i + length > right {
            (left, right) = (i, i + length);
        }
        z[i] = length;
    }
    (0..n.saturating_sub(1)).map(|place| z[n - 1 - place]).collect()
}

/// Top-nσ (Tang et al. 2024).
fn top_n_sigma(n: f32, pool: &mut Pool) {
    let logits: Vec<f64> = match pool.all() {
        Some(all) => all.iter().filter(|l| **l > f32::NEG_INFINITY).map(|l| f64::from(*l)).collect(),
        None => pool.list().iter().map(|c| c.logit).collect(),
    };
    let count = logits.len().max(1) as f64;
    let mean = logits.iter().sum::<f64>() / count;
    let sigma = (logits.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / count).sqrt();
    pool.keep_from(pool.max() - f64::from(n) * sigma);
}

/// Locally typical sampling (Meister et al. 2022).
fn typical(p: f64, pool: &mut Pool) {
    let probabilities = pool.probabilities();
    let surprise = |p: f64| if p > 0.0 { -p.ln() } else { f64::INFINITY };
    let entropy: f64 = probabilities.iter().filter(|p| **p > 0.0).map(|p| p * surprise(*p)).sum();
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    let distance = |i: usize| (surprise(probabilities[i]) - entropy).abs();
    order.sort_by(|a, b| distance(*a).total_cmp(&distance(*b)));
    let mut sum = 0.0;
    let last = order.iter().position(|i| {
        sum += probabilities[*i];
        sum > p
    });
    order.truncate(last.map_or(order.len(), |at| at + 1));
    let candidates = pool.list();
    *candidates = order.into_iter().map(|i| candidates[i]).collect();
    pool.sort();
}

/// Nucleus sampling (Holtzman et al. 2020).
fn top_p(p: f64, pool: &mut Pool) {
    // The nucleus is small, and sorting a whole vocabulary is not cheap: first among the largest only.
    for most in [256, 4096] {
        if let Some(all) = pool.all() {
            let (max, unit) = (pool.max(), pool.unit());
            let mut sum = 0.0;
            let nucleus = numbers::top(all, most).into_iter().position(|i| {
                sum += (f64::from(all[i]) - max).exp() * unit;
                sum >= p
            });
            if let Some(last) = nucleus {
                pool.keep_top(last + 1);
                return;
            }
        }
    }
    let mut sum = 0.0;
    let last = pool.probabilities().iter().position(|q| {
        sum += q;
        sum >= p
    });
    if let Some(last) = last {
        pool.list().truncate(last + 1);
    }
}

/// XTC (p-e-w 2024): of the tokens above the threshold only the least probable stays.
fn xtc(around: &Around<'_>, pool: &mut Pool) {
    let s = around.sampling;
    if around.luck >= f64::from(s.xtc_probability) {
        return;
    }
    let threshold = f64::from(s.xtc_threshold);
    let above = pool.probabilities().iter().take_while(|p| **p >= threshold).count();
    pool.list().drain(..above.saturating_sub(1));
}

/// Temperature; with a range it follows the entropy (Zhu et al. 2024, as llama.cpp does it). Gives the one in use.
fn temperature(s: &Sampling, pool: &mut Pool) -> f64 {
    let mut t = f64::from(s.temperature);
    if s.dynatemp_range > 0.0 {
        let range = f64::from(s.dynatemp_range);
        let (low, high) = ((t - range).max(0.0), t + range);
        let probabilities = pool.probabilities();
        if probabilities.len() < 2 {
            return t;
        }
        let entropy: f64 = probabilities.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        let share = entropy / (probabilities.len() as f64).ln();
        t = low + (high - low) * share.powf(f64::from(s.dynatemp_exponent));
    }
    if t < 0.001 {
        pool.keep_top(1);
    } else {
        pool.divide(t);
    }
    t
}
