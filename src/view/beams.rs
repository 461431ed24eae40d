//! The beams of a search, side by side: what they do not agree on, their scores, who leads.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::theme::Theme;
use crate::app::App;
use crate::text::{sanitise_line, width};

/// Columns of mark and score.
const SCORE: usize = 11;

/// Draws the lanes. What all have in common is in the message above already; what only the living ones share stands
/// once, dimmed.
///
/// ```text
/// ─ 4 beams · the lead changed 3 times ──────────
///            Once there was a river
/// ▸ -0.512   where a fox was drinking
///   -0.530  , and the moon
///   -0.544   that
/// ✓ -0.601  Once there was a river.
/// ```
pub fn draw(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let beams = &app.engine.beams;
    let columns = usize::from(area.width);
    let living: Vec<&str> = beams.iter().filter(|b| !b.ended).map(|b| b.text.as_str()).collect();
    let shared = common(&living);
    let s = if app.engine.overtakes == 1 { "" } else { "s" };
    let title = format!("─ {} beams · the lead changed {} time{s} ", living.len(), app.engine.overtakes);
    let rest = "─".repeat(columns.saturating_sub(width(&title)));
    let line = |text: &str| sanitise_line(&text.replace('\n', "⏎"));
    let room = columns.saturating_sub(SCORE);
    let trunk = living.first().map_or("", |text| &text[..shared]);
    let mut lines = vec![
        Line::styled(title + &rest, theme.faint),
        Line::styled(format!("{:SCORE$}{}", "", tail(&line(trunk), room)), theme.faint),
    ];
    let best = beams.iter().map(|b| b.score).fold(f32::NEG_INFINITY, f32::max);
    for beam in beams {
        let leads = beam.score >= best;
        let mark = match (leads, beam.ended) {
            (true, _) => "▸",
            (_, true) => "✓",
            _ => " ",
        };
        let score = format!("{mark} {:>7.3}  ", beam.score);
        let text = if beam.ended { beam.text.as_str() } else { &beam.text[shared..] };
        let style = if leads { theme.figure } else { theme.text };
        lines.push(Line::from(vec![Span::styled(score, theme.bar), Span::styled(tail(&line(text), room), style)]));
    }
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines), area);
}

/// Bytes that the texts have in common at their beginning.
fn common(texts: &[&str]) -> usize {
    let Some(first) = texts.first() else { return 0 };
    let same = |end: usize| texts.iter().all(|t| t.get(..end) == first.get(..end));
    first.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| same(*end)).last().unwrap_or(0)
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
