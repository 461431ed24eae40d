//! The last line: what is to be said, or the next most useful keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::theme::Theme;
use crate::app::commands::{COMMANDS, Row};
use crate::app::{App, Command, Focus, Scope, shown_key};
use crate::text::{Wrapped, fit, sanitise_line, width};

/// Draws a notice or hints.
pub fn draw(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    let columns = usize::from(area.width);
    if let Some(notice) = &app.notice {
        let style = if notice.is_error { theme.error } else { theme.text };
        let text = Wrapped::new(&sanitise_line(&notice.text), columns.saturating_sub(1).max(1));
        let height = usize::from(area.height);
        let lines: Vec<Line> = (0..text.height().min(height))
            .map(|n| {
                // Where there is more than has room, the last line says so.
                let more = n + 1 == height && text.height() > height;
                let line = format!(" {}{}", text.line(n), if more { " …" } else { "" });
                Line::styled(fit(&line, columns), style)
            })
            .collect();
        frame.render_widget(Paragraph::new(lines), area);
        return;
    }
    if app.overlay.is_some() {
        return; // Its own heading says its keys; none of those below would be heard.
    }
    let mut spans = Vec::new();
    let mut used = 0;
    for row in hints(app) {
        let Some(key) = row.keys.first() else { continue };
        let key = format!(" {}", shown_key(key));
        // The same key is a step back where nothing runs.
        let back = row.command == Command::Stop && !app.is_busy();
        let hint = format!(" {} ", if back { "back" } else { row.hint });
        used += width(&key) + width(&hint);
        if used > columns {
            break;
        }
        spans.extend([Span::styled(key, theme.heading), Span::styled(hint, theme.faint)]);
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

/// The keys of where the focus is, then those that count everywhere.
fn hints(app: &App) -> impl Iterator<Item = &'static Row> {
    let scope = app.focus.scope();
    let busy = app.is_busy();
    let (typing, apart) = (app.focus == Focus::Input, app.focus != Focus::Input);
    let stop = COMMANDS.iter().filter(move |r| r.command == Command::Stop && (busy || apart));
    let own = COMMANDS.iter().filter(move |r| r.scope == scope && !r.hint.is_empty());
    let global = COMMANDS.iter().filter(move |r| {
        r.scope == Scope::Global
            && r.command != Command::Stop
            && !r.hint.is_empty()
            && (typing || r.command == Command::Help)
    });
    stop.chain(own).chain(global)
}
