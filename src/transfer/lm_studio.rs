//! LM Studio's `….conversation.json`: a line of messages, each in versions of which one is selected; an answer's version
//! is made of steps. What follows a message follows its selected version.

use serde_json::Value;

use super::content::{self, text_at};
use super::draft::{Draft, Lost, Source};
use super::graft::Node;

/// Settings that both have: theirs and ours.
const SETTINGS: [(&str, &str); 6] = [
    ("llm.prediction.temperature", "temperature"),
    ("llm.prediction.topKSampling", "top_k"),
    ("llm.prediction.topPSampling", "top_p"),
    ("llm.prediction.minPSampling", "min_p"),
    ("llm.prediction.repeatPenalty", "repeat_penalty"),
    ("llm.prediction.maxPredictedTokens", "max_tokens"),
];

/// Reads one conversation.
pub(super) fn read(value: &Value, messages: &[Value]) -> Draft {
    let mut draft = Draft::new(Source::LmStudio);
    draft.title = text_at(value, "name");
    draft.created = content::time(value.get("createdAt"));
    draft.key = text_at(value, "createdAt");
    draft.system = text_at(value, "systemPrompt").unwrap_or_default();
    settings(value, &mut draft);
    let mut parent: Option<String> = None;
    for (nth, message) in messages.iter().enumerate() {
        let versions = message.get("versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let selected = message.get("currentlySelected").and_then(Value::as_u64).unwrap_or(0);
        let mut shown = None;
        for (at, version) in versions.iter().enumerate() {
            let key = format!("{nth}.{at}");
            let (text, model) = said(version, &mut draft);
            let words = draft.words(&text_at(version, "role").unwrap_or_default(), text, model);
            if at as u64 == selected || shown.is_none() {
                shown = Some(key.clone());
            }
            draft.nodes.push(Node { key, parent: parent.clone(), words, at: draft.created });
        }
        parent = shown.or(parent);
    }
    draft.head = parent;
    draft
}

fn settings(value: &Value, draft: &mut Draft) {
    let fields = value.get("perChatPredictionConfig").and_then(|c| c.get("fields")).and_then(Value::as_array);
    for field in fields.into_iter().flatten() {
        let key = text_at(field, "key").unwrap_or_default();
        // A setting that can be switched off stands in an object with its switch.
        let switched = field.get("value").filter(|v| v.is_object());
        if switched.is_some_and(|v| v.get("checked").and_then(Value::as_bool) == Some(false)) {
            continue;
        }
        let Some(value) = text_at(switched.unwrap_or(field), "value") else { continue };
        if key == "llm.prediction.systemPrompt" {
            if draft.system.trim().is_empty() {
                draft.system = value;
            }
        } else if let Some((_, ours)) = SETTINGS.iter().find(|(theirs, _)| *theirs == key) {
            draft.settings.push((ours, value));
        }
    }
}

/// What a version says, and the model that said it.
fn said(version: &Value, draft: &mut Draft) -> (String, Option<String>) {
    let sender = version.get("senderInfo").and_then(|s| text_at(s, "senderName"));
    let Some(steps) = version.get("steps").and_then(Value::as_array) else {
        return (content::text(version.get("content"), &mut draft.lost), sender);
    };
    let (mut thinking, mut texts, mut model) = (Vec::new(), Vec::new(), None);
    for step in steps {
        match text_at(step, "type").as_deref() {
            Some("contentBlock") => {
                let text = content::text(step.get("content"), &mut draft.lost);
                let style = step.get("style").and_then(|s| text_at(s, "type"));
                if style.as_deref() == Some("thinking") { &mut thinking } else { &mut texts }.push(text);
                model = step.get("genInfo").and_then(|g| text_at(g, "identifier")).or(model);
            }
            // Notes about how it was made.
            Some("debugInfoBlock" | "status") | None => {}
            Some(kind) => draft.lost.count(Lost::of_kind(kind), 1),
        }
    }
    let text = content::thought(&thinking.join("\n"), texts.join("\n").trim_start_matches('\n'));
    (text, model.or(sender))
}
