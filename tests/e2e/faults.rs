//! When the engine, its model or its words go wrong.

use rustix::process::Signal;

use crate::harness::{Home, SIZE};

const HELLO: &str = r#"echo '{"event":"hello","version":"0"}'
read load
"#;
const LOADED: &str = r#"echo '{"event":"loaded","name":"Script","description":"","weight_bytes":1,"n_ctx_train":100,"n_ctx":100,"n_vocab":9,"kv_bytes_per_token":1,"kv_bytes_reserved":100,"kv_type":"f16","has_template":true,"notes":[],"device":"CPU","threads":1,"load_ms":1.0}'
"#;
/// Takes a request to generate and begins an answer to it.
const STARTED: &str = r#"read generate
job=$(printf '%s' "$generate" | sed 's/.*"job":\([0-9]*\).*/\1/')
echo '{"event":"started","job":'$job',"prompt_tokens":3,"reused_tokens":0,"cells":{"system":0,"user":3,"assistant":0},"seed":1,"notes":[]}'
echo '{"event":"token","job":'$job',"text":"Half an","n":1,"gap_ms":1.0}'
"#;
const FINISH: &str = r#"echo '{"event":"finished","job":'$job',"text":"","finish":"stop","usage":{},"timings":{},"seed":1,"sampling":{},"cells":{"system":0,"user":3,"assistant":1}}'
"#;

#[test]
fn an_engine_killed_in_load_prefill_or_decode_comes_back_with_one_key() {
    let home = Home::new();
    let mut chat = home.chat(&["--temp", "0", "-n", "400"]);
    chat.kill_engine(Signal::KILL);
    chat.wait_for("F5");
    chat.type_text("\x1b[15~");
    chat.wait_for("is ready");
    // In the answer: its beginning stays.
    chat.send("Tell me a long story");
    chat.wait_for("writes …");
    chat.kill_engine(Signal::ABORT);
    chat.wait_for("signal 6");
    chat.wait_for("(broken off)");
    chat.type_text("\x1b[15~");
    chat.wait_for("idle");
    // In prefill: the question stays and can be asked again.
    let long = "All work and no play. ".repeat(700);
    chat.type_text(&format!("\x1b[200~{long}\x1b[201~\r"));
    chat.wait_for("reads …");
    chat.kill_engine(Signal::KILL);
    chat.wait_for("signal 9");
    chat.type_text("\x1b[15~");
    chat.wait_for("idle");
    chat.type_text("\x0e");
    chat.send("Short one");
    chat.wait_for("writes …");
    chat.quit();
    chat.assert_restored();
}

#[test]
fn an_engine_that_ends_says_why() {
    let home = Home::new();
    let mut chat = home.scripted(&format!("{HELLO}{LOADED}{STARTED}echo 'GGML_ASSERT(x) failed' >&2\nexit 3\n"));
    chat.send("hi");
    chat.wait_for("exit status 3");
    chat.wait_for("GGML_ASSERT");
    chat.wait_for("Half an");
    chat.quit();
    assert!(home.journal().contains("Half an"));
}

#[test]
fn an_engine_that_hangs_is_left_with_one_key() {
    let home = Home::new();
    let mut chat = home.scripted(&format!("{HELLO}{LOADED}{STARTED}exec sleep 1000\n"));
    chat.send("hi");
    chat.wait_for("Half an");
    chat.type_text("\x1b");
    chat.wait_for("does not stop");
    chat.type_text("\x1b[15~");
    chat.wait_for("(broken off)");
    chat.quit();
}

#[test]
fn garbage_is_told_once_and_passed_over() {
    let home = Home::new();
    let garbage = "head -c 100000 /dev/urandom | od -c\necho '{\"event\":\"unheard of\"}'\n";
    let mut chat = home.scripted(&format!("{HELLO}{garbage}{LOADED}{STARTED}{garbage}{FINISH}read end\n"));
    chat.send("hi");
    chat.wait_for("no event");
    chat.wait_for("Half an");
    chat.wait_idle();
    chat.quit();
}

#[test]
fn a_flood_keeps_no_key_waiting() {
    let home = Home::new();
    let flood = r#"i=1; while [ $i -lt 20000 ]; do i=$((i+1)); echo '{"event":"token","job":'$job',"text":" word","n":'$i',"gap_ms":0.1}'; done
"#;
    let mut chat = home.scripted(&format!("{HELLO}{LOADED}{STARTED}{flood}{FINISH}read end\n"));
    chat.send("hi");
    chat.wait_for("word word");
    chat.type_text("typed meanwhile");
    chat.wait_for("typed meanwhile");
    chat.wait_idle();
    chat.quit();
    assert_eq!(home.journal().matches(" word").count(), 19_999);
}

#[test]
fn hostile_words_stay_words() {
    let home = Home::new();
    let hostile = r#"echo '{"event":"token","job":'$job',"text":"\u001b]52;c;aGk=\u0007\u001b[2J\u202eevil","n":2,"gap_ms":1.0}'
"#;
    let mut chat = home.scripted(&format!("{HELLO}{LOADED}{STARTED}{hostile}{FINISH}read end\n"));
    chat.send("hi");
    chat.wait_for("evil");
    chat.quit();
    let wire = String::from_utf8_lossy(&chat.wire);
    assert!(!wire.contains("\x1b]52") && !wire.contains("\x1b[2Jevil") && !wire.contains('\u{202e}'));
    assert!(home.journal().contains("\\u001b]52"), "the file has what was said");
}

#[test]
fn a_missing_or_broken_model_leaves_a_chat_that_can_be_used() {
    let home = Home::new();
    let broken = home.path().join("broken.gguf");
    let whole = std::fs::read(home.path().join("data/models/SmolLM2-135M-Instruct-Q4_1.gguf")).unwrap();
    std::fs::write(&broken, &whole[..1 << 20]).unwrap();
    let mut chat = home.chat(&["-m", broken.to_str().unwrap()]);
    chat.wait_for("cut off");
    chat.type_text("/model smollm2\r");
    chat.wait_for("is ready");
    chat.quit();
    let mut chat = home.chat(&["-m", "/no/such/model.gguf"]);
    chat.wait_for("There is no file");
    chat.type_text("typing works");
    chat.wait_for("typing works");
    chat.quit();
}

#[test]
fn an_engine_that_cannot_be_started_is_told() {
    let home = Home::new();
    let mut chat = home.chat_with(&[], &[("LLMCHAT_ENGINE_COMMAND", "/no/such/engine")], SIZE);
    chat.wait_for("cannot be started");
    chat.quit();
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_and_the_chat_goes_on() {
    let home = Home::new();
    let mut chat = home.chat(&["-c", "256", "-n", "5"]);
    let long = "All work and no play. ".repeat(80);
    chat.type_text(&format!("\x1b[200~{long}\x1b[201~\r"));
    chat.wait_for("the context holds 256");
    chat.type_text("\x1b");
    chat.wait_gone("The context is full");
    chat.type_text("\x0e");
    chat.send("Short one");
    chat.wait_idle();
    chat.quit();
}

#[test]
fn a_wrong_config_is_told_and_the_program_starts() {
    let home = Home::new();
    std::fs::write(home.path().join("config.toml"), "ctx_sise = 7\n").unwrap();
    let mut chat = home.chat(&[]);
    chat.wait_for("did you mean 'ctx_size'");
    chat.quit();
}
