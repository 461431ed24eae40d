//! Conversations in and out of the real program, without a model: the formats of other programs, our own, and `check`.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_llmchat"))
            .arg("conversations")
            .args(arguments)
            .env("HOME", self.0.path())
            .env("LLMCHAT_DATA_DIR", self.path("data"))
            .env("LLMCHAT_STATE_DIR", self.path("state"))
            .env("LLMCHAT_CONFIG", self.path("config.toml"))
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it prints with `--json`, whatever its exit code.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {output:?}"))
    }

    /// The files of the conversations.
    fn files(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path("data/conversations")) else { return Vec::new() };
        let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).filter(|p| p.is_file()).collect();
        files.sort();
        files
    }

    /// Every file below this home.
    fn everything(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { all.push(path) }
            }
        }
        all
    }
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transfer").join(name).display().to_string()
}

/// A message as (parent, role, text).
fn tree(conversation: &Value) -> Vec<(Option<u64>, String, String)> {
    let text = |m: &Value, field: &str| m[field].as_str().unwrap().to_owned();
    let messages = conversation["messages"].as_array().unwrap();
    messages.iter().map(|m| (m["parent"].as_u64(), text(m, "role"), text(m, "text"))).collect()
}

fn said(parent: Option<u64>, role: &str, text: &str) -> (Option<u64>, String, String) {
    (parent, role.to_owned(), text.to_owned())
}

/// Imports one file: a dry run that writes nothing, then for good, then again. What came in, and what was told.
fn imported(home: &Home, file: &str, conversations: usize) -> (Vec<Value>, Value) {
    let before = home.files();
    let dry = home.json(&["import", "--dry-run", file]);
    assert_eq!(home.files(), before, "a dry run writes nothing");
    let told = home.json(&["import", file]);
    assert_eq!(told, dry, "the dry run tells what comes in");
    assert_eq!(home.files().len(), before.len() + conversations, "{told}");
    let again = home.json(&["import", file]);
    let outcomes = |rows: &Value, outcome: &str| {
        rows.as_array().unwrap().iter().filter(|r| r["outcome"] == outcome).cloned().collect::<Vec<_>>()
    };
    assert_eq!((outcomes(&again, "new").len(), outcomes(&again, "here").len()), (0, conversations), "{again}");
    assert_eq!(home.files().len(), before.len() + conversations, "nothing comes in twice");
    let ids = outcomes(&told, "new").into_iter().map(|r| r["id"].as_str().unwrap().to_owned());
    (ids.map(|id| home.json(&["show", &id])).collect(), told)
}

fn without(told: &Value, nth: usize) -> Vec<&str> {
    told[nth]["without"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect()
}

#[test]
fn llama_cpps_web_page_comes_in_with_its_branches() {
    let home = Home::new();
    let (all, told) = imported(&home, &example("llama-cpp.jsonl"), 1);
    let question = "Which river is the longest?\n\n[notes.txt]\nThe Volga flows into the Caspian Sea.";
    let answer = "<think>\nEurope's longest is the Volga.\n</think>\n\nThe Volga, with 3,531 km.";
    assert_eq!(
        tree(&all[0]),
        [said(None, "user", question), said(Some(1), "assistant", "The Danube."), said(Some(1), "assistant", answer)]
    );
    assert_eq!((&all[0]["title"], &all[0]["head"]), (&"Rivers of Europe".into(), &2.into()));
    assert_eq!(all[0]["system"], "Answer in one sentence.");
    assert_eq!(all[0]["messages"][2]["made"]["model"], "large.gguf");
    let usage = &all[0]["messages"][2]["made"]["usage"];
    assert_eq!((usage["prompt_tokens"].as_u64(), usage["reused_tokens"].as_u64()), (Some(24), Some(4)));
    assert_eq!(without(&told, 0), ["1 image", "1 tool call or result"]);
    // It stands in the list where it was used last, not at the top.
    assert_eq!(home.json(&["list"])[0]["changed"], 1_760_000_300_000_u64);
    // The older export, in which one conversation is damaged.
    let (all, told) = imported(&home, &example("llama-cpp.json"), 1);
    assert_eq!(tree(&all[0]), [said(None, "user", "Ping"), said(Some(1), "assistant", "Pong")]);
    assert_eq!(told[1]["outcome"], "refused");
}

#[test]
fn chatgpts_export_comes_in_with_its_branches() {
    let home = Home::new();
    let (all, told) = imported(&home, &example("conversations.json"), 1);
    assert_eq!(
        tree(&all[0]),
        [
            said(None, "user", "When do foxes sleep?"),
            said(Some(1), "assistant", "Mostly by day."),
            said(None, "user", "Is this a fox?"),
            said(Some(3), "assistant", "Perhaps."),
            said(Some(3), "assistant", "Yes, a red fox."),
        ]
    );
    assert_eq!((&all[0]["head"], &all[0]["created"]), (&4.into(), &1_700_000_000_250_u64.into()));
    assert_eq!(all[0]["system"], "I study foxes.\n\nBe brief.");
    assert_eq!(all[0]["messages"][4]["made"]["model"], "gpt-4o");
    assert_eq!(without(&told, 0), ["1 image", "1 summary of a thought", "2 tool calls and results"]);
    assert_eq!(told[1]["why"], "nothing is said in “Nothing said”");
}

#[test]
fn lm_studios_versions_come_in_as_branches() {
    let home = Home::new();
    let (all, told) = imported(&home, &example("1755000000000.conversation.json"), 1);
    let second = "<think>\nIt must hold and open.\n</think>\n\nThe bowline.";
    assert_eq!(
        tree(&all[0]),
        [
            said(None, "user", "A knot for a boat?"),
            said(Some(1), "assistant", "The reef knot."),
            said(Some(1), "assistant", second),
            said(Some(3), "user", "And to join two ropes?"),
            said(Some(4), "assistant", "The sheet bend."),
        ]
    );
    let sampling = &all[0]["sampling"];
    assert_eq!((sampling["temperature"].as_f64(), sampling["top_p"].as_f64()), (Some(0.2), Some(0.9)));
    assert_eq!(sampling["min_p"], 0.05, "what is switched off there is not set here");
    assert_eq!((&all[0]["system"], &all[0]["title"]), (&"You know ropes.".into(), &"Knots".into()));
    let without = without(&told, 0);
    assert_eq!(without[..2], ["1 file", "1 tool call or result"]);
    assert!(without[2].contains("repeat_penalty is 1000"), "{without:?}");
}

#[test]
fn aichats_session_comes_in_with_what_it_compressed() {
    let home = Home::new();
    let (all, told) = imported(&home, &example("bread.yaml"), 1);
    assert_eq!(
        tree(&all[0]),
        [
            said(None, "user", "How long does a sourdough rise?"),
            said(Some(1), "assistant", "Four to twelve hours."),
            said(Some(2), "user", "Is this one done?"),
            said(Some(3), "assistant", "It is: the crust\nis brown."),
        ]
    );
    assert_eq!((&all[0]["title"], &all[0]["system"]), (&"bread".into(), &"You bake.".into()));
    assert_eq!(all[0]["sampling"]["temperature"], 0.3);
    assert_eq!(
        without(&told, 0),
        ["1 image", "2 tool calls and results", "a summary of the older messages, which come in whole"]
    );
}

#[test]
fn sharegpt_and_messages_come_in_line_by_line() {
    let home = Home::new();
    let (all, told) = imported(&home, &example("sharegpt.json"), 1);
    let texts: Vec<String> = tree(&all[0]).into_iter().map(|m| m.2).collect();
    assert_eq!((texts.join(" "), &all[0]["system"]), ("One? Two. Three? Four.".to_owned(), &"You count.".into()));
    assert_eq!(told[1]["outcome"], "refused");
    let (all, told) = imported(&home, &example("messages.jsonl"), 3);
    assert_eq!(all[0]["system"], "You translate.");
    assert_eq!(tree(&all[2])[1], said(Some(1), "assistant", "Bonjour"));
    assert!(told[2]["why"].as_str().unwrap().starts_with("line 3: it is damaged"), "{told}");
}

fn oterm(path: &Path, sql: &str) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(sql).unwrap();
}

const TABLES: &str = "
    CREATE TABLE chat (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, model TEXT NOT NULL, system TEXT,
        provider TEXT DEFAULT 'ollama', parameters TEXT DEFAULT '{}', tools TEXT DEFAULT '[]', thinking BOOLEAN DEFAULT 0);
    CREATE TABLE message (id INTEGER PRIMARY KEY AUTOINCREMENT, chat_id INTEGER NOT NULL, author TEXT NOT NULL,
        text TEXT NOT NULL, images TEXT DEFAULT '[]');";

#[test]
fn oterms_database_comes_in_and_stays_as_it_is() {
    let home = Home::new();
    let path = home.path("store.db");
    oterm(&path, TABLES);
    oterm(
        &path,
        "INSERT INTO chat (name, model, system, parameters) VALUES
            ('Stars', 'llama3', 'You look up.', '{\"temperature\":0.1,\"num_predict\":99}'), ('Empty', 'llama3', NULL, '{}');
         INSERT INTO message (chat_id, author, text, images) VALUES (1, 'user', 'Which is the brightest?', '[\"AA==\"]'),
            (1, 'assistant', CAST(x'53697269757320ff' AS TEXT), '[]');",
    );
    let before = std::fs::read(&path).unwrap();
    let (all, told) = imported(&home, &path.display().to_string(), 1);
    let stars = said(None, "user", "Which is the brightest?");
    assert_eq!(tree(&all[0]), [stars, said(Some(1), "assistant", "Sirius \u{fffd}")]);
    let sampling = &all[0]["sampling"];
    assert_eq!((sampling["temperature"].as_f64(), sampling["max_tokens"].as_u64()), (Some(0.1), Some(99)));
    assert_eq!((&all[0]["system"], without(&told, 0)), (&"You look up.".into(), vec!["1 image"]));
    assert_eq!(told[1]["why"], "nothing is said in “Empty”");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // It has grown there: what is new comes in beside what is here.
    oterm(&path, "INSERT INTO message (chat_id, author, text) VALUES (1, 'user', 'And then?')");
    let told = home.json(&["import", &path.display().to_string()]);
    assert_eq!((&told[0]["outcome"], home.files().len()), (&"grown".into(), 2));
}

#[test]
fn databases_that_are_not_oterms_or_would_run_for_ever_are_refused() {
    let home = Home::new();
    let endless = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 'x' AS name FROM n";
    for (nth, sql) in [
        "CREATE TABLE other (id INTEGER)".to_owned(),
        format!("CREATE VIEW chat AS {endless}; CREATE TABLE message (id INTEGER, chat_id INTEGER)"),
    ]
    .iter()
    .enumerate()
    {
        let path = home.path(&format!("{nth}.db"));
        oterm(&path, sql);
        let told = home.json(&["import", &path.display().to_string()]);
        assert!(told[0]["why"].as_str().unwrap().contains("not oterm's"), "{told}");
    }
    let broken = home.file("broken.db", [b"SQLite format 3\0".as_slice(), &[7; 600]].concat());
    let told = home.json(&["import", &broken]);
    assert_eq!(told[0]["outcome"], "refused", "{told}");
}

#[test]
fn hostile_names_stay_in_the_folder_and_escapes_off_the_screen() {
    let home = Home::new();
    let long = "x".repeat(4000);
    let titles = ["../../x", "CON", &long, "🦊🌊 \u{202e}", "a\x1b]52;c;eA==\x07b\r\n\0c", "/etc/passwd", ".."];
    let conversations: Vec<Value> = titles
        .iter()
        .enumerate()
        .map(|(nth, title)| {
            let id = format!("../../{title}/{nth}");
            let text = format!("{nth}\x1b[2J\u{9b}31m");
            serde_json::json!({
                "id": id, "title": title, "create_time": nth,
                "mapping": { title.to_owned(): { "parent": title, "message": {
                    "author": { "role": "user" }, "content": { "content_type": "text", "parts": [text] } } } }
            })
        })
        .collect();
    let file = home.file("hostile.json", serde_json::to_vec(&conversations).unwrap());
    let output = home.run(&["import", &file]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    assert!(shown.contains("follow each other in a circle"), "{shown}");
    assert_eq!(home.files().len(), titles.len());
    for arguments in [&["list"][..], &["search", "31m"], &["show", "CON"]] {
        let shown = home.text(arguments);
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()) && !shown.contains('\u{202e}'), "{shown:?}");
    }
    let exported = home.json(&["export", "--all", "--format", "html", "-o", "pages/"]);
    assert_eq!(exported.as_array().unwrap().len(), titles.len());
    let outside = home.everything().into_iter().filter(|p| {
        let name = p.file_name().unwrap().to_str().unwrap();
        let plain = name.len() < 80 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
        let place = p.parent().unwrap();
        // The index is the cache's.
        let plain = plain || place == home.path(".cache/llmchat");
        !(plain
            && (place == home.path("data/conversations")
                || place == home.path("pages")
                || place == home.path(".cache/llmchat")
                || name == "hostile.json"))
    });
    assert_eq!(outside.collect::<Vec<_>>(), Vec::<PathBuf>::new());
}

#[test]
fn every_own_format_goes_out_and_comes_in_as_it_was() {
    let home = Home::new();
    home.run(&[
        "import",
        &example("llama-cpp.jsonl"),
        &example("1755000000000.conversation.json"),
        &example("bread.yaml"),
    ]);
    let ids: Vec<String> =
        home.json(&["list"]).as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 3);
    for format in ["json", "html", "md", "jsonl"] {
        let whole: &[&str] = if format == "json" { &[] } else { &["--whole"] };
        let out = format!("out-{format}/");
        home.text(&[&["export", "--all", "--format", format, "-o", &out], whole].concat());
        let other = Home::new();
        let told = other.json(&["import", &home.path(&out).display().to_string()]);
        assert_eq!(other.files().len(), 3, "{format}: {told}");
        for id in &ids {
            assert_eq!(other.json(&["show", id]), home.json(&["show", id]), "{format}");
        }
    }
    // The conversation files themselves, and all in one file.
    let other = Home::new();
    other.json(&["import", &home.path("data/conversations").display().to_string()]);
    let all = other.file("all.json", home.text(&["export", "--all", "--format", "json"]));
    assert_eq!(other.files().len(), 3);
    let told = other.json(&["import", &all]);
    assert!(told.as_array().unwrap().iter().all(|r| r["outcome"] == "here"), "{told}");
    // Without --whole, others do not get what they are not shown.
    let page = home.text(&["export", "rivers", "--format", "html"]);
    assert!(page.contains("The Danube.") && !page.contains("The Volga, with"), "{page}");
    let line = home.text(&["export", "knots", "--format", "jsonl"]);
    let line: Value = serde_json::from_str(&line).unwrap();
    let roles: Vec<&str> = line["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert_eq!(line.as_object().unwrap().len(), 1);
}

#[test]
fn files_that_are_there_are_not_written_over() {
    let home = Home::new();
    home.run(&["import", &example("llama-cpp.json")]);
    let mine = home.file("mine.md", "mine");
    let refused = home.run(&["export", "last", "-o", &mine]);
    assert_eq!((refused.status.code(), std::fs::read_to_string(&mine).unwrap()), (Some(1), "mine".to_owned()));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("is there already"));
    home.text(&["export", "last", "-o", &mine, "--force"]);
    assert!(std::fs::read_to_string(&mine).unwrap().starts_with("# Old export\n"));
    for (arguments, code) in [
        (&["export"][..], 2),
        (&["export", "last", "--all"], 2),
        (&["export", "--all", "--format", "html"], 2),
        (&["export", "last", "--format", "txt", "--whole"], 2),
        (&["export", "nonsense"], 1),
        (&["show", "nonsense"], 1),
        (&["import", "no-such-file"], 1),
        (&["search", "nonsense"], 1),
    ] {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    }
}

#[test]
fn check_sets_torn_ends_aside_and_names_what_it_cannot_mend() {
    let home = Home::new();
    home.run(&["import", &example("llama-cpp.json"), &example("bread.yaml"), &example("sharegpt.json")]);
    assert!(home.text(&["check"]).contains("3 files: 3 fine"));
    let files = home.files();
    let change = |nth: usize, change: &dyn Fn(&mut String)| {
        let mut text = std::fs::read_to_string(&files[nth]).unwrap();
        change(&mut text);
        std::fs::write(&files[nth], &text).unwrap();
        text
    };
    let torn = change(0, &|text| text.push_str("{\"type\":\"message\",\"id\":99,\"te"));
    let damaged = change(1, &|text| *text = text.replacen("{\"type\":\"message\"", "{\"type\":\"mess", 1));
    let folder = home.path("data/conversations");
    std::fs::write(folder.join("0000000000001-00000001.jsonl"), "Dear diary\n").unwrap();
    let state = |rows: &Value, nth: usize| rows[nth]["state"].as_str().unwrap().to_owned();
    let find = |rows: &Value, path: &Path| {
        let row = rows.as_array().unwrap().iter().position(|r| r["path"] == path.to_str().unwrap());
        state(rows, row.unwrap())
    };
    let dry = home.json(&["check", "--dry-run"]);
    assert_eq!((find(&dry, &files[0]), find(&dry, &files[1])), ("torn".into(), "damaged".into()));
    assert_eq!(std::fs::read_to_string(&files[0]).unwrap(), torn, "a dry run changes nothing");
    let output = home.run(&["check"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    for part in ["1 fine, 1 repaired, 1 damaged, 1 unreadable", "29 bytes", "1 damaged lines", "Dear", "follow one"] {
        assert_eq!(told.contains(part), part != "Dear", "{part} in {told}");
    }
    assert_eq!(std::fs::read_to_string(&files[0]).unwrap() + "{\"type\":\"message\",\"id\":99,\"te", torn);
    let aside = std::fs::read_to_string(files[0].with_extension("jsonl.torn")).unwrap();
    assert_eq!(aside, "{\"type\":\"message\",\"id\":99,\"te\n");
    assert_eq!(std::fs::read_to_string(&files[1]).unwrap(), damaged, "what cannot be mended stays as it is");
    assert_eq!(find(&home.json(&["check"]), &files[0]), "fine");
}

#[test]
fn lists_and_searches_tell_where() {
    let home = Home::new();
    assert_eq!(home.json(&["list"]), serde_json::json!([]));
    home.run(&["import", &example("llama-cpp.jsonl"), &example("conversations.json")]);
    let list = home.json(&["list"]);
    assert_eq!((&list[0]["title"], &list[0]["messages"]), (&"Rivers of Europe".into(), &3.into()));
    assert_eq!(list[1]["title"], "Foxes at night");
    // On branches that are not shown too.
    let hits = home.json(&["search", "DANUBE"]);
    assert_eq!((&hits[0]["message"], &hits[0]["excerpt"]), (&2.into(), &"The Danube.".into()));
    assert_eq!(home.json(&["search", "fox"]).as_array().unwrap().len(), 5);
    assert!(home.text(&["search", "caspian"]).contains("#1 you: …"));
    let shown = home.text(&["show", "foxes"]);
    assert!(shown.contains("gpt-4o:\nPerhaps.") && !shown.contains("a red fox"), "{shown}");
}
