//! Chat messages as training data has them: `{"messages":[{"role":…,"content":…}]}`, a line a conversation; and
//! `ShareGPT`'s `{"conversations":[{"from":…,"value":…}]}`.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::content::{self, text_at};
use super::draft::{Draft, Lost, Source};
use super::{own, shown};
use crate::chat::{Conversation, Role};

#[derive(Serialize)]
struct Line<'a> {
    messages: Vec<Said<'a>>,
    /// The whole conversation, where it is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    llmchat: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Said<'a> {
    role: Role,
    content: &'a str,
}

/// The path that is shown as one line.
pub(super) fn render(c: &Conversation, whole: bool) -> String {
    let system = Some(c.system.as_str()).filter(|s| !s.trim().is_empty());
    let system = system.map(|content| Said { role: Role::System, content });
    let said = shown(c).into_iter().map(|m| Said { role: m.role, content: &m.text });
    let llmchat = whole.then(|| RawValue::from_string(own::render(c).replace('\n', "")).ok()).flatten();
    let line = Line { messages: system.into_iter().chain(said).collect(), llmchat };
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// Messages with `role` and `content`.
pub(super) fn read(value: &Value, messages: &[Value]) -> Draft {
    let mut draft = Draft::new(Source::Messages);
    draft.key = text_at(value, "id").or_else(|| text_at(value, "conversation_id"));
    draft.title = text_at(value, "title").or_else(|| text_at(value, "name"));
    draft.created = content::time(value.get("created").or_else(|| value.get("created_at")));
    for said in messages {
        let role = text_at(said, "role").unwrap_or_default();
        let text = content::text(said.get("content"), &mut draft.lost);
        if said.get("tool_calls").is_some_and(|calls| calls.as_array().is_some_and(|c| !c.is_empty())) {
            draft.lost.count(Lost::TOOLS, 1);
        }
        draft.say(&role, text, content::time(said.get("created_at")), text_at(said, "model"));
    }
    draft
}

/// `ShareGPT`'s turns.
pub(super) fn read_sharegpt(value: &Value, turns: &[Value]) -> Draft {
    let mut draft = Draft::new(Source::ShareGpt);
    draft.key = text_at(value, "id");
    draft.title = text_at(value, "title");
    draft.system = text_at(value, "system").unwrap_or_default();
    for turn in turns {
        let text = turn.get("value").or_else(|| turn.get("text")).or_else(|| turn.get("content"));
        let text = content::text(text, &mut draft.lost);
        let role = text_at(turn, "from").or_else(|| text_at(turn, "role")).unwrap_or_default();
        draft.say(&role, text, 0, text_at(turn, "model"));
    }
    draft
}
