//! The list of conversations.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::theme::Theme;
use crate::app::{App, Focus};
use crate::text::{fit, sanitise_line};

/// Draws the list, scrolled so that the chosen one is in view.
pub fn draw(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    let focused = app.focus == Focus::List;
    let heading = if focused { theme.chosen } else { theme.heading };
    let mut lines = vec![Line::styled(" Conversations", heading)];
    let room = usize::from(area.height).saturating_sub(1).max(1);
    let first = if focused { app.library.at.saturating_sub(room - 1) } else { 0 };
    let width = usize::from(area.width);
    for (at, item) in app.library.items.iter().enumerate().skip(first).take(room) {
        let shown = item.id == app.chat.conversation.id;
        let mark = if item.damage.is_some() {
            "!"
        } else if shown {
            "▸"
        } else {
            " "
        };
        let title = format!("{mark} {}", sanitise_line(&item.title));
        let style = match (focused && at == app.library.at, item.damage.is_some(), shown) {
            (true, ..) => theme.chosen,
            (_, true, _) => theme.error,
            (_, _, true) => theme.heading,
            _ => theme.text,
        };
        lines.push(Line::from(Span::styled(fit(&title, width), style)));
    }
    if app.library.items.is_empty() {
        lines.push(Line::styled(" none yet", theme.faint));
    }
    frame.render_widget(Paragraph::new(lines), area);
}
