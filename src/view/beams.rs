//! The beams of a search, side by side: what they do not agree on, their scores, who leads.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::theme::Theme;
use crate::app::App;
use crate::text::{sanitise_line, width};

/// Draws the lanes over the lower end of the messages; the trunk that all agree on is the message above.
///
/// ```text
/// ─ 4 beams · lead changed 3 times ──────────────
/// ▸ -0.512  the river, where a fox was drinking
///   -0.530  the river, and saw the moon in it
///   -0.544  a small river that
/// ✓ -0.601  the river.
/// ```
pub fn draw(app: &App, theme: &Theme, messages: Rect, frame: &mut Frame) {
    let beams = &app.engine.beams;
    let running = app.engine.job.as_ref().is_some_and(|j| j.chat == app.chat.conversation.id);
    if beams.is_empty() || !running || messages.height < 4 {
        return;
    }
    let most = messages.height.saturating_sub(2);
    let height = u16::try_from(beams.len() + 1).unwrap_or(u16::MAX).min(most);
    let area = Rect { y: messages.bottom() - height, height, ..messages };
    let columns = usize::from(area.width);
    let living = beams.iter().filter(|b| !b.ended).count();
    let s = if app.engine.overtakes == 1 { "" } else { "s" };
    let title = format!("─ {living} beams · the lead changed {} time{s} ", app.engine.overtakes);
    let rest = "─".repeat(columns.saturating_sub(width(&title)));
    let mut lines = vec![Line::styled(title + &rest, theme.faint)];
    for (nth, beam) in beams.iter().enumerate() {
        let leads = nth == 0;
        let mark = match (leads, beam.ended) {
            (_, true) => "✓",
            (true, _) => "▸",
            _ => " ",
        };
        let score = format!("{mark} {:>7.3}  ", beam.score);
        let text = tail(&sanitise_line(&beam.text.replace('\n', "⏎")), columns.saturating_sub(width(&score)));
        let style = if leads { theme.figure } else { theme.text };
        lines.push(Line::from(vec![Span::styled(score, theme.bar), Span::styled(text, style)]));
    }
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines), area);
}

/// The end of a line that is too long: that is where it grows.
fn tail(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut from = text.len();
    for (at, _) in text.char_indices().rev() {
        if width(&text[at..]) + 1 > columns {
            break;
        }
        from = at;
    }
    format!("…{}", &text[from..])
}
