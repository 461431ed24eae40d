//! Terminals that are stuck, stopped, or without brackets around what is pasted.

use rustix::process::Signal;

use crate::harness::{Chat, Home, SIZE};

/// A trace of frames: how many began to be drawn, how many have been written.
fn frames(home: &Home) -> (usize, usize) {
    let trace = std::fs::read_to_string(home.path().join("trace")).unwrap_or_default();
    let count = |what: &str| trace.lines().filter(|line| line.ends_with(what)).count();
    (count(" draw"), count(" shown"))
}

/// A chat whose terminal takes nothing any more.
fn stuck(home: &Home, arguments: &[&str]) -> Chat {
    let trace = home.path().join("trace");
    let mut chat = home.chat_with(arguments, &[("LLMCHAT_TRACE", trace.to_str().unwrap())], SIZE);
    chat.send("Tell me a long story");
    chat.wait_for("writes …");
    // Frames are asked for until one does not arrive, however often the next one is due.
    let mut waited = 0;
    let mut last = frames(home);
    chat.wait_deaf("a frame that does not arrive", |chat| {
        chat.type_text("\x0c");
        let now = frames(home);
        waited = if now == last && now.0 > now.1 { waited + 1 } else { 0 };
        last = now;
        waited > 100
    });
    chat
}

#[test]
fn a_terminal_that_takes_nothing_holds_neither_keys_nor_saving_nor_the_end() {
    let home = Home::new();
    let mut chat = stuck(&home, &["--temp", "0", "-n", "5000"]);
    let saved = |home: &Home| home.journal().matches("\"type\":\"append\"").count();
    let before = saved(&home);
    chat.type_text("typed blindly");
    chat.wait_deaf("the draft on disk", |_| home.journal().contains("typed blindly"));
    chat.wait_deaf("two more checkpoints of the answer", |_| saved(&home) >= before + 2);
    chat.signal(Signal::TERM);
    chat.wait_deaf("the end", |chat| chat.exit_code() == Some(143));
    assert!(home.journal().contains("\"finish\":\"cancelled\""), "ended in order, not by force");
}

#[test]
fn a_terminal_that_was_stuck_shows_the_newest_frame() {
    let home = Home::new();
    let mut chat = stuck(&home, &["--temp", "0", "-n", "5000"]);
    chat.type_text("\x1b");
    chat.wait_deaf("the end of the answer on disk", |_| home.journal().contains("\"finish\":\"cancelled\""));
    let (drawn, _) = frames(&home);
    chat.type_text("after all");
    chat.wait_for("after all");
    chat.wait_for("idle");
    assert!(frames(&home).0 - drawn < 20, "old frames are not caught up with");
    chat.quit();
    chat.assert_restored();
}

#[test]
fn drawing_anew_asks_the_terminal_nothing() {
    let home = Home::new();
    let mut chat = home.chat(&[]);
    chat.wait_for("Enter send");
    chat.type_text("kept\x0c");
    chat.wait_wire("\x1b[2J", 1);
    chat.type_text(" and more");
    chat.wait_for("> kept and more");
    chat.quit();
    chat.assert_restored();
    let wire = String::from_utf8_lossy(&chat.wire);
    for question in ["\x1b[6n", "\x1b[c", "\x1b[?u"] {
        assert!(!wire.contains(question), "{question:?} waits for an answer that may not come");
    }
}

#[test]
fn a_shell_stops_the_chat_and_brings_it_back() {
    let home = Home::new();
    let mut shell = home.shell();
    shell.wait_for("prompt>");
    // Its own child, and the chat beside it, as make does.
    shell.type_text(&format!("sh -c '{} -n 5; echo ended with $?'\r", env!("CARGO_BIN_EXE_llmchat")));
    shell.wait_for("Enter send");
    shell.type_text("kept\x1a");
    shell.wait_until("the shell", |screen| screen.ends_with("prompt> "));
    shell.type_text("echo $((20 + 3))\r");
    shell.wait_for("23");
    shell.type_text("fg\r");
    shell.wait_for("> kept");
    shell.type_text(" and more");
    shell.wait_for("> kept and more");
    shell.type_text("\x11");
    shell.wait_for("ended with 0");
    shell.type_text("exit\r");
    assert_eq!(shell.wait_exit(), 0);
}

#[test]
fn a_stop_that_nobody_carries_out_is_over_at_once() {
    let home = Home::new();
    let mut chat = home.chat(&[]);
    chat.wait_for("Enter send");
    // There is no shell here that could bring the chat back, so the system does not stop it.
    chat.type_text("\x1a");
    chat.wait_wire("\x1b[?1049l", 1);
    chat.wait_until("the chat again", |screen| screen.contains("Enter send"));
    chat.type_text("still here");
    chat.wait_for("> still here");
    chat.quit();
}

#[test]
fn a_stop_from_outside_is_survived() {
    let home = Home::new();
    let mut chat = home.chat(&[]);
    chat.wait_for("Enter send");
    chat.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", chat.pid().as_raw_nonzero());
    chat.wait_deaf("the stop", |_| std::fs::read_to_string(&stat).unwrap().contains(") T "));
    chat.signal(Signal::CONT);
    chat.wait_wire("\x1b[2J", 1);
    chat.type_text("still here");
    chat.wait_for("> still here");
    chat.quit();
    let wire = String::from_utf8_lossy(&chat.wire);
    let count = |s: &str| wire.matches(s).count();
    assert_eq!(count("\x1b[?1049h"), count("\x1b[?1049l"));
    assert_eq!(count("\x1b[>1u"), count("\x1b[<1u"), "keyboard modes are a stack");
}

#[test]
fn many_keys_at_once_are_a_paste_where_nothing_brackets_them() {
    let home = Home::new();
    let mut chat = home.chat(&["-n", "5"]);
    chat.wait_for("ready");
    chat.type_text("This is the first line of something that was pasted\rand this is the second\rthe third");
    chat.wait_for("the third");
    chat.wait_for("the first line");
    assert!(!chat.screen().contains("you\n"), "nothing was sent");
    chat.type_text("\r");
    chat.wait_idle();
    chat.quit();
    assert_eq!(home.journal().matches("\"role\":\"user\"").count(), 1);
}
