//! llama.cpp's web page. It exports lines (a `session`, then its `message`s), and exported one JSON before:
//! `{"conv":…,"messages":[…]}` or a list of them. The messages are a tree below a root that says nothing.

use serde_json::Value;

use super::content::{self, text_at};
use super::draft::{Draft, Figures, Lost, Source};
use super::graft::Node;
use crate::chat::{Timings, Usage};

/// Reads a conversation and its messages.
pub(super) fn read(conv: &Value, messages: &[Value]) -> Draft {
    let mut draft = Draft::new(Source::WebUi);
    draft.key = text_at(conv, "id");
    draft.title = text_at(conv, "name");
    draft.head = text_at(conv, "currNode");
    for message in messages {
        let key = text_at(message, "id").unwrap_or_else(|| format!("#{}", draft.nodes.len()));
        let parent = text_at(message, "parent").filter(|p| !p.is_empty());
        let at = content::time(message.get("timestamp"));
        let mut words = None;
        if text_at(message, "type").as_deref() != Some("root") {
            let text = said(message, &mut draft);
            let role = text_at(message, "role").unwrap_or_default();
            words = draft.words(&role, text, text_at(message, "model"));
        }
        if let (Some(words), Some(timings)) = (&mut words, message.get("timings")) {
            words.figures = figures(timings);
        }
        draft.nodes.push(Node { key, parent, words, at });
    }
    // Its own time is that of its last change.
    draft.created = draft.nodes.iter().map(|n| n.at).filter(|at| *at > 0).min().unwrap_or(0);
    draft
}

/// What a message says: thoughts before it, text files behind it.
fn said(message: &Value, draft: &mut Draft) -> String {
    let lost = &mut draft.lost;
    let mut text = content::text(message.get("content"), lost);
    let thinking = ["reasoningContent", "thinking"].into_iter().filter_map(|f| text_at(message, f));
    if let Some(thinking) = thinking.into_iter().find(|t| !t.trim().is_empty()) {
        text = content::thought(&thinking, &text);
    }
    let calls = message.get("toolCalls").map_or(0, |calls| match calls {
        Value::Array(calls) => calls.len(),
        Value::String(calls) => usize::from(!matches!(calls.trim(), "" | "[]")),
        _ => 0,
    });
    lost.count(Lost::TOOLS, calls);
    for extra in message.get("extra").and_then(Value::as_array).into_iter().flatten() {
        let kind = text_at(extra, "type").unwrap_or_default();
        match text_at(extra, "content").filter(|c| !c.trim().is_empty()) {
            Some(content) => text += &content::attached(&text_at(extra, "name").unwrap_or(kind), &content),
            None => lost.count(Lost::of_kind(&kind), 1),
        }
    }
    text
}

fn figures(timings: &Value) -> Figures {
    let number = |name: &str| timings.get(name).and_then(Value::as_f64).filter(|n| n.is_finite() && *n >= 0.0);
    let count = |name: &str| number(name).unwrap_or(0.0).min(f64::from(u32::MAX)) as u32;
    let (fresh, reused, written) = (count("prompt_n"), count("cache_n"), count("predicted_n"));
    let decode_ms = number("predicted_ms").unwrap_or(0.0);
    let tpot_ms = if written > 1 { decode_ms / f64::from(written) } else { 0.0 };
    Figures {
        usage: Usage { prompt_tokens: fresh.saturating_add(reused), reused_tokens: reused, completion_tokens: written },
        timings: Timings {
            prefill_ms: number("prompt_ms").unwrap_or(0.0),
            decode_ms,
            tpot_ms,
            tokens_per_second: if tpot_ms > 0.0 { 1000.0 / tpot_ms } else { 0.0 },
            ..Timings::default()
        },
    }
}
