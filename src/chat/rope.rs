//! How positions are told to a model (rotary embeddings), by llama.cpp's names. What is not set is the model's own.

use serde::{Deserialize, Serialize};

/// How positions beyond the trained length are mapped into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RopeScaling {
    /// As the model's file says.
    #[default]
    Model,
    /// They are not.
    None,
    /// All alike, by the frequency scale.
    Linear,
    /// Low frequencies more than high ones (`YaRN`).
    Yarn,
}

impl RopeScaling {
    /// Every one and its name.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Model, "model"), (Self::None, "none"), (Self::Linear, "linear"), (Self::Yarn, "yarn")];

    /// The name as it is typed and shown.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(s, _)| *s == self).map_or("model", |(_, name)| *name)
    }

    /// The one of that name.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| name.eq_ignore_ascii_case(text.trim())).map(|(s, _)| *s)
    }
}

/// The settings of a context's rotary embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rope {
    /// How positions are scaled.
    pub scaling: RopeScaling,
    /// The base frequency; 0 for the model's.
    pub freq_base: f32,
    /// The frequency scale: ½ makes twice the positions of the trained length; 0 for the model's.
    pub freq_scale: f32,
}

impl Rope {
    /// What a base frequency may be, beside 0.
    pub const BASES: (f32, f32) = (1.0, 1e9);
    /// What a frequency scale may be, beside 0.
    pub const SCALES: (f32, f32) = (0.001, 10.0);
}
