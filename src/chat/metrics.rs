//! The figures of one answer. All are taken in the engine where the thing happens; they stay on the message.

use serde::{Deserialize, Serialize};

use super::origin::Origin;
use super::sampling::Sampling;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// It reached the longest answer.
    Length,
    /// The context is full.
    ContextFull,
    /// The user stopped it.
    Cancelled,
    /// It repeated itself.
    Loop,
    /// The engine failed or died; the text so far is kept.
    Failed,
}

impl Finish {
    /// As it stands behind an answer that did not end by itself.
    pub fn label(self) -> &'static str {
        match self {
            Self::Stop => "complete",
            Self::Length => "longest answer reached",
            Self::ContextFull => "context full",
            Self::Cancelled => "stopped",
            Self::Loop => "repeats itself; /unloop goes on with a penalty",
            Self::Failed => "broken off",
        }
    }
}

/// Tokens of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens of the prompt, reused ones among them.
    pub prompt_tokens: u32,
    /// Tokens of the prompt that were in the KV cache already.
    pub reused_tokens: u32,
    /// Tokens of the answer; the end token is not counted.
    pub completion_tokens: u32,
}

impl Usage {
    /// Prompt tokens that were decoded for this answer.
    pub fn fresh_tokens(&self) -> u32 {
        self.prompt_tokens.saturating_sub(self.reused_tokens)
    }
}

/// Times of one answer in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timings {
    /// Loading the model, where this answer waited for it.
    pub load_ms: f64,
    /// Decoding the fresh tokens of the prompt.
    pub prefill_ms: f64,
    /// From the request's arrival in the engine to the first token.
    pub ttft_ms: f64,
    /// From the first token to the last.
    pub decode_ms: f64,
    /// `decode_ms / (completion_tokens - 1)`; 0 below two tokens.
    pub tpot_ms: f64,
    /// 95th percentile of the gaps between tokens.
    pub itl_p95_ms: f64,
    /// `1000 / tpot_ms`; 0 below two tokens.
    pub tokens_per_second: f64,
}

/// How an answer was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// The model's name.
    pub model: String,
    /// The settings at its end.
    pub sampling: Sampling,
    /// The seed that was used.
    pub seed: u32,
    /// Why it ended.
    pub finish: Finish,
    /// Its tokens.
    #[serde(default)]
    pub usage: Usage,
    /// Its times.
    #[serde(default)]
    pub timings: Timings,
    /// Its score, where a beam search made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
    /// The settings before those, where they were changed in the answer: until which token each counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<(u32, Sampling)>,
    /// Whether it repeats itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looped: bool,
    /// What it came from; unknown of answers that are older than this record, were broken off, or came from elsewhere.
    #[serde(default, deserialize_with = "known", skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
}

impl Made {
    /// How an answer was made of which no more than this is known.
    pub fn new(model: &str, sampling: Sampling, finish: Finish) -> Self {
        Self {
            model: model.to_owned(),
            sampling,
            seed: 0,
            finish,
            usage: Usage::default(),
            timings: Timings::default(),
            score: None,
            earlier: Vec::new(),
            looped: false,
            origin: None,
        }
    }
}

/// What an answer came from, or nothing where a newer version says it in words that are not known here: the answer is
/// worth more than its record.
fn known<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<Origin>>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(|value| serde_json::from_value(value).ok().flatten())
}

/// How probable the model itself found a token of an answer, before any setting.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRecord {
    /// Bytes of its text.
    pub bytes: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// 1 for the most probable one.
    pub rank: u32,
    /// The most probable others: text and log-probability.
    pub others: Vec<(String, f32)>,
}

impl TokenRecord {
    /// How many others are kept with each token of an answer.
    pub const OTHERS: u32 = 2;
    /// From which surprise on (−ln p, in nats) a token is shaded more: probabilities of 37, 5 and 0.7 %.
    pub const SURPRISES: [f32; 3] = [1.0, 3.0, 5.0];

    /// How much it is shaded: 0 to 3.
    pub fn surprise(&self) -> usize {
        Self::SURPRISES.iter().filter(|from| -self.logprob > **from).count()
    }
}

/// Saved in ten-thousandths, as a list without names: there is one for every token of every answer.
#[derive(Serialize, Deserialize)]
struct Packed(u32, i32, u32, Vec<(String, i32)>);

impl Serialize for TokenRecord {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let packed = |log: f32| (log * 10_000.0).round() as i32;
        let others = self.others.iter().map(|(text, log)| (text.clone(), packed(*log))).collect();
        Packed(self.bytes, packed(self.logprob), self.rank, others).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TokenRecord {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Packed(bytes, logprob, rank, others) = Packed::deserialize(deserializer)?;
        let log = |packed: i32| packed as f32 / 10_000.0;
        let others = others.into_iter().map(|(text, packed)| (text, log(packed))).collect();
        Ok(Self { bytes, logprob: log(logprob), rank, others })
    }
}
