//! Chat templates against what Transformers renders. The small corpus of `tests/templates` always runs; the
//! large one of real templates runs where it is: in the folder that `LLMCHAT_TEMPLATES` names, or in
//! `shared/templates` beside the checkout.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use llmchat::engine::template::{Template, TemplateError};
use serde_json::Value;

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates")
}

/// The large corpus, if it is there. One that was asked for must be.
fn large() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("LLMCHAT_TEMPLATES") {
        let folder = PathBuf::from(folder);
        assert!(folder.is_dir(), "LLMCHAT_TEMPLATES names no folder: {}", folder.display());
        return Some(folder);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/templates");
    folder.is_dir().then_some(folder)
}

/// Runs every case of a corpus; how many there were, and what was wrong.
fn run(folder: &Path) -> (usize, String) {
    let (mut cases, mut faults) = (0, String::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.to_str().and_then(|p| p.strip_suffix(".cases.json")) else { continue };
        let source = std::fs::read_to_string(format!("{name}.jinja")).unwrap();
        let document: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let text = |key: &str| document[key].as_str().unwrap().to_owned();
        let template = Template::parse(&source, &text("bos_token"), &text("eos_token")).unwrap();
        for case in document["cases"].as_array().unwrap() {
            cases += 1;
            let messages = case["messages"].as_array().unwrap();
            let prompted = case["add_generation_prompt"].as_bool().unwrap();
            let rendered = template.render(messages, prompted, Some(&text("now")));
            let good = match (&rendered, &case["expected"], &case["error"]) {
                (Ok(text), Value::String(expected), _) => text == expected,
                // The sentence of `raise_exception` is the template's; other errors are worded by each engine.
                (Err(TemplateError::Refused(why)), Value::Null, Value::String(error)) => why == error,
                (Err(TemplateError::Failed(_)), Value::Null, Value::String(_)) => true,
                _ => false,
            };
            if !good {
                writeln!(faults, "{} · {}: {rendered:?}\n  {case}", text("template"), case["name"]).unwrap();
            }
        }
    }
    (cases, faults)
}

#[test]
fn the_small_corpus_renders_as_transformers_does() {
    let (cases, faults) = run(&own());
    assert!(faults.is_empty(), "{faults}");
    assert!(cases >= 19, "{cases} cases only");
}

#[test]
fn the_large_corpus_renders_as_transformers_does() {
    let Some(folder) = large() else {
        println!("skipped: no large corpus here, LLMCHAT_TEMPLATES can name one");
        return;
    };
    let (cases, faults) = run(&folder);
    println!("{cases} cases of {}", folder.display());
    assert!(faults.is_empty(), "{faults}");
    assert!(cases > 0, "no cases in {}", folder.display());
}

#[test]
fn the_command_answers_line_by_line() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_llmchat"))
        .args(["template", "--lines"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = concat!(
        r#"{"template":"{{ bos_token }}{{ messages[0].content }}","bos_token":"<s>","messages":[{"content":"hé"}]}"#,
        "\nnot JSON\n\n",
        r#"{"template":"{% if %}","messages":[]}"#,
        "\n",
        r#"{"template":"{{ raise_exception('no') }}","messages":[],"eos_token":null}"#,
        "\n",
        r#"{"template":"{{ strftime_now('%Y') }}","messages":[],"now":"1999-12-31T23:59:59","add_generation_prompt":true}"#,
        "\n"
    );
    // Dropping the pipe ends the input.
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let answers: Vec<Value> =
        output.stdout.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert!(output.status.success());
    assert_eq!(answers.len(), 6, "{answers:?}");
    assert_eq!(answers[0]["text"], "<s>hé");
    for answer in &answers[1..5] {
        assert!(answer["error"].as_str().is_some_and(|e| !e.is_empty()), "{answer:?}");
    }
    assert!(answers[4]["error"].as_str().unwrap().ends_with("refuses: no"));
    assert_eq!(answers[5]["text"], "1999");
}
