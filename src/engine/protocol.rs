//! What the engine is asked and what it answers: one JSON object a line, each way.
//!
//! ```text
//! chat                                   engine
//!  │ Load ─────────────────────────────► │
//!  │ ◄─────────────── Loading 0.3 … 1.0  │
//!  │ ◄──────────────────────── Loaded    │   or LoadFailed
//!  │ Generate{job} ────────────────────► │
//!  │ ◄──────── Started{reused, fresh}    │   or Failed
//!  │ ◄──────── Prefill{done, total} …    │
//!  │ ◄──────── Token{text, gap} …        │
//!  │ Sampling{job} ────────────────────► │   from the next token on
//!  │ Cancel{job} ──────────────────────► │
//!  │ ◄──────── Finished{finish, …}       │   exactly one Finished or Failed a job
//! ```

mod cache;
mod context;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::chat::{
    Conversation, Finish, Made, Message, MessageId, Origin, Role, Sampling, Stage, Timings, TokenRecord, Usage,
};

pub use cache::{Because, CacheMap, Cells, Held, Holder};
pub use context::ContextParams;

/// Names a job; never used twice in the life of a chat.
pub type JobId = u64;

/// Where a prompt comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Prompt {
    /// A conversation: the system prompt (empty for none) and the turns, oldest first. With a last turn of
    /// the assistant its text is continued; otherwise a new answer is begun.
    Chat {
        /// System prompt.
        system: String,
        /// The turns.
        turns: Vec<Turn>,
    },
    /// Text to continue as it stands, without a template.
    Raw(String),
    /// Token ids as they are, for benchmarks and tests.
    Tokens(Vec<i32>),
}

impl Prompt {
    /// What is sent of the path of a conversation to a message, it included.
    pub fn to(conversation: &Conversation, last: MessageId) -> Self {
        let sent = conversation.sent_to(last);
        let text = |m: &Message| conversation.spoken(&m.text).into_owned();
        let turns = sent.messages.into_iter().map(|m| Turn { role: m.role, text: text(m) });
        Self::Chat { system: sent.system, turns: turns.collect() }
    }
}

/// One turn of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Who.
    pub role: Role,
    /// What.
    pub text: String,
}

/// What the engine is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Loads a model in place of the one that is there.
    Load {
        /// The GGUF file.
        path: PathBuf,
        /// How its context is made.
        params: ContextParams,
    },
    /// Starts a job.
    Generate {
        /// Its id.
        job: JobId,
        /// What to continue.
        prompt: Prompt,
        /// How to choose tokens.
        sampling: Sampling,
        /// Go on past the model's end tokens, for benchmarks.
        #[serde(default)]
        ignore_eog: bool,
        /// Tell how probable each token was, and so many others.
        #[serde(default)]
        records: Option<u32>,
    },
    /// Chooses the next token of a job that waits for it.
    Pick {
        /// The job.
        job: JobId,
        /// What.
        pick: Pick,
    },
    /// Looks at so many candidates of every token from now on; at none any more with 0.
    Watch {
        /// How many.
        candidates: u32,
    },
    /// Looks at the candidates that are there, under these settings; answered by `Glance`, if there are any.
    Look {
        /// The settings.
        sampling: Sampling,
    },
    /// Asks whether bias and grammar of these settings can be used; answered only if not, by `Unusable`.
    Check {
        /// The settings.
        sampling: Sampling,
    },
    /// Tells how probable the model finds each token of a prompt; answered by `Scored` or `Failed`.
    Score {
        /// Its id.
        job: JobId,
        /// The prompt.
        prompt: Prompt,
    },
    /// Tells how long a prompt is, without reading it; answered by `Measured` or `Failed`.
    Measure {
        /// Its id.
        job: JobId,
        /// The prompt.
        prompt: Prompt,
    },
    /// Splits text as it would be split in a prompt; answered by `Split`.
    Split {
        /// The text.
        text: String,
    },
    /// New settings for a running job, from its next token on.
    Sampling {
        /// The job.
        job: JobId,
        /// The settings.
        sampling: Sampling,
    },
    /// Ends a job; what it has is kept.
    Cancel {
        /// The job.
        job: JobId,
    },
    /// Forgets every cached token.
    ClearCache,
    /// Asks who holds which cells of the cache; answered by `Map`.
    Map,
    /// Gives the cells of a sequence free that no prompt is at work in; answered by `Map`.
    Drop {
        /// The sequence.
        seq: u32,
    },
    /// Keeps what a sequence holds until nothing else can go, or no longer; answered by `Map`.
    Pin {
        /// The sequence.
        seq: u32,
    },
    /// Fixes the threads, or lets the engine choose again with 0.
    Threads {
        /// How many.
        threads: u32,
    },
    /// Ends the engine; the end of its input does the same.
    Shutdown,
}

/// A choice by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// This token.
    Token(i32),
    /// The tokens of this text.
    Text(String),
    /// What the chain would choose.
    Chain,
}

/// What is known of a loaded model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Its name: the file's stem.
    pub name: String,
    /// What llama.cpp calls it, such as `llama ?B Q4_1`; may be empty.
    pub description: String,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// Tokens that it was trained on at once.
    pub n_ctx_train: u32,
    /// Cells of the context that was made.
    pub n_ctx: u32,
    /// Size of its vocabulary.
    pub n_vocab: u32,
    /// Bytes that one token takes in the KV cache, over all layers that keep the whole context, by its types.
    pub kv_bytes_per_token: u64,
    /// Bytes of the whole KV cache, reserved.
    pub kv_bytes_reserved: u64,
    /// Types of the KV cache: `f16`, or `q8_0/f16` where K and V differ.
    pub kv_type: String,
    /// Whether it has a chat template that can be used; if not, prompts are continued as raw text.
    pub has_template: bool,
    /// What is to be said about the model on the screen, one sentence each.
    pub notes: Vec<String>,
    /// The device that computes, such as `CPU` or `CUDA0`.
    pub device: String,
    /// Threads now in use.
    pub threads: u32,
    /// How long loading took, in milliseconds.
    pub load_ms: f64,
    /// The knobs that its maker recommends, and their values.
    #[serde(default)]
    pub recommended: Vec<(String, String)>,
    /// What its answers come from, as far as that is known before one.
    #[serde(default)]
    pub origin: Origin,
}

/// Something that went wrong, as the screen says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What failed and why, one sentence without a full stop.
    pub what: String,
    /// What the user can do.
    pub next: String,
}

impl Problem {
    /// A problem and its next step.
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), next: next.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}. {}", self.what, self.next)
    }
}

impl std::error::Error for Problem {}

/// How long a prompt is, and what there is room for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Tokens of the whole prompt.
    pub tokens: u32,
    /// Cells of the context, which prompt and answer share.
    pub n_ctx: u32,
    /// Tokens of each turn of a chat, oldest first, what the template writes before it among them. The rest of
    /// `tokens` is the system prompt and the template's.
    pub turns: Vec<u32>,
    /// Bytes of memory that the engine may still take, where that can be told.
    #[serde(default)]
    pub free_bytes: Option<u64>,
}

/// What the chain does to the candidates of one token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Glance {
    /// Entropy of the model's own distribution, in bits.
    pub entropy: f32,
    /// How many tokens there are.
    pub vocabulary: u32,
    /// What each stage that does something has left, in their order.
    pub cuts: Vec<Cut>,
    /// What may be chosen, most probable first; then what was cut, by the last stage first, most probable first.
    pub candidates: Vec<Seen>,
    /// The token that was chosen, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<i32>,
}

impl Glance {
    /// Candidates that are shown where nobody says how many.
    pub const CANDIDATES: u32 = 24;

    /// How many tokens may be chosen.
    pub fn left(&self) -> u32 {
        self.cuts.last().map_or(self.vocabulary, |cut| cut.kept)
    }
}

/// What takes candidates away, or makes them more or less probable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cutter {
    /// A grammar or JSON schema.
    Grammar,
    /// The logit bias.
    Bias,
    /// Mirostat's bound.
    Mirostat,
    /// Only the most probable one is left.
    Greedy,
    /// A stage of the chain.
    #[serde(untagged)]
    Stage(Stage),
}

impl Cutter {
    /// Its name as it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grammar => "grammar",
            Self::Bias => "bias",
            Self::Stage(stage) => stage.name(),
            Self::Mirostat => "mirostat",
            Self::Greedy => "greedy",
        }
    }
}

/// What each of them leaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    /// Which.
    pub stage: Cutter,
    /// Candidates left.
    pub kept: u32,
    /// What it does beside cutting: the temperature in use, mirostat's bound in bits, or how many tokens a penalty or
    /// bias meets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub does: Option<f32>,
}

/// A candidate as the microscope shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The token.
    pub token: i32,
    /// Its text.
    pub text: String,
    /// The model's own probability.
    pub before: f32,
    /// The probability with which it is chosen.
    pub after: f32,
    /// What cuts it.
    pub cut: Option<Cutter>,
}

/// A beam as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeamLine {
    /// Its text beyond what all agree on.
    pub text: String,
    /// Its score as it stands.
    pub score: f32,
    /// Whether it has ended.
    pub ended: bool,
}

/// An answer of a beam search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Its text.
    pub text: String,
    /// Its score.
    pub score: f32,
    /// Whether the model ended it.
    pub whole: bool,
    /// Its tokens.
    pub records: Vec<TokenRecord>,
}

impl Alternative {
    /// How it was made, where `best` says it of the first one.
    pub fn made(&self, best: &Made) -> Made {
        let usage = Usage { completion_tokens: u32::try_from(self.records.len()).unwrap_or(0), ..best.usage };
        let finish = if self.whole { Finish::Stop } else { best.finish };
        Made { score: Some(self.score), usage, finish, ..best.clone() }
    }
}

/// What the engine answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EngineEvent {
    /// First line of every engine.
    Hello {
        /// Version of the program.
        version: String,
    },
    /// The model is being loaded.
    Loading {
        /// 0 to 1.
        fraction: f32,
    },
    /// The model is there.
    Loaded(Box<ModelInfo>),
    /// The model is not there.
    LoadFailed(Problem),
    /// A job's prompt is tokenised and its prefill begins.
    Started {
        /// The job.
        job: JobId,
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// Of them, in the KV cache already.
        reused_tokens: u32,
        /// Of these, brought back from memory or a file first.
        #[serde(default)]
        restored_tokens: u32,
        /// Whose the prompt's tokens are.
        cells: Cells,
        /// The seed that is used.
        seed: u32,
        /// Why no more of what the cache holds was reused.
        #[serde(default)]
        because: Option<Because>,
        /// What was changed in the prompt; one sentence each.
        notes: Vec<String>,
    },
    /// A chunk of the prompt is decoded.
    Prefill {
        /// The job.
        job: JobId,
        /// Fresh tokens decoded so far.
        done: u32,
        /// Fresh tokens in all.
        total: u32,
        /// Milliseconds since prefill began.
        ms: f64,
    },
    /// A token was chosen.
    Token {
        /// The job.
        job: JobId,
        /// The text that it completes; may be empty where a character takes several tokens.
        text: String,
        /// Tokens of the answer so far.
        n: u32,
        /// Milliseconds since the token before; for the first, since the request arrived (TTFT).
        gap_ms: f64,
        /// How probable it was, where that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<TokenRecord>,
    },
    /// A round of a beam search.
    Beams {
        /// The job.
        job: JobId,
        /// Rounds so far.
        n: u32,
        /// Milliseconds since the round before; for the first, since the request arrived.
        gap_ms: f64,
        /// Text that all beams have come to agree on since the last such event.
        agreed: String,
        /// The beams, best first, then the answers that ended.
        beams: Vec<BeamLine>,
        /// How often the lead changed.
        overtakes: u32,
        /// Whose the cells are.
        cells: Cells,
    },
    /// Who holds which cells of the cache.
    Map(CacheMap),
    /// The end of a job's answer has come before; with no rounds: no longer.
    Repeats {
        /// The job.
        job: JobId,
        /// So often, from three on.
        rounds: u32,
        /// Tokens of a round.
        period: u32,
    },
    /// A job's answer repeats itself for too long to be a way to speak.
    Looped {
        /// The job.
        job: JobId,
        /// After so many tokens it begins again.
        period: u32,
    },
    /// A job waits for a [`Request::Pick`].
    Waiting {
        /// The job.
        job: JobId,
    },
    /// The candidates of the next token, or of the one that was just chosen.
    Glance(Glance),
    /// How probable the tokens of a prompt are; the first one has nothing before it.
    Scored {
        /// The job.
        job: JobId,
        /// The text of each token and how probable it was.
        tokens: Vec<(String, Option<TokenRecord>)>,
    },
    /// How long a prompt is.
    Measured {
        /// The job.
        job: JobId,
        /// How long.
        size: Size,
        /// sha256 of its tokens, as [`Origin`] has it.
        #[serde(default)]
        prompt_sha256: String,
    },
    /// How a text is split.
    Split {
        /// The text that was asked about.
        text: String,
        /// Its tokens' texts.
        tokens: Vec<String>,
    },
    /// A job ended.
    Finished {
        /// The job.
        job: JobId,
        /// Text that was held back as the beginning of a character; usually empty.
        text: String,
        /// Why.
        finish: Finish,
        /// Its tokens.
        usage: Usage,
        /// Its times.
        timings: Timings,
        /// The seed that was used.
        seed: u32,
        /// The settings at its end.
        sampling: Box<Sampling>,
        /// Whose the cells of the cache are now.
        cells: Cells,
        /// The answers of a beam search, best first; the job's text is the first one's.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        alternatives: Vec<Alternative>,
        /// What it came from; none of a job that had not begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Box<Origin>>,
    },
    /// A job could not be done; nothing more comes of it.
    Failed {
        /// The job.
        job: JobId,
        /// Why.
        problem: Problem,
        /// How long its prompt is, where it does not fit into the context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<Size>,
    },
    /// What a `Check` asked about cannot be used.
    Unusable {
        /// Why.
        problem: Problem,
    },
    /// Settings for a running job were not taken; it goes on with the old ones.
    Refused {
        /// The job.
        job: JobId,
        /// Why.
        problem: Problem,
    },
    /// The engine computes with another number of threads.
    Threads {
        /// How many.
        threads: u32,
        /// Why, in a few words.
        why: String,
    },
}

/// What the chat hears of the engine: its lines, and its life.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineNews {
    /// A line of a living engine.
    Event(EngineEvent),
    /// A line that is no event; at most the first of a flood is told.
    Garbage(String),
    /// The engine is gone. Nothing of it comes after this.
    Died {
        /// How it ended, such as `killed by signal 9` or `exit status 1`.
        how: String,
        /// The last lines that it wrote to stderr.
        last_words: Vec<String>,
    },
}
