//! From a file to a session: every way in which that can fail becomes a sentence.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use llama_cpp_2::context::params::{KvCacheType, LlamaContextParams, RopeScalingType};
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::{LlamaBackendDevice, LlamaBackendDeviceType, list_llama_ggml_backend_devices};
use llama_cpp_sys_2 as sys;

use super::log;
use super::native::URGENT;
use super::origin::{head_hash, instructions};
use super::prompt::ChatTemplate;
use super::protocol::{ContextParams, EngineEvent, ModelInfo, Problem};
use super::sequences::Shape;
use super::states::{Keeper, LLAMA, States, identity};
use super::step::{Parts, Session, Sink};
use super::threads::cores;
use super::tokens::Vocabulary;
use crate::chat::{FlashAttention, KvType, Origin, RopeScaling};
use crate::model::{BRANCHES, Backend, Facts, Gguf, SEQUENCES, Wish, batch, free_memory, limits};

/// Loads the weights.
///
/// # Errors
/// Says what is wrong with the file and what to do.
pub fn model(backend: &LlamaBackend, path: &Path, params: &ContextParams, sink: &Sink) -> Result<Loaded, Problem> {
    // Looked at first by our own reader: llama.cpp aborts on some damaged files and says little about others.
    let header = Gguf::read(path).map_err(|error| Problem::new(error.what(), error.next()))?;
    let facts = Facts::of(&header);
    let wish = params.wish(header.n_ctx_train());
    let n_ctx = wish.n_ctx;
    within_trained(params, n_ctx, header.n_ctx_train())?;
    can_be(facts.as_ref(), &header, params, &wish)?;
    log::forget();
    let told = sink.clone();
    let mut shown = -1.0f32;
    let mut model_params = LlamaModelParams::default().with_progress_callback(move |fraction| {
        if fraction - shown >= 0.01 || fraction >= 1.0 {
            shown = fraction;
            told(EngineEvent::Loading { fraction });
        }
        URGENT.load(Ordering::Relaxed) == 0
    });
    // Negative is "all of them", which is llama.cpp's default where a device is there.
    if let Ok(layers) = u32::try_from(params.gpu_layers) {
        model_params = model_params.with_n_gpu_layers(layers);
    }
    let model = LlamaModel::load_from_file(backend, path, &model_params).map_err(|error| {
        let why = log::last_error().unwrap_or_else(|| error.to_string());
        Problem::new(
            format!("{} cannot be loaded: {why}", path.display()),
            "Choose another model (-m, or /model in the chat), or update llmchat if the model is newer than it",
        )
    })?;
    let model_sha256 = head_hash(path, header.header_bytes)
        .map_err(|error| Problem::new(format!("{} cannot be read: {error}", path.display()), "Check the file"))?;
    Ok(Loaded {
        model,
        origin: origin(params, model_sha256, header.bytes),
        facts,
        n_ctx: u32::try_from(n_ctx).unwrap_or(u32::MAX),
        notes: notes(n_ctx, header.n_ctx_train()),
    })
}

/// Weights, and what their header says.
pub struct Loaded {
    model: LlamaModel,
    facts: Option<Facts>,
    origin: Origin,
    n_ctx: u32,
    notes: Vec<String>,
}

/// What is known of answers before there is a context.
fn origin(params: &ContextParams, model_sha256: String, model_bytes: u64) -> Origin {
    Origin {
        model_sha256,
        model_bytes,
        llmchat: env!("CARGO_PKG_VERSION").to_owned(),
        llama: LLAMA.to_owned(),
        cpu: instructions(),
        gpu_layers: params.gpu_layers,
        kv: params.kv,
        flash_attn: params.flash_attn,
        swa_full: params.swa_full,
        rope: params.rope,
        ..Origin::default()
    }
}

/// Whether model, device and memory can do what is asked for.
fn can_be(facts: Option<&Facts>, header: &Gguf, params: &ContextParams, wish: &Wish) -> Result<(), Problem> {
    let gpus = gpus(params);
    let backend = gpus.first().map_or(Backend::Cpu, |device| Backend::named(&device.backend));
    // Of an unknown shape some limits are known all the same.
    let shape = facts.map(|facts| facts.shape.clone()).unwrap_or_default();
    limits(&shape, header.architecture(), wish.kv, wish.flash, backend)
        .map_err(|(what, next)| Problem::new(what, next))?;
    // Layers that are split between a GPU and the processor fit or do not: that is llama.cpp's choice, and its error.
    let free = match gpus.iter().map(|device| device.memory_free as u64).sum() {
        0 if gpus.is_empty() => free_memory(),
        0 => None,
        free => Some(free).filter(|_| params.gpu_layers < 0),
    };
    let fits = facts.zip(free).map_or(Ok(()), |(facts, free)| facts.check(wish, free));
    fits.map_err(|why| {
        let next = "Start again with a smaller context (-c) or a smaller type of the cache (-ctk, -ctv)";
        Problem::new(format!("The memory is too small: {why}"), next)
    })
}

/// The GPUs that compute; the first one is named.
fn gpus(params: &ContextParams) -> Vec<LlamaBackendDevice> {
    let is_gpu = |kind| matches!(kind, LlamaBackendDeviceType::Gpu | LlamaBackendDeviceType::IntegratedGpu);
    let devices = list_llama_ggml_backend_devices().into_iter();
    devices.filter(|d| params.gpu_layers != 0 && is_gpu(d.device_type)).collect()
}

/// Refuses a context longer than the model was trained on, unless somebody has said yes to it.
fn within_trained(params: &ContextParams, n_ctx: u64, trained: Option<u64>) -> Result<(), Problem> {
    match trained.filter(|trained| n_ctx > *trained && !params.beyond_trained) {
        None => Ok(()),
        Some(trained) => Err(Problem::new(
            format!("A context of {n_ctx} tokens is more than the {trained} that the model was trained on"),
            format!(
                "Take -c {trained}, or say --beyond-trained (beyond_trained = true in the config){}",
                if params.rope.scaling == RopeScaling::Model { ", best with --rope-scaling yarn" } else { "" }
            ),
        )),
    }
}

fn notes(n_ctx: u64, trained: Option<u64>) -> Vec<String> {
    let beyond = trained.filter(|trained| n_ctx > *trained);
    beyond
        .map(|trained| {
            format!("The context of {n_ctx} tokens is longer than the {trained} that the model was trained on")
        })
        .into_iter()
        .collect()
}

/// Makes a context for the model and a session around both.
///
/// # Errors
/// Says what does not fit and what would.
pub fn session<'m>(
    backend: &LlamaBackend,
    loaded: &'m Loaded,
    path: &Path,
    params: &ContextParams,
    began: Instant,
    sink: &Sink,
) -> Result<Session<'m>, Problem> {
    let (model, n_ctx) = (&loaded.model, loaded.n_ctx);
    let n_batch = batch(params.n_batch, u64::from(n_ctx));
    let threads = i32::try_from(if params.threads == 0 { cores() } else { params.threads.min(512) }).unwrap_or(1);
    let shape = loaded.facts.as_ref().map(|facts| &facts.shape);
    let window = shape.and_then(|s| s.window).filter(|_| !params.swa_full).and_then(|w| usize::try_from(w).ok());
    let whole = model.is_recurrent() || model.is_hybrid();
    // A cache that keeps only the window, or a recurrent state, keeps one for each sequence: memory that nobody asked for.
    let (branches, sequences) = if whole || window.is_some() { (0, 1) } else { (BRANCHES, SEQUENCES) };
    let context_params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(n_ctx))
        .with_n_batch(n_batch)
        .with_n_ubatch(params.micro_batch(n_batch))
        .with_n_seq_max(sequences)
        .with_kv_unified(true)
        .with_swa_full(params.swa_full)
        .with_rope_scaling_type(match params.rope.scaling {
            RopeScaling::Model => RopeScalingType::Unspecified,
            RopeScaling::None => RopeScalingType::None,
            RopeScaling::Linear => RopeScalingType::Linear,
            RopeScaling::Yarn => RopeScalingType::Yarn,
        })
        .with_rope_freq_base(params.rope.freq_base)
        .with_rope_freq_scale(params.rope.freq_scale)
        .with_type_k(ggml_type(params.kv.k))
        .with_type_v(ggml_type(params.kv.v))
        .with_flash_attention_policy(policy(params.flash_attn))
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    log::forget();
    let context = model.new_context(backend, context_params).map_err(|error| {
        let why = log::last_error().unwrap_or_else(|| error.to_string());
        Problem::new(format!("A context of {n_ctx} tokens cannot be made: {why}"), "Try a smaller one with -c")
    })?;
    let vocabulary = Vocabulary::new(model);
    let (bos, eos) = vocabulary.bos_eos();
    let template = ChatTemplate::new(model.meta_val_str("tokenizer.chat_template").ok().as_deref(), &bos, &eos);
    let device = gpus(params).into_iter().next().map_or_else(|| "CPU".to_owned(), |d| d.name);
    let (states, keeper, fault) = states(path, params, &device);
    let info = ModelInfo {
        name: path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
        description: model.meta_val_str("general.name").unwrap_or_default(),
        weight_bytes: model.size(),
        n_ctx_train: model.n_ctx_train(),
        n_ctx: context.n_ctx(),
        n_vocab: vocabulary.size(),
        kv_bytes_per_token: shape.map_or(0, |s| s.bytes_per_token(params.kv, params.swa_full)),
        kv_bytes_reserved: shape.map_or(0, |s| {
            s.bytes(params.kv, u64::from(context.n_ctx()), u64::from(context.n_ubatch()), params.swa_full)
        }),
        kv_type: params.kv.to_string(),
        has_template: template.is_some(),
        notes: template
            .notes()
            .into_iter()
            .chain(loaded.notes.iter().cloned())
            .chain((context.n_ctx() != n_ctx).then(|| {
                format!(
                    "The context has {} tokens instead of {n_ctx}: llama.cpp makes it in steps of 256",
                    context.n_ctx()
                )
            }))
            .chain(fault)
            .collect(),
        device: device.clone(),
        threads: 0,
        load_ms: 0.0,
        recommended: recommended(model),
        origin: Origin {
            device,
            n_ctx: context.n_ctx(),
            n_batch: context.n_batch(),
            n_ubatch: context.n_ubatch(),
            ..loaded.origin.clone()
        },
    };
    Ok(Session::new(
        Parts {
            shape: Shape { cells: context.n_ctx() as usize, window, branches, whole },
            states,
            keeper,
            context,
            vocabulary,
            template,
            threads: params.threads,
            info,
            began,
        },
        sink.clone(),
    ))
}

/// What is kept of the cache outside of it, now and from earlier runs; and why there are no files where some are wanted.
fn states(path: &Path, params: &ContextParams, device: &str) -> (States, Option<Keeper>, Option<String>) {
    let chosen = || free_memory().map_or(0, |free| free / 8).min(8 << 30);
    let mut states = States::new(params.cache_ram.unwrap_or_else(chosen));
    let Some(root) = params.cache_dir.as_ref().filter(|_| params.cache_disk > 0 && !states.is_off()) else {
        return (states, None, None);
    };
    // All that decides the numbers in a state, or how llama.cpp lays them out.
    let ContextParams { n_batch, n_ubatch, swa_full, rope, kv, flash_attn, .. } = params;
    let settings = format!("{device} {n_batch} {n_ubatch} {swa_full} {rope:?} {kv:?} {flash_attn:?}");
    let keeper = identity(path, &settings).and_then(|identity| Keeper::new(root, identity, params.cache_disk));
    match keeper {
        Ok(keeper) => {
            keeper.index(&mut states);
            (states, Some(keeper), None)
        }
        Err(error) => {
            let fault = format!(
                "The cache is not kept in files: {} cannot be used ({error}). Check LLMCHAT_CACHE_DIR",
                root.display()
            );
            tracing::warn!("{fault}");
            (states, None, Some(fault))
        }
    }
}

fn ggml_type(kind: KvType) -> KvCacheType {
    match kind {
        KvType::F16 => KvCacheType::F16,
        KvType::Bf16 => KvCacheType::BF16,
        KvType::Q8_0 => KvCacheType::Q8_0,
        KvType::Q5_1 => KvCacheType::Q5_1,
        KvType::Q4_0 => KvCacheType::Q4_0,
    }
}

fn policy(flash: FlashAttention) -> sys::llama_flash_attn_type {
    match flash {
        FlashAttention::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
        FlashAttention::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
        FlashAttention::Off => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
    }
}

/// The sampling settings that a GGUF file recommends (`general.sampling.*`), by our knobs' names.
fn recommended(model: &LlamaModel) -> Vec<(String, String)> {
    const KEYS: [(&str, &str); 9] = [
        ("temp", "temperature"),
        ("top_k", "top_k"),
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("xtc_probability", "xtc_probability"),
        ("xtc_threshold", "xtc_threshold"),
        ("penalty_repeat", "repeat_penalty"),
        ("penalty_last_n", "repeat_last_n"),
        ("mirostat", "mirostat"),
    ];
    let value = |key: &str| model.meta_val_str(&format!("general.sampling.{key}")).ok();
    KEYS.iter().filter_map(|(theirs, ours)| Some(((*ours).to_owned(), value(theirs)?))).collect()
}
