//! What is asked of a context.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::chat::{FlashAttention, KvTypes, Rope};
use crate::model::{Wish, batch, context};

/// How a context is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextParams {
    /// Cells of the KV cache; 0 takes the trained length of the model, `None` that or 8,192, whichever is less.
    pub n_ctx: Option<u32>,
    /// Most tokens in one decode call.
    pub n_batch: u32,
    /// Most tokens that are computed at once; 0 for all of a call.
    pub n_ubatch: u32,
    /// Compute threads; 0 lets the engine choose by measuring and watching.
    pub threads: u32,
    /// Layers on the GPU; −1 for all.
    pub gpu_layers: i32,
    /// Keep the whole context of sliding-window layers.
    pub swa_full: bool,
    /// Bytes of memory for states of the KV cache that are not in it; 0 keeps none, `None` chooses by the memory.
    pub cache_ram: Option<u64>,
    /// Bytes of files for them.
    pub cache_disk: u64,
    /// The folder of those files; without it there are none.
    pub cache_dir: Option<PathBuf>,
    /// A context longer than the model was trained on is wanted all the same.
    pub beyond_trained: bool,
    /// How positions are told to the model.
    pub rope: Rope,
    /// How K and V are stored.
    pub kv: KvTypes,
    /// Whether attention is computed tile by tile.
    pub flash_attn: FlashAttention,
}

impl Default for ContextParams {
    fn default() -> Self {
        Self {
            n_ctx: None,
            n_batch: 512,
            n_ubatch: 0,
            threads: 0,
            gpu_layers: -1,
            swa_full: true,
            cache_ram: None,
            cache_disk: 0,
            cache_dir: None,
            beyond_trained: false,
            rope: Rope::default(),
            kv: KvTypes::default(),
            flash_attn: FlashAttention::default(),
        }
    }
}

impl ContextParams {
    /// Most tokens that are computed at once of calls with at most so many.
    pub fn micro_batch(&self, n_batch: u32) -> u32 {
        if self.n_ubatch == 0 { n_batch } else { self.n_ubatch.min(n_batch) }
    }

    /// What decides the memory of such a context, for a model that was trained on so many tokens.
    pub fn wish(&self, trained: Option<u64>) -> Wish {
        let n_ctx = context(self.n_ctx, trained);
        Wish {
            n_ctx,
            n_ubatch: u64::from(self.micro_batch(batch(self.n_batch, n_ctx))),
            kv: self.kv,
            flash: self.flash_attn,
            swa_full: self.swa_full,
            chats: 1,
        }
    }
}
