//! The arithmetic of the KV cache: what a token and a context cost, from the model's own shape.

use super::gguf::Gguf;
use super::recurrent::Recurrent;
use crate::chat::KvTypes;

/// Cells are reserved in steps of so many (llama.cpp's `GGML_PAD(n_ctx, 256)`).
pub const STEP: u64 = 256;

/// Values of K and of V.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Of the keys.
    pub k: u64,
    /// Of the values.
    pub v: u64,
}

impl Values {
    fn add(&mut self, heads: u64, size: Self) {
        self.k = self.k.saturating_add(heads.saturating_mul(size.k));
        self.v = self.v.saturating_add(heads.saturating_mul(size.v));
    }

    /// Bytes that they take in these types.
    fn bytes(self, kv: KvTypes) -> u64 {
        kv.k.bytes(self.k).saturating_add(kv.v.bytes(self.v))
    }
}

/// What of a model decides the size of its KV cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvShape {
    /// Layers that keep the whole context: values of one token, summed over them.
    pub full: Values,
    /// Layers that keep a sliding window: the same sum.
    pub windowed: Values,
    /// The window in tokens, where there is one.
    pub window: Option<u64>,
    /// Values of one head.
    pub head: Values,
    /// Most KV heads of a layer.
    pub kv_heads: u64,
    /// K and V are one latent vector (multi-head latent attention, arXiv 2405.04434): nothing is stored as V.
    pub latent: bool,
    /// Bytes of recurrent states, where there are any: the same for every length.
    pub state: u64,
}

impl KvShape {
    /// The shape of a model, if its header tells it: layers × KV heads × (K size + V size).
    pub fn of(gguf: &Gguf) -> Option<Self> {
        let own = |key: &str| gguf.number(&gguf.own(key));
        let layers = usize::try_from(own("block_count")?).ok().filter(|n| *n <= 4096)?;
        let recurrent = Recurrent::of(gguf, layers);
        let heads = gguf.per_layer(&gguf.own("attention.head_count"), layers);
        // A model that only recurs may have no heads.
        let heads = heads.or_else(|| recurrent.as_ref().map(|_| vec![0; layers]))?;
        let kv_heads = gguf.per_layer(&gguf.own("attention.head_count_kv"), layers).unwrap_or_else(|| heads.clone());
        let most = heads.iter().copied().max().filter(|n| *n > 0).or_else(|| recurrent.as_ref().map(|_| 1))?;
        let head = own("embedding_length")? / most;
        let latent = own("attention.key_length_mla").is_some_and(|n| n > 0);
        let size = |key: &str, or: u64| own(&format!("attention.{key}")).unwrap_or(or);
        let stored = |k: u64, v: u64| Values { k, v: if latent { 0 } else { v } };
        let head = stored(size("key_length", head), size("value_length", head));
        let in_window = stored(size("key_length_swa", head.k), size("value_length_swa", head.v));
        let window = own("attention.sliding_window").filter(|n| *n > 0);
        let pattern = window.and_then(|_| windows(gguf, layers));
        let mut shape = Self {
            window: pattern.as_ref().and(window),
            head,
            kv_heads: kv_heads.iter().copied().max().unwrap_or(0),
            latent,
            state: recurrent.as_ref().map_or(0, |r| r.bytes),
            ..Self::default()
        };
        let attends = |layer: usize| recurrent.as_ref().is_none_or(|r| r.attends[layer]);
        let stored = layers.saturating_sub(without_cache(gguf, layers));
        for (layer, heads) in kv_heads.into_iter().enumerate().take(stored).filter(|(layer, _)| attends(*layer)) {
            if pattern.as_ref().is_some_and(|p| p[layer]) {
                shape.windowed.add(heads, in_window);
            } else {
                shape.full.add(heads, head);
            }
        }
        Some(shape)
    }

    /// The shape of so many equal layers that keep the whole context.
    pub fn uniform(layers: u64, kv_heads: u64, head: u64) -> Self {
        let head = Values { k: head, v: head };
        let mut full = Values::default();
        full.add(layers.saturating_mul(kv_heads), head);
        Self { full, head, kv_heads, ..Self::default() }
    }

    /// The same model with other KV heads (grouped-query attention, arXiv 2305.13245).
    #[must_use]
    pub fn with_kv_heads(&self, kv_heads: u64) -> Self {
        let scale = |n: u64| n / self.kv_heads.max(1) * kv_heads;
        let values = |v: Values| Values { k: scale(v.k), v: scale(v.v) };
        Self { full: values(self.full), windowed: values(self.windowed), kv_heads, ..self.clone() }
    }

    /// Bytes that one more token takes.
    pub fn bytes_per_token(&self, kv: KvTypes, swa_full: bool) -> u64 {
        let windowed = if swa_full || self.window.is_none() { self.windowed.bytes(kv) } else { 0 };
        self.full.bytes(kv) + windowed
    }

    /// Bytes of a whole cache, for one sequence. A windowed layer holds its window and one micro-batch, in steps of [`STEP`] as
    /// llama.cpp does, but never more than the context.
    pub fn bytes(&self, kv: KvTypes, n_ctx: u64, n_ubatch: u64, swa_full: bool) -> u64 {
        let n_ctx = n_ctx.next_multiple_of(STEP);
        let full = self.full.bytes(kv).saturating_mul(n_ctx);
        let full = full.saturating_add(self.state);
        full.saturating_add(self.windowed.bytes(kv).saturating_mul(self.windowed_cells(n_ctx, n_ubatch, swa_full)))
    }

    /// Cells of the windowed layers.
    pub fn windowed_cells(&self, n_ctx: u64, n_ubatch: u64, swa_full: bool) -> u64 {
        match self.window {
            Some(window) if !swa_full => (window + n_ubatch).min(n_ctx).next_multiple_of(STEP),
            _ => n_ctx,
        }
    }
}

/// Which layers look at a window only (llama.cpp's `load_swa_pattern`), for the architectures that mix windows.
fn windows(gguf: &Gguf, layers: usize) -> Option<Vec<bool>> {
    let key = gguf.own("attention.sliding_window_pattern");
    // A list says it of each layer.
    if gguf.number(&key).is_none()
        && let Some(list) = gguf.per_layer(&key, layers)
    {
        return Some(list.into_iter().map(|n| n > 0).collect());
    }
    // Of each period the last layer looks at everything, or the first one.
    let (period, first) = match gguf.architecture() {
        "gemma2" | "gpt-oss" => (2, false),
        "gemma3" => (6, false),
        "cohere2" | "olmo2" | "llama4" | "exaone4" | "exaone-moe" => (4, false),
        "gemma3n" => (5, false),
        "plamo3" => (8, false),
        "cohere2moe" | "smallthinker" => (4, true),
        _ => (gguf.number(&key)?, false),
    };
    let period = gguf.number(&key).unwrap_or(period) as usize;
    let full = if first { 0 } else { period.saturating_sub(1) };
    (period > 1).then(|| (0..layers).map(|layer| layer % period != full).collect())
}

/// Layers at the end that store nothing: those that predict further tokens, and those that use others' cache.
fn without_cache(gguf: &Gguf, layers: usize) -> usize {
    let own = |key: &str| gguf.number(&gguf.own(key)).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    // Of gemma3n the first twenty layers store, and its header does not say so.
    let shared = if gguf.architecture() == "gemma3n" { layers.saturating_sub(20) } else { 0 };
    shared.saturating_add(own("nextn_predict_layers")).saturating_add(own("attention.shared_kv_layers"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::gguf::Value;
    use super::*;
    use crate::chat::KvType;

    const F16: KvTypes = KvTypes { k: KvType::F16, v: KvType::F16 };

    fn gguf(architecture: &str, keys: &[(&str, i64)]) -> Gguf {
        let mut metadata: HashMap<String, Value> =
            keys.iter().map(|(k, v)| (format!("{architecture}.{k}"), Value::Int(*v))).collect();
        metadata.insert("general.architecture".into(), Value::Text(architecture.into()));
        Gguf { metadata, ..Gguf::default() }
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
        assert_eq!(shape.bytes_per_token(F16, true), 23_040);
        assert_eq!(shape.bytes(F16, 8192, 512, true), 180 << 20);
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
        assert_eq!(shape.bytes_per_token(F16, true), 18_432);
        assert_eq!(shape.bytes_per_token(F16, false), 3_072);
        assert_eq!(shape.bytes(F16, 8192, 512, false), 3_072 * 8192 + (15 << 20));
    }

    #[test]
    fn llama2_7b_takes_half_a_mebibyte() {
        let keys = [("block_count", 32), ("embedding_length", 4096), ("attention.head_count", 32)];
        assert_eq!(KvShape::of(&gguf("llama", &keys)).unwrap().bytes_per_token(F16, true), 512 << 10);
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
    fn each_side_is_stored_in_its_type() {
        let shape = KvShape::uniform(32, 8, 128);
        let kv = |k, v| shape.bytes_per_token(KvTypes { k, v }, true);
        let values = 32 * 8 * 128;
        assert_eq!(kv(KvType::F16, KvType::F16), values * 4);
        assert_eq!(kv(KvType::Q8_0, KvType::F16), values / 32 * 34 + values * 2);
        assert_eq!(kv(KvType::F16, KvType::Q4_0), values * 2 + values / 32 * 18);
        assert_eq!(shape.with_kv_heads(2).bytes_per_token(F16, true), values);
    }

    #[test]
    fn windows_follow_the_list_or_the_period() {
        let base = [
            ("block_count", 4),
            ("embedding_length", 64),
            ("attention.head_count", 1),
            ("attention.sliding_window", 8),
        ];
        let mut listed = gguf("new", &base);
        assert_eq!(KvShape::of(&listed).unwrap().window, None, "an architecture that mixes nothing keeps everything");
        listed.metadata.insert("new.attention.sliding_window_pattern".into(), Value::Ints(vec![1, 1, 1, 0]));
        let shape = KvShape::of(&listed).unwrap();
        assert_eq!((shape.full, shape.windowed), (Values { k: 64, v: 64 }, Values { k: 192, v: 192 }));
        let first = KvShape::of(&gguf("smallthinker", &base)).unwrap();
        assert_eq!(first.full.k, 64);
        let two = KvShape::of(&gguf("gemma2", &base)).unwrap();
        assert_eq!(two.full.k, 128);
    }

    #[test]
    fn latent_attention_stores_no_values() {
        let keys = [
            ("block_count", 2),
            ("embedding_length", 512),
            ("attention.head_count", 16),
            ("attention.head_count_kv", 1),
            ("attention.key_length", 576),
            ("attention.value_length", 512),
            ("attention.key_length_mla", 192),
            ("nextn_predict_layers", 1),
        ];
        let shape = KvShape::of(&gguf("deepseek2", &keys)).unwrap();
        assert!(shape.latent);
        assert_eq!(shape.bytes_per_token(F16, true), 576 * 2);
    }
}
