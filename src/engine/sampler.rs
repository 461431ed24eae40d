//! From logits to a token: the settings of a conversation as a chain of llama.cpp's samplers.

use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token::data::LlamaTokenData;
use llama_cpp_2::token::data_array::LlamaTokenDataArray;

use super::protocol::Problem;
use super::sequences::Token;
use crate::chat::Sampling;

/// Chooses the tokens of one answer; its settings can change between two tokens.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    n_vocab: i32,
    /// None where the largest logit is the answer: greedy without a penalty.
    chain: Option<LlamaSampler>,
    candidates: LlamaTokenDataArray,
}

impl Sampler {
    /// A sampler for an answer to `prompt`.
    pub fn new(sampling: Sampling, n_vocab: u32, seed: u32, prompt: &[Token]) -> Self {
        let n_vocab = i32::try_from(n_vocab).unwrap_or(i32::MAX);
        let sampling = sampling.sanitised();
        let chain = chain(&sampling, n_vocab, seed, prompt);
        Self { sampling, n_vocab, chain, candidates: LlamaTokenDataArray::new(Vec::new(), false) }
    }

    /// The settings in use.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Takes new settings, from the next token on. `tokens` is everything before it, `drawn` how many of
    /// them this answer has: the new chain's draws are not those that the old one began with.
    pub fn change(&mut self, sampling: Sampling, seed: u32, tokens: &[Token], drawn: u32) {
        let sampling = sampling.sanitised();
        if sampling != self.sampling {
            // An odd constant spreads the counter over all seeds (2^32 / golden ratio).
            self.chain = chain(&sampling, self.n_vocab, seed.wrapping_add(drawn.wrapping_mul(0x9E37_79B9)), tokens);
            self.sampling = sampling;
        }
    }

    /// Chooses a token.
    ///
    /// # Errors
    /// If a logit is not a number, or none is above minus infinity: the model or its file is broken.
    pub fn choose(&mut self, logits: &[f32]) -> Result<Token, Problem> {
        let best = largest(logits)?;
        let Some(chain) = &mut self.chain else { return Ok(best) };
        self.candidates.data.clear();
        self.candidates
            .data
            .extend((0..).zip(logits).map(|(id, logit)| LlamaTokenData::new(LlamaToken(id), *logit, 0.0)));
        self.candidates.sorted = false;
        self.candidates.selected = None;
        self.candidates.apply_sampler(chain);
        let chosen = self.candidates.selected_token().map_or(best, |t| t.0);
        chain.accept(LlamaToken(chosen));
        Ok(chosen)
    }
}

/// The token of the largest logit, the first one where several are equal. Three plain passes, which the
/// compiler makes vector code of: one clever pass costs a hundredth of a small model's step.
fn largest(logits: &[f32]) -> Result<Token, Problem> {
    let broken = logits.iter().map(|l| u32::from(l.is_nan())).sum::<u32>() > 0;
    let most = logits.iter().fold(f32::NEG_INFINITY, |most, l| if *l > most { *l } else { most });
    let first = logits.iter().position(|l| *l == most);
    let best = first.filter(|_| !broken && most > f32::NEG_INFINITY).and_then(|at| Token::try_from(at).ok());
    best.ok_or_else(|| {
        Problem::new(
            "The model's answer is not made of numbers (NaN logits): the model file is damaged or llama.cpp cannot run it",
            "Fetch the model again or choose another one with /model",
        )
    })
}

/// The only place that builds a chain; it always ends in a selecting sampler, because llama.cpp aborts on
/// one that does not. The order is llama.cpp's own.
fn chain(sampling: &Sampling, n_vocab: i32, seed: u32, tokens: &[Token]) -> Option<LlamaSampler> {
    let penalised = sampling.repeat_penalty != 1.0 && sampling.repeat_last_n > 0;
    if sampling.is_greedy() && !penalised {
        return None;
    }
    let mut stages = Vec::new();
    if penalised {
        let window = i32::try_from(sampling.repeat_last_n).unwrap_or(i32::MAX);
        stages.push(LlamaSampler::penalties(n_vocab, window, sampling.repeat_penalty, 0.0, 0.0));
    }
    if sampling.is_greedy() {
        stages.push(LlamaSampler::greedy());
    } else {
        if sampling.top_k > 0 {
            stages.push(LlamaSampler::top_k(i32::try_from(sampling.top_k).unwrap_or(i32::MAX)));
        }
        if sampling.top_p < 1.0 {
            stages.push(LlamaSampler::top_p(sampling.top_p, 1));
        }
        if sampling.min_p > 0.0 {
            stages.push(LlamaSampler::min_p(sampling.min_p, 1));
        }
        stages.push(LlamaSampler::temp(sampling.temperature));
        // 0xFFFF_FFFF would mean a seed of llama.cpp's own choice.
        stages.push(LlamaSampler::dist(seed.min(u32::MAX - 1)));
    }
    let mut chain = LlamaSampler::chain(stages, true);
    if penalised {
        let recent = tokens.len().saturating_sub(sampling.repeat_last_n as usize);
        chain.accept_many(tokens[recent..].iter().map(|t| LlamaToken(*t)));
    }
    Some(chain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Mode, Seed};

    fn settings() -> Sampling {
        Sampling { seed: Seed(Some(1)), ..Sampling::default() }
    }

    #[test]
    fn greedy_and_temperature_zero_take_the_first_largest() {
        let logits = [0.0, 3.0, 3.0, 1.0];
        for sampling in [Sampling { mode: Mode::Greedy, ..settings() }, Sampling { temperature: 0.0, ..settings() }] {
            assert_eq!(Sampler::new(sampling, 1000, 7, &[]).choose(&logits).unwrap(), 1);
        }
    }

    #[test]
    fn a_penalty_counts_under_greedy_too() {
        let sampling = Sampling { mode: Mode::Greedy, repeat_penalty: 2.0, ..settings() };
        let mut sampler = Sampler::new(sampling, 1000, 7, &[1]);
        assert_eq!(sampler.choose(&[0.0, 3.0, 2.0]).unwrap(), 2);
    }

    #[test]
    fn the_same_seed_draws_the_same_and_the_cuts_hold() {
        let logits: Vec<f32> = (0..1000u16).map(|i| f32::from(i % 97) / 20.0).collect();
        let draw = |seed, sampling: &Sampling| {
            let mut sampler = Sampler::new(sampling.clone(), 1000, seed, &[]);
            (0..200).map(|_| sampler.choose(&logits).unwrap()).collect::<Vec<_>>()
        };
        let sampling = Sampling { top_k: 0, min_p: 0.0, top_p: 1.0, temperature: 1.5, ..settings() };
        assert_eq!(draw(5, &sampling), draw(5, &sampling));
        assert_ne!(draw(5, &sampling), draw(6, &sampling));
        let mut kept = draw(5, &Sampling { top_k: 3, temperature: 2.0, ..settings() });
        kept.sort_unstable();
        kept.dedup();
        assert!(kept.len() <= 3 && kept.iter().all(|t| t % 97 == 96), "{kept:?}");
    }

    #[test]
    fn broken_logits_are_a_sentence() {
        for sampling in [settings(), Sampling { mode: Mode::Greedy, ..settings() }] {
            let mut sampler = Sampler::new(sampling, 1000, 1, &[]);
            assert!(sampler.choose(&[0.0, f32::NAN]).unwrap_err().what.contains("NaN"));
            assert!(sampler.choose(&[f32::NEG_INFINITY; 4]).is_err());
            assert!(sampler.choose(&[]).is_err());
        }
    }

    #[test]
    fn no_setting_that_can_be_typed_aborts() {
        use crate::chat::KNOBS;
        let logits: Vec<f32> = (0..50u8).map(f32::from).collect();
        for spec in &KNOBS {
            for value in [spec.min, spec.max, f64::NAN, -1.0, 1e-40] {
                let mut sampling = settings();
                if spec.set(&mut sampling, value).is_ok() {
                    Sampler::new(sampling, 1000, u32::MAX, &[1, 2, 3]).choose(&logits).unwrap();
                }
            }
        }
    }
}
