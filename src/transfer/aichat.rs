//! aichat's session files, in YAML: `model`, settings, `messages`, and `compressed_messages` which came before them.

use serde_json::Value;

use super::content::{self, text_at};
use super::draft::{Draft, Lost, Source};

/// Reads a session; its name is the file's.
///
/// # Errors
/// If it is no YAML, or no session.
pub(super) fn read(text: &str, name: &str) -> Result<Draft, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|e| {
        let why = e.to_string();
        why.lines().next().unwrap_or("damaged").to_owned()
    })?;
    let list = |field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let (before, messages) = (list("compressed_messages"), list("messages"));
    if text_at(&value, "model").is_none() || value.get("messages").is_none() {
        return Err("it has no 'model' and 'messages'".to_owned());
    }
    let mut draft = Draft::new(Source::Aichat);
    draft.key = Some(name.to_owned());
    draft.title = Some(name.to_owned());
    let model = text_at(&value, "model");
    for setting in ["temperature", "top_p"] {
        draft.settings.extend(text_at(&value, setting).map(|v| (setting, v)));
    }
    let compressed = !before.is_empty();
    for (nth, message) in before.iter().chain(&messages).enumerate() {
        let role = text_at(message, "role").unwrap_or_default();
        let said = message.get("content");
        if compressed && nth >= before.len() && role == "system" {
            draft.lost.note("a summary of the older messages, which come in whole".to_owned());
            continue;
        }
        let results = said.and_then(|c| c.get("tool_results")).and_then(Value::as_array).map_or(0, Vec::len);
        draft.lost.count(Lost::TOOLS, results);
        let text = if results > 0 {
            said.and_then(|c| text_at(c, "text")).unwrap_or_default()
        } else {
            content::text(said, &mut draft.lost)
        };
        draft.say(&role, text, 0, model.clone());
    }
    if draft.system.trim().is_empty() {
        draft.system = text_at(&value, "agent_instructions").unwrap_or_default();
    }
    Ok(draft)
}
