//! When the disk fails, or somebody else writes to it.

use std::io::Write;

use rustix::process::{Resource, Rlimit, prlimit};

use crate::harness::{Chat, Home};

/// From now on no file of the chat may become longer; a disk that is full does the same to all of them.
fn limit_files(chat: &Chat, bytes: Option<u64>) {
    let old = prlimit(Some(chat.pid()), Resource::Fsize, Rlimit { current: None, maximum: None }).unwrap();
    prlimit(Some(chat.pid()), Resource::Fsize, Rlimit { current: bytes, maximum: old.maximum }).unwrap();
}

#[test]
fn a_disk_that_fills_up_holds_no_answer_and_loses_no_word() {
    let home = Home::new();
    let mut chat = home.chat(&["--temp", "0", "-n", "20"]);
    chat.send("First question");
    chat.wait_idle();
    chat.wait_until("the answer on disk", |_| home.journal().contains("\"type\":\"done\""));
    // The next line is written in part only.
    limit_files(&chat, Some(home.journal().len() as u64 + 30));
    chat.send("Second question");
    chat.wait_for("Not saved");
    chat.wait_until("an answer all the same", |s| s.matches("tok/s").count() > 1 && s.contains("idle"));
    assert!(!home.journal().ends_with('\n'));
    assert!(!home.journal().contains("Second question"));
    limit_files(&chat, None);
    chat.wait_for("Saved again");
    chat.wait_gone("Not saved");
    chat.quit();
    let journal = home.journal();
    assert_eq!(journal.matches("\"type\":\"done\"").count(), 2);
    for line in journal.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn what_cannot_be_saved_before_the_end_is_in_a_copy_and_told() {
    let home = Home::new();
    let mut chat = home.chat(&["-n", "5"]);
    chat.send("Question");
    chat.wait_idle();
    let length = home.journal().len() as u64;
    limit_files(&chat, Some(length));
    chat.type_text("half a thought");
    chat.wait_for("Not saved");
    // The limit is for every file: the copy must be longer than the one that cannot grow.
    limit_files(&chat, None);
    std::fs::remove_dir_all(home.path().join("data/conversations")).unwrap();
    chat.quit();
    let wire = String::from_utf8_lossy(&chat.wire).into_owned();
    // Its own file is gone with the folder, so it comes into another one.
    assert!(wire.contains("is in a copy"), "{wire}");
    assert!(home.journal().contains("half a thought") && home.journal().contains("Question"), "{}", home.journal());
}

#[test]
fn a_file_that_somebody_else_changed_is_left_and_the_chat_goes_on_in_a_copy() {
    let home = Home::new();
    let mut chat = home.chat(&["--temp", "0", "-n", "5"]);
    chat.send("First question");
    chat.wait_idle();
    chat.wait_until("the answer on disk", |_| home.journal().contains("\"type\":\"done\""));
    let theirs = home.conversations().remove(0);
    let mut file = std::fs::OpenOptions::new().append(true).open(&theirs).unwrap();
    file.write_all(b"{\"type\":\"draft\",\"text\":\"theirs\"}\n").unwrap();
    let before = std::fs::read_to_string(&theirs).unwrap();
    chat.send("Second question");
    chat.wait_for("Saved as a copy");
    chat.wait_idle();
    chat.quit();
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), before);
    let copy = home.conversations().into_iter().find(|p| *p != theirs).unwrap();
    let copy = std::fs::read_to_string(copy).unwrap();
    assert!(copy.contains("First question") && copy.contains("Second question"), "{copy}");
}
