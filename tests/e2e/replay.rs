//! Answers that are made again from their file, with the real models.

use std::path::PathBuf;

use serde_json::Value;

use crate::harness::Home;
use crate::outside::run;

fn ask(home: &Home, arguments: &[&str]) {
    let output = run(home, &[&["ask"], arguments].concat(), b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// The exit code and the object of a replay.
fn replay(home: &Home, arguments: &[&str]) -> (i32, Value) {
    let output = run(home, &[&["replay"], arguments, &["--json"]].concat(), b"");
    let object = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output.status.code().unwrap(), object)
}

/// The only file, rewritten.
fn rewrite(home: &Home, change: impl Fn(&mut Value)) -> PathBuf {
    let file = home.conversations().remove(0);
    let lines = std::fs::read_to_string(&file).unwrap();
    let lines = lines.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        change(&mut line);
        format!("{line}\n")
    });
    let text: String = lines.collect();
    std::fs::write(&file, text).unwrap();
    file
}

/// What an answer's line says of how it was made.
fn made(line: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    line.get_mut("made").and_then(Value::as_object_mut)
}

#[test]
fn an_answer_is_the_same_again() {
    let home = Home::new();
    let long = "Be brief, and name a fox, a bear and a river. ".repeat(12);
    ask(&home, &["Say hello", "--temp", "0", "-n", "10", "--save", "-sys", &long, "-b", "64"]);
    ask(
        &home,
        &["Tell me about rivers", "--temp", "0.9", "-s", "11", "-n", "16", "--save", "-ctk", "q8_0", "-c", "512"],
    );
    for file in home.conversations() {
        let before = std::fs::read(&file).unwrap();
        let (code, told) = replay(&home, &[file.to_str().unwrap()]);
        assert_eq!((code, &told["same"], &told["differ"]), (0, &1.into(), &0.into()), "{told}");
        assert!(told["answers"][0].get("logprob_difference").is_none(), "{told}");
        assert_eq!(std::fs::read(&file).unwrap(), before, "reading changes nothing");
    }
    let origin = |file: &PathBuf| {
        let journal = std::fs::read_to_string(file).unwrap();
        let mut lines = journal.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        lines.find_map(|mut l| made(&mut l)?.get("origin").cloned()).unwrap()
    };
    let files = home.conversations();
    let batches = origin(&files[0])["batches"].as_array().unwrap().clone();
    assert!(batches.len() > 1 && batches[0] == 64, "{batches:?}");
    let origin = origin(&files[1]);
    assert_eq!((&origin["n_ctx"], &origin["kv"]["k"], &origin["device"]), (&512.into(), &"q8_0".into(), &"CPU".into()));
    assert_eq!(origin["model_bytes"], 98_362_432);
    for hash in ["model_sha256", "prompt_sha256"] {
        assert_eq!(origin[hash].as_str().unwrap().len(), 64, "{origin}");
    }
    // For people, by words of the title, under the group's name; and by another seed it is another one.
    let people = run(&home, &["conversations", "replay", "rivers"], b"");
    let people = (people.status.code(), String::from_utf8(people.stdout).unwrap());
    assert_eq!(people, (Some(0), "   2  same, 16 tokens\n1 answer: 1 the same\n".to_owned()));
}

#[test]
fn a_chat_of_several_answers_finds_in_the_cache_what_it_found_then() {
    let home = Home::new();
    // With fixed threads: how many are fastest depends on what else runs, and others are another engine.
    let mut chat = home.chat(&["--temp", "0.9", "--seed", "4", "-n", "12", "-t", "1"]);
    for question in ["Say hello.", "And a river?", "And a bear?"] {
        chat.send(question);
        chat.wait_for("writes …");
        chat.wait_idle();
    }
    // Another answer to the last question.
    chat.type_text("\tr");
    chat.wait_for("2/2");
    chat.wait_idle();
    chat.quit();
    let (code, told) = replay(&home, &["last"]);
    assert_eq!((code, &told["same"]), (0, &4.into()), "{told}");
    let exact = |a: &Value| a.get("logprob_difference").is_none();
    assert!(told["answers"].as_array().unwrap().iter().all(exact), "{told}");
    // Alone an answer finds nothing in the cache; if it differs, that is told.
    let (_, told) = replay(&home, &["last", "--message", "6"]);
    let answer = &told["answers"][0];
    if answer["status"] == "differs" {
        assert!(answer["why"].as_str().unwrap().starts_with("It reused"), "{told}");
    }
    assert_eq!(told["answers"].as_array().unwrap().len(), 1);
    assert_eq!(run(&home, &["replay", "last", "--message", "5"], b"").status.code(), Some(1));
}

#[test]
fn a_changed_word_is_found_at_its_token() {
    let home = Home::new();
    ask(&home, &["Say hello to the fox", "--temp", "0", "-n", "20", "--save"]);
    let journal = home.journal();
    let answer =
        journal.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()).find(|l| l["role"] == "assistant").unwrap();
    let (text, tokens) = (answer["text"].as_str().unwrap(), answer["tokens"].as_array().unwrap());
    let bytes = |n: usize| tokens[..n].iter().map(|t| t[0].as_u64().unwrap() as usize).sum::<usize>();
    let (from, to) = (bytes(7), bytes(8));
    let other = format!("{}#{}", &text[..to - 1], &text[to..]);
    rewrite(&home, |line| {
        if line["role"] == "assistant" {
            line["text"] = other.clone().into();
        }
    });
    let (code, told) = replay(&home, &["last"]);
    let answer = &told["answers"][0];
    assert_eq!((code, &answer["status"], &answer["token"]), (1, &"differs".into(), &8.into()), "{told}");
    assert_eq!((&answer["was"], &answer["now"]), (&other[from..to].into(), &text[from..to].into()));
    assert!(answer["why"].as_str().unwrap().contains("changed in the file"), "{told}");
    let people = run(&home, &["replay", "last"], b"");
    let people = String::from_utf8(people.stdout).unwrap();
    assert!(people.starts_with("   2  differs at token 8 of 20: was "), "{people}");
    assert!(people.contains("\n      was: ") && people.contains("\n      now: ") && people.ends_with("1 different\n"));
    // A word of the question is a part of the prompt.
    rewrite(&home, |line| match line["role"].as_str() {
        Some("user") => line["text"] = "Say hello to the cat and the bear".into(),
        Some(_) => line["text"] = text.into(),
        None => {}
    });
    let (code, told) = replay(&home, &["last"]);
    let why = told["answers"][0]["why"].as_str().unwrap();
    assert!(code == 1 && why.starts_with("The tokens of its prompt are others"), "{told}");
}

#[test]
fn another_model_and_another_context_are_told() {
    let home = Home::new();
    ask(&home, &["Tell me about rivers", "--temp", "0.9", "-s", "3", "-n", "24", "--save"]);
    let (code, told) = replay(&home, &["last", "-m", "gemma"]);
    let answer = &told["answers"][0];
    assert_eq!((code, &answer["model"]), (1, &"gemma-3-270m-Q4_K_M".into()), "{told}");
    let why = answer["why"].as_str().unwrap();
    assert!(why.starts_with("Another model file: SmolLM2-135M-Instruct-Q4_1 (") && why.contains("gemma"), "{why}");
    // Types of the cache change the numbers, and here the words.
    let (code, told) = replay(&home, &["last", "-ctk", "q4_0", "-ctv", "q4_0"]);
    let why = told["answers"][0]["why"].as_str().unwrap_or_else(|| panic!("{told}"));
    assert!(code == 1 && why.contains("K/V f16, now q4_0"), "{why}");
    // A model that is not here.
    rewrite(&home, |line| {
        if let Some(made) = made(line) {
            made["model"] = "no-such-model".into();
        }
    });
    let (code, told) = replay(&home, &["last"]);
    let answer = &told["answers"][0];
    assert_eq!((code, &answer["status"], &told["cannot"]), (1, &"cannot".into(), &1.into()), "{told}");
    assert!(answer["why"].as_str().unwrap().contains("no-such-model"));
}

#[test]
fn a_file_from_before_the_record_is_replayed_and_that_is_told() {
    let home = Home::new();
    ask(&home, &["Say hello", "--temp", "0.9", "-s", "5", "-n", "12", "--save"]);
    let without = |line: &mut Value| {
        if let Some(made) = made(line) {
            assert!(made.remove("origin").is_some());
        }
    };
    rewrite(&home, without);
    let (code, told) = replay(&home, &["last"]);
    let answer = &told["answers"][0];
    assert_eq!((code, &answer["status"], &answer["recorded"]), (0, &"same".into(), &false.into()), "{told}");
    assert!(answer["notes"][0].as_str().unwrap().starts_with("What made it is not recorded"));
    // Older still: nothing of its tokens either.
    rewrite(&home, |line| drop(line.as_object_mut().unwrap().remove("tokens")));
    let (code, told) = replay(&home, &["last"]);
    assert_eq!((code, &told["answers"][0]["compared"]), (0, &12.into()), "{told}");
    rewrite(&home, |line| {
        if line["role"] == "assistant" {
            line["text"] = format!("{} and more", line["text"].as_str().unwrap()).into();
        }
    });
    let (code, told) = replay(&home, &["last"]);
    let answer = &told["answers"][0];
    assert_eq!((code, &answer["token"], &answer["was"]), (1, &13.into(), &" and more".into()), "{told}");
}

#[test]
fn what_was_searched_stopped_or_gone_on_with_is_replayed_as_far_as_it_can_be() {
    let home = Home::new();
    ask(&home, &["Translate: good morning", "--beams", "3", "--n-best", "3", "-n", "8", "--save"]);
    let (code, told) = replay(&home, &["last"]);
    assert_eq!((code, &told["same"]), (0, &3.into()), "{told}");
    std::fs::remove_file(home.conversations().remove(0)).unwrap();
    // An answer that is stopped, gone on with, and stopped again by its length.
    let mut chat = home.chat(&["--temp", "0", "-n", "400"]);
    chat.send("Tell me a long story about a river.");
    chat.wait_until("many words", |s| s.contains("writes") && s.matches('e').count() > 60);
    chat.type_text("\x1b");
    chat.wait_for("stopped");
    chat.quit();
    let (code, told) = replay(&home, &["last"]);
    assert_eq!((code, &told["answers"][0]["status"]), (0, &"same".into()), "{told}");
    let stopped = told["answers"][0]["compared"].as_u64().unwrap();
    assert!(stopped > 8 && stopped < 400, "{told}");
    let mut chat = home.chat(&["--continue"]);
    chat.wait_for("(stopped)");
    chat.type_text("/set predict 9\r");
    chat.type_text("/continue\r");
    chat.wait_for("longest answer");
    chat.quit();
    let (code, told) = replay(&home, &["last"]);
    let answer = &told["answers"][0];
    assert_eq!((code, &answer["compared"]), (0, &(stopped + 9).into()), "{told}");
    assert!(answer.get("logprob_difference").is_none(), "what was there is decoded as it was then: {told}");
    assert!(answer["notes"][0].as_str().unwrap().starts_with(&format!("Its first {stopped} tokens")), "{told}");
}
