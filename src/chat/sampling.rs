//! How the next token is chosen: the values that the sliders of [`super::KNOBS`] change.

use serde::{Deserialize, Serialize};

use super::knobs::{KNOBS, Knob};

/// The strategy of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Always the most probable token.
    Greedy,
    /// A draw from the distribution that the cuts leave.
    #[default]
    Sample,
}

impl Mode {
    /// Every mode, in the order of the slider.
    pub const ALL: [Self; 2] = [Self::Greedy, Self::Sample];
    /// Their names, in the same order.
    pub const NAMES: [&'static str; 2] = ["greedy", "sample"];

    /// The mode's name as it is typed and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => Self::NAMES[0],
            Self::Sample => Self::NAMES[1],
        }
    }
}

/// The seed of a draw; `None` takes a new one for each answer, which the answer then records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(pub Option<u32>);

/// The settings of one conversation's next answer. Every value is finite and within its knob's range
/// once [`Sampling::sanitised`] has been applied, which loading does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// Greedy or sample.
    pub mode: Mode,
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Keeps the k most probable tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps the most probable tokens until their sum reaches p; 1 keeps all.
    pub top_p: f32,
    /// Drops tokens less probable than this share of the best one; 0 keeps all.
    pub min_p: f32,
    /// Divides the logits of recent tokens; 1 changes nothing.
    pub repeat_penalty: f32,
    /// How many recent tokens the penalty looks at; 0 is none.
    pub repeat_last_n: u32,
    /// The seed of the draw.
    pub seed: Seed,
    /// The longest answer in tokens.
    pub max_tokens: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        let mut sampling = Self {
            mode: Mode::Sample,
            temperature: 0.0,
            top_k: 0,
            top_p: 0.0,
            min_p: 0.0,
            repeat_penalty: 0.0,
            repeat_last_n: 0,
            seed: Seed(None),
            max_tokens: 0,
        };
        for spec in &KNOBS {
            sampling.put(spec.knob, spec.default);
        }
        sampling
    }
}

impl Sampling {
    /// The value of a knob as a number: a mode's index, −1 for a new seed each time.
    pub fn get(&self, knob: Knob) -> f64 {
        match knob {
            Knob::Mode => f64::from(u8::from(self.mode == Mode::Sample)),
            Knob::Temperature => widen(self.temperature),
            Knob::TopK => f64::from(self.top_k),
            Knob::TopP => widen(self.top_p),
            Knob::MinP => widen(self.min_p),
            Knob::RepeatPenalty => widen(self.repeat_penalty),
            Knob::RepeatLastN => f64::from(self.repeat_last_n),
            Knob::Seed => self.seed.0.map_or(-1.0, f64::from),
            Knob::MaxTokens => f64::from(self.max_tokens),
        }
    }

    /// Sets a knob to a value that is already within its range; [`super::Spec::set`] is the checked way.
    pub(super) fn put(&mut self, knob: Knob, value: f64) {
        match knob {
            Knob::Mode => self.mode = if value < 0.5 { Mode::Greedy } else { Mode::Sample },
            Knob::Temperature => self.temperature = value as f32,
            Knob::TopK => self.top_k = value as u32,
            Knob::TopP => self.top_p = value as f32,
            Knob::MinP => self.min_p = value as f32,
            Knob::RepeatPenalty => self.repeat_penalty = value as f32,
            Knob::RepeatLastN => self.repeat_last_n = value as u32,
            Knob::Seed => self.seed = Seed((value >= 0.0).then_some(value as u32)),
            Knob::MaxTokens => self.max_tokens = value as u32,
        }
    }

    /// The same settings with every value finite and in range: what is not becomes the default, what is
    /// beyond an end becomes the end.
    #[must_use]
    pub fn sanitised(mut self) -> Self {
        for spec in &KNOBS {
            let value = self.get(spec.knob);
            let value = if value.is_finite() { value.clamp(spec.min, spec.max) } else { spec.default };
            self.put(spec.knob, value);
        }
        self
    }

    /// Whether the next token is the most probable one whatever the cuts are.
    pub fn is_greedy(&self) -> bool {
        self.mode == Mode::Greedy || self.temperature < 0.001
    }
}

/// An f32 as the f64 that prints alike: 0.1 stays 0.1 and does not become 0.10000000149.
fn widen(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::NAN)
}
