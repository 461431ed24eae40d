//! The input box, what waits, and what stands between until it is no longer true.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::lens::marked;
use super::theme::Theme;
use crate::app::{App, Focus, Split};
use crate::text::{fit, sanitise_line, width};

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

/// The line above the box: a banner, what waits, the tokens of what is typed, or nothing.
fn border<'a>(app: &App, theme: &Theme, columns: usize) -> Line<'a> {
    let room = columns.saturating_sub(2);
    let texts = if let Some(banner) = &app.chat.banner {
        vec![Span::styled(fit(&format!(" {} ", sanitise_line(banner)), room), theme.error)]
    } else if let Some(next) = app.chat.queued.first() {
        let more = app.chat.queued.len() - 1;
        let more = if more > 0 { format!(" (+{more})") } else { String::new() };
        vec![Span::styled(fit(&format!(" waiting{more}: {} ", sanitise_line(next)), room), theme.faint)]
    } else if let Some(split) = &app.split {
        tokens(split, theme, room)
    } else {
        Vec::new()
    };
    let used: usize = texts.iter().map(|s| width(&s.content)).sum();
    let mut spans = vec![Span::styled("─", theme.faint)];
    spans.extend(texts);
    spans.push(Span::styled("─".repeat(columns.saturating_sub(1 + used)), theme.faint));
    Line::from(spans)
}

/// How many tokens are typed, and the last of them, every second one marked.
fn tokens<'a>(split: &Split, theme: &Theme, room: usize) -> Vec<Span<'a>> {
    let n = split.tokens.len();
    let head = format!(" {n} token{} ", if n == 1 { "" } else { "s" });
    let mut left = room.saturating_sub(width(&head) + 2);
    let mut spans = Vec::new();
    for (nth, token) in split.tokens.iter().enumerate().rev() {
        let text = marked(token);
        if width(&text) > left {
            spans.push(Span::styled("…", theme.faint));
            break;
        }
        left -= width(&text);
        spans.push(Span::styled(text, if nth % 2 == 1 { theme.other } else { theme.text }));
    }
    spans.push(Span::styled(fit(&head, room), theme.faint));
    spans.reverse();
    spans
}
