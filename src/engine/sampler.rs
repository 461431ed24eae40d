//! From logits to a token: the settings of a conversation as a chain of stages, and what each of them does.
//!
//! A run of the chain is a function of settings, logits, history and a counted random number; so the microscope
//! can look at it again under other settings, and a slider that moves does not disturb the draws after it.

mod grammar;
mod numbers;
mod pool;
mod stages;

pub use grammar::Grammar;
use pool::Pool;

use super::protocol::{Cut, Cutter, Glance, Problem, Seen};
use super::sequences::Token;
use crate::chat::{Bias, Mirostat, Mode, Sampling, Stage, TokenRecord};

/// What the chain must know of a vocabulary.
pub trait Words {
    /// How many tokens there are.
    fn size(&self) -> u32;
    /// The bytes of a token; none for control tokens.
    fn text(&self, token: Token) -> Vec<u8>;
    /// The tokens that are this text, with or without a space before it.
    fn named(&self, text: &str) -> Vec<Token>;
    /// A grammar over this vocabulary.
    ///
    /// # Errors
    /// If it is no grammar.
    fn grammar(&self, gbnf: &str) -> Result<Grammar, Problem>;
}

/// Chooses the tokens of one answer; its settings can change between two tokens.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    bias: Vec<(Token, f32)>,
    grammar: Option<Grammar>,
    seed: u32,
    drawn: u32,
    /// Mirostat's bound, in bits.
    mu: f64,
    pool: Pool,
}

impl Sampler {
    /// A sampler for an answer.
    ///
    /// # Errors
    /// If the bias names what is no token, or the grammar is none.
    pub fn new(sampling: Sampling, words: &dyn Words, seed: u32) -> Result<Self, Problem> {
        let sampling = sampling.sanitised();
        Ok(Self {
            bias: tokens_of(&sampling.bias, words)?,
            grammar: grammar_of(&sampling, words)?,
            mu: 2.0 * f64::from(sampling.mirostat_tau),
            sampling,
            seed,
            drawn: 0,
            pool: Pool::default(),
        })
    }

    /// The settings in use.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Takes new settings, from the next token on. `answer` is what was chosen so far, for a grammar that is new.
    ///
    /// # Errors
    /// As [`Sampler::new`]; the old settings stay.
    pub fn change(&mut self, sampling: Sampling, words: &dyn Words, answer: &[Token]) -> Result<(), Problem> {
        let sampling = sampling.sanitised();
        if sampling.bias != self.sampling.bias {
            self.bias = tokens_of(&sampling.bias, words)?;
        }
        if sampling.grammar != self.sampling.grammar {
            let mut grammar = grammar_of(&sampling, words)?;
            if let Some(grammar) = &mut grammar {
                for token in answer {
                    grammar.accept(*token)?;
                }
            }
            self.grammar = grammar;
        }
        if sampling.mirostat_tau != self.sampling.mirostat_tau {
            self.mu = 2.0 * f64::from(sampling.mirostat_tau);
        }
        self.sampling = sampling;
        Ok(())
    }

    /// Chooses a token. [`Sampler::accept`] then makes it part of the answer.
    ///
    /// # Errors
    /// If a logit is not a number, none is above minus infinity, or the settings leave no token.
    pub fn choose(&mut self, logits: &[f32], history: &[Token], words: &dyn Words) -> Result<Token, Problem> {
        let best = largest(logits)?;
        if self.sampling.is_greedy() && !self.reshapes() && self.grammar.as_ref().is_none_or(|g| g.allows(best)) {
            return Ok(best);
        }
        let u = uniform(self.seed, self.drawn, 0);
        let mut pool = std::mem::take(&mut self.pool);
        pool.fill(logits);
        let mut unit = self.run(&mut pool, history, words, &mut |_, _, _| {});
        let mut token = pool.draw(u).ok_or_else(nothing_left)?;
        // A grammar looks at every token's text, which is slow; mostly what was chosen anyway is in it.
        if let Some(grammar) = self.grammar.as_ref().filter(|g| !g.allows(token)) {
            fill_allowed(&mut pool, logits, grammar);
            unit = self.run(&mut pool, history, words, &mut |_, _, _| {});
            token = pool.draw(u).ok_or_else(nothing_left)?;
        }
        if let Some(unit) = unit {
            let p = pool.logit(token).map_or(1.0, |l| (l - pool.max()).exp() * unit);
            self.mu -= f64::from(self.sampling.mirostat_eta) * (-p.log2() - f64::from(self.sampling.mirostat_tau));
        }
        self.pool = pool;
        Ok(token)
    }

    /// A token is part of the answer now.
    ///
    /// # Errors
    /// If the grammar does not allow it.
    pub fn accept(&mut self, token: Token) -> Result<(), Problem> {
        self.drawn += 1;
        self.grammar.as_mut().map_or(Ok(()), |g| g.accept(token))
    }

    /// The most probable tokens after bias, penalties and grammar with the natural logarithms of their probabilities,
    /// best first: what a beam goes on with. The cuts and the temperature do not count.
    ///
    /// # Errors
    /// As [`Sampler::choose`].
    pub fn ranked(
        &mut self,
        logits: &[f32],
        history: &[Token],
        words: &dyn Words,
        grammar: Option<&Grammar>,
        most: usize,
    ) -> Result<Vec<(Token, f64)>, Problem> {
        largest(logits)?;
        let mut pool = std::mem::take(&mut self.pool);
        match grammar {
            Some(grammar) => fill_allowed(&mut pool, logits, grammar),
            None => pool.fill(logits),
        }
        pool.adjust(self.bias.iter().copied(), biased);
        for stage in [Stage::Penalties, Stage::Dry].into_iter().filter(|g| self.sampling.order.contains(g)) {
            self.stage(stage, &mut pool, history, words);
        }
        let logits = pool.all().unwrap_or_default();
        let total = numbers::log_sum_exp(logits);
        let ranked: Vec<(Token, f64)> =
            best(logits, most).into_iter().map(|(t, l)| (t, f64::from(l) - total)).collect();
        self.pool = pool;
        if ranked.is_empty() { Err(nothing_left()) } else { Ok(ranked) }
    }

    /// Why a token must not come next, if so.
    pub fn forbids(&self, token: Token) -> Option<Problem> {
        self.grammar.as_ref().and_then(|g| g.forbids(token))
    }

    /// Tokens that something else chose are part of the answer.
    pub fn went_on(&mut self, tokens: &[Token]) {
        for token in tokens {
            // A beam was in the grammar at every token.
            let _ = self.accept(*token);
        }
    }

    /// Whether what stands before changes the distribution.
    pub fn looks_back(&self) -> bool {
        [Stage::Penalties, Stage::Dry].into_iter().any(|g| stages::is_active(g, &self.sampling))
    }

    /// The beginning of the grammar, where there is one.
    ///
    /// # Errors
    /// If it is none.
    pub fn fresh_grammar(&self, words: &dyn Words) -> Result<Option<Grammar>, Problem> {
        grammar_of(&self.sampling, words)
    }

    /// What the chain does to these logits, under any settings: the microscope.
    ///
    /// # Errors
    /// As [`Sampler::choose`].
    pub fn look(&self, logits: &[f32], history: &[Token], words: &dyn Words, most: usize) -> Result<Glance, Problem> {
        largest(logits)?;
        let (total, entropy) = numbers::spread(logits);
        let mut seen: Vec<(Token, Option<Cutter>)> =
            best(logits, most).into_iter().map(|(token, _)| (token, None)).collect();
        let mut cuts = Vec::new();
        let mut pool = Pool::default();
        let mut watch = |by, pool: &Pool, does| {
            cuts.push(Cut { stage: by, kept: u32::try_from(pool.len()).unwrap_or(u32::MAX), does });
            for (token, cut) in &mut seen {
                if cut.is_none() && pool.logit(*token).is_none() {
                    *cut = Some(by);
                }
            }
        };
        match &self.grammar {
            Some(grammar) => {
                fill_allowed(&mut pool, logits, grammar);
                watch(Cutter::Grammar, &pool, None);
            }
            None => pool.fill(logits),
        }
        self.run(&mut pool, history, words, &mut watch);
        // What may be chosen is shown, also where the model itself finds it improbable.
        let missing = pool.best(most).into_iter().filter(|t| !seen.iter().any(|(token, _)| token == t));
        let missing: Vec<Token> = missing.take(most / 2).collect();
        seen.truncate(most - missing.len());
        seen.extend(missing.into_iter().map(|token| (token, None)));
        let (max, unit) = (pool.max(), pool.unit());
        let after = |token| pool.logit(token).map_or(0.0, |l| ((l - max).exp() * unit) as f32);
        let before = |token: Token| {
            let logit = usize::try_from(token).ok().and_then(|i| logits.get(i)).copied().unwrap_or(f32::NEG_INFINITY);
            (f64::from(logit) - total).exp() as f32
        };
        let candidate = |(token, cut): (Token, Option<Cutter>)| Seen {
            token,
            text: String::from_utf8_lossy(&words.text(token)).into_owned(),
            before: before(token),
            after: after(token),
            cut,
        };
        let mut candidates: Vec<Seen> = seen.into_iter().map(candidate).collect();
        let place = |cut: Option<Cutter>| cut.and_then(|by| cuts.iter().rev().position(|c| c.stage == by));
        candidates.sort_by(|a, b| {
            let by_place = place(a.cut).cmp(&place(b.cut));
            by_place.then(b.after.total_cmp(&a.after)).then(b.before.total_cmp(&a.before))
        });
        Ok(Glance {
            entropy: (entropy / std::f64::consts::LN_2) as f32,
            vocabulary: u32::try_from(logits.len()).unwrap_or(u32::MAX),
            cuts,
            candidates,
            chosen: None,
        })
    }

    /// Whether something changes which token is the most probable one.
    fn reshapes(&self) -> bool {
        let s = &self.sampling;
        !self.bias.is_empty()
            || [Stage::Penalties, Stage::Dry].into_iter().any(|g| s.order.contains(&g) && stages::is_active(g, s))
    }

    /// The chain. `watch` sees what every stage that does something has left. Under mirostat it gives the unit of
    /// probability before the last cut.
    fn run(
        &self,
        pool: &mut Pool,
        history: &[Token],
        words: &dyn Words,
        watch: &mut dyn FnMut(Cutter, &Pool, Option<f32>),
    ) -> Option<f64> {
        let s = &self.sampling;
        if !self.bias.is_empty() {
            pool.adjust(self.bias.iter().copied(), biased);
            watch(Cutter::Bias, pool, Some(self.bias.len() as f32));
        }
        let beam = s.mode == Mode::Beam;
        let greedy = s.is_greedy() && !beam;
        let mirostat = s.mirostat == Mirostat::Two && !greedy && !beam;
        for stage in s.order.iter().copied() {
            let shapes = matches!(stage, Stage::Penalties | Stage::Dry);
            let skipped = (greedy || beam || (mirostat && stage != Stage::Temperature)) && !shapes;
            if !skipped && stages::is_active(stage, s) {
                let does = self.stage(stage, pool, history, words);
                watch(Cutter::Stage(stage), pool, does);
            }
        }
        if greedy {
            pool.keep_top(1);
            watch(Cutter::Greedy, pool, None);
        }
        // Mirostat 2 (Basu et al. 2021): what is more surprising than mu is cut.
        mirostat.then(|| {
            let unit = pool.unit();
            let kept = pool.probabilities().iter().take_while(|p| -p.log2() <= self.mu).count();
            pool.list().truncate(kept.max(1));
            watch(Cutter::Mirostat, pool, Some(self.mu as f32));
            unit
        })
    }

    /// Applies a stage, if it changes anything; what it does beside cutting.
    fn stage(&self, stage: Stage, pool: &mut Pool, history: &[Token], words: &dyn Words) -> Option<f32> {
        if !stages::is_active(stage, &self.sampling) {
            return None;
        }
        let breaks = |token| words.text(token).iter().any(|b| b"\n:\"*".contains(b));
        let luck = uniform(self.seed, self.drawn, 1);
        stages::apply(stage, &stages::Around { sampling: &self.sampling, history, breaks: &breaks, luck }, pool)
    }
}

/// How probable the model itself found a token, before any setting.
pub fn record(logits: &[f32], token: Token, words: &dyn Words, others: u32) -> TokenRecord {
    let most = others as usize;
    let total = numbers::log_sum_exp(logits);
    let log = |logit: f32| (f64::from(logit) - total) as f32;
    let own = usize::try_from(token).ok().and_then(|i| logits.get(i)).copied().unwrap_or(f32::NEG_INFINITY);
    let others = best(logits, most + 1).into_iter().filter(|(other, _)| *other != token).take(most);
    let text = |token| String::from_utf8_lossy(&words.text(token)).into_owned();
    TokenRecord {
        bytes: u32::try_from(words.text(token).len()).unwrap_or(0),
        logprob: log(own),
        rank: numbers::count_above(logits, own) + 1,
        others: others.map(|(token, logit)| (text(token), log(logit))).collect(),
    }
}

/// The tokens of the largest values, largest first.
pub fn best(scores: &[f32], most: usize) -> Vec<(Token, f32)> {
    let found = numbers::top(scores, most).into_iter();
    found.filter_map(|i| Some((Token::try_from(i).ok()?, scores[i]))).collect()
}

fn biased(logit: f64, add: f32) -> f64 {
    if add <= -Bias::MOST { f64::NEG_INFINITY } else { logit + f64::from(add) }
}

fn tokens_of(bias: &[Bias], words: &dyn Words) -> Result<Vec<(Token, f32)>, Problem> {
    let mut tokens: Vec<(Token, f32)> = Vec::new();
    for bias in bias {
        let by_id = bias.text.strip_prefix('#').and_then(|id| id.parse().ok());
        let known = by_id.filter(|id| u32::try_from(*id).is_ok_and(|id| id < words.size()));
        let named = known.map_or_else(|| words.named(&bias.text), |id| vec![id]);
        if named.is_empty() {
            return Err(Problem::new(
                format!("The bias on '{}' has no effect: no single token of this model is that text", bias.text),
                "Take a shorter text, or a token's number as #123",
            ));
        }
        tokens.extend(named.into_iter().map(|token| (token, bias.add)));
    }
    // A token that is named twice gets both.
    tokens.sort_by_key(|(token, _)| *token);
    tokens.dedup_by(|later, first| {
        let same = later.0 == first.0;
        if same {
            first.1 += later.1;
        }
        same
    });
    Ok(tokens)
}

fn grammar_of(sampling: &Sampling, words: &dyn Words) -> Result<Option<Grammar>, Problem> {
    if sampling.grammar.trim().is_empty() { Ok(None) } else { words.grammar(&sampling.grammar).map(Some) }
}

/// Begins with every token that a grammar allows.
fn fill_allowed(pool: &mut Pool, logits: &[f32], grammar: &Grammar) {
    let mut allowed = logits.to_vec();
    grammar.forbid(&mut allowed);
    pool.fill(&allowed);
}

fn nothing_left() -> Problem {
    Problem::new(
        "The settings leave no token to choose: the bias or the grammar forbids every one",
        "Take the bias or the grammar back",
    )
}

/// The token of the largest logit, the first one where several are equal. Three plain passes, which the
/// compiler makes vector code of: one clever pass costs a hundredth of a small model's step.
fn largest(logits: &[f32]) -> Result<Token, Problem> {
    let most = numbers::max(logits);
    let first = logits.iter().position(|l| *l == most);
    let sound = most > f32::NEG_INFINITY && most < f32::INFINITY && !numbers::has_nan(logits);
    first.filter(|_| sound).and_then(|at| Token::try_from(at).ok()).ok_or_else(|| {
        Problem::new(
            "The model's answer is not made of numbers (NaN logits): the model file is damaged or llama.cpp cannot run it",
            "Fetch the model again, or choose another one (-m, or /model in the chat)",
        )
    })
}

/// A number from 0 to 1 for the n-th token of an answer: `SplitMix64` (Steele et al. 2014) of seed and place, so that
/// the draws do not depend on what was drawn before.
fn uniform(seed: u32, n: u32, stream: u64) -> f64 {
    let mut z = (u64::from(seed) << 32 | u64::from(n)).wrapping_add((stream + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for _ in 0..2 {
        z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
    }
    (z >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
