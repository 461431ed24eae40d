//! What a context takes of the memory, before anything is loaded. The KV cache is exact; compute buffers and the
//! program are a model, fitted to the engine's peak memory on a CPU with contexts of 1,024 to 4,096 tokens and batches
//! of 128 to 1,024 (`scripts/figures.py --only plan` measures how close it is: within 2 % of the total on both test
//! models).

use super::gguf::Gguf;
use super::shape::{KvShape, STEP};
use super::size::human;
use crate::chat::{FlashAttention, KvTypes};

/// Sequences beside the main one: 16 beams and 16 answers.
pub const BRANCHES: u32 = 32;
/// Fewest tokens of a batch: llama.cpp wants room for one of each sequence.
pub const LEAST_BATCH: u32 = 64;
/// Most cells of a context.
const MOST_CELLS: u64 = 16 << 20;

/// ≈ Bytes of the program, its libraries and its heap without a vocabulary.
const PROGRAM: u64 = 27 << 20;
/// ≈ Bytes for each token of the vocabulary: its text and its places in llama.cpp's maps, and a candidate's row.
const A_TOKEN: u64 = 137;
/// ≈ Bytes that llama.cpp keeps of a cell beside K and V: position, sequences.
const A_CELL: u64 = 48;
/// Bytes of an f32.
const F32: u64 = 4;

/// Cells of a context as it is asked for: 0 for the trained length, `None` for that or 8,192, whichever is less.
pub fn context(wanted: Option<u32>, trained: Option<u64>) -> u64 {
    let trained = trained.unwrap_or(4096).clamp(STEP, MOST_CELLS);
    match wanted {
        None => trained.min(8192),
        Some(0) => trained,
        // llama.cpp rounds up; a batch must not be cut below its least.
        Some(n) => u64::from(n).max(STEP),
    }
}

/// Tokens of a batch as it is asked for, in a context of so many cells.
pub fn batch(wanted: u32, n_ctx: u64) -> u32 {
    wanted.clamp(LEAST_BATCH, 8192).min(u32::try_from(n_ctx).unwrap_or(u32::MAX).max(LEAST_BATCH))
}

/// Sequences of a cache that can be divided: the main one, its branches, and two for moving states.
pub const SEQUENCES: u32 = 1 + BRANCHES + 2;

/// What of a model decides how much memory it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of the weights, which are mapped: the system's file cache holds them.
    pub weights: u64,
    /// Bytes of them that llama.cpp copies into another order for this processor.
    pub repacked: u64,
    /// Bytes of them that a step of decode reads.
    pub read: u64,
    /// Its KV cache.
    pub shape: KvShape,
    /// What else is known of it; nothing of one that is given by its shape.
    pub widths: Option<Widths>,
}

/// Widths that decide the compute buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Widths {
    /// Tokens of the vocabulary.
    pub vocabulary: u64,
    /// Values of the residual stream.
    pub embedding: u64,
    /// Values between the matrices of the feed-forward part, all experts in use together.
    pub feed_forward: u64,
    /// Heads that ask.
    pub heads: u64,
}

/// How contexts are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Cells of one.
    pub n_ctx: u64,
    /// Most tokens that are computed at once.
    pub n_ubatch: u64,
    /// How K and V are stored.
    pub kv: KvTypes,
    /// Whether attention is computed tile by tile.
    pub flash: FlashAttention,
    /// Whether windowed layers keep the whole context.
    pub swa_full: bool,
    /// How many contexts.
    pub chats: u64,
}

/// Memory in bytes by what takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Mapped weights.
    pub weights: u64,
    /// Their copies in another order.
    pub repacked: u64,
    /// KV cache of all chats.
    pub kv: u64,
    /// Compute buffers and outputs, as far as a chat touches them.
    pub compute: u64,
    /// The program and the vocabulary.
    pub program: u64,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.without_cache().saturating_add(self.kv)
    }

    /// What is there once, however many chats there are.
    pub fn without_cache(&self) -> u64 {
        [self.weights, self.repacked, self.compute, self.program].iter().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

impl Facts {
    /// What the header tells, if it tells the shape.
    pub fn of(gguf: &Gguf) -> Option<Self> {
        let own = |key: &str| gguf.number(&gguf.own(key));
        let largest = |key: &str| {
            let layers = usize::try_from(own("block_count")?).ok()?;
            gguf.per_layer(&gguf.own(key), layers)?.into_iter().max()
        };
        let tensors = &gguf.tensors;
        let (used, count) = (own("expert_used_count").unwrap_or(1), own("expert_count").unwrap_or(1).max(1));
        let experts = own("expert_feed_forward_length").map(|n| n.saturating_mul(used));
        let widths = Widths {
            vocabulary: own("vocab_size").unwrap_or(tensors.vocabulary),
            embedding: own("embedding_length")?,
            feed_forward: largest("feed_forward_length").into_iter().chain(experts).max().unwrap_or(0),
            heads: largest("attention.head_count").unwrap_or(0),
        };
        let idle = tensors.experts / count * count.saturating_sub(used.max(1).min(count));
        // Of an embedding that is not the output too, a token uses one row.
        let (tied, looked_up) = match tensors.embedding {
            Some((_, bytes)) if tensors.output => (None, bytes),
            embedding => (embedding, 0),
        };
        let matrices = tensors.matrices.iter().map(|(kind, bytes)| (*kind, *bytes)).chain(tied);
        let repacked = matrices.filter(|(kind, _)| is_repacked(*kind)).map(|(_, bytes)| bytes);
        Some(Self {
            weights: tensors.bytes,
            repacked: repacked.fold(0, u64::saturating_add),
            read: tensors.bytes.saturating_sub(looked_up).saturating_sub(idle),
            shape: KvShape::of(gguf)?,
            widths: Some(widths),
        })
    }

    /// What such contexts take.
    pub fn memory(&self, wish: &Wish) -> Memory {
        let kv = self.shape.bytes(wish.kv, wish.n_ctx, wish.n_ubatch, wish.swa_full);
        Memory {
            weights: self.weights,
            repacked: self.repacked,
            kv: kv.saturating_mul(wish.chats),
            compute: self.compute(wish),
            program: self.widths.map_or(0, |w| {
                PROGRAM + w.vocabulary.saturating_mul(A_TOKEN) + wish.n_ctx.saturating_mul(A_CELL * wish.chats)
            }),
        }
    }

    /// Compute buffers and outputs as far as a chat touches them, in bytes. llama.cpp reserves more, for the logits of
    /// a whole batch; it asks for them nowhere, and what is not touched takes no memory.
    ///
    /// A token of a batch has a row of the mask (one more for windowed layers; f16 with flash attention, else f32), and
    /// in the same place, one after the other: without flash attention the scores of all heads (f32, and once more as
    /// f16 for their product with V); and ≈ activations, the two inputs of the feed-forward product and six rows of the
    /// residual stream's width, as measured on SmolLM2-135M and Gemma 3 270M.
    fn compute(&self, wish: &Wish) -> u64 {
        let Some(w) = self.widths else { return 0 };
        let windowed = if self.shape.window.is_some() {
            self.shape.windowed_cells(wish.n_ctx, wish.n_ubatch, wish.swa_full)
        } else {
            0
        };
        let flash = wish.flash != FlashAttention::Off;
        let masks = wish.n_ctx.saturating_add(windowed).saturating_mul(if flash { 2 } else { F32 });
        let scores = if flash { 0 } else { wish.n_ctx.saturating_mul(w.heads * (F32 + 2)) };
        let activations = (2 * w.feed_forward + 6 * w.embedding).saturating_mul(F32);
        let a_token = masks.saturating_add(scores.max(activations));
        let rows = 1 + if windowed > 0 && !wish.swa_full { 0 } else { u64::from(SEQUENCES) - 1 };
        let outputs = rows.saturating_mul(w.vocabulary * F32);
        a_token.saturating_mul(wish.n_ubatch).saturating_add(outputs)
    }

    /// The largest context of such a kind that fits into so many bytes; none if not even the smallest does.
    pub fn longest(&self, wish: &Wish, bytes: u64) -> Option<u64> {
        let fits = |steps: u64| self.memory(&Wish { n_ctx: steps * STEP, ..*wish }).total() <= bytes;
        let (mut yes, mut no) = (0, MOST_CELLS / STEP + 1);
        while yes + 1 < no {
            let middle = yes.midpoint(no);
            if fits(middle) { yes = middle } else { no = middle }
        }
        (yes > 0).then_some(yes * STEP)
    }

    /// How many such chats fit into so many bytes beside everything else.
    pub fn chats(&self, wish: &Wish, bytes: u64) -> u64 {
        let total = |chats| self.memory(&Wish { chats, ..*wish }).total();
        let another = total(2).saturating_sub(total(1));
        bytes.saturating_sub(total(1).saturating_sub(another)).checked_div(another).unwrap_or(0)
    }

    /// Whether contexts of that kind fit into so many bytes.
    ///
    /// # Errors
    /// Says how much is needed, how much is free, and the largest context that fits.
    pub fn check(&self, wish: &Wish, free: u64) -> Result<(), String> {
        let memory = self.memory(wish);
        if memory.total() <= free {
            return Ok(());
        }
        let offer = self.longest(wish, free).map_or(String::new(), |n| format!("; one of {n} tokens fits"));
        Err(format!(
            "a context of {} tokens needs {} with the model's weights ({} of KV cache), and {} are free{offer}",
            wish.n_ctx,
            human(memory.total()),
            human(memory.kv),
            human(free)
        ))
    }
}

/// Whether llama.cpp copies matrices of this type of ggml into another order for the processor that this program is
/// built for (`ggml_repack_get_optimal_repack_type`).
fn is_repacked(kind: u32) -> bool {
    let neon = cfg!(target_feature = "dotprod");
    match kind {
        // Q4_0, Q4_K, IQ4_NL, MXFP4
        2 | 12 | 20 | 39 => cfg!(target_feature = "avx2") || neon,
        // Q8_0, Q5_K, Q6_K
        8 | 13 | 14 => neon,
        // Q2_K
        10 => cfg!(target_feature = "avx512f"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::gguf::{Tensors, Value};
    use super::*;
    use crate::chat::KvType;

    fn llama2() -> Facts {
        Facts {
            weights: 14_000_000_000,
            read: 14_000_000_000,
            shape: KvShape::uniform(32, 32, 128),
            ..Facts::default()
        }
    }

    fn wish(n_ctx: u64) -> Wish {
        Wish { n_ctx, n_ubatch: 512, kv: KvTypes::default(), flash: FlashAttention::Auto, swa_full: true, chats: 1 }
    }

    #[test]
    fn the_arithmetic_of_the_field() {
        let (facts, wish) = (llama2(), wish(4096));
        assert_eq!(facts.shape.bytes_per_token(wish.kv, true), 1 << 19);
        assert_eq!(facts.memory(&wish).kv, 2 << 30);
        let bytes = 40_000_000_000;
        assert_eq!(facts.chats(&wish, bytes), 12);
        let grouped = Facts { shape: facts.shape.with_kv_heads(8), ..facts.clone() };
        assert_eq!(grouped.chats(&wish, bytes), 48);
        assert_eq!(facts.chats(&Wish { kv: KvTypes::both(KvType::Q8_0), ..wish }, bytes), 22);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_does() {
        let facts = Facts {
            weights: 90 << 20,
            shape: KvShape::uniform(30, 3, 64),
            widths: Some(Widths { vocabulary: 49_152, embedding: 576, feed_forward: 1536, heads: 9 }),
            ..Facts::default()
        };
        let fits = |chats| facts.check(&Wish { chats, ..wish(8192) }, 1 << 31).is_ok();
        let most = facts.chats(&wish(8192), 1 << 31);
        assert!(fits(most) && !fits(most + 1), "{most}");
        for (flash, kv) in [
            (FlashAttention::Auto, KvType::F16),
            (FlashAttention::Off, KvType::F16),
            (FlashAttention::On, KvType::Q4_0),
        ] {
            let wish = |n_ctx| Wish { flash, kv: KvTypes::both(kv), ..wish(n_ctx) };
            let free = 1 << 30;
            assert_eq!(facts.check(&wish(8192), free), Ok(()));
            let error = facts.check(&wish(1 << 20), free).unwrap_err();
            let offered: u64 = error.split("one of ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert_eq!(facts.check(&wish(offered), free), Ok(()));
            assert!(facts.check(&wish(offered + STEP), free).is_err());
            assert!(!facts.check(&wish(8192), 1000).unwrap_err().contains("one of"));
        }
    }

    #[test]
    fn a_token_reads_its_experts_and_not_the_whole_embedding() {
        let keys = [
            ("block_count", 2),
            ("embedding_length", 64),
            ("attention.head_count", 1),
            ("feed_forward_length", 100),
            ("expert_count", 8),
            ("expert_used_count", 2),
            ("expert_feed_forward_length", 90),
        ];
        let numbers = keys.map(|(key, n)| (format!("unknown.{key}"), Value::Int(n)));
        let tensors = Tensors {
            bytes: 1000,
            experts: 400,
            embedding: Some((12, 100)),
            vocabulary: 7,
            matrices: [(12, 30), (1, 500)].into(),
            ..Tensors::default()
        };
        let header = |output| Gguf {
            tensors: Tensors { output, ..tensors.clone() },
            metadata: numbers.clone().into(),
            ..Gguf::default()
        };
        let (tied, apart) = (Facts::of(&header(false)).unwrap(), Facts::of(&header(true)).unwrap());
        assert_eq!((tied.weights, tied.read, apart.read), (1000, 700, 600));
        assert_eq!(tied.widths, Some(Widths { vocabulary: 7, embedding: 64, feed_forward: 180, heads: 1 }));
        if is_repacked(12) {
            assert_eq!((tied.repacked, apart.repacked), (130, 30));
        }
    }

    #[test]
    fn wishes_are_what_can_be_made() {
        assert_eq!(
            [context(None, Some(2048)), context(None, Some(1 << 20)), context(Some(0), Some(1 << 20))],
            [2048, 8192, 1 << 20]
        );
        assert_eq!([context(Some(1), None), context(Some(5000), None), context(None, None)], [256, 5000, 4096]);
        assert_eq!([batch(32, 4096), batch(512, 256), batch(9999, 1 << 20)], [64, 256, 8192]);
    }

    #[test]
    fn flash_attention_saves_the_scores() {
        let facts = Facts {
            shape: KvShape::uniform(1, 1, 64),
            widths: Some(Widths { heads: 9, ..Widths::default() }),
            ..Facts::default()
        };
        let compute = |flash| facts.memory(&Wish { flash, ..wish(2048) }).compute;
        let (with, without) = (compute(FlashAttention::On), compute(FlashAttention::Off));
        assert_eq!((with, without), (512 * 2048 * 2, 512 * 2048 * (4 + 9 * 6)));
    }
}
