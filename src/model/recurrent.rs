//! What a recurrent or hybrid model keeps in place of a cell for each token: one state a layer, whatever the length
//! (llama.cpp's `llama_hparams::n_embd_r` and `n_embd_s`).

use super::gguf::Gguf;

/// Bytes of an f32, which states are kept in.
const F32: u64 = 4;

/// The recurrent part of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recurrent {
    /// Bytes of the states of all layers, for one sequence.
    pub bytes: u64,
    /// For each layer, whether it keeps K and V: some keep both.
    pub attends: Vec<bool>,
}

impl Recurrent {
    /// What the header tells; none of a model that only attends.
    pub fn of(gguf: &Gguf, layers: usize) -> Option<Self> {
        let own = |key: &str| gguf.number(&gguf.own(key)).filter(|n| *n > 0);
        let width = own("embedding_length")?;
        let inner = own("ssm.inner_size");
        let values = if let Some(head) = own("wkv.head_size") {
            // The last tokens of both halves of a layer, and a matrix a head (arXiv 2404.05892).
            width.saturating_mul(own("token_shift_count").unwrap_or(2).saturating_add(head))
        } else if let Some(length) = own("shortconv.l_cache") {
            width.saturating_mul(length - 1)
        } else {
            // The last columns of the convolution, and the state space (arXiv 2312.00752).
            let state = own("ssm.state_size")?;
            let groups = own("ssm.group_count").unwrap_or(0).saturating_mul(2).saturating_mul(state);
            let columns = own("ssm.conv_kernel").map_or(0, |n| n - 1);
            columns.saturating_mul(inner?.saturating_add(groups)).saturating_add(state.saturating_mul(inner?))
        };
        let (recurs, attends) = kinds(gguf, layers);
        let count = recurs.iter().filter(|yes| **yes).count() as u64;
        Some(Self { bytes: count.saturating_mul(values).saturating_mul(F32), attends })
    }
}

/// For each layer, whether it has a state, and whether it attends.
fn kinds(gguf: &Gguf, layers: usize) -> (Vec<bool>, Vec<bool>) {
    // A list of KV heads says 0 where a layer does not attend; where it has no feed-forward part either, it recurs.
    if let Some(heads) = list(gguf, "attention.head_count_kv", layers) {
        let forward = list(gguf, "feed_forward_length", layers);
        let only_forward = |layer: usize| {
            gguf.architecture().starts_with("nemotron_h") && forward.as_ref().is_some_and(|f| f[layer] > 0)
        };
        let recurs = (0..layers).map(|layer| heads[layer] == 0 && !only_forward(layer)).collect();
        return (recurs, heads.iter().map(|n| *n > 0).collect());
    }
    let every = |yes: bool| vec![yes; layers];
    let period = gguf.number(&gguf.own("full_attention_interval")).and_then(|n| usize::try_from(n).ok());
    match (gguf.architecture(), period) {
        ("falcon-h1", _) => (every(true), every(true)),
        ("qwen3next" | "qwen35" | "qwen35moe", period) | (_, period @ Some(_)) => {
            let period = period.unwrap_or(4).max(1);
            let attends: Vec<bool> = (1..=layers).map(|nth| nth % period == 0).collect();
            (attends.iter().map(|yes| !yes).collect(), attends)
        }
        _ => (every(true), every(false)),
    }
}

/// A value of each layer, where the header gives them one by one.
fn list(gguf: &Gguf, key: &str, layers: usize) -> Option<Vec<u64>> {
    let key = gguf.own(key);
    gguf.number(&key).is_none().then(|| gguf.per_layer(&key, layers)).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::gguf::Value;
    use super::super::shape::KvShape;
    use super::*;

    fn gguf(architecture: &str, keys: &[(&str, i64)]) -> Gguf {
        let mut gguf = Gguf::default();
        gguf.metadata.insert("general.architecture".into(), Value::Text(architecture.into()));
        for (key, value) in keys {
            gguf.metadata.insert(format!("{architecture}.{key}"), Value::Int(*value));
        }
        gguf
    }

    #[test]
    fn each_architecture_has_its_layers() {
        let base = [("block_count", 8), ("embedding_length", 64), ("attention.head_count", 4)];
        let ssm = [("ssm.inner_size", 128), ("ssm.state_size", 16), ("ssm.conv_kernel", 4), ("ssm.group_count", 2)];
        let one = (3 * (128 + 2 * 2 * 16) + 16 * 128) * 4;
        let header = |architecture, more: &[(&str, i64)]| gguf(architecture, &[&base[..], &ssm, more].concat());
        let of = |gguf: &Gguf| {
            let shape = KvShape::of(gguf).unwrap();
            (shape.state / one, shape.full.k / 64)
        };
        assert_eq!(of(&header("mamba2", &[])), (8, 0));
        assert_eq!(of(&header("falcon-h1", &[])), (8, 8));
        assert_eq!(of(&header("qwen3next", &[])), (6, 2));
        assert_eq!(of(&header("new", &[("full_attention_interval", 2)])), (4, 4));
        let mut listed = header("nemotron_h", &[]);
        let mut list = |key: &str, values: [i64; 8]| {
            listed.metadata.insert(format!("nemotron_h.{key}"), Value::Ints(values.to_vec()));
        };
        list("attention.head_count_kv", [0, 0, 0, 4, 0, 0, 0, 4]);
        list("feed_forward_length", [0, 9, 0, 0, 0, 9, 0, 0]);
        assert_eq!(of(&listed), (4, 2));
    }

    #[test]
    fn other_recurrences() {
        let rwkv = gguf("rwkv7", &[("block_count", 2), ("embedding_length", 64), ("wkv.head_size", 16)]);
        assert_eq!(KvShape::of(&rwkv).unwrap().state, 2 * 64 * (2 + 16) * 4);
        let lfm2 = gguf("lfm2", &[("block_count", 2), ("embedding_length", 64), ("shortconv.l_cache", 3)]);
        assert_eq!(KvShape::of(&lfm2).unwrap().state, 2 * 64 * 2 * 4);
        assert_eq!(Recurrent::of(&gguf("llama", &[("embedding_length", 64)]), 2), None);
    }
}
