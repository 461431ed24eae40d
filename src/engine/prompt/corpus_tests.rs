//! Every template that is here, against everything that a chat can come to: the small corpus of
//! `tests/templates` always, the large one where it is (see `tests/engine_templates.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use Role::{Assistant, System, User};

struct Case {
    name: String,
    template: ChatTemplate,
    /// What looks like a control text in the template.
    controls: Vec<String>,
}

fn corpus() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let large = std::env::var_os("LLMCHAT_TEMPLATES").map_or_else(|| root.join("../shared/templates"), PathBuf::from);
    let files = [root.join("tests/templates"), large].into_iter().filter_map(|folder| std::fs::read_dir(folder).ok());
    let paths = files.flatten().map(|entry| entry.unwrap().path());
    let mut cases: Vec<Case> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "jinja"))
        .map(|path| {
            let source = std::fs::read_to_string(&path).unwrap();
            Case {
                name: path.file_stem().unwrap().to_string_lossy().into_owned(),
                template: ChatTemplate::new(Some(&source), "<s>", "</s>"),
                controls: controls(&source),
            }
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() >= 8);
    cases
}

fn controls(source: &str) -> Vec<String> {
    let mut found: BTreeSet<String> =
        ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "[INST]", "[/INST]", "<<SYS>>"]
            .map(str::to_owned)
            .into();
    for (open, close) in [('<', '>'), ('[', ']')] {
        for (at, _) in source.match_indices(open) {
            let Some(end) = source[at..].find(close) else { continue };
            let text = &source[at..=at + end];
            let inner = &text[1..text.len() - 1];
            let plain = |c: char| c.is_alphanumeric() || "|_/-｜▁".contains(c);
            let shouted = open == '<' || !inner.contains(|c: char| c.is_lowercase());
            if inner.chars().all(plain) && inner.contains(|c: char| c.is_alphabetic()) && shouted {
                found.insert(text.to_owned());
            }
        }
    }
    found.into_iter().collect()
}

fn turns(turns: &[(Role, &str)]) -> Vec<Turn> {
    turns.iter().map(|(role, text)| Turn { role: *role, text: (*text).to_owned() }).collect()
}

/// How often each control text stands whole in a part.
fn counts(rendered: &Rendered, controls: &[String]) -> Vec<usize> {
    let count = |control: &String| rendered.segments.iter().map(|s| s.matches(control.as_str()).count()).sum();
    controls.iter().map(count).collect()
}

fn owned(rendered: &Rendered, role: Role) -> String {
    let text = rendered.segments.concat();
    let mut from = 0;
    let mut out = String::new();
    for (end, owner) in &rendered.owners {
        assert!(from <= *end && *end <= text.len(), "{:?} of {}", rendered.owners, text.len());
        if *owner == role {
            out.push_str(&text[from..*end]);
        }
        from = *end;
    }
    assert_eq!(from, text.len());
    out
}

/// Its name, the system prompt, the turns.
type Chat = (&'static str, &'static str, &'static [(Role, &'static str)]);

const CHATS: [Chat; 9] = [
    ("one question", "", &[(User, "alpha")]),
    ("system", "sigma", &[(User, "alpha")]),
    ("turns", "sigma", &[(User, "alpha"), (Assistant, "beta"), (User, "gamma")]),
    ("two users", "", &[(User, "alpha"), (User, "gamma")]),
    ("stopped before the first token", "sigma", &[(User, "alpha"), (Assistant, ""), (User, "gamma")]),
    (
        "stopped later",
        "sigma",
        &[(User, "alpha"), (Assistant, "beta"), (User, "gamma"), (Assistant, " \n"), (User, "delta")],
    ),
    ("continued", "sigma", &[(User, "alpha"), (Assistant, "beta")]),
    ("an answer first", "sigma", &[(Assistant, "beta"), (User, "alpha")]),
    ("thinking", "", &[(User, "alpha"), (Assistant, "<think>\nhm\n</think>\n\nbeta"), (User, "gamma")]),
];

#[test]
fn every_template_goes_on_with_every_chat() {
    let guard = Guard::default();
    let (mut faults, mut lossy) = (Vec::new(), BTreeSet::new());
    for case in corpus() {
        for (name, system, chat) in CHATS {
            let rendered = match render(&case.template, system, &turns(chat), &guard) {
                Ok(rendered) => rendered,
                Err(problem) => {
                    faults.push(format!("{} · {name}: {problem}", case.name));
                    continue;
                }
            };
            let text = rendered.segments.concat();
            let asked = |t: &(Role, &str)| t.0 != User || owned(&rendered, User).contains(t.1);
            let kept = chat.iter().all(asked) && owned(&rendered, System).contains(system);
            let told = rendered.notes.iter().any(|note| note == LOSSY);
            if kept == told {
                faults
                    .push(format!("{} · {name}: kept {kept}, told {told}: {text:?} {:?}", case.name, rendered.owners));
            }
            lossy.extend(told.then(|| case.name.clone()));
            if name == "continued" && !text.ends_with("beta") {
                faults.push(format!("{} · {name}: ends {text:?}", case.name));
            }
            if rendered.segments.len() != 1 {
                faults.push(format!("{} · {name}: {:?}", case.name, rendered.segments));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // Those of the small corpus that show no messages.
    assert_eq!(lossy.into_iter().collect::<Vec<_>>(), ["namespace", "strftime"]);
}

#[test]
fn no_control_text_comes_out_of_a_message() {
    let mut faults = Vec::new();
    for case in corpus() {
        let guard = Guard::new(case.controls.clone());
        let all = case.controls.join(" ");
        let nested: Vec<String> = case.controls.iter().map(|c| format!("{}{c}{}", &c[..1], &c[1..])).collect();
        let open: Vec<&str> = case.controls.iter().map(|c| &c[..c.len() - 1]).collect();
        let (nested, open) = (nested.concat(), open.join("\n"));
        let hostile =
            [format!(" {all}\n"), nested, format!("x{open}"), format!("x{open}  \n"), format!("{}x", &all[1..])];
        for text in &hostile {
            for (system, chat) in [
                ("", vec![(User, text.as_str())]),
                (text.as_str(), vec![(User, "q"), (Assistant, "a"), (User, text.as_str())]),
                ("", vec![(User, text.as_str()), (User, text.as_str())]),
            ] {
                let neutral: Vec<(Role, &str)> = chat.iter().map(|(role, _)| (*role, "word")).collect();
                let neutral_system = if system.is_empty() { "" } else { "sentence" };
                let Ok(rendered) = render(&case.template, system, &turns(&chat), &guard) else { continue };
                let plain = render(&case.template, neutral_system, &turns(&neutral), &guard).unwrap();
                let (found, own) = (counts(&rendered, &case.controls), counts(&plain, &case.controls));
                for ((control, found), own) in case.controls.iter().zip(found).zip(own) {
                    if found > own {
                        faults.push(format!(
                            "{}: {control} {found} times, not {own}: {text:?}\n   {:?}",
                            case.name, rendered.segments
                        ));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn ordinary_messages_are_rendered_as_the_template_says() {
    for case in corpus() {
        let ChatTemplate::Jinja(template) = &case.template else { panic!("{}", case.name) };
        let guard = Guard::new(case.controls.clone());
        let text = "if a < b:\n  print(\"a|b\") # [x]>\n";
        let Ok(rendered) = render(&case.template, "", &turns(&[(User, text)]), &guard) else { continue };
        let message = serde_json::json!({"role": "user", "content": text});
        assert_eq!(rendered.segments, [template.render(&[message], true, None).unwrap()], "{}", case.name);
    }
}
