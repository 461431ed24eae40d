//! A conversation as Markdown. What was said stands as it is: it usually is Markdown.

use std::fmt::Write;

use super::{author, clean, date, embed, shown, title, unseen};
use crate::chat::Conversation;

pub(super) fn render(c: &Conversation, whole: bool) -> String {
    let mut out = format!("# {}\n\n", title(c));
    let mut facts: Vec<String> = date(c.created).into_iter().collect();
    facts.extend(unseen(c));
    if !facts.is_empty() {
        let _ = writeln!(out, "*{}*\n", facts.join(" · "));
    }
    if !c.system.trim().is_empty() {
        let quoted: Vec<String> = clean(c.system.trim()).lines().map(|l| format!("> {l}").trim_end().into()).collect();
        let _ = writeln!(out, "> **System prompt**\n>\n{}\n", quoted.join("\n"));
    }
    for message in shown(c) {
        let _ = writeln!(out, "## {}\n\n{}\n", crate::text::sanitise_line(author(message)), clean(message.text.trim()));
    }
    if whole {
        out += &embed::comment(c);
    }
    out
}
