//! `conversations list`.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::json;

use super::{indexed, when};
use crate::cli::Stop;
use crate::cli::out::print;
use crate::paths::Paths;
use crate::text::sanitise_line;

/// Prints every conversation, those that are damaged or archived too.
pub fn run(paths: &Paths, as_json: bool) -> Result<ExitCode, Stop> {
    let (_, list) = indexed(paths).map_err(Stop::Failed)?;
    let mut out = String::new();
    if as_json {
        let rows = list.iter().map(|s| {
            json!({
                "id": s.id,
                "title": s.title,
                "changed": s.changed,
                "messages": s.messages,
                "damage": s.damage,
                "pinned": s.filing.pinned,
                "archived": s.filing.archived,
                "tags": s.filing.tags,
            })
        });
        let _ = writeln!(out, "{}", json!(rows.collect::<Vec<_>>()));
    } else if list.is_empty() {
        out += "There is no conversation yet.\n";
    }
    for s in list.iter().filter(|_| !as_json) {
        let marks = [(s.filing.pinned, "pinned"), (s.filing.archived, "archived")];
        let marks = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| (*mark).to_owned());
        let notes: Vec<String> = marks.chain(s.damage.clone()).collect();
        let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
        let tags: String = s.filing.tags.iter().map(|tag| format!("  #{tag}")).collect();
        let told = sanitise_line(&format!("{}{tags}{notes}", s.title));
        let _ = writeln!(out, "{}  {}  {:>5}  {told}", s.id, when(s.changed), s.messages);
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}
