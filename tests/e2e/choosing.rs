//! Every way to choose the next token, seen on the screen.

use crate::harness::{Chat, Home, SIZE};

/// Tall enough for the panel with the microscope.
const TALL: (u16, u16) = (130, 60);

/// Everything that the conversation's file says of a kind.
fn entries(home: &Home, kind: &str) -> Vec<serde_json::Value> {
    let lines = home.journal();
    let values = lines.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
    values.filter(|v| v["type"] == kind).collect()
}

fn answers(home: &Home) -> Vec<serde_json::Value> {
    entries(home, "message").into_iter().filter(|m| m["role"] == "assistant").collect()
}

/// Leaves the answer that runs selected by its tokens.
fn tokens_of_last(chat: &mut Chat) {
    chat.type_text("\t");
    chat.wait_for("again");
    chat.type_text("t");
    chat.wait_for("perplexity");
}

#[test]
fn beams_are_seen_compete_and_one_is_chosen_for_the_next_turn() {
    let home = Home::new();
    let mut chat = home.chat_with(&["--beams", "3", "--n-best", "3", "-n", "40"], &[], TALL);
    chat.send("Write one sentence about a fox.");
    chat.wait_for("3 beams · the lead changed");
    chat.wait_for("▸");
    chat.wait_idle();
    chat.wait_gone("3 beams");
    // Three answers of one message, the best one shown; left and right choose.
    chat.wait_for("1/3");
    chat.type_text("\t");
    chat.wait_for("score -");
    let score = |screen: &str| screen.split("score ").nth(1).unwrap()[..6].to_owned();
    let best = score(&chat.screen());
    chat.type_text("\x1b[C");
    chat.wait_for("2/3");
    let second = score(&chat.screen());
    assert!(second.parse::<f32>().unwrap() <= best.parse::<f32>().unwrap(), "{second} {best}");
    // The next turn goes on from the chosen one; its tokens are in the cache.
    chat.type_text("\x1b");
    chat.wait_for("Enter send");
    chat.type_text("/mode greedy\r");
    chat.wait_for("mode is greedy");
    chat.send("Another one.");
    chat.wait_until("a second answer", |s| s.contains("idle") && !s.contains("reused 0 "));
    let fresh = chat.screen().split("fresh ").nth(1).unwrap().split(' ').next().unwrap().parse::<u32>().unwrap();
    assert!(fresh < 25, "{fresh} tokens were read: more than the new question");
    chat.quit();
    let made = answers(&home);
    let last = made.last().unwrap();
    let question = entries(&home, "message").into_iter().find(|m| m["text"] == "Another one.").unwrap();
    assert_eq!(question["parent"], made[1]["id"], "the second answer was chosen: {last}");
}

#[test]
fn escape_keeps_the_leader() {
    let home = Home::new();
    let mut chat = home.chat(&["--beams", "4", "-n", "2000"]);
    chat.send("Write a very long story about a fox and a river.");
    chat.wait_for("4 beams");
    chat.wait_until("some words", |s| s.split("▸").nth(1).is_some_and(|t| t.len() > 60));
    chat.type_text("\x1b");
    chat.wait_for("(stopped)");
    chat.quit();
    let done = entries(&home, "done");
    assert_eq!(done[0]["made"]["finish"], "cancelled");
    assert!(done[0]["made"]["score"].as_f64().unwrap() < 0.0);
}

#[test]
fn the_microscope_follows_a_moved_slider_without_a_decode() {
    let home = Home::new();
    let mut chat = home.chat_with(&["-n", "8", "-s", "3", "--min-p", "0"], &[], TALL);
    chat.send("Tell me about rivers");
    chat.wait_idle();
    chat.type_text("\x1b[20~");
    chat.wait_for("next token");
    chat.wait_for("bits ·");
    chat.wait_for("top_p:");
    let left =
        |screen: &str| screen.split("bits · ").nth(1).unwrap().split(' ').next().unwrap().parse::<u32>().unwrap();
    let before = left(&chat.screen());
    let figures = |screen: &str| screen.split("tokens · ").count();
    let decoded = figures(&chat.screen());
    chat.type_text("\x1bOQ");
    chat.wait_for("less");
    // Top-p down to a sliver: only the most probable one is left.
    chat.type_text("\x1b[B\x1b[B\x1b[B0.01\r");
    chat.wait_until("one candidate", |s| left(s) == 1 && s.contains("→1"));
    assert!(before > 1);
    assert_eq!(figures(&chat.screen()), decoded);
    chat.type_text("1\r");
    chat.wait_until("all that top-k leaves", |s| left(s) == 40);
    chat.quit();
}

#[test]
fn tokens_are_gone_through_and_one_is_taken_otherwise() {
    let home = Home::new();
    let mut chat = home.chat_with(&["--temp", "0", "-n", "24"], &[], TALL);
    chat.send("Write one sentence about a fox.");
    chat.wait_idle();
    tokens_of_last(&mut chat);
    chat.wait_for("token 1 of");
    chat.wait_for("rank 1");
    chat.type_text("\x1b[C\x1b[C");
    chat.wait_for("token 3 of");
    let screen = chat.screen();
    let other = screen.split("1: ").nth(1).unwrap().split(' ').next().unwrap().replace('·', " ");
    chat.type_text("1");
    chat.wait_for("2/2");
    chat.wait_idle();
    // The beginning is in the cache: only the other token is read.
    chat.wait_until("next to nothing read", |s| s.contains("fresh 1 ") || s.contains("fresh 2 "));
    chat.quit();
    let made = answers(&home);
    assert_eq!(made.len(), 2);
    let begun = made[1]["text"].as_str().unwrap();
    assert!(begun.ends_with(&other) && begun.len() > other.len(), "{begun:?} {other:?}");
    let old = home.journal().lines().filter(|l| l.contains("\"type\":\"tokens\"")).count();
    assert_eq!(old, 2, "each keeps its tokens");
}

#[test]
fn records_are_small() {
    let home = Home::new();
    let mut chat = home.chat(&["-n", "200", "-s", "4"]);
    chat.send("Write a long story about a fox and a river.");
    chat.wait_idle();
    chat.quit();
    let line = home.journal().lines().find(|l| l.contains("\"type\":\"tokens\"")).unwrap().to_owned();
    let tokens = entries(&home, "tokens")[0]["tokens"].as_array().unwrap().len();
    assert!(tokens > 40, "{tokens}");
    let each = line.len() / tokens;
    assert!(each < 64, "{each} bytes a token");
}

#[test]
fn by_hand_the_model_waits_and_takes_what_is_given() {
    let home = Home::new();
    let mut chat = home.chat_with(&["--mode", "hand", "-n", "12"], &[], TALL);
    chat.send("Write one sentence about tea.");
    chat.wait_for("next token: choose");
    chat.wait_for("take");
    let second = chat.screen().split("left").nth(1).unwrap().lines().nth(2).unwrap_or_default().to_owned();
    let second = second.split('│').next_back().unwrap().trim().split(' ').next().unwrap().replace('·', " ");
    chat.type_text("\x1b[B\r");
    chat.wait_until("the second candidate", |s| s.contains("1 token") && s.contains(second.trim()));
    chat.type_text("t");
    chat.wait_for("What comes next");
    chat.type_text(" is green\r");
    chat.wait_for("is green");
    chat.wait_for("next token: choose");
    chat.type_text(" ");
    chat.type_text("r");
    chat.wait_idle();
    chat.quit();
    let text: String = entries(&home, "append").iter().map(|a| a["text"].as_str().unwrap().to_owned()).collect();
    assert!(text.starts_with(&format!("{second} is green")), "{text}");
    assert_eq!(entries(&home, "done")[0]["made"]["usage"]["completion_tokens"], 12);
}

#[test]
fn a_preset_changes_what_differs_and_ones_own_is_kept() {
    let home = Home::new();
    let mut chat = home.chat_with(&["-n", "6"], &[], SIZE);
    chat.send("Say hello");
    chat.wait_idle();
    chat.type_text("\x1b[21~");
    chat.wait_for("Presets (Enter takes one)");
    chat.wait_for("0.80 → 0.70");
    chat.type_text("\r");
    chat.wait_for("Preset chat: ");
    chat.type_text("/preset translate\r");
    chat.wait_for("mode beam");
    chat.send("Say hello again");
    chat.wait_for("5 beams");
    chat.wait_idle();
    chat.type_text("/temp 1.25\r");
    chat.wait_for("temperature is 1.25");
    chat.type_text("/preset save mine\r");
    chat.wait_for("presets.toml");
    chat.type_text("/preset nothing-like-it\r");
    chat.wait_for("There is no preset");
    chat.quit();
    let saved = std::fs::read_to_string(home.path().join("presets.toml")).unwrap();
    assert!(saved.contains("[mine]") && saved.contains("1.25"), "{saved}");
    let output =
        crate::outside::run(&home, &["ask", "--preset", "mine", "--mode", "sample", "--json", "-n", "2", "hi"], b"");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"temperature\":1.25"), "{output:?}");
}

#[test]
fn an_answer_that_repeats_itself_is_told_or_stopped_and_goes_on_with_a_penalty() {
    let home = Home::new();
    let mut chat = home.chat(&["--temp", "0", "-n", "100", "--loop-guard", "stop", "--logit-bias", "fox=50"]);
    chat.send("What is a fox?");
    chat.wait_for("repeats itself");
    chat.wait_idle();
    chat.quit();
    assert_eq!(entries(&home, "done")[0]["made"]["finish"], "loop");
    let mut chat = home.chat(&["--continue"]);
    chat.wait_for("repeats itself");
    let more = || entries(&home, "done").len() == 2;
    chat.type_text("\x1b[24~");
    chat.wait_until("more of it", |_| more());
    chat.quit();
    let done = entries(&home, "done");
    assert_eq!(done.len(), 2);
    assert!(done[1]["made"]["sampling"]["dry_multiplier"].as_f64().unwrap() > 0.5);
}

#[test]
fn what_is_typed_and_what_was_said_are_seen_as_tokens() {
    let home = Home::new();
    let mut chat = home.chat_with(&["-n", "5"], &[], SIZE);
    chat.send("Unbelievable!");
    chat.wait_idle();
    chat.type_text("Extraordinarily");
    chat.wait_for("Extraordinarily");
    chat.type_text("\x1bt");
    chat.wait_for(" tokens Extra");
    chat.type_text(" 日");
    chat.wait_for("<");
    chat.type_text("\x1bt");
    chat.wait_gone(" tokens Extra");
    chat.type_text("\x15/surprise\r");
    chat.wait_for("prompt: token 1 of");
    chat.wait_for("perplexity");
    chat.type_text("n");
    chat.wait_for("surprising");
    chat.quit();
}
