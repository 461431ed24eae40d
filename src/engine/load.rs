//! From a file to a session: every way in which that can fail becomes a sentence.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::{LlamaBackendDeviceType, list_llama_ggml_backend_devices};

use super::log;
use super::native::ABORT;
use super::prompt::ChatTemplate;
use super::protocol::{ContextParams, EngineEvent, ModelInfo, Problem};
use super::step::{Parts, Session, Sink};
use super::threads::cores;
use super::tokens::Vocabulary;

/// Loads the weights.
///
/// # Errors
/// Says what is wrong with the file and what to do.
pub fn model(backend: &LlamaBackend, path: &Path, params: &ContextParams, sink: &Sink) -> Result<LlamaModel, Problem> {
    log::forget();
    let told = sink.clone();
    let mut shown = -1.0f32;
    let mut model_params = LlamaModelParams::default().with_progress_callback(move |fraction| {
        if fraction - shown >= 0.01 || fraction >= 1.0 {
            shown = fraction;
            told(EngineEvent::Loading { fraction });
        }
        !ABORT.load(Ordering::Relaxed)
    });
    // Negative is "all of them", which is llama.cpp's default where a device is there.
    if let Ok(layers) = u32::try_from(params.gpu_layers) {
        model_params = model_params.with_n_gpu_layers(layers);
    }
    LlamaModel::load_from_file(backend, path, &model_params).map_err(|error| {
        let why = log::last_error().unwrap_or_else(|| error.to_string());
        Problem::new(
            format!("{} cannot be loaded: {why}", path.display()),
            "Choose another model with /model, or update llmchat if the model is newer than it",
        )
    })
}

/// Makes a context for the model and a session around both.
///
/// # Errors
/// Says what does not fit and what would.
pub fn session<'m>(
    backend: &LlamaBackend,
    model: &'m LlamaModel,
    path: &Path,
    params: &ContextParams,
    began: Instant,
    sink: &Sink,
) -> Result<Session<'m>, Problem> {
    let n_ctx = if params.n_ctx == 0 { model.n_ctx_train() } else { params.n_ctx };
    let n_batch = params.n_batch.clamp(32, 8192).min(n_ctx.max(32));
    let threads = i32::try_from(if params.threads == 0 { cores() } else { params.threads.min(512) }).unwrap_or(1);
    let context_params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(n_ctx))
        .with_n_batch(n_batch)
        .with_n_ubatch(n_batch)
        .with_n_seq_max(1)
        .with_kv_unified(true)
        .with_swa_full(params.swa_full)
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
        kv_bytes_per_token: 0,
        kv_bytes_reserved: 0,
        kv_type: "f16".to_owned(),
        has_template: template.is_some(),
        notes: template.notes(),
        device,
        threads: 0,
        load_ms: 0.0,
    };
    Ok(Session::new(
        Parts { context, vocabulary, template, window: None, threads: params.threads, info, began },
        sink.clone(),
    ))
}
