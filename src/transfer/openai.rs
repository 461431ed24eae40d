//! `ChatGPT`'s export: `conversations.json`, a list of conversations whose messages are nodes of a `mapping`.

use serde_json::Value;

use super::content::{self, text_at};
use super::draft::{Draft, Losses, Lost, Source, Words};
use super::graft::Node;

/// Reads one conversation.
pub(super) fn read(value: &Value) -> Draft {
    let mut draft = Draft::new(Source::OpenAi);
    draft.key = text_at(value, "conversation_id").or_else(|| text_at(value, "id"));
    draft.title = text_at(value, "title");
    draft.created = content::time(value.get("create_time"));
    draft.head = text_at(value, "current_node");
    let mapping = value.get("mapping").and_then(Value::as_object);
    for (key, node) in mapping.into_iter().flatten() {
        let message = node.get("message").filter(|m| m.is_object());
        let words = message.and_then(|m| words(m, &mut draft));
        let at = content::time(message.and_then(|m| m.get("create_time")));
        draft.nodes.push(Node { key: key.clone(), parent: text_at(node, "parent"), words, at });
    }
    draft
}

fn words(message: &Value, draft: &mut Draft) -> Option<Words> {
    let role = message.get("author").and_then(|a| text_at(a, "role")).unwrap_or_default();
    let metadata = message.get("metadata");
    let content = message.get("content")?;
    let kind = text_at(content, "content_type").unwrap_or_default();
    // What the person wrote once for all conversations stands here as a hidden message.
    if kind == "user_editable_context" {
        let parts = ["user_profile", "user_instructions"].into_iter().filter_map(|f| text_at(content, f));
        let text = parts.filter(|p| !p.trim().is_empty()).collect::<Vec<_>>().join("\n\n");
        return draft.words("system", text, None);
    }
    let text = said(content, &kind, &mut draft.lost);
    let hidden = |m: &Value| m.get("is_visually_hidden_from_conversation").and_then(Value::as_bool) == Some(true);
    if metadata.is_some_and(hidden) {
        draft.lost.count(Lost::HIDDEN, usize::from(!text.trim().is_empty() && role != "system"));
        return None;
    }
    // An answer to somebody else than the person is a tool's call.
    let recipient = text_at(message, "recipient").unwrap_or_default();
    if role == "assistant" && !matches!(recipient.as_str(), "" | "all") {
        draft.lost.count(Lost::TOOLS, 1);
        return None;
    }
    let model = metadata.and_then(|m| text_at(m, "model_slug"));
    draft.words(&role, text, model)
}

fn said(content: &Value, kind: &str, lost: &mut Losses) -> String {
    match kind {
        "thoughts" | "reasoning_recap" => {
            lost.count(Lost::THOUGHTS, 1);
            String::new()
        }
        "code" | "execution_output" => text_at(content, "text").unwrap_or_default(),
        _ => content::text(content.get("parts").or_else(|| content.get("text")), lost),
    }
}
