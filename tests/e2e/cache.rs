//! The map of the cache, on the real screen.

use super::harness::Home;

#[test]
fn the_cache_shows_who_holds_what_and_obeys_by_hand() {
    let home = Home::new();
    let mut chat = home.chat(&["--temp", "0", "-n", "12"]);
    chat.send("Tell me of a fox.");
    chat.wait_idle();
    chat.type_text("\x0e");
    chat.send("Tell me of the sea.");
    chat.wait_idle();
    chat.send("/cache");
    chat.wait_for("memory, 1 ago");
    chat.wait_for("at work");
    chat.wait_for("hold nothing; with a cache for each of 2");
    chat.type_text("\x1b[B");
    chat.type_text("p");
    chat.wait_for("▪memory, 1 ago");
    chat.type_text("d");
    chat.wait_until("one sequence", |s| s.contains("at work") && !s.contains("1 ago"));
    chat.type_text("\x1b");
    chat.wait_gone("hold nothing");
    // Nothing is lost by that.
    chat.send("And then?");
    chat.wait_idle();
    chat.quit();
}
