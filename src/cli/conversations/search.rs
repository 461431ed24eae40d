//! `conversations search`.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::json;

use super::{indexed, when};
use crate::chat::{Hit, Role};
use crate::cli::Stop;
use crate::cli::out::print;
use crate::paths::Paths;
use crate::store::Words;
use crate::text::sanitise_line;

/// Prints where words are found, what was said last first.
pub fn run(paths: &Paths, query: &str, as_json: bool) -> Result<ExitCode, Stop> {
    let words = Words::parse(query).ok_or_else(|| Stop::Usage("there is nothing to search for".to_owned()))?;
    let (index, _) = indexed(paths).map_err(Stop::Failed)?;
    let hits = index.search(&words, usize::MAX).map_err(|e| Stop::Failed(e.to_string()))?;
    if as_json {
        print(&format!("{}\n", json!(hits.iter().map(object).collect::<Vec<_>>())))?;
    } else if hits.is_empty() {
        eprintln!("'{}' is found nowhere", sanitise_line(query));
    } else {
        print(&hits.iter().fold(String::new(), |mut out, hit| {
            let _ = write!(out, "{}", line(hit));
            out
        }))?;
    }
    Ok(ExitCode::from(u8::from(hits.is_empty())))
}

fn line(hit: &Hit) -> String {
    let place = match (hit.message, hit.role) {
        (Some(id), Some(Role::User)) => format!("#{id} you"),
        (Some(id), _) => format!("#{id} model"),
        (None, _) => "title or system prompt".to_owned(),
    };
    let (title, text) = (sanitise_line(&hit.title), sanitise_line(&hit.text));
    format!("{}  {}  {title}\n    {place}: {text}\n", hit.id, when(hit.changed))
}

fn object(hit: &Hit) -> serde_json::Value {
    json!({
        "id": hit.id,
        "title": hit.title,
        "message": hit.message,
        "role": hit.role,
        "excerpt": hit.text,
        "archived": hit.archived,
    })
}
