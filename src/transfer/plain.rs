//! A conversation as plain text.

use std::fmt::Write;

use super::{author, clean, date, shown, title, unseen};
use crate::chat::Conversation;

pub(super) fn render(c: &Conversation) -> String {
    let mut out = format!("{}\n", title(c));
    let mut facts: Vec<String> = date(c.created).into_iter().collect();
    facts.extend(unseen(c));
    if !facts.is_empty() {
        let _ = writeln!(out, "{}", facts.join(" · "));
    }
    let system = Some(&c.system).filter(|s| !s.trim().is_empty()).map(|s| ("System", s));
    let said = shown(c).into_iter().map(|m| (author(m), &m.text));
    for (who, text) in system.into_iter().chain(said) {
        let _ = write!(out, "\n{}:\n{}\n", crate::text::sanitise_line(who), clean(text.trim()));
    }
    out
}
