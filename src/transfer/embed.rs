//! The whole conversation, put unseen into a page or a Markdown file, and taken out again.

use super::own;
use crate::chat::Conversation;

const SCRIPT: (&str, &str) = ("<script type=\"application/json\" id=\"llmchat\">", "</script>");
const COMMENT: (&str, &str) = ("<!-- llmchat ", " -->");

/// As a block of data in a page. It is never run.
pub(super) fn script(c: &Conversation) -> String {
    format!("{}{}{}\n", SCRIPT.0, json(c), SCRIPT.1)
}

/// As a comment, which no renderer of Markdown shows.
pub(super) fn comment(c: &Conversation) -> String {
    format!("{}{}{}\n", COMMENT.0, json(c), COMMENT.1)
}

/// JSON in which nothing can end what it stands in. These characters occur in its strings only.
fn json(c: &Conversation) -> String {
    own::render(c).replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026").replace('\n', "")
}

/// The JSON that such a file carries. The last one counts: what stands before may be somebody's words.
pub(super) fn find(text: &str) -> Option<&str> {
    let (at, end) =
        [SCRIPT, COMMENT].into_iter().filter_map(|(begin, end)| Some((text.rfind(begin)? + begin.len(), end))).max()?;
    let rest = &text[at..];
    rest.get(..rest.find(end)?)
}
