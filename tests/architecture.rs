//! Holds what `src/lib.rs` says: who may use whom, where llama.cpp and `unsafe` stand, how long files are.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.

use std::path::{Path, PathBuf};

/// Rooms and the rooms of ours that they may use; `cli` may use everything.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("text", &[]),
    ("chat", &[]),
    ("paths", &[]),
    ("store", &["chat"]),
    ("model", &["chat"]),
    ("config", &["chat"]),
    ("transfer", &["chat", "text"]),
    ("engine", &["chat", "model"]),
    ("app", &["chat", "text", "engine::protocol"]),
    ("view", &["app", "chat", "text"]),
    ("terminal", &["app"]),
];
const LONGEST_FILE: usize = 600;

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    paths
        .into_iter()
        .map(|p| {
            let name = p.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
            (name, std::fs::read_to_string(p).unwrap())
        })
        .collect()
}

fn room(name: &str) -> &str {
    name.split('/').next().unwrap().trim_end_matches(".rs")
}

/// What a source uses of ours: `a::b` for `crate::a::b…`, also out of `use crate::{a::b, c}`.
fn uses(source: &str) -> Vec<String> {
    let code: String = source.lines().map(|l| l.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + 7..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 1;
            let end = group.find(|c| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                depth == 0
            });
            let mut depth = 0;
            let parts = group[..end.unwrap_or(group.len())].split(|c| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                c == ',' && depth == 0
            });
            found.extend(parts.map(|p| path(p.trim())));
        } else {
            found.push(path(rest));
        }
    }
    found.retain(|p| !p.is_empty());
    found
}

fn path(text: &str) -> String {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    text[..end].trim_end_matches(':').to_owned()
}

fn faults(name: &str, source: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let own = room(name);
    // A room's tests may build what it works on.
    let tests = name.ends_with("tests.rs");
    if let Some((_, allowed)) = MAY_USE.iter().find(|(room, _)| *room == own).filter(|_| !tests) {
        for used in uses(source) {
            let ours = used == own || used.starts_with(&format!("{own}::"));
            let permitted = allowed.iter().any(|a| used == *a || used.starts_with(&format!("{a}::")));
            if !ours && !permitted {
                faults.push(format!("{name} uses crate::{used}"));
            }
        }
    }
    let knows = |l: &str| l.split("//").next().unwrap().contains("llama_cpp");
    if own != "engine" && source.lines().any(knows) {
        faults.push(format!("{name} knows llama.cpp"));
    }
    let code = source.split("#[cfg(test)]").next().unwrap();
    for line in code.lines().filter(|_| !tests) {
        let line = line.trim();
        if line.starts_with("//") {
            continue;
        }
        if line.contains(".unwrap()") {
            faults.push(format!("{name} unwraps: {line}"));
        }
        if (line.contains("unsafe {")
            || line.contains("unsafe fn")
            || line.contains("unsafe impl")
            || line.contains("unsafe extern"))
            && name != "engine/native.rs"
        {
            faults.push(format!("{name} is unsafe: {line}"));
        }
    }
    if source.lines().count() > LONGEST_FILE {
        faults.push(format!("{name} has more than {LONGEST_FILE} lines"));
    }
    if !source.trim_start().starts_with("//!") && !tests {
        faults.push(format!("{name} does not say what it is for"));
    }
    faults
}

#[test]
fn the_rooms_know_only_their_neighbours() {
    let sources = sources();
    assert!(sources.len() > 40);
    let faults: Vec<String> = sources.iter().flat_map(|(name, source)| faults(name, source)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_room_is_in_the_table() {
    for (name, _) in sources() {
        let own = room(&name);
        assert!(MAY_USE.iter().any(|(r, _)| *r == own) || ["cli", "lib", "main"].contains(&own), "{own}");
    }
}

#[test]
fn the_check_can_fail() {
    for (name, source) in [
        ("text/a.rs", "//! a\nuse crate::chat::Role;"),
        ("app/a.rs", "//! a\nuse crate::{chat::{Role, Mode}, store::Worker};"),
        ("app/a.rs", "//! a\nlet x = crate::engine::client::Client;"),
        ("view/a.rs", "//! a\nuse llama_cpp_2::model;"),
        ("store/a.rs", "//! a\nfn f() { g().unwrap() }"),
        ("engine/a.rs", "//! a\nfn f() { unsafe { g() } }"),
        ("chat/a.rs", "fn f() {}"),
    ] {
        assert_eq!(faults(name, source).len(), 1, "{source}: {:?}", faults(name, source));
    }
    for (name, source) in [
        ("app/a.rs", "//! a\nuse crate::engine::protocol::{Request, Turn};\nuse crate::app::Focus; // crate::store"),
        ("engine/native.rs", "//! a\nfn f() { unsafe { g() } }"),
        ("chat/a.rs", "//! a\n#[cfg(test)]\nmod tests { fn f() { g().unwrap() } }"),
    ] {
        assert_eq!(faults(name, source), Vec::<String>::new());
    }
}
