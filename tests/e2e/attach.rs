//! Files and what commands print, put into a question.

use crate::harness::Home;
use crate::outside::run;

#[test]
fn a_file_and_a_command_are_read_by_the_model_and_kept_once() {
    let home = Home::new();
    let notes = home.path().join("notes.txt");
    std::fs::write(&notes, "The heron waits by the river.\n".repeat(30)).unwrap();
    let mut chat = home.chat(&["--temp", "0", "-n", "8"]);
    chat.wait_for("is ready");
    let file = notes.to_str().unwrap();
    for nth in 1..=2 {
        chat.send(&format!("/read {file}"));
        chat.wait_until("its mark", |s| s.matches("900 bytes").count() == nth && s.contains("tokens · #"));
        chat.send("What is this about?");
        chat.wait_until("the answer", |s| s.matches("(longest answer reached)").count() == nth);
    }
    chat.send("/run echo a kingfisher");
    chat.wait_for("$ echo a kingfisher");
    chat.type_text("\x1bo");
    chat.wait_for("── $ echo a kingfisher ──");
    chat.type_text("\x1b");
    chat.wait_gone("── $");
    chat.quit();

    let journal = home.journal();
    assert_eq!(journal.matches("{\"type\":\"content\"").count(), 2, "{journal}");
    let asked: Vec<&str> = journal.lines().filter(|l| l.contains("\"role\":\"user\"")).collect();
    assert!(asked.len() == 2 && asked.iter().all(|l| !l.contains("heron")), "{asked:?}");
    let shown = run(&home, &["conversations", "show", "last", "--json"], b"");
    let c: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let prompt = c["messages"][1]["made"]["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(prompt > 200, "the model has read it: {prompt}");
    assert!(c["draft"].as_str().unwrap_or_default().contains("kingfisher"), "{c}");
    let page = run(&home, &["conversations", "export", "last", "--format", "md"], b"");
    assert_eq!(String::from_utf8(page.stdout).unwrap().matches("The heron waits").count(), 60);
}

#[test]
fn what_cannot_be_put_in_is_told() {
    let home = Home::new();
    let mut chat = home.chat(&["-c", "256"]);
    chat.wait_for("is ready");
    chat.send("/read nothing-there");
    chat.wait_for("There is no file 'nothing-there'");
    let long = home.path().join("long.txt");
    std::fs::write(&long, "a word ".repeat(400)).unwrap();
    chat.send(&format!("/read {}", long.display()));
    chat.wait_for("and the context holds 256");
    chat.wait_for("2.7 KiB");
    chat.quit();
}
