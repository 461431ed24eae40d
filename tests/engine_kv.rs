//! The types of the KV cache on the real models, and what the plan says of them against what llama.cpp allocates.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Engine, chat, gemma, greedy, params, smollm, tiny};
use llmchat::chat::{FlashAttention, KvType, KvTypes};
use llmchat::engine::protocol::{ContextParams, EngineEvent, ModelInfo, Request};
use llmchat::model::{Gguf, KvShape};

/// Loads a model in an engine that tells everything; what it knows of the model, and the bytes of the KV buffers in
/// llama.cpp's own words, which are exact to a hundredth of a MiB each.
fn allocated(path: &Path, params: &ContextParams) -> (ModelInfo, Vec<f64>) {
    let mut engine = Command::new(env!("CARGO_BIN_EXE_llmchat"))
        .arg("engine")
        .env("LLMCHAT_LOG_LEVEL", "debug")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = engine.stdin.take().unwrap();
    let load = Request::Load { path: path.to_owned(), params: params.clone() };
    writeln!(stdin, "{}", serde_json::to_string(&load).unwrap()).unwrap();
    let mut stderr = engine.stderr.take().unwrap();
    let words = std::thread::spawn(move || {
        let mut words = String::new();
        stderr.read_to_string(&mut words).unwrap();
        words
    });
    let events = BufReader::new(engine.stdout.take().unwrap()).lines();
    let mut events = events.map(|line| serde_json::from_str::<EngineEvent>(&line.unwrap()).unwrap());
    let info = events
        .find_map(|event| match event {
            EngineEvent::Loaded(info) => Some(*info),
            EngineEvent::LoadFailed(problem) => panic!("{problem}"),
            _ => None,
        })
        .expect("it loads");
    drop(stdin);
    engine.wait().unwrap();
    let words = words.join().unwrap();
    let told = |line: &'_ str| {
        ["KV buffer size =", "RS buffer size ="]
            .iter()
            .find_map(|key| line.split_once(key).map(|(_, rest)| rest.to_owned()))
    };
    let sizes =
        words.lines().filter_map(told).filter_map(|rest| rest.split_once("MiB").map(|(size, _)| size.to_owned()));
    (info, sizes.map(|size| size.trim().parse::<f64>().unwrap() * f64::from(1 << 20)).collect())
}

#[test]
fn the_plan_is_what_llama_cpp_allocates_for_every_type() {
    // Of a test engine the other tests wait for their turn; so does this one.
    let _turn = Engine::spawn();
    let cases = |path: fn() -> PathBuf, swa_full| KvType::ALL.map(|k| (path, swa_full, k));
    for (path, swa_full, k) in [cases(smollm, true), cases(gemma, true), cases(gemma, false)].concat() {
        // Each type on its own, and beside another one.
        for v in [k, KvType::ALL[(k as usize + 1) % KvType::ALL.len()]] {
            let kv = KvTypes { k, v };
            let params = ContextParams { kv, swa_full, ..params() };
            let (info, buffers) = allocated(&path(), &params);
            let exact: f64 = buffers.iter().sum();
            let what = format!("{} {kv} swa_full {swa_full}: {exact} of llama.cpp", info.name);
            let rounding = 0.005 * f64::from(1 << 20) * buffers.len() as f64;
            assert!(
                !buffers.is_empty() && (info.kv_bytes_reserved as f64 - exact).abs() <= rounding,
                "{what}, {info:?}"
            );
            let shape = KvShape::of(&Gguf::read(&path()).unwrap()).unwrap();
            assert_eq!(shape.bytes(kv, u64::from(info.n_ctx), 512, swa_full), info.kv_bytes_reserved, "{what}");
            assert_eq!(info.kv_type, kv.to_string());
            // Layers with a window take nothing for one more token: then the first buffer is all that grows.
            let growing = if swa_full { exact } else { buffers[0] };
            let ratio = info.kv_bytes_per_token as f64 * f64::from(info.n_ctx) / growing;
            assert!((ratio - 1.0).abs() < 0.003, "{what}: ratio {ratio}");
        }
    }
}

#[test]
fn the_plan_counts_recurrent_states() {
    let _turn = Engine::spawn();
    let folder = tempfile::tempdir().unwrap();
    for path in [tiny::recurrent(folder.path()), tiny::hybrid(folder.path())] {
        let (info, buffers) = allocated(&path, &params());
        let exact: f64 = buffers.iter().sum();
        let rounding = 0.005 * f64::from(1 << 20) * buffers.len() as f64;
        assert!(!buffers.is_empty() && info.kv_bytes_reserved > 0, "{info:?}");
        assert!((info.kv_bytes_reserved as f64 - exact).abs() <= rounding, "{exact} of llama.cpp, {info:?}");
    }
}

#[test]
fn every_type_answers() {
    for kv in KvType::ALL.map(KvTypes::both).into_iter().chain([KvTypes { k: KvType::Q8_0, v: KvType::F16 }]) {
        let mut engine = Engine::load(smollm(), ContextParams { kv, n_ctx: Some(512), ..params() });
        let answer = engine.ask(chat(&["What is 2 and 2?"]), greedy(8));
        assert!(answer.tokens > 0 && !answer.text.trim().is_empty(), "{kv}: {answer:?}");
    }
}

#[test]
fn what_cannot_be_is_a_sentence_and_the_engine_lives() {
    let mut engine = Engine::spawn();
    let off = |kv| ContextParams { flash_attn: FlashAttention::Off, kv, n_ctx: Some(512), ..params() };
    let problem = engine.try_load(smollm(), off(KvTypes::both(KvType::Q8_0))).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "A V cache of q8_0 needs flash attention, and that is off. Take flash_attn auto or on (-fa), or f16 or bf16 for V (-ctv)"
    );
    engine.try_load(smollm(), off(KvTypes { k: KvType::Q8_0, v: KvType::F16 })).unwrap();
    assert_eq!(engine.ask(chat(&["hi"]), greedy(3)).tokens, 3);
}

#[test]
fn the_smallest_wishes_make_a_context() {
    let mut engine = Engine::load(smollm(), ContextParams { n_ctx: Some(1), n_batch: 1, ..params() });
    assert_eq!(engine.info.as_ref().unwrap().n_ctx, 256);
    assert!(engine.ask(chat(&["hi"]), greedy(3)).tokens > 0);
}

#[test]
fn lines_of_an_older_chat_are_understood() {
    let line = r#"{"request":"load","path":"m","params":{"n_ctx":null,"n_batch":512,"threads":0,"gpu_layers":-1,"swa_full":true}}"#;
    let Request::Load { params, .. } = serde_json::from_str(line).unwrap() else { panic!() };
    assert_eq!(params, ContextParams::default());
}
