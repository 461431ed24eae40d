//! Beam search on the real models, against searches written as plainly as there is.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.

mod common;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::OnceLock;

use common::{Engine, chat, gemma, greedy, params, smollm};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use llmchat::chat::{Bias, EarlyStopping, Finish, Mode, Sampling};
use llmchat::engine::protocol::{Alternative, EngineEvent, Prompt, Request};

/// Rows that are computed together are rounded otherwise than one by one, and a quantised model makes more of it:
/// the log-probability of the same token differs by so much.
const NOISE: f64 = 0.1;

/// The model by itself: one sequence, everything read anew for each question.
struct Plain<'m> {
    context: LlamaContext<'m>,
    model: &'m LlamaModel,
    prompt: Vec<i32>,
    known: HashMap<Vec<i32>, Vec<f64>>,
    allowed: Vec<i32>,
}

impl<'m> Plain<'m> {
    fn new(backend: &LlamaBackend, model: &'m LlamaModel, prompt: &[i32], allowed: &[i32]) -> Self {
        let params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(512))
            .with_n_batch(512)
            .with_n_ubatch(512)
            .with_n_threads(2)
            .with_n_threads_batch(2);
        let context = model.new_context(backend, params).unwrap();
        Self { context, model, prompt: prompt.to_vec(), known: HashMap::new(), allowed: allowed.to_vec() }
    }

    /// Log-probabilities of the allowed tokens behind the prompt and these; with none allowed of all tokens.
    fn logs(&mut self, after: &[i32]) -> Vec<(i32, f64)> {
        if !self.known.contains_key(after) {
            self.context.clear_kv_cache();
            let tokens: Vec<i32> = self.prompt.iter().chain(after).copied().collect();
            let mut batch = LlamaBatch::new(512, 1);
            for (i, token) in tokens.iter().enumerate() {
                batch.add(LlamaToken(*token), i32::try_from(i).unwrap(), &[0], i + 1 == tokens.len()).unwrap();
            }
            self.context.decode(&mut batch).unwrap();
            let logits = self.context.get_logits_ith(i32::try_from(tokens.len()).unwrap() - 1);
            let shown = |t: usize| self.allowed.is_empty() || self.allowed.contains(&i32::try_from(t).unwrap());
            let raw: Vec<f64> =
                (0..).zip(logits).map(|(t, l)| if shown(t) { f64::from(*l) } else { f64::NEG_INFINITY }).collect();
            let most = raw.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total = most + raw.iter().map(|l| (l - most).exp()).sum::<f64>().ln();
            self.known.insert(after.to_vec(), raw.into_iter().map(|l| l - total).collect());
        }
        let logs = self.known[after].iter().copied();
        (0..).zip(logs).filter(|(_, l)| *l > f64::NEG_INFINITY).collect()
    }

    /// The score of an answer; of one that ended with its most probable end token.
    fn score(&mut self, answer: &[i32], whole: bool, s: &Sampling) -> f64 {
        let mut sum = 0.0;
        for at in 0..answer.len() {
            sum += self.logs(&answer[..at]).iter().find(|(t, _)| *t == answer[at]).unwrap().1;
        }
        if whole {
            let logs = self.logs(answer);
            sum += logs.iter().filter(|(t, _)| self.is_end(*t)).map(|(_, l)| *l).fold(f64::NEG_INFINITY, f64::max);
        }
        sum / ((answer.len() + usize::from(whole)) as f64).powf(f64::from(s.length_penalty))
    }

    /// The tokens of a found answer: each record says how many bytes are the text of one.
    fn tokens(&self, answer: &Alternative) -> Vec<i32> {
        let (vocab, mut rest) = (self.model.vocab(), answer.text.as_bytes());
        let all: Vec<i32> =
            if self.allowed.is_empty() { (0..vocab.n_tokens()).collect() } else { self.allowed.clone() };
        let mut tokens = Vec::new();
        for record in &answer.records {
            let (piece, after) = rest.split_at(record.bytes as usize);
            let is_it = |t: &&i32| vocab.token_to_piece(LlamaToken(**t), false, None) == piece;
            tokens.push(*all.iter().find(is_it).unwrap());
            rest = after;
        }
        assert!(rest.is_empty(), "{answer:?}");
        tokens
    }

    fn is_end(&self, token: i32) -> bool {
        self.model.vocab().is_eog(LlamaToken(token))
    }
}

type Answer = (Vec<i32>, f64);

fn beams(model: &mut Plain<'_>, s: &Sampling) -> Vec<Answer> {
    let (b, alpha) = (s.beams as usize, f64::from(s.length_penalty));
    let score = |sum: f64, length: usize| sum / (length as f64).powf(alpha);
    let mut live: Vec<Answer> = vec![(Vec::new(), 0.0)];
    let mut ended: Vec<Answer> = Vec::new();
    let keep = |ended: &mut Vec<Answer>| {
        ended.sort_by(|a, b| b.1.total_cmp(&a.1));
        ended.truncate(b);
    };
    let mut decided = false;
    for length in 1..=s.max_tokens as usize {
        let mut all: Vec<Answer> = Vec::new();
        for (before, sum) in live.clone() {
            for (token, log) in model.logs(&before) {
                all.push(([before.as_slice(), &[token]].concat(), sum + log));
            }
        }
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(2 * b);
        for (text, sum) in all.iter().take(b).filter(|(text, _)| model.is_end(*text.last().unwrap())) {
            ended.push((text[..text.len() - 1].to_vec(), score(*sum, length)));
        }
        keep(&mut ended);
        live = all.into_iter().filter(|(text, _)| !model.is_end(*text.last().unwrap())).take(b).collect();
        let full = ended.len() >= b;
        let Some(best) = live.first() else { break };
        let hope = match s.early_stopping {
            EarlyStopping::Never if alpha > 0.0 => score(best.1, s.max_tokens as usize),
            _ => score(best.1, length),
        };
        let over = b == 1 || s.early_stopping == EarlyStopping::First || hope <= ended.last().map_or(0.0, |e| e.1);
        if full && over {
            decided = true;
            break;
        }
    }
    let length = live.first().map_or(1, |l| l.0.len());
    if !decided {
        ended.extend(live.into_iter().map(|(text, sum)| (text, score(sum, length))));
    }
    keep(&mut ended);
    ended
}

/// Every answer of the allowed tokens, best first.
fn enumerate(model: &mut Plain<'_>, s: &Sampling) -> Vec<Answer> {
    let (mut all, mut open): (Vec<Answer>, Vec<Answer>) = (Vec::new(), vec![(Vec::new(), 0.0)]);
    let depth = s.max_tokens as usize;
    for length in 1..=depth {
        for (before, sum) in std::mem::take(&mut open) {
            for (token, log) in model.logs(&before) {
                let score = (sum + log) / (length as f64).powf(f64::from(s.length_penalty));
                let longer = [before.as_slice(), &[token]].concat();
                if model.is_end(token) {
                    all.push((before.clone(), score));
                } else if length == depth {
                    all.push((longer, score));
                } else {
                    open.push((longer, sum + log));
                }
            }
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

fn search(engine: &mut Engine, prompt: &[i32], s: &Sampling) -> Vec<Alternative> {
    engine.start(Prompt::Tokens(prompt.to_vec()), s.clone());
    let mut found = Vec::new();
    engine
        .wait(|event| {
            if let EngineEvent::Finished { alternatives, .. } = event {
                found.clone_from(alternatives);
            }
        })
        .unwrap();
    found
}

/// The found answers are the expected ones with their scores. Where two scores are nearer than the noise, either may
/// come first; so each answer must have the score of its place, and its own by the plain model.
fn assert_same(found: &[Alternative], expected: &[Answer], plain: &mut Plain<'_>, s: &Sampling, what: &str) {
    assert_eq!(found.len(), expected.len().min(s.n_best as usize), "{what}: {found:?}\n{expected:?}");
    for (answer, (_, score)) in found.iter().zip(expected) {
        // The noise of each token adds up in the sum, which is divided as the score is.
        let noise = NOISE * ((answer.records.len() + 1) as f64).powf(1.0 - f64::from(s.length_penalty));
        assert!((score - f64::from(answer.score)).abs() < noise, "{what}: {found:?}\n{expected:?}");
        let tokens = plain.tokens(answer);
        let own = plain.score(&tokens, answer.whole, s);
        assert!((own - f64::from(answer.score)).abs() < noise, "{what}: {answer:?} should have {own}");
    }
}

fn loaded(path: &Path) -> (&'static LlamaBackend, LlamaModel) {
    static BACKEND: OnceLock<LlamaBackend> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        let mut backend = LlamaBackend::init().unwrap();
        backend.void_logs();
        backend
    });
    let model = LlamaModel::load_from_file(backend, path, &LlamaModelParams::default()).unwrap();
    (backend, model)
}

fn tokens(model: &LlamaModel, text: &str) -> Vec<i32> {
    let vocab = model.vocab();
    vocab.tokenize(text.as_bytes(), vocab.should_add_bos(), true).into_iter().map(|t| t.0).collect()
}

fn beam(width: u32, longest: u32) -> Sampling {
    Sampling { mode: Mode::Beam, beams: width, n_best: width, max_tokens: longest, ..Sampling::default() }
}

#[test]
fn beams_are_the_plain_search_and_wide_enough_every_answer() {
    for path in [smollm(), gemma()] {
        let (backend, model) = loaded(&path);
        let prompt = tokens(&model, "The colours of the flag are");
        let end = (0..model.vocab().n_tokens()).find(|t| model.vocab().is_eog(LlamaToken(*t))).unwrap();
        let words: Vec<i32> =
            [" red", " blue", " and", ",", " white"].iter().map(|w| *tokens(&model, w).last().unwrap()).collect();
        let mut engine = Engine::load(path.clone(), params());
        for (n, longest) in [(1, 4), (2, 3), (5, 6)] {
            let allowed: Vec<i32> = words[..n].iter().copied().chain([end]).collect();
            let others = (0..model.vocab().n_tokens()).filter(|t| !allowed.contains(t));
            let bias = others.map(|t| Bias { text: format!("#{t}"), add: -Bias::MOST }).collect::<Vec<_>>();
            let mut plain = Plain::new(backend, &model, &prompt, &allowed);
            for (i, width) in (1..=8).enumerate() {
                let stopping = EarlyStopping::ALL[i % 3];
                let s = Sampling {
                    bias: bias.clone(),
                    early_stopping: stopping,
                    length_penalty: [1.0, 0.0, -0.5, 1.7][i % 4],
                    ..beam(width, longest)
                };
                let found = search(&mut engine, &prompt, &s);
                let expected = beams(&mut plain, &s);
                assert_same(&found, &expected, &mut plain, &s, &format!("{n} words, {width} beams, {stopping:?}"));
            }
            if n < 5 {
                let s = Sampling { bias: bias.clone(), early_stopping: EarlyStopping::Never, ..beam(16, longest) };
                let expected = enumerate(&mut plain, &s);
                let found = search(&mut engine, &prompt, &s);
                assert_same(&found, &expected, &mut plain, &s, "every answer");
            }
        }
    }
}

#[test]
fn over_the_whole_vocabulary_it_is_the_plain_search_too() {
    let (backend, model) = loaded(&smollm());
    let prompt = tokens(&model, "Once upon a time");
    let mut engine = Engine::load(smollm(), params());
    for width in [2, 3, 4] {
        let s = beam(width, 5);
        let mut plain = Plain::new(backend, &model, &prompt, &[]);
        let expected = beams(&mut plain, &s);
        assert_same(&search(&mut engine, &prompt, &s), &expected, &mut plain, &s, &format!("{width} beams"));
    }
}

#[test]
fn one_beam_is_greedy() {
    for (path, n) in [(smollm(), 14), (gemma(), 6)] {
        let mut engine = Engine::load(path, params());
        for i in 0..n {
            let topic = ["foxes", "rivers", "bread", "the moon", "prime numbers", "Berlin", "a joke", "tea"][i % 8];
            let prompt = if n == 6 {
                Prompt::Raw(format!("Number {i}: a short text about {topic}."))
            } else {
                chat(&[&format!("Say something about {topic}, number {i}.")])
            };
            let one = engine.ask_cold(prompt.clone(), beam(1, 24));
            let answer = engine.ask_cold(prompt, greedy(24));
            assert_eq!((one.text, one.finish), (answer.text, answer.finish));
        }
    }
}

#[test]
fn the_next_turn_goes_on_from_any_of_the_answers_without_reading_it_again() {
    let mut engine = Engine::load(smollm(), params());
    for chosen in 0..3 {
        engine.client.send(&Request::ClearCache);
        engine.start(chat(&["Write one sentence about a fox."]), beam(3, 30));
        let mut found = Vec::new();
        let answer = engine
            .wait(|event| {
                if let EngineEvent::Finished { alternatives, .. } = event {
                    found.clone_from(alternatives);
                }
            })
            .unwrap();
        assert_eq!(answer.text, found[0].text);
        let next = engine.ask(chat(&["Write one sentence about a fox.", &found[chosen].text, "Another."]), greedy(3));
        let fresh = next.usage.prompt_tokens - next.usage.reused_tokens;
        let own = u32::try_from(found[chosen].records.len()).unwrap();
        assert!(next.usage.reused_tokens >= answer.usage.prompt_tokens + own - 1, "{chosen}: {:?}", next.usage);
        assert!(fresh < 20, "{chosen}: {fresh} tokens were read again");
    }
}

#[test]
fn a_stop_keeps_the_leader_and_the_cache_is_what_the_ledger_says() {
    let mut engine = Engine::load(smollm(), params());
    let reference = engine.ask_cold(chat(&["And now?"]), greedy(10)).text;
    for rounds in [1, 3, 9] {
        engine.start(chat(&["Tell me a long story about a river."]), beam(4, 200));
        let mut told = String::new();
        let mut leader;
        loop {
            let event = engine.event();
            if let EngineEvent::Beams { agreed, beams, n, .. } = event {
                told += &agreed;
                leader = told.clone() + &beams[0].text;
                if n >= rounds {
                    break;
                }
            }
        }
        engine.cancel();
        let mut end = String::new();
        let answer = engine
            .wait(|event| match event {
                EngineEvent::Beams { agreed, beams, .. } => {
                    told += agreed;
                    leader = told.clone() + &beams[0].text;
                }
                EngineEvent::Finished { text, .. } => end.clone_from(text),
                _ => {}
            })
            .unwrap();
        assert_eq!(answer.finish, Finish::Cancelled);
        assert!(!leader.is_empty());
        assert_eq!(told + &end, leader, "Esc keeps the leader");
        assert_eq!(engine.ask_cold(chat(&["And now?"]), greedy(10)).text, reference);
    }
}

#[test]
fn a_mode_that_changes_in_the_answer_goes_on_with_what_is_there() {
    let mut engine = Engine::load(smollm(), params());
    let job = engine.start(chat(&["Tell me a long story about a river."]), greedy(60));
    let mut text = String::new();
    let (mut beams_came, mut tokens_after) = (0, 0);
    loop {
        match engine.event() {
            EngineEvent::Token { text: piece, n, .. } => {
                text += &piece;
                if n == 10 {
                    engine.client.send(&Request::Sampling { job, sampling: beam(3, 60) });
                }
                tokens_after += usize::from(beams_came > 0);
            }
            EngineEvent::Beams { agreed, n, .. } => {
                text += &agreed;
                beams_came = n;
                if n == 10 {
                    engine.client.send(&Request::Sampling { job, sampling: greedy(60) });
                }
            }
            EngineEvent::Finished { text: rest, usage, .. } => {
                text += &rest;
                assert_eq!(usage.completion_tokens, 60);
                break;
            }
            EngineEvent::Failed { problem, .. } => panic!("{problem}"),
            _ => {}
        }
    }
    assert!(beams_came >= 10 && tokens_after > 10, "{beams_came} {tokens_after}: {text}");
    // What was told is what is in the cache: asked to go on, nothing of it is read again.
    let next = engine.ask(chat(&["Tell me a long story about a river.", &text, "More."]), greedy(2));
    assert!(next.usage.prompt_tokens - next.usage.reused_tokens < 20, "{:?}", next.usage);
}

#[test]
fn a_grammar_or_schema_holds_in_every_mode() {
    let mut engine = Engine::load(smollm(), params());
    let yes_or_no = "root ::= \"yes\" | \"no\"".to_owned();
    for mode in [Mode::Greedy, Mode::Sample, Mode::Beam] {
        let s = Sampling { mode, grammar: yes_or_no.clone(), max_tokens: 20, ..Sampling::default() };
        let answer = engine.ask(chat(&["Is water wet?"]), s);
        assert!(["yes", "no"].contains(&answer.text.as_str()), "{mode:?}: {}", answer.text);
        let schema = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","maximum":99}},"required":["name","age"]}"#;
        let s = Sampling { mode, grammar: schema.into(), max_tokens: 80, ..Sampling::default() };
        let answer = engine.ask(chat(&["Invent a person as JSON."]), s);
        if answer.finish == Finish::Stop {
            let value: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
            assert!(value["age"].is_i64() && value["name"].is_string(), "{}", answer.text);
        }
    }
    for broken in ["root ::= \"unfinished", "{\"type\": 5", "nothing ::= \"x\""] {
        engine.start(chat(&["hi"]), Sampling { grammar: broken.into(), ..greedy(5) });
        let problem = engine.wait(|_| {}).unwrap_err();
        assert!(problem.what.contains("grammar") || problem.what.contains("schema"), "{broken}: {problem}");
    }
    // A grammar that leaves nothing, at once or after a token, in a draw and in a search.
    for empty in ["root ::= [^\\x00-\\U0010FFFF]", "root ::= \"a\" [^\\x00-\\U0010FFFF]"] {
        for mode in [Mode::Greedy, Mode::Sample, Mode::Beam] {
            engine.start(chat(&["hi"]), Sampling { mode, grammar: empty.into(), max_tokens: 5, ..Sampling::default() });
            let problem = engine.wait(|_| {}).unwrap_err();
            assert!(problem.what.contains("leave no token"), "{empty} {mode:?}: {problem}");
        }
    }
    assert_eq!(engine.ask(chat(&["hi"]), greedy(2)).tokens, 2, "the engine lives");
}
