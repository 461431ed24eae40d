//! The last line: what is to be said, or the next most useful keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::theme::Theme;
use crate::app::commands::{COMMANDS, Row};
use crate::app::{App, Command, Focus, Scope, shown_key};
use crate::text::{fit, sanitise_line, width};

/// Draws a notice or hints.
pub fn draw(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    let columns = usize::from(area.width);
    if let Some(notice) = &app.notice {
        let style = if notice.is_error { theme.error } else { theme.text };
        let text = fit(&format!(" {}", sanitise_line(&notice.text)), columns);
        frame.render_widget(Paragraph::new(Line::styled(text, style)), area);
        return;
    }
    let mut spans = Vec::new();
    let mut used = 0;
    for row in hints(app) {
        let Some(key) = row.keys.first() else { continue };
        let key = format!(" {}", shown_key(key));
        let hint = format!(" {} ", row.hint);
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
