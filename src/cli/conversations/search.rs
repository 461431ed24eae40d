//! `conversations search`: the files are read one by one, the last used first, and hits are told as they are found.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::when;
use crate::chat::{ConversationId, MessageId, Role};
use crate::cli::Stop;
use crate::cli::out::print;
use crate::store;
use crate::text::sanitise_line;

/// Characters that are shown before and behind what was found.
const AROUND: usize = 40;

struct Hit<'a> {
    id: &'a ConversationId,
    title: &'a str,
    changed: i64,
    /// None where it is in the title or the system prompt.
    message: Option<(MessageId, Role)>,
    excerpt: String,
}

/// Prints where a text is found.
pub fn run(folder: &Path, words: &str, as_json: bool) -> Result<ExitCode, Stop> {
    let needle = words.trim().to_lowercase();
    if needle.is_empty() {
        return Err(Stop::Usage("there is nothing to search for".to_owned()));
    }
    let list = store::list(folder).map_err(Stop::Failed)?;
    let index = store::index(folder).map_err(Stop::Failed)?;
    let mut all: Vec<Value> = Vec::new();
    let mut count = 0;
    for row in &list {
        let Some(Ok(loaded)) = index.get(&row.id).map(|path| store::load(path, &row.id)) else { continue };
        let loaded = loaded.conversation;
        let c = loaded.standing_only();
        let hit = |message, text: &str| {
            let excerpt = excerpt(text, &needle)?;
            Some(Hit { id: &row.id, title: &row.title, changed: row.changed, message, excerpt })
        };
        let head = [c.title.as_deref().unwrap_or_default(), &c.system];
        let in_head = head.into_iter().find_map(|text| hit(None, text));
        let in_messages = c.messages.iter().filter_map(|m| hit(Some((m.id, m.role)), &m.text));
        for hit in in_head.into_iter().chain(in_messages) {
            count += 1;
            if as_json {
                all.push(object(&hit));
            } else {
                print(&line(&hit))?;
            }
        }
    }
    if as_json {
        print(&format!("{}\n", json!(all)))?;
    } else if count == 0 {
        eprintln!("'{}' is found nowhere", sanitise_line(words));
    }
    Ok(ExitCode::from(u8::from(count == 0)))
}

fn line(hit: &Hit<'_>) -> String {
    let place = match hit.message {
        Some((id, Role::User)) => format!("#{id} you"),
        Some((id, _)) => format!("#{id} model"),
        None => "title".to_owned(),
    };
    let (title, excerpt) = (sanitise_line(hit.title), sanitise_line(&hit.excerpt));
    format!("{}  {}  {title}\n    {place}: {excerpt}\n", hit.id, when(hit.changed))
}

fn object(hit: &Hit<'_>) -> Value {
    json!({
        "id": hit.id,
        "title": hit.title,
        "message": hit.message.map(|(id, _)| id),
        "role": hit.message.map(|(_, role)| role),
        "excerpt": hit.excerpt,
    })
}

/// What stands around the first place where a text holds the needle, on one line.
fn excerpt(text: &str, needle: &str) -> Option<String> {
    let mut lower = String::with_capacity(text.len());
    // Where each character of the lower text comes from: some letters become longer.
    let mut from = Vec::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        for l in c.to_lowercase() {
            from.resize(from.len() + l.len_utf8(), at);
            lower.push(l);
        }
    }
    let found = lower.find(needle)?;
    let (begin, end) = (from[found], from.get(found + needle.len()).copied().unwrap_or(text.len()));
    let before: Vec<char> = text[..begin].chars().rev().take(AROUND).collect();
    let lead = if text[..begin].chars().nth(AROUND).is_some() { "…" } else { "" };
    let after: String = text[end..].chars().take(AROUND).collect();
    let trail = if text[end..].chars().nth(AROUND).is_some() { "…" } else { "" };
    let around = format!("{lead}{}{}{after}{trail}", before.iter().rev().collect::<String>(), &text[begin..end]);
    Some(around.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_cut_at_characters_and_lines_are_joined() {
        assert_eq!(excerpt("A fox\n and a RIVER.", "river").unwrap(), "A fox and a RIVER.");
        assert_eq!(excerpt("İstanbul und Straße", "straße").unwrap(), "İstanbul und Straße");
        assert_eq!(excerpt("x", "y"), None);
        let long = format!("{}fox{}", "é".repeat(100), "漢".repeat(100));
        assert_eq!(excerpt(&long, "fox").unwrap(), format!("…{}fox{}…", "é".repeat(40), "漢".repeat(40)));
    }
}
