//! Every way out leaves the terminal as it was and the words on disk.

use rustix::process::Signal;

use crate::harness::{Home, SIZE};

#[test]
fn leaving_by_key_restores_the_terminal() {
    for keys in ["\x11", "\x03\x03", "\x04", "/exit\r"] {
        let home = Home::new();
        let mut chat = home.chat(&[]);
        chat.wait_for("Enter send");
        chat.type_text(keys);
        assert_eq!(chat.wait_exit(), 0, "{keys:?}");
        chat.assert_restored();
    }
}

#[test]
fn signals_save_restore_and_end() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::QUIT, 131)] {
        let home = Home::new();
        let mut chat = home.chat(&["--temp", "0", "-n", "5000"]);
        chat.send("Tell me a long story");
        chat.wait_for("writes …");
        chat.signal(signal);
        assert_eq!(chat.wait_exit(), code);
        chat.assert_restored();
        let journal = home.journal();
        assert!(journal.contains("Tell me a long story") && journal.contains("\"type\":\"append\""), "{journal}");
        assert!(journal.contains("\"finish\":\"cancelled\""));
    }
}

#[test]
fn a_hang_up_saves_and_ends() {
    let home = Home::new();
    let mut chat = home.chat(&["--temp", "0", "-n", "5000"]);
    chat.send("Tell me a long story");
    chat.wait_for("writes …");
    let engine = chat.engine().unwrap();
    chat.hang_up();
    chat.wait_exit();
    assert!(home.journal().contains("\"finish\":\"cancelled\""));
    assert!(rustix::process::test_kill_process(engine).is_err(), "the engine is gone too");
}

#[test]
fn a_panic_saves_restores_and_says_what_broke() {
    for place in ["draw", "key"] {
        let home = Home::new();
        let fault = home.path().join("fault");
        let mut chat = home.chat_with(&["-n", "5000"], &[("LLMCHAT_FAULT", fault.to_str().unwrap())], SIZE);
        chat.send("Tell me a long story");
        chat.wait_for("writes …");
        chat.type_text("half a thought");
        chat.wait_for("half a thought");
        std::fs::write(&fault, place).unwrap();
        chat.type_text("!");
        assert_eq!(chat.wait_exit(), 1, "{place}");
        chat.assert_restored();
        let wire = String::from_utf8_lossy(&chat.wire).into_owned();
        let told = wire.rsplit("\u{1b}[?1049l").next().unwrap();
        assert!(told.contains(&format!("asked for it at {place}")) && told.contains("--continue"), "{told}");
        let journal = home.journal();
        assert!(journal.contains("half a thought") && journal.contains("\"finish\":"), "{journal}");
    }
}

#[test]
fn kill_nine_loses_at_most_the_end_of_the_answer() {
    let home = Home::new();
    let mut chat = home.chat(&["--temp", "0", "-n", "5000"]);
    chat.send("Tell me a long story");
    chat.wait_for("writes …");
    chat.wait_until("a checkpoint", |_| home.journal().contains("\"type\":\"append\""));
    chat.type_text("half a thought");
    chat.wait_until("the draft on disk", |_| home.journal().contains("half a thought"));
    chat.signal(Signal::KILL);
    chat.wait_exit();
    let mut chat = home.chat(&["--continue"]);
    chat.wait_for("(broken off)");
    chat.wait_for("half a thought");
    chat.wait_for("Tell me a long story");
    chat.quit();
}

#[test]
fn any_size_at_any_time() {
    let home = Home::new();
    let mut chat = home.chat(&["--temp", "0", "-n", "300"]);
    chat.send("Tell me a long story");
    chat.wait_for("writes …");
    for (columns, rows) in [(1, 1), (2, 50), (19, 4), (20, 5), (400, 120), (70, 10), (33, 7), (100, 30)] {
        chat.resize(columns, rows);
        if columns >= 70 {
            chat.wait_for("Tell me a long story");
        }
    }
    chat.wait_idle();
    chat.resize(10, 3);
    chat.wait_for("llmchat");
    chat.resize(100, 30);
    chat.wait_for("Tell me a long story");
    chat.quit();
    chat.assert_restored();
}

#[test]
fn suspend_gives_the_terminal_back_and_takes_it_again() {
    let home = Home::new();
    let mut chat = home.chat(&[]);
    chat.wait_for("Enter send");
    chat.type_text("\x1a");
    chat.wait_wire("\x1b[?1049l", 1);
    chat.signal(Signal::CONT);
    chat.wait_wire("\x1b[?1049h", 2);
    chat.type_text("still here");
    chat.wait_for("still here");
    chat.quit();
}

#[test]
fn the_editor_gets_the_text_and_no_key_is_stolen() {
    let home = Home::new();
    let editor = home.path().join("editor.sh");
    std::fs::write(
        &editor,
        "read line </dev/tty\nprintf '%s and %s' \"$(cat \"$1\")\" \"$line\" > \"$1.new\"\nmv \"$1.new\" \"$1\"\n",
    )
    .unwrap();
    let command = format!("sh {}", editor.display());
    let mut chat = home.chat_with(&[], &[("VISUAL", &command)], SIZE);
    chat.wait_for("Enter send");
    chat.type_text("mine");
    chat.wait_for("> mine");
    chat.type_text("\x07");
    chat.wait_gone("Enter send");
    chat.type_text("theirs\r");
    chat.wait_for("mine and theirs");
    chat.quit();
}
