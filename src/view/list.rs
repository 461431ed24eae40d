//! The list of conversations.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::overlay::first_row;
use super::theme::Theme;
use crate::app::{App, Focus};
use crate::chat::Summary;
use crate::text::{fit, sanitise_line, width};

/// Draws the list, scrolled so that the chosen one is in view.
pub fn draw(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    let focused = app.focus == Focus::List;
    let columns = usize::from(area.width);
    let library = &app.library;
    let mut lines = vec![if library.filter.typing || !library.filter.query.is_empty() {
        let cursor = if library.filter.typing { "▏" } else { "" };
        // Its end is what is being typed.
        let query = sanitise_line(&library.filter.query);
        let mut shown = query.as_str();
        while width(shown) + 3 > columns && !shown.is_empty() {
            shown = &shown[shown.chars().next().map_or(0, char::len_utf8)..];
        }
        Line::styled(format!(" /{shown}{cursor}"), theme.heading)
    } else {
        Line::styled(" Conversations", if focused { theme.chosen } else { theme.heading })
    }];
    let room = usize::from(area.height).saturating_sub(1).max(1);
    let first = if focused { first_row(library.at, room, |at| heading(app, at).is_some()) } else { 0 };
    for (at, item) in library.shown().enumerate().skip(first) {
        if lines.len() > room {
            break;
        }
        if let Some(heading) = heading(app, at).filter(|_| at > first || room > 1) {
            lines.push(Line::styled(fit(&heading, columns), theme.faint));
        }
        lines.push(row(app, theme, item, focused && at == library.at, columns));
    }
    lines.truncate(room + 1);
    if library.shown().len() == 0 {
        let none = if library.items.is_empty() { " none yet" } else { " none" };
        lines.push(Line::styled(none, theme.faint));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// The heading above a row, where a group begins.
fn heading(app: &App, at: usize) -> Option<String> {
    let group = |at| app.group(at);
    let own = group(at)?;
    let before = at.checked_sub(1).and_then(group);
    (before != Some(own)).then(|| own.title())
}

fn row(app: &App, theme: &Theme, item: &Summary, chosen: bool, columns: usize) -> Line<'static> {
    let shown = item.id == app.chat.conversation.id;
    let mark = if item.damage.is_some() {
        "!"
    } else if shown {
        "▸"
    } else {
        " "
    };
    let style = match (chosen, item.damage.is_some(), shown) {
        (true, ..) => theme.chosen,
        (_, true, _) => theme.error,
        (_, _, true) => theme.heading,
        _ if item.filing.archived => theme.faint,
        _ => theme.text,
    };
    let tags: String = item.filing.tags.iter().map(|tag| format!(" #{}", sanitise_line(tag))).collect();
    // Tags have at most half of the row.
    let title = fit(&format!("{mark} {}", sanitise_line(&item.title)), columns - width(&tags).min(columns / 2));
    let room = columns.saturating_sub(width(&title));
    Line::from(vec![Span::styled(title, style), Span::styled(fit(&tags, room), theme.faint)])
}
