//! How the KV cache is stored: the types of K and V, and flash attention.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the values of one side of the KV cache are stored, by the names of ggml.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvType {
    /// Two bytes a value.
    #[default]
    F16,
    /// Two bytes a value, with the range of f32.
    Bf16,
    /// Eight bits a value and a scale a block.
    Q8_0,
    /// Five bits a value, a scale and an offset a block.
    Q5_1,
    /// Four bits a value and a scale a block.
    Q4_0,
}

impl KvType {
    /// All of them, most exact first.
    pub const ALL: [Self; 5] = [Self::F16, Self::Bf16, Self::Q8_0, Self::Q5_1, Self::Q4_0];

    /// Its name in ggml.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q5_1 => "q5_1",
            Self::Q4_0 => "q4_0",
        }
    }

    /// Values of a block, which are stored together, and its bytes (ggml's `ggml-common.h`).
    pub fn block(self) -> (u64, u64) {
        match self {
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q8_0 => (32, 34),
            Self::Q5_1 => (32, 24),
            Self::Q4_0 => (32, 18),
        }
    }

    /// Whether several values share a scale.
    pub fn is_quantised(self) -> bool {
        self.block().0 > 1
    }

    /// Bytes of so many values; a block that is begun counts whole.
    pub fn bytes(self, values: u64) -> u64 {
        let (block, bytes) = self.block();
        values.div_ceil(block).saturating_mul(bytes)
    }

    /// The type of that name.
    ///
    /// # Errors
    /// Names those that there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|t| t.name().eq_ignore_ascii_case(text.trim()));
        found.ok_or_else(|| {
            format!("'{text}' is no type of the KV cache; there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// The types of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvTypes {
    /// Of the keys.
    pub k: KvType,
    /// Of the values.
    pub v: KvType,
}

impl KvTypes {
    /// The same type for both.
    pub fn both(kind: KvType) -> Self {
        Self { k: kind, v: kind }
    }

    /// `q8_0` for both sides, `q8_0/f16` for K and V.
    ///
    /// # Errors
    /// Names the types that there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((k, v)) => Ok(Self { k: KvType::parse(k)?, v: KvType::parse(v)? }),
            None => KvType::parse(text).map(Self::both),
        }
    }
}

impl fmt::Display for KvTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.k == self.v { f.write_str(self.k.name()) } else { write!(f, "{}/{}", self.k.name(), self.v.name()) }
    }
}

/// Whether attention is computed tile by tile, without the whole matrix of scores (Dao et al., arXiv 2205.14135).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlashAttention {
    /// Where model and device can.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl FlashAttention {
    /// Its name in llama.cpp.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// The one of that name; llama.cpp's environment also says true and 1.
    ///
    /// # Errors
    /// Says what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim().to_lowercase().as_str() {
            "auto" | "-1" => Ok(Self::Auto),
            "on" | "true" | "yes" | "1" | "enabled" => Ok(Self::On),
            "off" | "false" | "no" | "0" | "disabled" => Ok(Self::Off),
            _ => Err(format!("'{text}' must be auto, on or off")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_ggmls() {
        assert_eq!(KvType::ALL.map(|t| t.bytes(64)), [128, 128, 68, 48, 36]);
        assert_eq!(KvType::Q8_0.bytes(33), 68);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for kind in KvType::ALL {
            assert_eq!(KvType::parse(kind.name()), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.name()));
        }
        let mixed = KvTypes { k: KvType::Q8_0, v: KvType::F16 };
        assert_eq!((KvTypes::parse("Q8_0/f16"), mixed.to_string()), (Ok(mixed), "q8_0/f16".to_owned()));
        assert_eq!(KvTypes::parse("q4_0"), Ok(KvTypes::both(KvType::Q4_0)));
        assert!(KvTypes::parse("q8_0/").unwrap_err().contains("f16, bf16, q8_0, q5_1, q4_0"));
        for flash in [FlashAttention::Auto, FlashAttention::On, FlashAttention::Off] {
            assert_eq!(FlashAttention::parse(flash.name()), Ok(flash));
        }
        assert!(FlashAttention::parse("maybe").is_err());
    }
}
