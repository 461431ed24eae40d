//! The boxes of a full context: what can be done, and whether to go beyond the trained length.

use ratatui::Frame;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::overlay::{open, scrolled, wrapped};
use super::theme::Theme;
use crate::app::{App, Full, counted};

const KEYS: &str = "↑↓ Enter or a digit takes one · ←→ keeps fewer or more turns · Esc leaves all as it is.";
const SETTING: &str = " What you take is done by itself from now on; /overflow changes that.";

/// The choices, the chosen one always in view.
pub fn draw(full: &Full, theme: &Theme, frame: &mut Frame) {
    // Wrapped twice: once for the height of the box, which the width does not depend on.
    let columns = usize::from(frame.area().width.saturating_sub(6).clamp(4, super::overlay::WIDEST - 2));
    let (lines, chosen) = lines(full, theme, columns);
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let title = if full.is_full() { "The context is full" } else { "Shorten this conversation" };
    let inner = open(theme, title, height, frame);
    let room = usize::from(inner.height);
    let top = if lines.len() <= room { 0 } else { chosen };
    scrolled(lines, top, theme, inner, frame);
}

/// The lines of the box, and where the chosen one begins.
fn lines(full: &Full, theme: &Theme, columns: usize) -> (Vec<Line<'static>>, usize) {
    let mut lines = Vec::new();
    let mut chosen = 0;
    let mut add = |text: &str, style| {
        lines.extend(wrapped(text, columns, style));
        lines.len()
    };
    let mut at = add(&format!("{}.", full.heading()), theme.text);
    for (nth, how) in (1..).zip(Full::CHOICES) {
        let style = match full.plan(how) {
            _ if full.chosen() == how => theme.chosen,
            Ok(_) => theme.text,
            Err(_) => theme.faint,
        };
        if full.chosen() == how {
            chosen = at;
        }
        at = add(&format!("{nth} {}", full.told(how)), style);
    }
    add(&format!("{KEYS}{}", if full.is_full() { SETTING } else { "" }), theme.faint);
    (lines, chosen)
}

/// Yes or no to a context longer than the trained one.
pub fn beyond(app: &App, n_ctx: u32, theme: &Theme, frame: &mut Frame) {
    let inner = open(theme, "Beyond the trained length?", 5, frame);
    let trained = app.engine.info.as_ref().map_or(0, |info| info.n_ctx_train);
    let text = format!(
        "{} tokens are more than the {} that the model was trained on: far in, its answers may turn into nonsense. \
         --rope-scaling yarn helps some models.",
        counted(n_ctx),
        counted(trained)
    );
    let mut lines = wrapped(&text, usize::from(inner.width).max(1), Style::new());
    lines.truncate(usize::from(inner.height).saturating_sub(1));
    lines.push(Line::styled("y take it   n leave it", theme.heading));
    frame.render_widget(Paragraph::new(lines), inner);
}
