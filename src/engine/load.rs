//! From a file to a session: every way in which that can fail becomes a sentence.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use llama_cpp_2::context::params::{LlamaContextParams, RopeScalingType};
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::{LlamaBackendDeviceType, list_llama_ggml_backend_devices};

use super::log;
use super::native::URGENT;
use super::prompt::ChatTemplate;
use super::protocol::{ContextParams, EngineEvent, ModelInfo, Problem};
use super::sequences::Shape;
use super::step::{Parts, Session, Sink};
use super::threads::cores;
use super::tokens::Vocabulary;
use crate::chat::RopeScaling;
use crate::model::{Gguf, KvShape, check, free_memory};

/// Sequences beside the main one: 16 beams and 16 answers.
const BRANCHES: u32 = 32;
/// Most sequences that stay in the cache when a prompt leaves them; llama.cpp counts all of them up to 256.
const RESIDENT: u32 = 64;

/// Loads the weights.
///
/// # Errors
/// Says what is wrong with the file and what to do.
pub fn model(backend: &LlamaBackend, path: &Path, params: &ContextParams, sink: &Sink) -> Result<Loaded, Problem> {
    // Looked at first by our own reader: llama.cpp aborts on some damaged files and says little about others.
    let header = Gguf::read(path).map_err(|error| Problem::new(error.what(), error.next()))?;
    let shape = KvShape::of(&header);
    let n_ctx = wanted_context(params, header.n_ctx_train());
    within_trained(params, n_ctx, header.n_ctx_train())?;
    if let (Some(shape), Some(free)) = (&shape, free_memory()) {
        let fit = check(shape, n_ctx, u64::from(micro(params, params.n_batch)), 0, params.swa_full, free);
        fit.map_err(|why| {
            Problem::new(format!("The memory is too small: {why}"), "Start again with a smaller context (-c)")
        })?;
    }
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
    Ok(Loaded {
        model,
        shape,
        n_ctx: u32::try_from(n_ctx).unwrap_or(u32::MAX),
        notes: notes(n_ctx, header.n_ctx_train()),
    })
}

/// Weights, and what their header says.
pub struct Loaded {
    model: LlamaModel,
    shape: Option<KvShape>,
    n_ctx: u32,
    notes: Vec<String>,
}

/// Cells of the context as [`ContextParams::n_ctx`] asks for them.
fn wanted_context(params: &ContextParams, trained: Option<u64>) -> u64 {
    let trained = trained.unwrap_or(4096).clamp(256, 16 << 20);
    match params.n_ctx {
        None => trained.min(8192),
        Some(0) => trained,
        Some(n) => u64::from(n),
    }
}

/// Most tokens that are computed at once.
fn micro(params: &ContextParams, n_batch: u32) -> u32 {
    if params.n_ubatch == 0 { n_batch } else { params.n_ubatch.min(n_batch) }
}

/// Refuses a context longer than the model was trained on, unless somebody has said yes to it.
fn within_trained(params: &ContextParams, n_ctx: u64, trained: Option<u64>) -> Result<(), Problem> {
    match trained.filter(|trained| n_ctx > *trained && !params.beyond_trained) {
        None => Ok(()),
        Some(trained) => Err(Problem::new(
            format!("A context of {n_ctx} tokens is more than the {trained} that the model was trained on"),
            format!(
                "Take -c {trained}, or say --beyond-trained (beyond_trained = true in the config), \
                 best with --rope-scaling yarn"
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
    let n_batch = params.n_batch.clamp(32, 8192).min(n_ctx.max(32));
    let threads = i32::try_from(if params.threads == 0 { cores() } else { params.threads.min(512) }).unwrap_or(1);
    let shape = loaded.shape.as_ref();
    let window = shape.and_then(|s| s.window).filter(|_| !params.swa_full).and_then(|w| usize::try_from(w).ok());
    // A cache that keeps only the window keeps one for each sequence: memory that nobody asked for.
    let (branches, parked) = if window.is_some() { (0, 0) } else { (BRANCHES, params.resident.min(RESIDENT)) };
    let context_params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(n_ctx))
        .with_n_batch(n_batch)
        .with_n_ubatch(micro(params, n_batch))
        .with_n_seq_max(1 + branches + parked)
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
    let device = list_llama_ggml_backend_devices()
        .into_iter()
        .find(|d| matches!(d.device_type, LlamaBackendDeviceType::Gpu | LlamaBackendDeviceType::IntegratedGpu))
        .filter(|_| params.gpu_layers != 0)
        .map_or_else(|| "CPU".to_owned(), |d| d.name);
    let info = ModelInfo {
        name: path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
        description: model.meta_val_str("general.name").unwrap_or_default(),
        weight_bytes: model.size(),
        n_ctx_train: model.n_ctx_train(),
        n_ctx: context.n_ctx(),
        n_vocab: vocabulary.size(),
        kv_bytes_per_token: shape.map_or(0, |s| s.bytes_per_token(params.swa_full)),
        kv_bytes_reserved: shape
            .map_or(0, |s| s.bytes(u64::from(context.n_ctx()), u64::from(context.n_ubatch()), params.swa_full)),
        kv_type: "f16".to_owned(),
        has_template: template.is_some(),
        notes: template.notes().into_iter().chain(loaded.notes.iter().cloned()).collect(),
        device,
        threads: 0,
        load_ms: 0.0,
        recommended: recommended(model),
    };
    Ok(Session::new(
        Parts {
            shape: Shape { cells: context.n_ctx() as usize, window, branches, parked },
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
