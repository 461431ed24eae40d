//! Outside the screen: ask, bench, models, and what they say when used wrongly.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::harness::Home;

pub fn run(home: &Home, arguments: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_llmchat"))
        .args(arguments)
        .envs(home.env())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses at once does not read.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn ask_prints_the_answer_and_nothing_else() {
    let home = Home::new();
    let output = run(&home, &["ask", "Say hello", "--temp", "0", "-n", "12"], b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let answer = text(&output.stdout);
    assert!(!answer.trim().is_empty() && !answer.contains('\x1b') && output.stderr.is_empty(), "{output:?}");
    // The same through a pipe, through a dash, and without a subcommand where there is no terminal.
    for arguments in [
        &["ask", "--temp", "0", "-n", "12"][..],
        &["ask", "-", "--temp", "0", "-n", "12"],
        &["--temp", "0", "-n", "12"],
    ] {
        assert_eq!(text(&run(&home, arguments, b"Say hello").stdout), answer, "{arguments:?}");
    }
    assert!(home.conversations().is_empty());
}

#[test]
fn ask_gives_one_object_with_everything_in_it() {
    let home = Home::new();
    let output = run(&home, &["ask", "--json", "Say hello", "-s", "5", "-n", "6", "-sys", "Be brief.", "--save"], b"");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["seed"], 5, "{answer}");
    assert!(["stop", "length"].contains(&answer["finish_reason"].as_str().unwrap()), "{answer}");
    assert_eq!(answer["model"], "SmolLM2-135M-Instruct-Q4_1");
    assert!((1..=6).contains(&answer["usage"]["completion_tokens"].as_u64().unwrap()));
    assert!(text(&output.stdout).contains("\"temperature\":0.8,"));
    for key in ["load_ms", "prefill_ms", "ttft_ms", "decode_ms", "tpot_ms", "tokens_per_second"] {
        assert!(answer["timings"][key].as_f64().unwrap() > 0.0, "{key} of {answer}");
    }
    let journal = home.journal();
    assert!(journal.contains("Be brief.") && journal.contains("Say hello"));
    let again = run(&home, &["ask", "--json", "Say hello", "-s", "5", "-n", "6", "-sys", "Be brief."], b"");
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["text"], answer["text"], "the same seed");
}

#[test]
fn wrong_use_is_two_failure_is_one_and_each_says_why() {
    let home = Home::new();
    for (arguments, stdin, code, word) in [
        (&["ask", "--top-p", "3", "x"][..], &b""[..], 2, "from 0 to 1"),
        (&["ask", "--no-such-flag"], b"", 2, "no-such-flag"),
        (&["ask"], b"", 2, "no question"),
        (&["ask"], b"caf\xe9", 1, "not UTF-8"),
        (&["ask", "-m", "/no/such.gguf", "x"], b"", 1, "no file"),
        (&["ask", "-m", "nothing-like-it", "x"], b"", 1, "No model is called"),
        (&["ask", "-c", "16000000", "--beyond-trained", "x"], b"", 1, "memory is too small"),
        (&["ask", "-c", "16000000", "x"], b"", 1, "--beyond-trained"),
        (&["ask", "--set", "nonsense=1", "x"], b"", 2, "no setting"),
    ] {
        let output = run(&home, arguments, stdin);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(word) && output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn ask_can_be_interrupted() {
    let home = Home::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_llmchat"))
        .args(["ask", "Tell me a very long story", "-n", "6000"])
        .envs(home.env())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
}

#[test]
fn bench_and_models_speak_json() {
    let home = Home::new();
    let output = run(&home, &["bench", "-p", "32", "-n", "4", "-d", "16", "-r", "2", "-t", "1", "--json"], b"");
    let reports: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = reports.as_array().unwrap().iter().map(|r| r["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["pp32 @ d16", "tg4 @ d16"]);
    for report in reports.as_array().unwrap() {
        let rates = &report["tokens_per_second"];
        assert!(rates["min"].as_f64() <= rates["median"].as_f64() && rates["median"].as_f64() <= rates["max"].as_f64());
        assert_eq!(report["runs"].as_array().unwrap().len(), 2);
    }
    let output = run(&home, &["models", "--json"], b"");
    let models: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(models.as_array().unwrap().iter().any(|m| m["architecture"] == "gemma3" && m["n_ctx_train"] == 32_768));
}

#[test]
fn plan_does_the_arithmetic_of_the_field() {
    let home = Home::new();
    let llama =
        ["plan", "--shape", "32,32,128", "--weights", "14G", "--memory", "40G", "-c", "4096", "--bandwidth", "100GB/s"];
    let output = run(&home, &[&llama[..], &["--json"]].concat(), b"");
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |name: &str| plan["rows"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap().clone();
    assert_eq!(
        (row("f16")["bytes_per_token"].as_u64(), row("f16")["kv_bytes"].as_u64()),
        (Some(1 << 19), Some(2 << 30))
    );
    for (name, chats) in [("f16", 12), ("q8_0", 22), ("f16 with 8 KV heads", 48), ("f16 paged, 25 % used", 48)] {
        assert_eq!(row(name)["most_chats"], chats, "{plan}");
    }
    let table = text(&run(&home, &llama, b"").stdout);
    assert!(
        table.contains("512 KiB") && table.contains("2.0 GiB") && table.contains("37.3 GiB = 40.0 GB (given)"),
        "{table}"
    );
    assert!(table.contains("100.0 GB/s (given)"), "{table}");
    let more = text(&run(&home, &[&llama[..], &["--chats", "13"]].concat(), b"").stdout);
    assert!(more.lines().any(|l| l.starts_with("f16 ") && l.contains(" no ")), "{more}");
}

#[test]
fn plan_knows_models_by_name_and_says_where_numbers_are_from() {
    let home = Home::new();
    let output = run(&home, &["plan", "-m", "gemma", "-c", "8192", "--json", "--set", "swa_full=false"], b"");
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["rows"][0]["bytes_per_token"], 3072, "{plan}");
    assert_eq!(plan["rows"][0]["kv_bytes"], 3072 * 8192 + (15 << 20));
    assert_eq!((&plan["memory"]["from"], &plan["bandwidth"]["from"]), (&"free here".into(), &"measured here".into()));
    assert!(plan["bandwidth"]["bytes"].as_u64().unwrap() > 100_000_000 && plan["rows"][0]["fits"] == true, "{plan}");
    for (arguments, code, word) in [
        (&["plan", "--memory", "40X"][..], 2, "40GiB"),
        (&["plan", "--shape", "32,32"], 2, "layers,kv-heads,head-size"),
        (&["plan", "--shape", "32,32,128"], 2, "--weights"),
        (&["plan", "--shape", "32,32,128", "--weights", "14G", "-m", "gemma"], 2, "--model"),
        (&["plan", "--used", "200%"], 2, "25%"),
        (&["plan", "-ctk", "q3"], 2, "q8_0"),
        (&["plan", "-m", "nosuch"], 1, "llmchat models"),
    ] {
        let output = run(&home, arguments, b"");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.contains(word)), (Some(code), true), "{arguments:?}: {said}");
    }
}

#[test]
fn kv_compare_measures_what_can_be_and_names_what_cannot() {
    let home = Home::new();
    let file = home.path().join("text.txt");
    std::fs::write(&file, "The river runs to the sea. ".repeat(12)).unwrap();
    let file = file.to_str().unwrap();
    let compare = ["kv-compare", file, "-c", "256", "-t", "1", "-r", "1", "--json", "--types"];
    let output = run(&home, &[&compare[..], &["f16,q8_0/f16"]].concat(), b"");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (exact, small) = (&report["rows"][0], &report["rows"][1]);
    assert_eq!((&exact["types"], &small["types"]), (&"f16".into(), &"q8_0/f16".into()), "{report}");
    assert_eq!((&exact["bytes_per_token"], &small["bytes_per_token"]), (&23_040.into(), &(11_520 + 6_120).into()));
    let perplexity = |row: &serde_json::Value| row["perplexity"].as_f64().unwrap();
    assert!(perplexity(exact) > 1.0 && (perplexity(small) / perplexity(exact) - 1.0).abs() < 0.05, "{report}");
    for key in ["prefill_tokens_per_second", "decode_tokens_per_second"] {
        assert!(exact[key].as_f64().unwrap() > 0.0, "{report}");
    }
    // Without flash attention V cannot be quantised, and K can.
    let output = run(&home, &[&compare[..], &["q8_0,q8_0/f16", "-fa", "off"]].concat(), b"");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["rows"][0]["error"].as_str().unwrap().contains("needs flash attention"), "{report}");
    assert!(perplexity(&report["rows"][1]) > 1.0);
    for (arguments, code, word) in [
        (&["kv-compare", "/no/such/file"][..], 2, "cannot be read"),
        (&["kv-compare", file, "--types", "f16,q9"], 2, "q5_1"),
        (&["kv-compare", file, "--types", "q4_0", "-fa", "off"], 1, "needs flash attention"),
    ] {
        let output = run(&home, arguments, b"");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.contains(word)), (Some(code), true), "{arguments:?}: {said}");
    }
}

#[test]
fn every_help_has_an_example() {
    let home = Home::new();
    for arguments in ["--help", "ask", "bench", "kv-compare", "plan", "models", "template"] {
        let arguments = if arguments == "--help" { vec![arguments] } else { vec![arguments, "--help"] };
        let output = run(&home, &arguments, b"");
        assert!(output.status.success() && text(&output.stdout).contains("Example"), "{arguments:?}");
    }
    assert!(text(&run(&home, &["--version"], b"").stdout).contains("instructions"));
}
