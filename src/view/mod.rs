//! Drawing only: the whole screen from the app's state, on any size.

mod beams;
mod cache;
mod compare;
mod footer;
mod full;
mod input;
mod lens;
mod list;
mod messages;
mod overlay;
mod panel;
mod search;
mod sliders;
mod theme;
mod tokens;
mod tree;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};

use crate::app::{App, Areas, SMALLEST};
use theme::Theme;

/// Draws the screen.
///
/// ```text
/// ┌ Conversations │ Fox and river                       │ SmolLM2-135M   CPU ┐
/// │ Fox and river │ you                                 │ prefill  ▇▇▇▇▇▇▇▇  │
/// │ Regex help    │   Write a story about a fox.        │ decode   61 tok/s  │
/// │               │ model                               │ KV cache ▇▇▇▇░░░░  │
/// │               │   The fox came down to the …        │ sampling ──●─────  │
/// │               │─────────────────────────────────────│                    │
/// │               │ > and then?                         │                    │
/// └ Enter send  Esc stop  F2 sliders  F1 help ─────────────────────────────────┘
/// ```
pub fn draw(app: &App, frame: &mut Frame) {
    let theme = Theme::new(app.color);
    let Some(areas) = app.areas() else {
        let text = format!("llmchat needs {}×{} cells", SMALLEST.0, SMALLEST.1);
        frame.render_widget(Paragraph::new(text), frame.area());
        return;
    };
    // The frame may be smaller than the app knows for the moment between two resizes.
    let on_screen = |area: Rect| area.intersection(frame.area());
    let (title, messages_area, input_area) =
        (on_screen(areas.title), on_screen(areas.messages), on_screen(areas.input));
    let (list_area, panel_area) = (on_screen(areas.list), on_screen(areas.panel));
    let (folded, footer_area) = (on_screen(areas.folded), on_screen(areas.footer));
    let beams_area = on_screen(areas.beams);
    messages::title(app, &theme, title, frame);
    messages::draw(app, &theme, messages_area, frame);
    beams::draw(app, &theme, beams_area, frame);
    tokens::draw(app, &theme, messages_area, frame);
    input::draw(app, &theme, input_area, frame);
    for (area, draw) in [
        (list_area, list::draw as fn(&App, &Theme, Rect, &mut Frame)),
        (panel_area, panel::draw),
        (folded, panel::folded),
        (footer_area, footer::draw),
    ] {
        if !area.is_empty() {
            frame.render_widget(Clear, area);
            draw(app, &theme, area, frame);
        }
    }
    separators(&areas, &theme, frame);
    tree::draw(app, &theme, &areas, frame);
    compare::draw(app, &theme, &areas, frame);
    overlay::draw(app, &theme, frame);
}

/// The lines between the parts.
fn separators(areas: &Areas, theme: &Theme, frame: &mut Frame) {
    let mut columns = Vec::new();
    if areas.list.width > 0 && areas.title.x > areas.list.right() {
        columns.push((areas.list.right(), areas.list.height));
    }
    if areas.panel.width > 0 && areas.panel.x > areas.title.right() {
        columns.push((areas.title.right(), areas.panel.height));
    }
    for (x, height) in columns {
        let area = Rect { x, y: 0, width: 1, height }.intersection(frame.area());
        let line: Vec<Line> = (0..area.height).map(|_| Line::styled("│", theme.faint)).collect();
        frame.render_widget(Paragraph::new(line), area);
    }
}

#[cfg(test)]
mod tests;
