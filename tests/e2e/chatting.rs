//! A chat, from the first key to finding it again.

use crate::harness::{Home, SIZE};

#[test]
fn three_turns_sliders_stop_again_rename_quit_and_resume() {
    let home = Home::new();
    let mut chat = home.chat_with(&["--temp", "0", "-n", "40"], &[], SIZE);
    // Typing works before the model is there, and is answered when it is.
    chat.send("Write one sentence about a fox.");
    chat.wait_for("you");
    chat.wait_idle();
    chat.wait_for("TTFT");
    chat.wait_for("reused 0");
    chat.send("Now one about a river.");
    chat.wait_until("a second answer", |s| s.contains("idle") && !s.contains("reused 0 "));
    // Sliders in the middle of a long answer: it obeys from the next token on.
    chat.type_text("/set max_tokens 5000\r");
    chat.wait_for("max_tokens is 5000");
    chat.send("Write a very long story about a fox and a river.");
    chat.wait_for("writes …");
    chat.type_text("\x1bOQ");
    chat.wait_for("less");
    chat.type_text("\x1b[B\x1b[C");
    chat.wait_for("0.05");
    chat.type_text("\x1b");
    chat.wait_for("Enter send");
    // Escape stops; what is there stays and is marked.
    chat.type_text("\x1b");
    chat.wait_for("(stopped)");
    // Another answer; the first one stays beside it.
    chat.type_text("/set max_tokens 20\r");
    chat.wait_for("max_tokens is 20");
    chat.type_text("\x1b[18~");
    chat.wait_for("2/2");
    chat.wait_idle();
    chat.type_text("/rename Fox and river\r");
    chat.wait_until("the title", |s| s.lines().next().is_some_and(|l| l.contains("Fox and river")));
    chat.quit();
    chat.assert_restored();
    let journal = home.journal();
    assert_eq!(journal.matches("\"role\":\"user\"").count(), 3);
    assert_eq!(journal.matches("\"type\":\"done\"").count(), 4);
    assert!(journal.contains("\"finish\":\"cancelled\""));
    assert!(journal.contains("Fox and river"));

    let mut chat = home.chat(&["--continue"]);
    chat.wait_for("Fox and river");
    chat.wait_for("Write a very long story about a fox and a river.");
    chat.wait_for("2/2");
    chat.quit();
    // The settings belong to the conversation and came back with it; a new one has the defaults.
    assert!(home.journal().contains("\"max_tokens\":20"));
}

#[test]
fn a_second_turn_reads_only_what_is_new() {
    let home = Home::new();
    let mut chat = home.chat_with(&["--temp", "0", "-n", "30"], &[], SIZE);
    chat.send("Write one sentence about a fox.");
    chat.wait_for("reused 0");
    chat.wait_idle();
    chat.send("And one about a river.");
    chat.wait_until("reuse", |s| s.contains("idle") && s.contains("reused") && !s.contains("reused 0 "));
    chat.quit();
    let made: Vec<llmchat::chat::Usage> = home
        .journal()
        .lines()
        .filter_map(|l| match serde_json::from_str(l).ok()? {
            llmchat::chat::Entry::Done { made, .. } => Some(made.usage),
            _ => None,
        })
        .collect();
    assert_eq!(made.len(), 2);
    // New are the last token of the answer, which was not decoded, the end of its turn, and the question.
    assert!(made[1].fresh_tokens() <= 20, "{made:?}");
    assert!(made[1].reused_tokens >= made[0].prompt_tokens + made[0].completion_tokens - 1, "{made:?}");
}

#[test]
fn the_view_stays_where_it_was_scrolled_to() {
    let home = Home::new();
    let arguments = ["--temp", "0", "-n", "500", "--set", "ui.panel=off", "--set", "ui.sidebar=off"];
    let mut chat = home.chat_with(&arguments, &[], (90, 20));
    chat.send("Write a very long story about a fox and a river.");
    // The title has the question too.
    let question = |s: &str| s.matches("about a fox and a river").count();
    let lines = |s: &str| s.lines().filter(|l| !l.trim().is_empty()).count();
    chat.wait_until("a full screen", |s| question(s) == 1 && s.contains("Esc stop") && lines(s) > 14);
    chat.type_text("\x1b[1;5H");
    chat.wait_until("the beginning", |s| question(s) == 2 && s.contains("more lines"));
    chat.wait_gone("Esc stop");
    assert_eq!(question(&chat.screen()), 2);
    chat.type_text("\x1b[1;5F");
    chat.wait_gone("more lines");
    chat.quit();
}

#[test]
fn conversations_are_listed_deleted_and_brought_back() {
    let home = Home::new();
    let mut chat = home.chat(&["-n", "5"]);
    chat.send("First question");
    chat.wait_idle();
    chat.type_text("\x0e");
    chat.wait_for("New conversation");
    chat.send("Second question");
    chat.wait_until("both in the list", |s| {
        s.matches("First question").count() == 1 && s.matches("Second question").count() >= 2
    });
    chat.wait_idle();
    chat.type_text("\x0f\x1b[B\r");
    chat.wait_until("the first one", |s| s.lines().next().is_some_and(|l| l.contains("First question")));
    chat.type_text("\x0fd");
    chat.wait_for("Delete?");
    chat.type_text("y");
    chat.wait_for("Moved to the trash folder");
    assert_eq!(home.conversations().len(), 1);
    chat.type_text("\x0fu");
    chat.wait_until("it is back", |s| s.lines().next().is_some_and(|l| l.contains("First question")));
    assert_eq!(home.conversations().len(), 2);
    chat.quit();
}

#[test]
fn two_chats_at_once_the_second_only_reads() {
    let home = Home::new();
    let mut first = home.chat(&["-n", "5"]);
    first.send("Whose is it?");
    first.wait_idle();
    let mut second = home.chat(&["--continue"]);
    second.wait_for("Read only");
    second.send("mine");
    second.wait_for("only shown here");
    second.quit();
    first.send("Still mine");
    first.wait_idle();
    first.quit();
    assert_eq!(home.journal().matches("\"role\":\"user\"").count(), 2);
}

#[test]
fn a_system_prompt_belongs_to_the_conversation() {
    let home = Home::new();
    let mut chat = home.chat(&["-n", "5"]);
    chat.wait_for("ready");
    chat.type_text("/system Answer in French.\r");
    chat.wait_for("(system prompt)");
    chat.send("hello");
    chat.wait_idle();
    chat.type_text("\x0e");
    chat.wait_gone("(system prompt)");
    chat.quit();
    assert!(home.journal().contains("Answer in French."));
}

#[test]
fn a_big_paste_is_one_edit() {
    let home = Home::new();
    let mut chat = home.chat(&["-n", "5"]);
    chat.wait_for("ready");
    let paste = "0123456789abcdef\r\n".repeat(1 << 16);
    chat.type_text(&format!("\x1b[200~{paste}\x1b[201~"));
    chat.wait_for("[paste 1: 65536 lines]");
    assert!(!chat.screen().contains("writes …"));
    chat.quit();
}
