//! The map of the cache, on the real screen.

use rustix::process::Signal;

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
    chat.wait_until("both", |s| s.contains("Tell me of a fox") && s.contains("memory") && s.contains("1 prompt ago"));
    chat.wait_for("at work");
    chat.wait_for("hold nothing; with a cache for each of 2");
    chat.type_text("\x1b[B");
    chat.type_text("p");
    chat.wait_for("▪memory");
    chat.type_text("d");
    chat.wait_until("one sequence", |s| s.contains("at work") && !s.contains("1 prompt ago"));
    chat.type_text("\x1b");
    chat.wait_gone("hold nothing");
    // Nothing is lost by that.
    chat.send("And then?");
    chat.wait_idle();
    chat.quit();
}

#[test]
fn a_folder_that_cannot_be_used_is_told_and_costs_only_the_files() {
    let home = Home::new();
    let nowhere = home.path().join("file");
    std::fs::write(&nowhere, "").unwrap();
    let env = [("LLMCHAT_CACHE_DIR", nowhere.to_str().unwrap())];
    let mut chat = home.chat_with(&["--temp", "0", "-n", "4"], &env, (100, 30));
    chat.wait_for("The cache is not kept in files");
    chat.send("Hello.");
    chat.wait_idle();
    chat.quit();
}

/// Every file below a folder.
fn files(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| if e.path().is_dir() { files(&e.path()) } else { 1 }).sum()
}

#[test]
fn a_conversation_goes_on_at_once_after_the_program_was_killed() {
    let home = Home::new();
    let flags = ["--temp", "0", "-n", "12"];
    let mut chat = home.chat(&flags);
    let long = "Tell me of a fox and a river. ".repeat(12);
    chat.type_text(&format!("\x1b[200~{long}\x1b[201~\r"));
    chat.wait_for("longest answer reached");
    let states = home.path().join("cache/states");
    let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while files(&states) < 2 && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    chat.kill_engine(Signal::KILL);
    chat.signal(Signal::KILL);
    chat.wait_exit();
    let mut chat = home.chat(&["--continue", "--temp", "0", "-n", "12"]);
    chat.wait_for("Tell me of a fox");
    chat.send("And then?");
    chat.wait_idle();
    chat.wait_for("brought back");
    chat.quit();
    // A file that is not what was written is not used, and nobody is the worse for it.
    for entry in std::fs::read_dir(&states).unwrap().flatten() {
        for file in std::fs::read_dir(entry.path()).unwrap().flatten() {
            let mut bytes = std::fs::read(file.path()).unwrap();
            let at = bytes.len() - 5000;
            bytes[at] ^= 1;
            std::fs::write(file.path(), bytes).unwrap();
        }
    }
    let mut chat = home.chat(&["--continue", "--temp", "0", "-n", "12"]);
    chat.wait_for("And then?");
    chat.send("And at the end?");
    chat.wait_idle();
    chat.wait_for("reused 0");
    chat.quit();
}
