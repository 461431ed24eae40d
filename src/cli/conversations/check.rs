//! `conversations check`.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::cli::Stop;
use crate::cli::out::print;
use crate::store::{self, Checked, State};
use crate::text::sanitise_line;

/// Looks at every file. Fails if something is damaged that cannot be repaired.
pub fn run(folder: &Path, repair: bool, as_json: bool) -> Result<ExitCode, Stop> {
    let checked = store::check(folder, repair).map_err(Stop::Failed)?;
    let mut out = String::new();
    if as_json {
        let rows: Vec<_> = checked
            .iter()
            .map(|c| json!({ "path": c.path, "state": c.state.name(), "messages": c.messages, "notes": c.notes }))
            .collect();
        let _ = writeln!(out, "{}", json!(rows));
    } else {
        told(&checked, &mut out);
    }
    print(&out)?;
    let bad = checked.iter().any(|c| matches!(c.state, State::Damaged | State::Unreadable));
    Ok(ExitCode::from(u8::from(bad)))
}

fn told(checked: &[Checked], out: &mut String) {
    for c in checked.iter().filter(|c| c.state != State::Fine) {
        let name = c.path.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(out, "{:<10}  {}", c.state.name(), sanitise_line(&name));
        for note in &c.notes {
            let _ = writeln!(out, "            {}", sanitise_line(note));
        }
    }
    let states = [State::Fine, State::Repaired, State::Torn, State::InUse, State::Damaged, State::Unreadable];
    let counts = states.into_iter().map(|s| (checked.iter().filter(|c| c.state == s).count(), s.name()));
    let counts: Vec<String> = counts.filter(|(n, _)| *n > 0).map(|(n, name)| format!("{n} {name}")).collect();
    let counts = if counts.is_empty() { "none is there".to_owned() } else { counts.join(", ") };
    let _ = writeln!(out, "{} files: {counts}", checked.len());
}
