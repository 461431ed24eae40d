//! The input box, what waits, and what stands between until it is no longer true.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::theme::Theme;
use crate::app::{App, Focus};
use crate::text::{fit, sanitise_line};

/// Draws the box into an area of at least two lines.
pub fn draw(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    if area.height < 2 {
        return;
    }
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(border(app, theme, usize::from(area.width))), Rect { height: 1, ..area });
    let focused = app.focus == Focus::Input && app.overlay.is_none();
    let text = Rect { x: area.x + 3, y: area.y + 1, width: area.width.saturating_sub(3), height: area.height - 1 };
    let prompt = Rect { y: area.y + 1, width: 3, height: 1, ..area };
    frame.render_widget(Line::styled(" > ", if focused { theme.heading } else { theme.faint }), prompt);
    if app.input.is_empty() && !focused {
        return;
    }
    // The widget is told how to look each time it is drawn; its text is the app's.
    let mut area = app.input.area.clone();
    area.set_cursor_style(if focused { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() });
    area.set_style(theme.text);
    frame.render_widget(&area, text);
}

/// The line above the box: a banner, what waits, or nothing.
fn border<'a>(app: &App, theme: &Theme, width: usize) -> Line<'a> {
    let (text, style) = if let Some(banner) = &app.chat.banner {
        (format!(" {} ", sanitise_line(banner)), theme.error)
    } else if let Some(next) = app.chat.queued.first() {
        let more = app.chat.queued.len() - 1;
        let more = if more > 0 { format!(" (+{more})") } else { String::new() };
        (format!(" waiting{more}: {} ", sanitise_line(next)), theme.faint)
    } else {
        (String::new(), theme.faint)
    };
    let text = fit(&text, width.saturating_sub(2));
    let rest = width.saturating_sub(1 + crate::text::width(&text));
    Line::from(vec![
        Span::styled("─", theme.faint),
        Span::styled(text, style),
        Span::styled("─".repeat(rest), theme.faint),
    ])
}
