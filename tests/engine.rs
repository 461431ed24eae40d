//! The engine on the real models, in its own process as the chat runs it.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.

mod common;

use std::num::NonZeroU32;

use common::{Cold, Engine, chat, gemma, greedy, params, seeded, smollm};
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llmchat::chat::{Finish, Rope, RopeScaling};
use llmchat::engine::protocol::{Because, ContextParams, EngineEvent, EngineNews, Prompt, Request, Size};

const QUESTIONS: [&str; 4] = [
    "Write a short story about a fox and a river.",
    "What is 12 times 12?",
    "Zähle auf Deutsch bis fünf. 🐻",
    "def fibonacci(n):",
];

/// A greedy answer by the plainest loop there is: one prompt, one batch, the largest logit, again.
fn plain_loop(backend: &LlamaBackend, model: &LlamaModel, prompt: &str, n: usize) -> Vec<u8> {
    let vocab = model.vocab();
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(2048))
        .with_n_batch(512)
        .with_n_ubatch(512)
        .with_n_seq_max(1)
        .with_kv_unified(true)
        .with_n_threads(2)
        .with_n_threads_batch(2);
    let mut context = model.new_context(backend, params).unwrap();
    let mut tokens = vocab.tokenize(prompt.as_bytes(), vocab.should_add_bos(), true);
    let mut bytes = Vec::new();
    let mut position = 0;
    for _ in 0..n {
        let mut batch = LlamaBatch::new(512, 1);
        for (i, token) in tokens.iter().enumerate() {
            batch.add(*token, position, &[0], i + 1 == tokens.len()).unwrap();
            position += 1;
        }
        context.decode(&mut batch).unwrap();
        let logits = context.get_logits_ith(i32::try_from(tokens.len()).unwrap() - 1);
        let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        let token = llama_cpp_2::token::LlamaToken(i32::try_from(best).unwrap());
        if vocab.is_eog(token) {
            break;
        }
        bytes.extend(vocab.token_to_piece(token, false, None));
        tokens = vec![token];
    }
    bytes
}

#[test]
fn greedy_is_a_plain_loop_token_for_token() {
    let mut backend = LlamaBackend::init().unwrap();
    backend.void_logs();
    for path in [smollm(), gemma()] {
        let model = LlamaModel::load_from_file(&backend, &path, &LlamaModelParams::default()).unwrap();
        let mut engine = Engine::load(path, params());
        for question in QUESTIONS {
            let expected = plain_loop(&backend, &model, question, 40);
            let answer = engine.ask_cold(Prompt::Raw(question.to_owned()), greedy(40));
            assert_eq!(answer.text, String::from_utf8_lossy(&expected), "{question}");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_answer_and_is_told() {
    let mut engine = Engine::load(smollm(), params());
    let mut ask = |seed| engine.ask_cold(chat(&[QUESTIONS[0]]), seeded(seed, 40));
    let (one, again, other) = (ask(7), ask(7), ask(8));
    assert_eq!((&one.text, one.seed), (&again.text, 7));
    assert_ne!(one.text, other.text);
    let random =
        engine.ask_cold(chat(&[QUESTIONS[0]]), llmchat::chat::Sampling { max_tokens: 40, ..Default::default() });
    let repeated = engine.ask_cold(chat(&[QUESTIONS[0]]), seeded(random.seed, 40));
    assert_eq!(random.text, repeated.text, "a seed that was drawn can be given back");
}

#[test]
fn a_second_turn_reads_only_what_is_new_and_answers_as_cold() {
    for sampling in [greedy(30), seeded(3, 30)] {
        let mut engine = Engine::load(smollm(), params());
        let first = engine.ask(chat(&[QUESTIONS[0]]), sampling.clone());
        assert_eq!(first.usage.reused_tokens, 0);
        let second = chat(&[QUESTIONS[0], &first.text, "And then?"]);
        let warm = engine.ask(second.clone(), greedy(20));
        // Of the first turn everything but the last token is in the cache, which was chosen and not decoded.
        assert!(warm.usage.reused_tokens >= first.usage.prompt_tokens + first.tokens - 1, "{:?}", warm.usage);
        assert!(warm.usage.fresh_tokens() < 20, "{:?}", warm.usage);
        if sampling == greedy(30) {
            let cold = engine.ask_cold(second, greedy(20));
            assert_eq!(cold.usage.reused_tokens, 0);
            assert_eq!(cold.text, warm.text);
        }
    }
}

#[test]
fn the_same_question_again_reads_one_token() {
    let mut engine = Engine::load(smollm(), params());
    engine.ask(chat(&[QUESTIONS[0]]), greedy(10));
    assert_eq!(engine.ask(chat(&[QUESTIONS[0]]), greedy(10)).usage.fresh_tokens(), 1);
}

#[test]
fn a_stop_in_prefill_or_in_the_answer_leaves_a_cache_that_can_be_trusted() {
    let mut engine = Engine::load(smollm(), ContextParams { n_ctx: Some(8192), ..params() });
    let cold = engine.ask_cold(chat(&[QUESTIONS[0]]), greedy(20));
    let long = "All work and no play. ".repeat(800);
    engine.start(chat(&[&long]), greedy(20));
    let mut stopped = false;
    let client = &engine.client;
    let answer = engine.wait(|event| {
        if let (EngineEvent::Prefill { job, done, .. }, false) = (event, stopped)
            && *done > 300
        {
            stopped = true;
            client.send(&Request::Cancel { job: *job });
        }
    });
    let answer = answer.unwrap();
    assert_eq!((answer.finish, answer.tokens), (Finish::Cancelled, 0));
    assert_eq!(engine.ask(chat(&[QUESTIONS[0]]), greedy(20)).text, cold.text);
    engine.start(chat(&[QUESTIONS[0]]), greedy(1000));
    let client = &engine.client;
    let answer = engine.wait(|event| {
        if let EngineEvent::Token { job, n: 8, .. } = event {
            client.send(&Request::Cancel { job: *job });
        }
    });
    let answer = answer.unwrap();
    assert!(answer.finish == Finish::Cancelled && answer.tokens >= 8 && answer.tokens < 900, "{answer:?}");
    assert_eq!(engine.ask(chat(&[QUESTIONS[0]]), greedy(20)).text, cold.text);
}

#[test]
fn sliders_count_from_the_next_token_on() {
    let mut engine = Engine::load(smollm(), params());
    engine.start(chat(&[QUESTIONS[0]]), seeded(1, 200));
    let client = &engine.client;
    let answer = engine.wait(|event| {
        if let EngineEvent::Token { job, n: 5, .. } = event {
            client.send(&Request::Sampling { job: *job, sampling: greedy(30) });
        }
    });
    let answer = answer.unwrap();
    assert_eq!((answer.finish, answer.tokens >= 30), (Finish::Length, true), "{answer:?}");
    assert!(answer.tokens < 60);
}

#[test]
fn a_full_context_is_a_sentence_before_and_an_end_during() {
    let mut engine = Engine::load(smollm(), ContextParams { n_ctx: Some(256), ..params() });
    let n_ctx = engine.info.as_ref().unwrap().n_ctx;
    engine.start(chat(&[&"word ".repeat(400)]), greedy(10));
    let problem = engine.wait(|_| {}).unwrap_err();
    assert!(problem.what.contains(&n_ctx.to_string()), "{problem}");
    engine.client.send(&Request::Generate {
        job: 99,
        prompt: Prompt::Raw("Once".into()),
        sampling: greedy(5000),
        ignore_eog: true,
        records: None,
    });
    let answer = engine.wait(|_| {}).unwrap();
    assert_eq!(answer.finish, Finish::ContextFull);
    assert!(answer.text.len() > 200);
    assert_eq!(engine.ask(chat(&["hi"]), greedy(3)).tokens, 3, "it goes on after that");
}

/// What the engine says of a prompt's size.
fn measured(engine: &Engine, prompt: Prompt) -> Size {
    engine.client.send(&Request::Measure { job: 1000, prompt });
    loop {
        if let EngineEvent::Measured { job: 1000, size, .. } = engine.event() {
            return size;
        }
    }
}

#[test]
fn the_tokens_of_each_turn_are_those_that_go_with_it() {
    let texts = ["Who was Ada Lovelace?", "A mathematician.", "zählt 🐻 auch?", "Yes, two tokens or so.", "And now?"];
    // A template that writes messages one after the other, and none at all.
    for path in [smollm(), gemma()] {
        let mut engine = Engine::load(path, ContextParams { n_ctx: Some(256), ..params() });
        let whole = measured(&engine, chat(&texts));
        assert_eq!((whole.turns.len(), whole.n_ctx), (5, 256));
        let template = engine.info.as_ref().unwrap().has_template;
        for start in [2, 4] {
            let rest = measured(&engine, chat(&texts[start..]));
            let gone: u32 = whole.turns[..start].iter().sum();
            // Without a template the blank line before the first text goes too.
            let slack = u32::from(!template);
            assert!(whole.tokens.abs_diff(rest.tokens + gone) <= slack, "{start}: {whole:?} {rest:?}");
        }
        // A refusal says the same, and nothing was read for it.
        engine.start(chat(&[&"word ".repeat(400)]), greedy(10));
        let mut told = None;
        let _ = engine.wait(|event| {
            if let EngineEvent::Failed { size, .. } = event {
                told.clone_from(size);
            }
        });
        assert!(told.is_some_and(|s| s.tokens > 400 && s.turns.len() == 1 && s.turns[0] >= 400));
        let answer = engine.ask(chat(&texts), greedy(2));
        assert_eq!(answer.usage.prompt_tokens, whole.tokens);
    }
}

#[test]
fn rope_settings_reach_the_model_and_the_trained_length_needs_a_yes() {
    let mut engine = Engine::load(smollm(), params());
    // How probable the model finds a text depends on every position.
    let mut logs = |rope: Rope| {
        engine.try_load(smollm(), ContextParams { rope, ..params() }).unwrap();
        engine.client.send(&Request::Score { job: 1000, prompt: Prompt::Raw(QUESTIONS[0].into()) });
        loop {
            if let EngineEvent::Scored { tokens, .. } = engine.event() {
                break tokens.iter().filter_map(|(_, r)| r.as_ref()).map(|r| r.logprob.to_bits()).collect::<Vec<_>>();
            }
        }
    };
    let plain = logs(Rope::default());
    assert_eq!(logs(Rope { scaling: RopeScaling::None, ..Rope::default() }), plain, "the model has none");
    assert_ne!(logs(Rope { freq_base: 500.0, ..Rope::default() }), plain);
    let linear = logs(Rope { scaling: RopeScaling::Linear, freq_scale: 0.25, ..Rope::default() });
    assert_ne!(linear, plain);
    assert_ne!(logs(Rope { scaling: RopeScaling::Yarn, freq_scale: 0.25, ..Rope::default() }), linear);
    let beyond = ContextParams { n_ctx: Some(8448), ..params() };
    let problem = engine.try_load(smollm(), beyond.clone()).unwrap_err();
    assert!(problem.what.contains("8192") && problem.next.contains("--beyond-trained"), "{problem}");
    engine.try_load(smollm(), ContextParams { beyond_trained: true, ..beyond }).unwrap();
    assert_eq!(engine.info.as_ref().unwrap().n_ctx, 8448);
}

#[test]
fn a_sliding_window_is_never_trusted_beyond_its_cells() {
    let question = "The history of the river. ".repeat(360);
    let edited = format!("{} But then", &question[..600]);
    for swa_full in [false, true] {
        let mut engine = Engine::load(gemma(), ContextParams { swa_full, n_ctx: Some(4096), ..params() });
        engine.ask(Prompt::Raw(question.clone()), greedy(10));
        let warm = engine.ask(Prompt::Raw(edited.clone()), greedy(15));
        let cold = engine.cold_says(&Prompt::Raw(edited.clone()), 15, &warm.text);
        // Where nothing was reused, the batches were the same too.
        assert!(cold == Cold::Same || swa_full && cold == Cold::Tie, "swa_full {swa_full}: {cold:?}");
        if swa_full {
            assert!(warm.usage.reused_tokens > 100, "{:?}", warm.usage);
        } else {
            assert_eq!(warm.usage.reused_tokens, 0);
            assert_eq!(warm.because, Some(Because::WindowGone));
        }
    }
}

#[test]
fn figures_fit_together() {
    let mut engine = Engine::load(smollm(), params());
    let answer = engine.ask(chat(&[QUESTIONS[0]]), greedy(30));
    let t = answer.timings;
    assert_eq!(answer.usage.completion_tokens, answer.tokens);
    assert!(t.prefill_ms > 0.0 && t.ttft_ms >= t.prefill_ms && t.itl_p95_ms > 0.0, "{t:?}");
    assert!((t.tpot_ms * f64::from(answer.tokens - 1) - t.decode_ms).abs() < 1e-6, "{t:?}");
    assert!((t.tokens_per_second * t.tpot_ms - 1000.0).abs() < 1e-6, "{t:?}");
    let info = engine.info.unwrap();
    assert_eq!((info.kv_bytes_per_token, info.kv_bytes_reserved), (23_040, 23_040 * 2048));
}

#[test]
fn threads_can_be_set_while_it_lives() {
    let mut engine = Engine::load(smollm(), params());
    let two = engine.ask_cold(chat(&[QUESTIONS[1]]), greedy(20));
    engine.client.send(&Request::Threads { threads: 1 });
    assert!(matches!(engine.event(), EngineEvent::Threads { threads: 1, .. }));
    assert_eq!(engine.ask_cold(chat(&[QUESTIONS[1]]), greedy(20)).text, two.text);
}

#[test]
fn a_model_without_a_template_says_so() {
    let engine = Engine::load(gemma(), params());
    let info = engine.info.unwrap();
    assert!(!info.has_template && info.notes[0].contains("no chat template"));
}

#[test]
fn files_that_are_no_models_are_sentences_and_the_engine_lives() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let whole = std::fs::read(smollm()).unwrap();
    let foreign = {
        // The same model under an architecture that nobody knows: only the name in the header differs.
        let mut bytes = whole.clone();
        let at = bytes.windows(5).position(|w| w == b"llama").unwrap();
        bytes[at..at + 5].copy_from_slice(b"zlama");
        bytes
    };
    let mut engine = Engine::spawn();
    for (path, word) in [
        (folder.path().join("none.gguf"), "no file"),
        (folder.path().to_owned(), "folder"),
        (file("text.gguf", b"this is a text and no model at all"), "not a GGUF"),
        (file("cut.gguf", &whole[..whole.len() / 2]), "cut off"),
        (file("foreign.gguf", &foreign), "zlama"),
    ] {
        let problem = engine.try_load(path, params()).unwrap_err();
        assert!(problem.what.contains(word), "{problem}");
        assert!(!problem.next.is_empty());
    }
    let huge = ContextParams { n_ctx: Some(16 << 20), beyond_trained: true, ..params() };
    let problem = engine.try_load(smollm(), huge).unwrap_err();
    assert!(problem.what.contains("tokens fits"), "{problem}");
    engine.try_load(smollm(), params()).unwrap();
    assert_eq!(engine.ask(chat(&["hi"]), greedy(3)).tokens, 3);
}

#[test]
fn a_killed_engine_says_how_it_ended() {
    let mut engine = Engine::load(smollm(), params());
    engine.start(chat(&[QUESTIONS[0]]), greedy(2000));
    while !matches!(engine.event(), EngineEvent::Token { .. }) {}
    let pid = rustix::process::Pid::from_raw(i32::try_from(engine.client.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    loop {
        match engine.news() {
            EngineNews::Died { how, .. } => break assert!(how.contains("signal 9"), "{how}"),
            EngineNews::Event(_) | EngineNews::Garbage(_) => {}
        }
    }
}
