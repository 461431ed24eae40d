//! The list of conversations and the search in all of them: groups, tags, archive, and the way to a place.

use crate::harness::Home;
use crate::outside::run;

#[test]
fn a_conversation_is_filed_found_by_what_was_said_and_opened_there() {
    let home = Home::new();
    for question in ["Tell me of a walrus.", "Count to three."] {
        let asked = run(&home, &["ask", question, "--temp", "0", "-n", "8", "--save"], b"");
        assert_eq!(asked.status.code(), Some(0), "{asked:?}");
    }
    // A conversation with more than a screen between its first words and its last.
    let path =
        home.conversations().into_iter().find(|p| std::fs::read_to_string(p).unwrap().contains("walrus")).unwrap();
    let more = (3..60).map(|id| {
        let (parent, role) = (id - 1, if id % 2 == 1 { "user" } else { "assistant" });
        let text = format!("line {id}");
        serde_json::json!({"type": "message", "id": id, "parent": parent, "role": role, "text": text, "at": 1})
            .to_string()
    });
    let text = std::fs::read_to_string(&path).unwrap() + &more.collect::<Vec<_>>().join("\n") + "\n";
    std::fs::write(&path, text).unwrap();

    let mut chat = home.chat(&[]);
    chat.wait_for("Today");
    // Ctrl-F
    chat.type_text("\x06tell walrus");
    chat.wait_for("2 places");
    chat.type_text("\r");
    chat.wait_until("the place", |s| s.contains("▌ Tell me of a walrus") && !s.contains("line 59"));
    chat.send("/tags sea animals");
    chat.wait_for("#anim");
    // Ctrl-O, up to the other one, which is put away.
    chat.type_text("\x0f");
    chat.wait_for("/ find");
    chat.type_text("\x1b[B\x1b[Ba");
    chat.wait_until("archived", |s| s.contains("A in the list shows") && !s.contains("Count to three"));
    chat.type_text("A");
    chat.wait_until("shown again", |s| s.contains("Archived") && s.contains("Count to three"));
    chat.type_text("A/wlrs");
    chat.wait_until("by its letters", |s| s.contains("By title") && s.contains("Tell me of a walrus"));
    chat.type_text("\r");
    chat.wait_until("open", |s| !s.contains("By title"));
    chat.quit();

    let listed = run(&home, &["conversations", "list", "--json"], b"");
    let list: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let of =
        |title: &str| list.as_array().unwrap().iter().find(|row| row["title"].as_str().unwrap().starts_with(title));
    assert_eq!(of("Count").unwrap()["archived"], true);
    assert_eq!(of("Tell").unwrap()["tags"], serde_json::json!(["animals", "sea"]));
    let found = run(&home, &["conversations", "search", "\"a walrus\"", "tell", "--json"], b"");
    let hits: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!((hits.as_array().unwrap().len(), &hits[0]["message"]), (2, &1.into()), "{hits}");
}
