//! Model files of a few kilobytes with random weights, for kinds of memory that the models at hand do not have. What they
//! say is noise, but it is computed as a large model's words are.

use std::path::{Path, PathBuf};

const WIDTH: u64 = 64;
const INNER: u64 = 2 * WIDTH;
const CONV: u64 = 4;
const STATE: u64 = 16;
const RANK: u64 = 4;
const HEADS: u32 = 4;
const FORWARD: u64 = 96;

/// A GGUF file in the making (version 3).
#[derive(Default)]
struct File {
    keys: Vec<u8>,
    n_keys: u64,
    tensors: Vec<u8>,
    n_tensors: u64,
    data: Vec<u8>,
    seed: u64,
}

impl File {
    fn text(out: &mut Vec<u8>, text: &[u8]) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text);
    }

    fn key(&mut self, name: &str, kind: u32) {
        Self::text(&mut self.keys, name.as_bytes());
        self.keys.extend(kind.to_le_bytes());
        self.n_keys += 1;
    }

    fn word(&mut self, name: &str, value: &str) {
        self.key(name, 8);
        Self::text(&mut self.keys, value.as_bytes());
    }

    fn number(&mut self, name: &str, value: u32) {
        self.key(name, 4);
        self.keys.extend(value.to_le_bytes());
    }

    fn real(&mut self, name: &str, value: f32) {
        self.key(name, 6);
        self.keys.extend(value.to_le_bytes());
    }

    fn list(&mut self, name: &str, kind: u32, values: &[Vec<u8>]) {
        self.key(name, 9);
        self.keys.extend(kind.to_le_bytes());
        self.keys.extend((values.len() as u64).to_le_bytes());
        self.keys.extend(values.concat());
    }

    /// A tensor of f32: `around` plus noise.
    fn tensor(&mut self, name: &str, sizes: &[u64], around: f32, noise: f32) {
        self.describe(name, sizes);
        self.values(sizes.iter().product(), around, noise);
    }

    fn describe(&mut self, name: &str, sizes: &[u64]) {
        Self::text(&mut self.tensors, name.as_bytes());
        self.tensors.extend(u32::try_from(sizes.len()).unwrap().to_le_bytes());
        for size in sizes {
            self.tensors.extend(size.to_le_bytes());
        }
        self.tensors.extend(0u32.to_le_bytes());
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        self.tensors.extend((self.data.len() as u64).to_le_bytes());
        self.n_tensors += 1;
    }

    fn values(&mut self, count: u64, around: f32, noise: f32) {
        for _ in 0..count {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = (self.seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
            self.data.extend((around + noise * random).to_le_bytes());
        }
    }

    fn write(self, path: &Path) {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend(self.n_tensors.to_le_bytes());
        out.extend(self.n_keys.to_le_bytes());
        out.extend(self.keys);
        out.extend(self.tensors);
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(self.data);
        std::fs::write(path, out).unwrap();
    }

    /// One token for each byte, and those that `SentencePiece` wants.
    fn vocabulary(&mut self) {
        let mut tokens = vec![];
        for (text, kind) in [("<unk>", 2), ("<s>", 3), ("</s>", 3)] {
            tokens.push((text.to_owned(), kind));
        }
        tokens.extend((0..=255u8).map(|byte| (format!("<0x{byte:02X}>"), 6)));
        let texts: Vec<Vec<u8>> = tokens
            .iter()
            .map(|(text, _)| {
                let mut out = Vec::new();
                Self::text(&mut out, text.as_bytes());
                out
            })
            .collect();
        self.word("tokenizer.ggml.model", "llama");
        self.list("tokenizer.ggml.tokens", 8, &texts);
        self.list("tokenizer.ggml.scores", 6, &vec![0f32.to_le_bytes().to_vec(); tokens.len()]);
        let kinds: Vec<Vec<u8>> = tokens.iter().map(|(_, kind): &(String, i32)| kind.to_le_bytes().to_vec()).collect();
        self.list("tokenizer.ggml.token_type", 5, &kinds);
        self.number("tokenizer.ggml.bos_token_id", 1);
        self.number("tokenizer.ggml.eos_token_id", 2);
        self.number("tokenizer.ggml.unknown_token_id", 0);
        self.describe("token_embd.weight", &[WIDTH, tokens.len() as u64]);
        // What it says are printable characters: the embedding is the output too, and what is small there is never likely.
        for (nth, _) in tokens.iter().enumerate() {
            let printable = (3 + 0x20..3 + 0x7F).contains(&nth);
            self.values(WIDTH, 0.0, if printable { 1.0 } else { 0.01 });
        }
        self.tensor("output_norm.weight", &[WIDTH], 1.0, 0.1);
    }

    /// A layer with a recurrent state (a selective state space, arXiv 2312.00752).
    fn recurrent(&mut self, layer: u32, normed: bool) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        self.tensor(&name("attn_norm.weight"), &[WIDTH], 1.0, 0.1);
        self.tensor(&name("ssm_in.weight"), &[WIDTH, 2 * INNER], 0.0, 0.2);
        self.tensor(&name("ssm_conv1d.weight"), &[CONV, INNER], 0.0, 0.5);
        self.tensor(&name("ssm_conv1d.bias"), &[INNER], 0.0, 0.1);
        self.tensor(&name("ssm_x.weight"), &[INNER, RANK + 2 * STATE], 0.0, 0.2);
        self.tensor(&name("ssm_dt.weight"), &[RANK, INNER], 0.0, 0.3);
        self.tensor(&name("ssm_dt.bias"), &[INNER], -2.0, 0.5);
        self.tensor(&name("ssm_a"), &[STATE, INNER], -0.5, 0.3);
        self.tensor(&name("ssm_d"), &[INNER], 1.0, 0.1);
        self.tensor(&name("ssm_out.weight"), &[INNER, WIDTH], 0.0, 0.2);
        if normed {
            self.tensor(&name("ssm_dt_norm.weight"), &[RANK], 1.0, 0.1);
            self.tensor(&name("ssm_b_norm.weight"), &[STATE], 1.0, 0.1);
            self.tensor(&name("ssm_c_norm.weight"), &[STATE], 1.0, 0.1);
        }
    }

    /// A layer with attention over all that was read.
    fn attention(&mut self, layer: u32) {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        self.tensor(&name("attn_norm"), &[WIDTH], 1.0, 0.1);
        for part in ["attn_q", "attn_k", "attn_v", "attn_output"] {
            self.tensor(&name(part), &[WIDTH, WIDTH], 0.0, 0.2);
        }
    }

    fn feed_forward(&mut self, layer: u32) {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        self.tensor(&name("ffn_norm"), &[WIDTH], 1.0, 0.1);
        self.tensor(&name("ffn_gate"), &[WIDTH, FORWARD], 0.0, 0.2);
        self.tensor(&name("ffn_up"), &[WIDTH, FORWARD], 0.0, 0.2);
        self.tensor(&name("ffn_down"), &[FORWARD, WIDTH], 0.0, 0.2);
    }

    fn head(architecture: &str, layers: u32) -> Self {
        let mut file = Self::default();
        let own = |key: &str| format!("{architecture}.{key}");
        file.word("general.architecture", architecture);
        file.number(&own("context_length"), 4096);
        file.number(&own("embedding_length"), u32::try_from(WIDTH).unwrap());
        file.number(&own("block_count"), layers);
        file.real(&own("attention.layer_norm_rms_epsilon"), 1e-5);
        for (key, value) in
            [("conv_kernel", CONV), ("inner_size", INNER), ("state_size", STATE), ("time_step_rank", RANK)]
        {
            file.number(&own(&format!("ssm.{key}")), u32::try_from(value).unwrap());
        }
        file
    }
}

/// A model with a recurrent state and nothing else (the architecture of Mamba).
pub fn recurrent(folder: &Path) -> PathBuf {
    let path = folder.join("tiny-recurrent.gguf");
    let mut file = File::head("mamba", 2);
    file.number("mamba.feed_forward_length", 0);
    file.number("mamba.attention.head_count", 0);
    file.vocabulary();
    for layer in 0..2 {
        file.recurrent(layer, false);
    }
    file.write(&path);
    path
}

/// A model with both: a recurrent layer, and one with attention (the architecture of Jamba).
pub fn hybrid(folder: &Path) -> PathBuf {
    let path = folder.join("tiny-hybrid.gguf");
    let mut file = File::head("jamba", 2);
    file.number("jamba.feed_forward_length", u32::try_from(FORWARD).unwrap());
    file.number("jamba.attention.head_count", HEADS);
    file.list("jamba.attention.head_count_kv", 4, &[0u32, HEADS].map(|n| n.to_le_bytes().to_vec()));
    file.vocabulary();
    file.recurrent(0, true);
    file.feed_forward(0);
    file.attention(1);
    file.feed_forward(1);
    file.write(&path);
    path
}
