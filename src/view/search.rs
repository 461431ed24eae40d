//! What is found in all conversations.

use ratatui::Frame;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::overlay::{first_row, open_as_wide};
use super::theme::Theme;
use crate::app::{Search, counted};
use crate::chat::{Hit, Role};
use crate::text::{fit, sanitise_line};

/// Widest box: an excerpt in one line.
const WIDEST: u16 = 122;

/// Draws the search: the words, then each conversation with the places in it.
///
/// ```text
/// fox riv▏                                                        3 places
/// A walk by the river
///   you    Tell me of a fox and a river.
///   model  The fox swam through the river …
/// ```
pub fn draw(search: &Search, theme: &Theme, frame: &mut Frame) {
    let inner = open_as_wide(WIDEST, theme, "Search (Enter opens the place, Esc closes)", u16::MAX, frame);
    let columns = usize::from(inner.width);
    let told = match search.all {
        _ if search.query.trim().is_empty() => {
            "every word must be in a message; \"two words\" as they stand".to_owned()
        }
        None => "looking …".to_owned(),
        Some(all) => {
            let more = if all { "" } else { ", still reading" };
            match search.hits.len() {
                0 => format!("nowhere{more}"),
                1 => format!("1 place{more}"),
                n => format!("{} places{more}", counted(u32::try_from(n).unwrap_or(u32::MAX))),
            }
        }
    };
    let query = fit(&format!("{}▏ ", sanitise_line(&search.query)), columns);
    let mut lines = vec![Line::from(vec![Span::styled(query, theme.heading), Span::styled(told, theme.faint)])];
    let room = usize::from(inner.height).saturating_sub(lines.len()).max(1);
    let from = first_row(search.at, room, |at| begins(search, at));
    for (at, hit) in search.hits.iter().enumerate().skip(from) {
        if lines.len() > room {
            break;
        }
        if begins(search, at) {
            let archived = if hit.archived { " (archived)" } else { "" };
            let title = format!("{}{archived}", sanitise_line(&hit.title));
            lines.push(Line::styled(fit(&title, columns), theme.heading));
        }
        lines.push(place(hit, theme, columns, at == search.at));
    }
    lines.truncate(room + 1);
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Whether the places of another conversation begin here.
fn begins(search: &Search, at: usize) -> bool {
    let id = |at: usize| search.hits.get(at).map(|hit| &hit.id);
    id(at).is_some() && (at == 0 || id(at - 1) != id(at))
}

fn place(hit: &Hit, theme: &Theme, columns: usize, chosen: bool) -> Line<'static> {
    let who = match (hit.message, hit.role) {
        (Some(_), Some(Role::User)) => "you",
        (Some(_), _) => "model",
        (None, _) => "title",
    };
    let style = if chosen { theme.chosen } else { theme.text };
    let mut spans = vec![Span::styled(format!("  {who:<6} "), if chosen { style } else { theme.faint })];
    let mut left = columns.saturating_sub(9);
    let mut add = |text: &str, style: Style| {
        let text = fit(&sanitise_line(text), left);
        left = left.saturating_sub(crate::text::width(&text));
        spans.push(Span::styled(text, style));
    };
    let mut at = 0;
    for mark in &hit.marks {
        add(hit.text.get(at..mark.start).unwrap_or_default(), style);
        add(hit.text.get(mark.clone()).unwrap_or_default(), if chosen { style } else { theme.heading });
        at = mark.end;
    }
    add(hit.text.get(at..).unwrap_or_default(), style);
    Line::from(spans)
}
