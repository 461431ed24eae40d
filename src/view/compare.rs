//! Two alternatives side by side, over the whole screen but its last line.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::theme::Theme;
use crate::app::{App, Areas, Comparison, Fact, Side};
use crate::text::{Wrapped, fit, sanitise_line, width};

/// Columns of what a fact is called.
const LABEL: usize = 9;

/// Draws them: which they are, then what is known of both, then the words; what differs is marked.
///
/// ```text
/// 12 words alike, of 45 and 50
/// 1/3                          │ 2/3
/// seed     7                   │ seed     12
/// ─────────────────────────────┼─────────────────────────────
/// The fox came down to the     │ The fox went up to the
/// river.                       │ hill.
/// ```
pub fn draw(app: &App, theme: &Theme, areas: &Areas, frame: &mut Frame) {
    let Some(comparison) = &app.comparison else { return };
    let area = Rect { x: 0, y: 0, width: app.size.0, height: areas.footer.y }.intersection(frame.area());
    if area.is_empty() {
        return;
    }
    frame.render_widget(Clear, area);
    let columns = Comparison::columns(area.width);
    let (alike, left, right) = comparison.alike;
    let heading = format!("{alike} words alike, of {left} and {right}");
    let titles = comparison.sides.each_ref().map(|side| vec![Span::styled(title(side), theme.heading)]);
    let mut lines =
        vec![Line::styled(fit(&heading, usize::from(area.width)), theme.heading), pair(titles, columns, theme)];
    let room = usize::from(area.height).saturating_sub(lines.len());
    let top = comparison.top.min(comparison.height().saturating_sub(room));
    for n in top..comparison.height().min(top + room) {
        let facts = comparison.facts.len();
        lines.push(if let Some(fact) = comparison.facts.get(n) {
            pair([0, 1].map(|i| value(fact, i, columns, theme)), columns, theme)
        } else if n == facts {
            Line::styled(format!("{0}─┼─{0}", "─".repeat(columns)), theme.faint)
        } else {
            let styles = [theme.removed, theme.added];
            pair([0, 1].map(|i| words(&comparison.sides[i], n - facts - 1, styles[i], theme)), columns, theme)
        });
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn title(side: &Side) -> String {
    let (at, of) = side.nth;
    format!("{at}/{of}")
}

/// Two halves of a line.
fn pair([mut left, right]: [Vec<Span<'static>>; 2], columns: usize, theme: &Theme) -> Line<'static> {
    let used: usize = left.iter().map(|span| width(&span.content)).sum();
    left.push(Span::raw(" ".repeat(columns.saturating_sub(used))));
    left.push(Span::styled(" │ ", theme.faint));
    left.extend(right);
    Line::from(left)
}

fn value(fact: &Fact, side: usize, columns: usize, theme: &Theme) -> Vec<Span<'static>> {
    let label = format!("{:<LABEL$}", fit(fact.label, LABEL - 1));
    let label = if columns > 2 * LABEL { label } else { String::new() };
    let value = fit(&sanitise_line(&fact.values[side]), columns.saturating_sub(width(&label)));
    let style = if fact.differs() { theme.figure } else { theme.faint };
    vec![Span::styled(label, theme.faint), Span::styled(value, style)]
}

/// A line of the words; what the other side does not have is marked.
fn words(side: &Side, line: usize, mark: Style, theme: &Theme) -> Vec<Span<'static>> {
    if line >= side.text.height() {
        return Vec::new();
    }
    marked(&side.text, side.text.span(line), &side.differs, mark, theme)
}

fn marked(
    text: &Wrapped,
    line: Range<usize>,
    differs: &[Range<usize>],
    mark: Style,
    theme: &Theme,
) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    let mut at = line.start;
    let from = differs.partition_point(|range| range.end <= line.start);
    let push = |spans: &mut Vec<Span<'static>>, range: Range<usize>, style| {
        if let Some(piece) = text.text().get(range).filter(|piece| !piece.is_empty()) {
            spans.push(Span::styled(piece.to_owned(), style));
        }
    };
    for range in differs[from..].iter().take_while(|range| range.start < line.end) {
        let (start, end) = (range.start.max(line.start), range.end.min(line.end));
        push(&mut spans, at..start, theme.text);
        push(&mut spans, start..end, mark);
        at = end;
    }
    push(&mut spans, at..line.end, theme.text);
    spans
}
