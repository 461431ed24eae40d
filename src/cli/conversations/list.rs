//! `conversations list`.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::when;
use crate::cli::Stop;
use crate::cli::out::print;
use crate::store;
use crate::text::sanitise_line;

/// Prints every conversation, those that are damaged too.
pub fn run(folder: &Path, as_json: bool) -> Result<ExitCode, Stop> {
    let list = store::list(folder).map_err(Stop::Failed)?;
    let mut out = String::new();
    if as_json {
        let rows: Vec<_> = list
            .iter()
            .map(|s| json!({ "id": s.id, "title": s.title, "changed": s.changed, "messages": s.messages, "damage": s.damage }))
            .collect();
        let _ = writeln!(out, "{}", json!(rows));
    } else if list.is_empty() {
        out += "There is no conversation yet.\n";
    }
    for s in list.iter().filter(|_| !as_json) {
        let damage = s.damage.as_ref().map(|d| format!("  ({d})")).unwrap_or_default();
        let _ = writeln!(
            out,
            "{}  {}  {:>5}  {}{}",
            s.id,
            when(s.changed),
            s.messages,
            sanitise_line(&s.title),
            sanitise_line(&damage)
        );
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}
