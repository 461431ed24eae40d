//! Conversations that come in, go out and go on without the screen, with the real model.

use std::path::Path;

use crate::harness::Home;
use crate::outside::run;

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transfer").join(name).display().to_string()
}

fn json(home: &Home, arguments: &[&str]) -> serde_json::Value {
    let output = run(home, arguments, b"");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn a_conversation_goes_on_without_the_screen() {
    let home = Home::new();
    let first = ["ask", "Say hello", "--temp", "0", "-n", "8", "--save", "-sys", "Be brief."];
    assert_eq!(run(&home, &first, b"").status.code(), Some(0));
    let output = run(&home, &["ask", "--in", "last", "--temp", "0", "-n", "6", "And now goodbye"], b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let answer = String::from_utf8(output.stdout).unwrap();
    let c = json(&home, &["conversations", "show", "last", "--json"]);
    let messages = c["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 4, "{c}");
    assert_eq!((&messages[2]["parent"], &messages[2]["text"]), (&2.into(), &"And now goodbye".into()));
    assert_eq!((&messages[3]["parent"], &c["head"]), (&3.into(), &4.into()));
    assert_eq!(messages[3]["text"].as_str().unwrap().trim_end(), answer.trim_end());
    assert!(
        messages[3]["made"]["usage"]["prompt_tokens"].as_u64() > messages[1]["made"]["usage"]["prompt_tokens"].as_u64()
    );
    assert_eq!(
        messages[3]["tokens"].as_array().unwrap().len() as u64,
        messages[3]["made"]["usage"]["completion_tokens"]
    );
    assert_eq!(messages[3]["state"], "complete");
    let used = |nth: usize, what: &str| messages[nth]["made"]["usage"][what].as_u64().unwrap();
    assert!(used(3, "reused_tokens") >= used(1, "prompt_tokens"), "what was read before is not read again: {c}");
    // Its own settings count, and what a flag says is for this answer only.
    assert_eq!((&messages[3]["made"]["sampling"]["max_tokens"], &c["sampling"]["max_tokens"]), (&6.into(), &8.into()));
    assert_eq!(c["system"], "Be brief.");
    // The page shades what it says.
    let page = run(&home, &["conversations", "export", "last", "--format", "html"], b"").stdout;
    assert!(String::from_utf8(page).unwrap().contains("<span class=\"s"));
    let none = run(&home, &["ask", "--in", "nonsense", "x"], b"");
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let raw = run(&home, &["ask", "--in", "last", "--raw", "x"], b"");
    assert_eq!(raw.status.code(), Some(2), "{raw:?}");
    // In the chat it is undone as one edit.
    let mut chat = home.chat(&["--continue"]);
    chat.wait_for("And now goodbye");
    chat.type_text("\x1bz");
    chat.wait_for("Undone: question");
    chat.wait_until("only the first question", |s| s.contains("Say hello") && !s.contains("And now goodbye"));
    chat.quit();
    assert_eq!(json(&home, &["conversations", "list", "--json"])[0]["messages"], 2);
}

#[test]
fn a_conversation_that_is_open_elsewhere_is_not_asked_in() {
    let home = Home::new();
    assert_eq!(run(&home, &["conversations", "import", &example("llama-cpp.json")], b"").status.code(), Some(1));
    let mut chat = home.chat(&["--continue"]);
    chat.wait_for("Pong");
    let before = home.journal();
    let output = run(&home, &["ask", "--in", "last", "x"], b"");
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("another llmchat has it open"), "{why}");
    assert_eq!((output.status.code(), home.journal()), (Some(1), before));
    chat.quit();
}

#[test]
fn what_came_in_is_in_the_chat_and_goes_out_of_it() {
    let home = Home::new();
    let db = home.path().join("store.db");
    rusqlite::Connection::open(&db)
        .unwrap()
        .execute_batch(
            "CREATE TABLE chat (id INTEGER PRIMARY KEY, name TEXT, model TEXT, system TEXT, parameters TEXT);
             CREATE TABLE message (id INTEGER PRIMARY KEY, chat_id INTEGER, author TEXT, text TEXT, images TEXT);
             INSERT INTO chat VALUES (1, 'Stars', 'llama3', '', '{}');
             INSERT INTO message VALUES (1, 1, 'user', 'Which is the brightest?', '[]'), (2, 1, 'assistant', 'Sirius.', '[]');",
        )
        .unwrap();
    let folder = example("");
    run(&home, &["conversations", "import", &folder, db.to_str().unwrap()], b"");
    let mut chat = home.chat(&["--resume", &id_of(&home, "Rivers of Europe")]);
    for title in ["Rivers of", "Foxes", "Knots", "bread", "Stars", "Good morning", "One?", "Old export"] {
        chat.wait_for(title);
    }
    chat.wait_for("The Danube.");
    // The other answer is there too.
    chat.type_text("\t");
    chat.type_text("]");
    chat.wait_for("The Volga, with 3,531 km.");
    chat.type_text("i");
    let path = home.path().join("river.html");
    chat.type_text(&format!("/export {}\r", path.display()));
    chat.wait_for("Exported to");
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains("The Volga, with") && !page.contains("The Danube."), "{page}");
    chat.type_text(&format!("/export {}\r", path.display()));
    chat.wait_for("is there already");
    chat.quit();
}

fn id_of(home: &Home, title: &str) -> String {
    let list = json(home, &["conversations", "list", "--json"]);
    let row = list.as_array().unwrap().iter().find(|r| r["title"] == title).unwrap();
    row["id"].as_str().unwrap().to_owned()
}
