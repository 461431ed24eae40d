//! The arithmetic of the KV cache: what a token and a context cost, from the model's own shape.

use super::gguf::Gguf;

/// Bytes of one f16 value.
const F16: u64 = 2;

/// What of a model decides the size of its KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Layers that keep the whole context: values of K and V of one token, summed over them.
    pub full: u64,
    /// Layers that keep a sliding window: the same sum.
    pub windowed: u64,
    /// The window in tokens, where there is one.
    pub window: Option<u64>,
}

impl KvShape {
    /// The shape of a model, if its header tells it: layers × KV heads × (K size + V size).
    pub fn of(gguf: &Gguf) -> Option<Self> {
        let layers = usize::try_from(gguf.number(&gguf.own("block_count"))?).ok().filter(|n| *n <= 4096)?;
        let heads = gguf.per_layer(&gguf.own("attention.head_count"), layers)?;
        let kv_heads = gguf.per_layer(&gguf.own("attention.head_count_kv"), layers).unwrap_or_else(|| heads.clone());
        let width = gguf.number(&gguf.own("embedding_length"))?;
        let head = width / heads.iter().copied().max().filter(|n| *n > 0)?;
        let key = gguf.number(&gguf.own("attention.key_length")).unwrap_or(head);
        let value = gguf.number(&gguf.own("attention.value_length")).unwrap_or(head);
        let window = gguf.number(&gguf.own("attention.sliding_window")).filter(|n| *n > 0);
        let pattern = window.and_then(|_| period(gguf));
        let mut shape = Self { full: 0, windowed: 0, window: pattern.and(window) };
        for (layer, heads) in (0u64..).zip(kv_heads) {
            let values = heads.saturating_mul(key.saturating_add(value));
            match pattern {
                // The last layer of each period looks at everything.
                Some(period) if (layer + 1) % period != 0 => shape.windowed += values,
                _ => shape.full += values,
            }
        }
        Some(shape)
    }

    /// Bytes that one more token takes (f16).
    pub fn bytes_per_token(&self, swa_full: bool) -> u64 {
        (self.full + if swa_full || self.window.is_none() { self.windowed } else { 0 }) * F16
    }

    /// Bytes of a whole cache (f16). A windowed layer holds its window and one micro-batch, rounded up to 256
    /// cells as llama.cpp does, but never more than the context.
    pub fn bytes(&self, n_ctx: u64, n_ubatch: u64, swa_full: bool) -> u64 {
        let cells = match self.window {
            Some(window) if !swa_full => (window + n_ubatch).next_multiple_of(256).min(n_ctx),
            _ => n_ctx,
        };
        (self.full.saturating_mul(n_ctx)).saturating_add(self.windowed.saturating_mul(cells)).saturating_mul(F16)
    }
}

/// After how many layers one looks at the whole context, for the architectures that mix windows.
fn period(gguf: &Gguf) -> Option<u64> {
    if let Some(n) = gguf.number(&gguf.own("attention.sliding_window_pattern")) {
        return (n > 1).then_some(n);
    }
    match gguf.architecture() {
        "gemma2" | "gpt-oss" => Some(2),
        "gemma3" => Some(6),
        "cohere2" | "olmo2" | "llama4" | "exaone4" => Some(4),
        "gemma3n" => Some(5),
        _ => None,
    }
}

/// A number of bytes for people.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 || size >= 100.0 { format!("{size:.0} {}", UNITS[unit]) } else { format!("{size:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::gguf::Value;
    use super::*;

    fn gguf(architecture: &str, keys: &[(&str, i64)]) -> Gguf {
        let mut metadata: HashMap<String, Value> =
            keys.iter().map(|(k, v)| (format!("{architecture}.{k}"), Value::Int(*v))).collect();
        metadata.insert("general.architecture".into(), Value::Text(architecture.into()));
        Gguf { bytes: 0, metadata }
    }

    #[test]
    fn smollm2_takes_what_was_measured() {
        let keys = [
            ("block_count", 30),
            ("embedding_length", 576),
            ("attention.head_count", 9),
            ("attention.head_count_kv", 3),
        ];
        let shape = KvShape::of(&gguf("llama", &keys)).unwrap();
        assert_eq!(shape.bytes_per_token(true), 23_040);
        assert_eq!(shape.bytes(8192, 512, true), 180 << 20);
    }

    #[test]
    fn gemma3_takes_what_was_measured() {
        let keys = [
            ("block_count", 18),
            ("embedding_length", 640),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 1),
            ("attention.key_length", 256),
            ("attention.value_length", 256),
            ("attention.sliding_window", 512),
        ];
        let shape = KvShape::of(&gguf("gemma3", &keys)).unwrap();
        assert_eq!(shape.bytes_per_token(true), 18_432);
        assert_eq!(shape.bytes_per_token(false), 3_072);
        assert_eq!(shape.bytes(8192, 512, false), 3_072 * 8192 + (15 << 20));
    }

    #[test]
    fn llama2_7b_takes_half_a_mebibyte() {
        let keys = [("block_count", 32), ("embedding_length", 4096), ("attention.head_count", 32)];
        assert_eq!(KvShape::of(&gguf("llama", &keys)).unwrap().bytes_per_token(true), 512 << 10);
    }

    #[test]
    fn headers_without_sense_have_no_shape() {
        assert_eq!(KvShape::of(&gguf("llama", &[])), None);
        let keys = [("block_count", 1 << 40), ("embedding_length", 1), ("attention.head_count", 1)];
        assert_eq!(KvShape::of(&gguf("llama", &keys)), None);
        let keys = [("block_count", 2), ("embedding_length", 1), ("attention.head_count", 0)];
        assert_eq!(KvShape::of(&gguf("llama", &keys)), None);
    }

    #[test]
    fn bytes_are_readable() {
        assert_eq!([human(7), human(1536), human(98_362_432)], ["7 B", "1.5 KiB", "93.8 MiB"]);
    }
}
