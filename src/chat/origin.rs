//! What an answer came from: what is needed to make it again, beside its prompt, its settings and its seed.

use serde::{Deserialize, Serialize};

use super::kv::{FlashAttention, KvTypes};
use super::rope::Rope;

/// All that decides the numbers of an answer and is not said elsewhere. Of an older file a part may be missing: it is
/// empty or 0 then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// sha256 of all that stands before the weights in the model's file, in hexadecimal digits.
    pub model_sha256: String,
    /// Bytes of the model's file.
    pub model_bytes: u64,
    /// sha256 of the prompt's tokens, each as a little-endian i32, in hexadecimal digits.
    pub prompt_sha256: String,
    /// How many tokens of the prompt were decoded in each call; those that were reused are not among them.
    pub batches: Vec<u32>,
    /// Version of this program.
    pub llmchat: String,
    /// Version of llama.cpp, by its bindings.
    pub llama: String,
    /// CPU instructions that the build may use.
    pub cpu: String,
    /// The device that computed.
    pub device: String,
    /// Layers on the GPU; −1 for all.
    pub gpu_layers: i32,
    /// Threads at its end.
    pub threads: u32,
    /// Cells of the context.
    pub n_ctx: u32,
    /// Most tokens in one decode call.
    pub n_batch: u32,
    /// Most tokens that are computed at once.
    pub n_ubatch: u32,
    /// How K and V are stored.
    pub kv: KvTypes,
    /// Whether attention is computed tile by tile.
    pub flash_attn: FlashAttention,
    /// Whether sliding-window layers keep the whole context.
    pub swa_full: bool,
    /// How positions are told to the model.
    pub rope: Rope,
}

/// Bytes in hexadecimal digits, as hashes are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Made;

    #[test]
    fn a_record_in_words_that_are_not_known_costs_no_answer() {
        let made = |origin: &str| {
            let line = format!(r#"{{"model":"m","sampling":{{}},"seed":1,"finish":"stop"{origin}}}"#);
            serde_json::from_str::<Made>(&line).unwrap().origin
        };
        assert_eq!(made(""), None);
        assert_eq!(made(r#","origin":{"kv":{"k":"q1_0","v":"f16"}}"#), None);
        assert_eq!(made(r#","origin":7"#), None);
        let part = Origin { n_ctx: 512, rope: Rope { freq_scale: 0.1, ..Rope::default() }, ..Origin::default() };
        assert_eq!(made(r#","origin":{"n_ctx":512,"rope":{"freq_scale":0.1},"colour":1}"#), Some(Box::new(part)));
    }
}
