//! A full context: the choices with their numbers, each of them, and the line where the cut is.

use crate::harness::{Chat, Home, SIZE};
use crate::outside::run;

/// About 130 tokens.
fn long(n: u32) -> String {
    format!("Question {n}. {}", "All work and no play. ".repeat(20))
}

fn ended(home: &Home) -> usize {
    home.journal().matches("\"type\":\"done\"").count()
}

fn paste(chat: &mut Chat, text: &str) {
    chat.type_text(&format!("\x1b[200~{text}\x1b[201~\r"));
}

/// Asks until the context of 512 tokens is full.
fn fill(home: &Home, chat: &mut Chat) {
    chat.wait_for("is ready");
    for n in 1..=3 {
        paste(chat, &long(n));
        chat.wait_until("an answer", |_| !home.conversations().is_empty() && ended(home) == n as usize);
    }
    paste(chat, &long(4));
    chat.wait_for("The context is full");
    chat.wait_for("and the context holds 512");
}

const SMALL: [&str; 6] = ["-c", "512", "-n", "10", "--temp", "0"];

#[test]
fn the_oldest_turns_are_dropped_with_a_line_and_from_then_on_by_themselves() {
    let home = Home::new();
    let mut chat = home.chat(&SMALL);
    fill(&home, &mut chat);
    chat.wait_for("stay");
    chat.type_text("1");
    chat.wait_for("no longer sent");
    chat.wait_until("the answer", |_| ended(&home) == 4);
    chat.type_text("\x1b[1;5H");
    chat.wait_until("the line", |s| s.lines().any(|l| l.contains("──") && l.contains("above are no longer sent (")));
    chat.quit();
    let journal = home.journal();
    assert!(journal.contains("\"type\":\"cut\"") && journal.contains("\"overflow\":\"drop\""));
    for n in 1..=4 {
        assert!(journal.contains(&format!("Question {n}.")), "nothing is lost");
    }
    let cuts = journal.matches("\"type\":\"cut\"").count();

    // After a restart the line is there, and the conversation does it by itself.
    let mut chat = home.chat(&["--continue", "-c", "512"]);
    chat.wait_for("Question 4.");
    chat.type_text("\x1b[1;5H");
    chat.wait_for("above are no longer sent (");
    for n in 5..=7 {
        paste(&mut chat, &long(n));
        chat.wait_until("an answer without a question", |s| {
            assert!(!s.contains("The context is full"));
            ended(&home) == n as usize
        });
    }
    assert!(home.journal().matches("\"type\":\"cut\"").count() > cuts);
    // With every cut undone all of it is sent again, which does not fit; the person is asked as the first time.
    let cuts = home.journal().matches("\"type\":\"cut\"").count();
    for n in 1..=cuts {
        chat.type_text("/uncut\r");
        chat.wait_until("a cut undone", |_| home.journal().matches("\"type\":\"uncut\"").count() == n);
    }
    chat.wait_gone("above are no longer sent (");
    chat.type_text("\x1b[18~");
    chat.wait_for("The context is full");
    chat.quit();
}

#[test]
fn escape_leaves_all_as_it_is_and_the_choices_come_back() {
    let home = Home::new();
    let mut chat = home.chat(&SMALL);
    fill(&home, &mut chat);
    chat.type_text("\x1b");
    chat.wait_gone("The context is full");
    chat.wait_for("Nothing has changed");
    let journal = home.journal();
    assert!(!journal.contains("\"type\":\"cut\"") && !journal.contains("\"type\":\"overflow\""));
    assert!(journal.contains("Question 4.") && ended(&home) == 3);
    chat.type_text("/overflow\r");
    chat.wait_for("The context is full");
    chat.type_text("\x1b");
    chat.wait_gone("The context is full");
    // The question comes back into the box, where it can be shortened.
    chat.type_text("\x1b[19~");
    chat.wait_for("Change the question");
    chat.quit();
}

#[test]
fn a_summary_by_the_model_stands_for_the_oldest_turns() {
    let home = Home::new();
    let mut chat = home.chat(&SMALL);
    fill(&home, &mut chat);
    chat.type_text("2");
    chat.wait_until("the answer", |_| ended(&home) == 4);
    assert!(home.journal().contains("\"summary\":\""));
    chat.type_text("/cut\r");
    chat.wait_for("In their place the model reads this summary");
    chat.quit();
}

#[test]
fn a_larger_context_is_loaded_and_the_question_sent_again() {
    let home = Home::new();
    let mut chat = home.chat(&SMALL);
    fill(&home, &mut chat);
    chat.wait_for("1,024 tokens, 22.5 MiB of KV cache instead of 11.2 MiB");
    chat.type_text("3");
    chat.wait_until("the answer", |_| ended(&home) == 4);
    chat.type_text("/show\r");
    chat.wait_for("context    1024 of 8192");
    chat.quit();
    assert!(home.journal().contains("\"overflow\":\"larger\"") && !home.journal().contains("\"type\":\"cut\""));
}

#[test]
fn an_answer_that_fills_the_context_is_kept_and_goes_on_when_there_is_room() {
    let home = Home::new();
    // A text that never ends, whatever the model would like.
    let endless = home.path().join("endless.gbnf");
    std::fs::write(&endless, "root ::= [a-z ] root\n").unwrap();
    let mut chat = home.chat_with(&["-c", "256", "-n", "5", "--temp", "0", "--loop-guard", "off"], &[], SIZE);
    chat.wait_for("is ready");
    for n in 1..=2 {
        chat.send(&format!("Question {n}?"));
        chat.wait_until("an answer", |_| !home.conversations().is_empty() && ended(&home) == n);
    }
    chat.type_text(&format!("/grammar {}\r", endless.display()));
    chat.wait_for("Answers follow the grammar");
    chat.type_text("/set max_tokens 5000\r");
    chat.wait_for("max_tokens is 5000");
    chat.send("And now?");
    chat.wait_for("The context is full");
    chat.wait_for("(context full)");
    let first = answer(&home);
    assert!(first.made.is_some_and(|m| m.usage.completion_tokens > 50));
    // Two questions stand before; without them it goes on until it is full again, and nothing is before it then.
    chat.type_text("1");
    chat.wait_for("nothing is before the newest question");
    let whole = answer(&home);
    assert_eq!(whole.id, first.id);
    assert!(whole.text.len() > first.text.len() && whole.text.starts_with(&first.text));
    chat.type_text("\x1b");
    chat.wait_gone("The context is full");
    chat.wait_for("no longer sent");
    chat.quit();
}

/// The last message of the only conversation.
fn answer(home: &Home) -> llmchat::chat::Message {
    use llmchat::chat::{Conversation, ConversationId, Sampling};
    let id = ConversationId::new(0, 0);
    let mut conversation = Conversation::new(id, 0, Sampling::default());
    home.journal().lines().for_each(|l| conversation.apply(&serde_json::from_str(l).unwrap()));
    (*conversation.path().last().unwrap()).clone()
}

#[test]
fn beyond_the_trained_length_only_with_a_yes() {
    let home = Home::new();
    let refused = run(&home, &["ask", "hi", "-c", "8448", "-n", "3"], b"");
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(told.contains("8448") && told.contains("8192") && told.contains("--beyond-trained"), "{told}");
    let output = run(&home, &["ask", "hi", "-c", "8448", "-n", "3", "--beyond-trained", "--rope-scaling", "yarn"], b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    let mut chat = home.chat(&["-n", "5"]);
    chat.wait_for("is ready");
    chat.type_text("/set num_ctx 8448\r");
    chat.wait_for("Beyond the trained length?");
    chat.type_text("n");
    chat.wait_gone("Beyond the trained length?");
    chat.type_text("/set num_ctx 8448\r");
    chat.wait_for("Beyond the trained length?");
    chat.type_text("y");
    chat.wait_for("longer than the 8192");
    chat.type_text("/show\r");
    chat.wait_for("context    8448 of 8192");
    chat.quit();
}

#[test]
fn outside_the_screen_a_long_question_is_refused_with_numbers_and_a_way_out() {
    let home = Home::new();
    let long = "All work and no play. ".repeat(80);
    let refused = run(&home, &["ask", "-c", "256", "-n", "5"], long.as_bytes());
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(told.contains("the context holds 256") && told.contains("(-c ") && told.contains("KV cache)"), "{told}");
    // What it names is enough.
    let enough = told.split("(-c ").nth(1).unwrap().split(|c: char| !c.is_ascii_digit()).next().unwrap();
    let output = run(&home, &["ask", "-c", enough, "-n", "5"], long.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
