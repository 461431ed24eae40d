//! Tokens one by one: coloured by surprise, with what stood beside the chosen one.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::lens::shown;
use super::theme::Theme;
use crate::app::{App, SURPRISING, Tokens};
use crate::chat::TokenRecord;
use crate::text::{fit, sanitise_line, width};

/// Lines at the end that tell of the chosen token.
const DETAILS: usize = 4;

/// Draws them in the place of the messages.
pub fn draw(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    let Some(tokens) = &app.tokens else { return };
    if area.height < 3 || area.width < 10 {
        return;
    }
    frame.render_widget(Clear, area);
    let columns = usize::from(area.width);
    let details = details(tokens, theme, columns);
    let room = usize::from(area.height).saturating_sub(details.len() + 1).max(1);
    let (lines, at) = flow(tokens, theme, columns);
    let first = (at + 1).saturating_sub(room.div_ceil(2)).min(lines.len().saturating_sub(room));
    let mut all: Vec<Line> = lines.into_iter().skip(first).take(room).collect();
    all.resize(room, Line::default());
    all.push(Line::styled("─".repeat(columns), theme.faint));
    all.extend(details);
    frame.render_widget(Paragraph::new(all), area);
}

/// The tokens as running text, and the line on which the chosen one stands. Every second token has a mark of its
/// own where nothing is known of its probability, so that borders are seen.
fn flow(tokens: &Tokens, theme: &Theme, columns: usize) -> (Vec<Line<'static>>, usize) {
    let mut lines: Vec<Vec<Span>> = vec![Vec::new()];
    let (mut used, mut chosen_line) = (0, 0);
    for (nth, (text, record)) in tokens.list.iter().enumerate() {
        let style = match record {
            _ if nth == tokens.at => theme.chosen,
            Some(record) => theme.surprise(record),
            None if nth % 2 == 1 => theme.other,
            None => theme.text,
        };
        for (part_nth, part) in text.split('\n').enumerate() {
            if part_nth > 0 {
                if let (Some(line), true) = (lines.last_mut(), nth == tokens.at) {
                    line.push(Span::styled("⏎", style));
                }
                lines.push(Vec::new());
                used = 0;
            }
            put(&sanitise_line(part), style, columns, &mut lines, &mut used);
        }
        if nth == tokens.at {
            chosen_line = lines.len() - 1;
        }
    }
    (lines.into_iter().map(Line::from).collect(), chosen_line)
}

fn put(text: &str, style: Style, columns: usize, lines: &mut Vec<Vec<Span<'static>>>, used: &mut usize) {
    let mut rest = text;
    while !rest.is_empty() {
        let cells = width(rest);
        if *used + cells <= columns {
            if let Some(line) = lines.last_mut() {
                line.push(Span::styled(rest.to_owned(), style));
            }
            *used += cells;
            return;
        }
        if *used > 0 {
            lines.push(Vec::new());
            *used = 0;
            continue;
        }
        // Longer than a line by itself.
        let fitting =
            rest.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| width(&rest[..*end]) <= columns);
        let end = fitting.last().unwrap_or(rest.len());
        if let Some(line) = lines.last_mut() {
            line.push(Span::styled(rest[..end].to_owned(), style));
        }
        rest = &rest[end..];
        *used = columns;
    }
}

fn details(tokens: &Tokens, theme: &Theme, columns: usize) -> Vec<Line<'static>> {
    let n = tokens.list.len();
    let perplexity = tokens.perplexity().map_or(String::new(), |p| format!(" · perplexity {p:.2}"));
    let head = format!("{}: token {} of {n}{perplexity}", tokens.title, (tokens.at + 1).min(n));
    let mut lines = vec![Line::styled(fit(&head, columns), theme.heading)];
    if let Some((text, record)) = tokens.list.get(tokens.at) {
        match record {
            Some(record) => lines.extend(told(text, record, theme, columns)),
            None => lines.push(Line::styled(shown(text), theme.text)),
        }
    }
    lines.truncate(DETAILS);
    lines
}

fn told(text: &str, record: &TokenRecord, theme: &Theme, columns: usize) -> Vec<Line<'static>> {
    let percent = |log: f32| format!("{:.1} %", log.exp() * 100.0);
    let own = format!(
        "{}  {} · ln p {:.2} · rank {}{}",
        shown(text),
        percent(record.logprob),
        record.logprob,
        record.rank,
        if -record.logprob > SURPRISING { " · surprising" } else { "" }
    );
    let others = record.others.iter().enumerate();
    let others: Vec<String> =
        others.map(|(i, (t, log))| format!("{}: {} {}", i + 1, shown(t), percent(*log))).collect();
    vec![Line::styled(fit(&own, columns), theme.text), Line::styled(fit(&others.join("   "), columns), theme.text)]
}
