//! How the next token is chosen: the values that the sliders of [`super::KNOBS`] change, and what is no number.

use serde::{Deserialize, Serialize};

use super::knobs::{KNOBS, Knob};

/// A small set of named values, which a slider shows by name.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name { $($(#[$item_doc])* #[serde(rename = $text)] $item,)+ }

        impl $name {
            /// Every one, in the order of the slider.
            pub const ALL: &'static [Self] = &[$(Self::$item),+];
            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            /// The name as it is typed, saved and shown.
            pub fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }

        impl Value for $name {
            fn number(&self) -> f64 {
                f64::from(*self as u8)
            }
            fn of(number: f64) -> Self {
                Self::ALL.get(number.round() as usize).copied().unwrap_or_default()
            }
        }
    };
}

/// What a slider can hold, seen as a number.
trait Value {
    fn number(&self) -> f64;
    fn of(number: f64) -> Self;
}

impl Value for f32 {
    /// The f64 that prints alike: 0.1 stays 0.1 and does not become 0.10000000149.
    fn number(&self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }
    fn of(number: f64) -> Self {
        number as Self
    }
}

impl Value for u32 {
    fn number(&self) -> f64 {
        f64::from(*self)
    }
    fn of(number: f64) -> Self {
        number as Self
    }
}

impl Value for i32 {
    fn number(&self) -> f64 {
        f64::from(*self)
    }
    fn of(number: f64) -> Self {
        number as Self
    }
}

choice! {
    /// The strategy of a conversation.
    Mode {
        /// Always the most probable token.
        Greedy = "greedy",
        /// A draw from the distribution that the cuts leave.
        #[default]
        Sample = "sample",
        /// Several answers at once; the most probable whole one wins.
        Beam = "beam",
        /// The person chooses every token.
        Hand = "hand",
    }
}

choice! {
    /// Whether the surprise of each token is held constant.
    Mirostat {
        /// It is not.
        #[default]
        Off = "off",
        /// Mirostat 2.
        Two = "2",
    }
}

choice! {
    /// When a beam search ends, as the Transformers library names it.
    EarlyStopping {
        /// When as many answers have ended as there are beams.
        First = "first",
        /// When the best that a living beam can score, as it stands, is below the worst that ended.
        #[default]
        Best = "best",
        /// When no living beam can become better, however long it gets.
        Never = "never",
    }
}

choice! {
    /// What happens to an answer that repeats itself.
    LoopGuard {
        /// Nothing.
        Off = "off",
        /// It is told.
        #[default]
        Mark = "mark",
        /// It is stopped.
        Stop = "stop",
    }
}

choice! {
    /// A step of the chain from logits to the next token. The names are llama.cpp's.
    Stage {
        /// Repeat, frequency and presence penalty.
        #[default]
        Penalties = "penalties",
        /// "Don't repeat yourself".
        Dry = "dry",
        /// Keeps logits within n standard deviations of the largest.
        TopNSigma = "top_n_sigma",
        /// Keeps the k most probable.
        TopK = "top_k",
        /// Keeps those whose surprise is typical.
        TypicalP = "typ_p",
        /// Keeps the nucleus.
        TopP = "top_p",
        /// Drops what is much less probable than the best.
        MinP = "min_p",
        /// Exclude top choices.
        Xtc = "xtc",
        /// Flattens or sharpens.
        Temperature = "temperature",
    }
}

/// The seed of a draw; `None` takes a new one for each answer, which the answer then records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(pub Option<u32>);

impl Value for Seed {
    fn number(&self) -> f64 {
        self.0.map_or(-1.0, f64::from)
    }
    fn of(number: f64) -> Self {
        Self((number >= 0.0).then_some(number as u32))
    }
}

/// What is added to the logits of a text's token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bias {
    /// The token's text, with or without a space before it; or `#` and its id.
    pub text: String,
    /// What is added, −100 to 100; the ends forbid it, or leave nothing else.
    pub add: f32,
}

impl Bias {
    /// The largest bias, either way.
    pub const MOST: f32 = 100.0;

    /// A bias as it is typed: `text=value`.
    ///
    /// # Errors
    /// Says what is missing or out of range.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no bias; write TEXT=VALUE, VALUE from -100 to 100");
        let (token, value) = text.rsplit_once('=').filter(|(token, _)| !token.is_empty()).ok_or_else(wrong)?;
        let add = value.trim().parse::<f32>().ok().filter(|v| (-Self::MOST..=Self::MOST).contains(v));
        Ok(Self { text: token.to_owned(), add: add.ok_or_else(wrong)? })
    }

    /// Several of them, with commas between. A text with a comma in it is given alone.
    ///
    /// # Errors
    /// As [`Bias::parse`].
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        parts
            .map(Self::parse)
            .collect::<Result<_, _>>()
            .or_else(|why| Self::parse(text).map(|b| vec![b]).map_err(|_| why))
    }
}

/// The settings from one list: a field, its type and its knob.
macro_rules! sampling {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $knob:ident,)+) => {
        /// The settings of one conversation's next answer. Every value is finite and within its knob's range
        /// once [`Sampling::sanitised`] has been applied, which loading does.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Sampling {
            $($(#[$doc])* pub $field: $type,)+
            /// The stages of the chain in their order; those that are not named are left out.
            #[serde(rename = "samplers", alias = "order")]
            pub order: Vec<Stage>,
            /// Texts whose tokens are more or less probable.
            #[serde(rename = "logit_bias", alias = "bias", skip_serializing_if = "Vec::is_empty")]
            pub bias: Vec<Bias>,
            /// A grammar in GBNF that the answer must follow; empty for none.
            #[serde(skip_serializing_if = "String::is_empty")]
            pub grammar: String,
        }

        impl Default for Sampling {
            fn default() -> Self {
                Self {
                    $($field: Value::of(Knob::$knob.spec().default),)+
                    order: Stage::ALL.to_vec(),
                    bias: Vec::new(),
                    grammar: String::new(),
                }
            }
        }

        impl Sampling {
            /// The value of a knob as a number: a choice's index, −1 for a new seed each time.
            pub fn get(&self, knob: Knob) -> f64 {
                match knob { $(Knob::$knob => self.$field.number(),)+ }
            }

            /// Sets a knob to a value that is already within its range; [`super::Spec::set`] is the checked way.
            pub(super) fn put(&mut self, knob: Knob, value: f64) {
                match knob { $(Knob::$knob => self.$field = Value::of(value),)+ }
            }
        }
    };
}

sampling! {
    /// The strategy.
    mode: Mode = Mode,
    /// Divides the logits; 0 is greedy.
    temperature: f32 = Temperature,
    /// Keeps the k most probable tokens; 0 keeps all.
    top_k: u32 = TopK,
    /// Keeps the most probable tokens until their sum reaches p; 1 keeps all.
    top_p: f32 = TopP,
    /// Drops tokens less probable than this share of the best one; 0 keeps all.
    min_p: f32 = MinP,
    /// Keeps the tokens whose surprise is closest to the expected one until their sum reaches p; 1 keeps all.
    typical_p: f32 = TypicalP,
    /// Keeps the logits within so many standard deviations of the largest; 0 keeps all.
    top_n_sigma: f32 = TopNSigma,
    /// How often all but the least probable of the tokens above the threshold are dropped.
    xtc_probability: f32 = XtcProbability,
    /// That threshold; above 0.5 it does nothing.
    xtc_threshold: f32 = XtcThreshold,
    /// How far the temperature follows the entropy, either way; 0 keeps it fixed.
    dynatemp_range: f32 = DynatempRange,
    /// How the temperature follows it.
    dynatemp_exponent: f32 = DynatempExponent,
    /// Divides the logits of recent tokens; 1 changes nothing.
    repeat_penalty: f32 = RepeatPenalty,
    /// Taken from a recent token's logit for each time it occurs.
    frequency_penalty: f32 = FrequencyPenalty,
    /// Taken from a recent token's logit once.
    presence_penalty: f32 = PresencePenalty,
    /// How many recent tokens the penalties look at; 0 is none.
    repeat_last_n: u32 = RepeatLastN,
    /// How much a token that would go on with a repetition loses; 0 is off.
    dry_multiplier: f32 = DryMultiplier,
    /// How fast that grows with the repetition's length.
    dry_base: f32 = DryBase,
    /// The longest repetition that costs nothing.
    dry_allowed_length: u32 = DryAllowedLength,
    /// How many recent tokens it looks at; −1 for all.
    dry_penalty_last_n: i32 = DryPenaltyLastN,
    /// Whether surprise is held constant; it takes the place of the cuts.
    mirostat: Mirostat = Mirostat,
    /// The surprise that is aimed at, in bits.
    mirostat_tau: f32 = MirostatTau,
    /// How fast it is corrected.
    mirostat_eta: f32 = MirostatEta,
    /// How many beams.
    beams: u32 = Beams,
    /// α: a score is the sum of log-probabilities divided by the length to this power.
    length_penalty: f32 = LengthPenalty,
    /// When a beam search ends.
    early_stopping: EarlyStopping = EarlyStopping,
    /// How many of its answers are kept.
    n_best: u32 = NBest,
    /// What happens to an answer that repeats itself.
    loop_guard: LoopGuard = LoopGuard,
    /// The seed of the draw.
    seed: Seed = Seed,
    /// The longest answer in tokens.
    max_tokens: u32 = MaxTokens,
}

impl Sampling {
    /// The same settings with every value finite and in range: what is not becomes the default, what is
    /// beyond an end becomes the end.
    #[must_use]
    pub fn sanitised(mut self) -> Self {
        for spec in &KNOBS {
            let value = self.get(spec.knob);
            let value = if value.is_finite() { value.clamp(spec.min, spec.max) } else { spec.default };
            self.put(spec.knob, value);
        }
        self.bias.retain(|b| b.add.is_finite());
        let mut seen = Vec::new();
        self.order.retain(|stage| {
            !seen.contains(stage) && {
                seen.push(*stage);
                true
            }
        });
        self
    }

    /// Whether the next token is the most probable one whatever the cuts are.
    pub fn is_greedy(&self) -> bool {
        self.mode == Mode::Greedy || self.temperature < 0.001
    }

    /// The same choice, made by hand: what a look at the distribution of these settings asks for.
    #[must_use]
    pub fn by_hand(mut self) -> Self {
        match self.mode {
            Mode::Greedy => self.temperature = 0.0,
            Mode::Beam => {
                self.order.retain(|stage| matches!(stage, Stage::Penalties | Stage::Dry));
                (self.temperature, self.mirostat) = (1.0, Mirostat::Off);
            }
            Mode::Sample | Mode::Hand => {}
        }
        Self { mode: Mode::Hand, ..self }
    }

    /// The order of the chain as it is typed.
    pub fn order_text(&self) -> String {
        self.order.iter().map(|s| s.name()).collect::<Vec<_>>().join(";")
    }

    /// The bias as it is typed.
    pub fn bias_text(&self) -> String {
        self.bias.iter().map(|b| format!("{}={}", b.text, b.add)).collect::<Vec<_>>().join(", ")
    }

    /// The stages from their names, which commas, semicolons or blanks divide.
    ///
    /// # Errors
    /// Names the one that there is not, or that is there twice.
    pub fn parse_order(text: &str) -> Result<Vec<Stage>, String> {
        let words = text.split(|c: char| c == ',' || c == ';' || c.is_whitespace()).filter(|w| !w.is_empty());
        let named = |word: &str| {
            let word = word.to_lowercase().replace('-', "_");
            let word = match word.as_str() {
                "temp" => "temperature",
                "typical_p" | "typical" => "typ_p",
                other => other,
            };
            Stage::ALL.iter().copied().find(|s| s.name() == word)
        };
        let known = || format!("there are {}", Stage::NAMES.join(", "));
        let mut order = Vec::new();
        for word in words {
            let stage = named(word).ok_or_else(|| format!("there is no stage '{word}'; {}", known()))?;
            if order.contains(&stage) {
                return Err(format!("the stage {} is named twice", stage.name()));
            }
            order.push(stage);
        }
        if order.is_empty() { Err(format!("no stage is named; {}", known())) } else { Ok(order) }
    }
}
