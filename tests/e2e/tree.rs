//! The conversation as a tree: branching, stepping, comparing, jumping, deleting, undoing, copying.

use crate::harness::{Chat, Home, SIZE};

/// What stands in the messages' place of the screen: neither list nor panel.
fn middle(screen: &str) -> String {
    let parts = screen.lines().map(|l| l.split('│').nth(1).unwrap_or_default().to_owned());
    parts.collect::<Vec<_>>().join("\n")
}

fn wait_middle(chat: &mut Chat, what: &str, condition: impl Fn(&str) -> bool) {
    chat.wait_until(what, |screen| condition(&middle(screen)));
}

/// The words of the last answer that is shown, as far as its first line goes.
fn answer(screen: &str) -> String {
    let middle = middle(screen);
    let mut lines = middle.lines().skip_while(|l| !l.starts_with("model"));
    lines.nth(1).unwrap_or_default().trim().to_owned()
}

const UNDO: &str = "\x1bz";
const REDO: &str = "\x1by";
const TREE: &str = "\x1bg";

#[test]
fn an_answer_branches_is_stepped_through_compared_deleted_and_all_of_it_undone() {
    let home = Home::new();
    let mut chat = home.chat_with(&["-n", "16", "-s", "1"], &[], SIZE);
    chat.send("Tell me about foxes.");
    chat.wait_idle();
    let first = answer(&chat.screen());
    chat.type_text("/seed 2\r");
    chat.wait_for("seed is 2");
    chat.type_text("\x1b[18~");
    chat.wait_for("2/2");
    chat.wait_idle();
    let second = answer(&chat.screen());
    assert_ne!(first, second);
    chat.send("And rivers?");
    chat.wait_until("a second answer", |s| s.contains("idle") && s.matches("model").count() > 1);
    // Stepping: each try comes with what followed it.
    chat.type_text("\t");
    chat.wait_for("Left tries");
    chat.type_text("gj");
    chat.wait_for("‹ 2/2 ›");
    chat.type_text("\x1b[D");
    wait_middle(&mut chat, "the first try", |s| s.contains(&first) && !s.contains("And rivers?"));
    // Side by side: words, settings, timings.
    chat.type_text("v");
    chat.wait_for("words alike, of");
    chat.wait_until("both seeds", |s| s.lines().any(|l| l.starts_with("seed     1 ") && l.contains("│ seed     2")));
    chat.wait_for("tok/s");
    chat.type_text("\r");
    wait_middle(&mut chat, "the right one", |s| s.contains("‹ 2/2 ›") && s.contains("And rivers?"));
    // The tree: every branch, how it was made; Enter goes there.
    chat.type_text(TREE);
    chat.wait_for("5 messages · 2 branches");
    chat.wait_for("16 tok · sample 0.80");
    chat.type_text("\x1b[D\r");
    wait_middle(&mut chat, "the first try again", |s| s.contains("‹ 1/2 ›") && !s.contains("And rivers?"));
    // A deleted branch is out of the way, and undone it is back.
    chat.type_text("d");
    chat.wait_for("1 message is deleted; Alt-Z brings back");
    wait_middle(&mut chat, "only one try", |s| !s.contains("/2") && s.contains("And rivers?"));
    chat.type_text(UNDO);
    chat.wait_for("Undone: deleting a branch");
    wait_middle(&mut chat, "both tries", |s| s.contains("1/2") && s.contains(&first));
    chat.type_text(REDO);
    chat.wait_for("Done again: deleting a branch");
    chat.quit();

    // After a restart it is as it was left, and still can be undone.
    let mut chat = home.chat(&["--continue"]);
    wait_middle(&mut chat, "what was shown", |s| s.contains("And rivers?") && !s.contains("/2"));
    chat.wait_for("idle");
    chat.type_text(TREE);
    chat.wait_for("4 messages · 1 branch · 1 branch deleted (x)");
    chat.type_text("x");
    chat.wait_for("× model");
    chat.type_text(UNDO);
    chat.wait_for("Undone: deleting a branch");
    chat.wait_for("5 messages · 2 branches");
    chat.type_text(&UNDO.repeat(4));
    chat.wait_for("Undone: question");
    chat.wait_for("0 messages · 0 branches · 5 deleted");
    // Without what was deleted there is no tree left; what was undone can be done again.
    chat.type_text("x");
    wait_middle(&mut chat, "an empty conversation", |s| s.contains("Enter sends") && !s.contains("foxes"));
    chat.type_text(&REDO.repeat(4));
    wait_middle(&mut chat, "what was shown before", |s| s.contains("1/2") && s.contains(&first));
    chat.type_text(TREE);
    chat.wait_for("5 messages · 2 branches");
    chat.quit();
    let journal = home.journal();
    assert_eq!(journal.matches("\"type\":\"message\"").count(), 5, "no word is gone:\n{journal}");
}

#[test]
fn a_conversation_goes_on_from_any_point_and_a_branch_is_copied() {
    let home = Home::new();
    let mut chat = home.chat_with(&["-n", "8", "--temp", "0"], &[], SIZE);
    chat.send("What is tea?");
    chat.wait_idle();
    chat.send("And coffee?");
    chat.wait_until("two answers", |s| s.contains("idle") && middle(s).matches("\nmodel").count() == 2);
    chat.type_text("\t");
    chat.wait_for("b branch");
    chat.type_text("gjb");
    wait_middle(&mut chat, "the earlier point", |s| !s.contains("And coffee?"));
    chat.send("And cocoa?");
    chat.wait_until("an answer", |s| s.contains("idle") && middle(s).matches("\nmodel").count() == 2);
    chat.wait_for("2/2");
    chat.type_text("/branch\r");
    chat.wait_for("4 messages are copied in a new conversation");
    chat.wait_until("its title", |s| s.lines().next().is_some_and(|l| l.contains("What is tea? (branch)")));
    wait_middle(&mut chat, "its path", |s| s.contains("And cocoa?") && !s.contains("2/2"));
    chat.send("Thanks.");
    chat.wait_until("an answer there", |s| s.contains("idle") && middle(s).matches("\nmodel").count() == 3);
    chat.quit();
    let files = home.conversations();
    assert_eq!(files.len(), 2);
    let said = files.iter().map(|f| std::fs::read_to_string(f).unwrap());
    let said: Vec<usize> = said.map(|s| s.matches("\"role\":\"user\"").count()).collect();
    assert_eq!(said, [3, 3], "the first one stays as it was");
}
