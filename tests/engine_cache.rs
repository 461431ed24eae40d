//! The cache on the real models: nothing that is there is read again, and what is reused is what a cold run reads.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.

mod common;

use std::ops::Range;
use std::path::PathBuf;

use common::{Answer, Cold, Engine, chat, gemma, greedy, params, smollm, tiny};
use llmchat::chat::{Mode, Role, Sampling};
use llmchat::engine::protocol::{Because, ContextParams, EngineEvent, Prompt, Request, Turn};

fn large() -> ContextParams {
    ContextParams { n_ctx: Some(4096), ..params() }
}

/// Tokens that were read, the question's and the template's.
fn fresh(answer: &Answer) -> u32 {
    answer.usage.fresh_tokens()
}

#[test]
fn four_conversations_take_turns_and_each_reads_only_its_new_question() {
    let mut engine = Engine::load(smollm(), large());
    let mut chats: Vec<Vec<String>> =
        ["a fox", "the sea", "old bread", "a clock"].iter().map(|t| vec![format!("Write about {t}.")]).collect();
    for turn in 0..3 {
        for texts in &mut chats {
            let prompt: Vec<&str> = texts.iter().map(String::as_str).collect();
            let answer = engine.ask(chat(&prompt), greedy(30));
            if turn > 0 {
                assert!(fresh(&answer) < 20, "turn {turn}: {:?}", answer.usage);
            }
            texts.push(answer.text);
            texts.push(format!("And then? {turn}"));
        }
    }
}

#[test]
fn a_regenerate_a_branch_and_the_way_back_read_one_token_or_the_new_ones() {
    let mut engine = Engine::load(smollm(), large());
    let question = "Write about a fox and a river.";
    let first = engine.ask(chat(&[question]), greedy(40));
    assert_eq!(fresh(&engine.ask(chat(&[question]), common::seeded(3, 40))), 1, "regenerate");
    let edited = engine.ask(chat(&["Write about a fox and the sea."]), greedy(40));
    assert!(fresh(&edited) < 15, "an edit: {:?}", edited.usage);
    let back = engine.ask(chat(&[question, &first.text, "Go on."]), greedy(40));
    assert!(fresh(&back) < 20, "back to the first: {:?}", back.usage);
    let other = engine.ask(chat(&["Write about a fox and the sea.", &edited.text, "Go on."]), greedy(40));
    assert!(fresh(&other) < 20, "and to the other: {:?}", other.usage);
    // Continued from the middle of an answer, as a reroll is.
    let half: String = first.text.chars().take(60).collect();
    let reroll = engine.ask(chat(&[question, &half]), greedy(20));
    assert!(fresh(&reroll) < 5, "a reroll: {:?}", reroll.usage);
}

#[test]
fn a_cache_that_is_full_costs_nothing_as_long_as_there_is_memory() {
    let mut engine = Engine::load(smollm(), ContextParams { n_ctx: Some(512), ..params() });
    for i in 0..6 {
        let answer = engine.ask(chat(&[&format!("Story number {i}. ").repeat(20)]), greedy(60));
        assert_eq!(answer.tokens, 60);
    }
    let text = "Story number 5. ".repeat(20);
    assert_eq!(fresh(&engine.ask(chat(&[&text]), greedy(10))), 1, "the last is there");
    let long = engine.ask(chat(&[&"A long one. ".repeat(110)]), greedy(20));
    assert_eq!(long.tokens, 20);
    assert_eq!(fresh(&engine.ask(chat(&[&text]), greedy(10))), 1, "it comes back from memory");
    // Without memory for it, it is read again.
    let none = ContextParams { n_ctx: Some(512), cache_ram: Some(0), ..params() };
    drop(engine);
    let mut engine = Engine::load(smollm(), none);
    engine.ask(chat(&[&text]), greedy(10));
    engine.ask(chat(&["Something else."]), greedy(10));
    assert!(fresh(&engine.ask(chat(&[&text]), greedy(10))) > 50);
}

#[test]
fn a_system_prompt_is_kept_once_however_short_it_is() {
    let mut engine = Engine::load(smollm(), large());
    for topic in ["a fox", "the sea", "old bread"] {
        engine.ask(chat(&[&format!("Write about {topic}.")]), greedy(10));
    }
    engine.client.send(&Request::Map);
    let map = loop {
        if let EngineEvent::Map(map) = engine.event() {
            break map;
        }
    };
    let kept: Vec<(u32, u32)> = map.held[1..].iter().map(|h| (h.tokens, h.own)).collect();
    assert_eq!(kept.len(), 2);
    assert!(kept.iter().all(|(tokens, own)| own + map.parts[0].1 == *tokens), "{kept:?}, {:?}", map.parts);
    assert_eq!(map.held[1].text.split(' ').take(2).collect::<Vec<_>>(), ["Write", "about"], "{map:?}");
}

#[test]
fn reading_the_conversation_for_its_surprise_costs_nobody_the_cache() {
    let mut engine = Engine::load(smollm(), large());
    let question = "Write about a fox and a river.";
    engine.ask(chat(&[question]), greedy(20));
    engine.client.send(&Request::Score { job: 99, prompt: chat(&["Something else."]) });
    while !matches!(engine.event(), EngineEvent::Scored { .. }) {}
    assert_eq!(fresh(&engine.ask(chat(&[question]), greedy(5))), 1);
}

/// A conversation that a script works on.
#[derive(Clone)]
struct Talk {
    system: String,
    texts: Vec<String>,
    /// Some of its answers were written by a search with beams.
    searched: bool,
}

impl Talk {
    fn prompt(&self, raw: bool) -> Prompt {
        if raw {
            return Prompt::Raw(format!("{}\n{}", self.system, self.texts.join("\n")));
        }
        let role = |i: usize| if i.is_multiple_of(2) { Role::User } else { Role::Assistant };
        let turns = self.texts.iter().enumerate().map(|(i, t)| Turn { role: role(i), text: t.clone() });
        Prompt::Chat { system: self.system.clone(), turns: turns.collect() }
    }
}

/// A small generator (`SplitMix64`), so that a script is a number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// Something happens in one of the conversations, and an answer is written.
fn play(engine: &mut Engine, talks: &mut [Talk], dice: &mut Dice, model: &Model) -> (Prompt, Answer, bool) {
    const WORDS: [&str; 8] = ["rain", "a fox", "tin", "Rome", "tea", "seven", "glass", "moss"];
    let raw = model.raw;
    let at = dice.roll(talks.len());
    let word = WORDS[dice.roll(WORDS.len())];
    match dice.roll(9) {
        // Another question, or the first one changed.
        0 | 1 => talks[at].texts.push(format!("Say something about {word}.")),
        2 => talks[at].texts[0] = format!("Tell me of {word}."),
        // Back to an earlier turn.
        3 => {
            let keep = 1 + 2 * dice.roll(talks[at].texts.len().div_ceil(2));
            talks[at].texts.truncate(keep);
        }
        // Another try is stopped somewhere.
        4 => {
            let stop = 1 + dice.roll(9) as u32;
            engine.start(talks[at].prompt(raw), common::seeded(dice.roll(99) as u32, 30));
            let client = &engine.client;
            let stopped = engine.wait(|event| {
                if let EngineEvent::Token { job, n, .. } = event
                    && *n == stop
                {
                    client.send(&Request::Cancel { job: *job });
                }
            });
            stopped.unwrap();
        }
        // A search with beams, whose answer may or may not be gone on from.
        5 if model.divides => {
            let beam = Sampling { mode: Mode::Beam, beams: 3, n_best: 3, max_tokens: 8, ..Sampling::default() };
            let found = engine.ask(talks[at].prompt(raw), beam);
            if talks[at].texts.len() % 2 == 1 && dice.roll(2) == 0 {
                talks[at].searched = true;
                talks[at].texts.push(found.text);
                talks[at].texts.push(format!("And {word}?"));
            }
        }
        // A part of the last answer is gone on from.
        6 if talks[at].texts.len().is_multiple_of(2) => {
            let last = talks[at].texts.pop().unwrap_or_default();
            let half: String = last.chars().take(last.chars().count() / 2).collect();
            let cut = Talk { texts: [&talks[at].texts[..], &[half]].concat(), ..talks[at].clone() };
            let prompt = cut.prompt(raw);
            return (prompt.clone(), engine.ask(prompt, greedy(8)), talks[at].searched);
        }
        // Another process goes on with what this one has left in files.
        7 => engine.restart(model.path.clone(), model.params.clone()),
        // The same again.
        _ => {}
    }
    let length = talks[at].texts.len();
    if length > 9 {
        talks[at].texts.truncate(1);
    }
    if talks[at].texts.len().is_multiple_of(2) {
        talks[at].texts.push(format!("More of {word}."));
    }
    let prompt = talks[at].prompt(raw);
    let answer = engine.ask(prompt.clone(), greedy(8));
    talks[at].texts.push(answer.text.clone());
    if dice.roll(3) == 0 {
        talks[at].texts.pop();
    }
    (prompt, answer, talks[at].searched)
}

/// What scripts run on.
struct Model {
    path: PathBuf,
    /// It has no template.
    raw: bool,
    /// Its cache can be cut anywhere, so that beams can share it.
    divides: bool,
    params: ContextParams,
}

impl Model {
    /// Token by token, so that what a token's figures are does not depend on what was computed with it; then an answer
    /// has to be that of a cold run to the last token. Only what beams wrote was computed beside others all the same.
    fn new(path: PathBuf, raw: bool) -> Self {
        Self { path, raw, divides: true, params: ContextParams { n_ctx: Some(1024), n_ubatch: 1, ..params() } }
    }

    fn undivided(path: PathBuf) -> Self {
        let mut model = Self { divides: false, ..Self::new(path, true) };
        model.params.swa_full = false;
        model
    }
}

/// Plays scripts, and compares each of their answers with that of a cold run.
fn scripts(mut model: Model, seeds: Range<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let without = ContextParams { cache_ram: Some(0), ..model.params.clone() };
    model.params.cache_disk = 1 << 30;
    model.params.cache_dir = Some(folder.path().to_owned());
    let mut answers = Vec::new();
    {
        let mut engine = Engine::load(model.path.clone(), model.params.clone());
        for seed in seeds {
            let mut dice = Dice(seed);
            let talk = |i| Talk {
                system: format!("You are number {}.", i / 2),
                texts: vec![format!("Hello from {i}.")],
                searched: false,
            };
            let mut talks: Vec<Talk> = (0..3).map(talk).collect();
            for step in 0..4 {
                let (prompt, answer, searched) = play(&mut engine, &mut talks, &mut dice, &model);
                answers.push((format!("script {seed}, step {step}"), prompt, answer, searched));
            }
        }
    }
    let mut cold = Engine::load(model.path, without);
    let reused: u32 = answers.iter().map(|(_, _, a, _)| a.usage.reused_tokens).sum();
    assert!(reused > 0);
    let mut same = 0;
    for (what, prompt, answer, searched) in &answers {
        match cold.cold_says(prompt, 8, &answer.text) {
            Cold::Same => same += 1,
            Cold::Tie if *searched => {}
            told => panic!("{what}: {told:?}; {prompt:?} {:?}", answer.usage),
        }
    }
    println!("{same} of {} answers equal, the others behind a search; {reused} tokens reused", answers.len());
}

/// The comparison would find a ledger that is wrong by a single word of an earlier turn.
#[test]
fn a_wrong_history_is_no_tie() {
    let mut engine = Engine::load(smollm(), large());
    let mut found = 0;
    let words = ["a fox", "old bread", "Rome", "the rain", "seven", "a clock", "moss", "tea"];
    for (right, wrong) in words.iter().zip(words.iter().cycle().skip(1)) {
        let say = |word: &str| chat(&[&format!("Tell me of {word}."), "Yes.", "And what else is it?"]);
        let warm = engine.ask(say(wrong), greedy(8));
        found += usize::from(matches!(engine.cold_says(&say(right), 8, &warm.text), Cold::Other(_)));
    }
    assert!(found * 2 > words.len(), "{found} of {}", words.len());
}

/// How many scripts; what docs/kv-cache.md says was counted with 8.
fn number() -> u64 {
    std::env::var("LLMCHAT_SCRIPTS").ok().and_then(|n| n.parse().ok()).unwrap_or(4)
}

#[test]
fn whatever_happened_before_an_answer_is_that_of_a_cold_run() {
    scripts(Model::new(smollm(), false), 0..number());
}

#[test]
fn so_it_is_with_the_other_model() {
    scripts(Model::new(gemma(), true), 1000..1000 + number());
}

#[test]
fn so_it_is_where_windows_only_are_kept() {
    scripts(Model::undivided(gemma()), 2000..2000 + number());
}

#[test]
fn so_it_is_with_a_recurrent_state() {
    let folder = tempfile::tempdir().unwrap();
    scripts(Model::undivided(tiny::recurrent(folder.path())), 3000..3000 + number());
}

#[test]
fn so_it_is_with_a_recurrent_state_beside_attention() {
    let folder = tempfile::tempdir().unwrap();
    scripts(Model::undivided(tiny::hybrid(folder.path())), 4000..4000 + number());
}

/// A recurrent state cannot be cut back: it is read again from where a state was kept, and the reason is told.
#[test]
fn a_recurrent_state_is_gone_on_from_where_it_was_kept() {
    let folder = tempfile::tempdir().unwrap();
    for path in [tiny::recurrent(folder.path()), tiny::hybrid(folder.path())] {
        let mut engine = Engine::load(path, large());
        let raw = |text: &str| Prompt::Raw(text.to_owned());
        let question = "Write about a fox and a river. ".repeat(4);
        let first = engine.ask(raw(&question), greedy(20));
        assert_eq!(fresh(&engine.ask(raw(&question), common::seeded(3, 20))), 1, "regenerate");
        let next = format!("{question}{}And then?", first.text);
        let other = engine.ask(raw("Something else."), greedy(5));
        assert_eq!(other.usage.reused_tokens, 0, "{:?}", other.because);
        assert!(fresh(&engine.ask(raw(&next), greedy(20))) < 60, "from the end of the question or of the answer");
        assert_eq!(fresh(&engine.ask(raw(&question), greedy(20))), 1, "and back");
        let cut = engine.ask(raw(&question[..70]), greedy(5));
        assert_eq!((cut.usage.reused_tokens, cut.because), (0, Some(Because::Whole)));
        let beam = Sampling { mode: Mode::Beam, ..Sampling::default() };
        engine.start(raw(&question), beam);
        assert!(engine.wait(|_| {}).is_err(), "beams would share what cannot be divided");
        assert_eq!(engine.ask(raw(&question), greedy(20)).text, first.text);
    }
}
