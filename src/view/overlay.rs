//! What stands over the screen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::theme::Theme;
use crate::app::commands::COMMANDS;
use crate::app::{App, Overlay, Scope, hits, shown_key};
use crate::chat::Preset;
use crate::text::{Wrapped, fit, sanitise_line};

/// Widest box.
pub(super) const WIDEST: u16 = 96;

/// Draws the box that is open, if one is.
pub fn draw(app: &App, theme: &Theme, frame: &mut Frame) {
    let Some(overlay) = &app.overlay else { return };
    match overlay {
        Overlay::Help(top) => {
            let inner = open(theme, "Keys and commands (Esc closes)", u16::MAX, frame);
            scrolled(help(theme, usize::from(inner.width)), *top, theme, inner, frame);
        }
        Overlay::Text { title, lines, top } => {
            let inner = open(theme, title, u16::MAX, frame);
            let columns = usize::from(inner.width);
            let text = lines.iter().flat_map(|line| wrapped(line, columns, Style::new()));
            scrolled(text.collect(), *top, theme, inner, frame);
        }
        Overlay::Search(search) => super::search::draw(search, theme, frame),
        Overlay::Palette { query, at } => palette(theme, query, *at, frame),
        Overlay::Ask { what, input } => {
            let inner = open(
                theme,
                &format!("{} (Enter takes it, Esc leaves it)", what.title()),
                input.height(WIDEST - 4).max(3),
                frame,
            );
            let mut area = input.area.clone();
            area.set_cursor_style(Style::new().add_modifier(Modifier::REVERSED));
            frame.render_widget(&area, inner);
        }
        Overlay::Delete(_, title) => {
            let inner = open(theme, "Delete?", 3, frame);
            let title = fit(&sanitise_line(title), usize::from(inner.width).saturating_sub(4));
            let text = vec![
                Line::raw(format!("“{title}”")),
                Line::raw("moves to the trash folder; u in the list brings it back."),
                Line::styled("y delete   n keep", theme.heading),
            ];
            frame.render_widget(Paragraph::new(text), inner);
        }
        Overlay::Full(full) => super::full::draw(full, theme, frame),
        Overlay::Beyond { n_ctx, .. } => super::full::beyond(app, *n_ctx, theme, frame),
        Overlay::Cache { map, at } => super::cache::draw(app, theme, map.as_ref(), *at, frame),
        Overlay::Presets { list, at } => presets(app, theme, list, *at, frame),
        Overlay::Models { list, at } => models(theme, list.as_deref(), *at, frame),
    }
}

/// Clears a box in the middle of the screen and gives its inside.
pub(super) fn open(theme: &Theme, title: &str, lines: u16, frame: &mut Frame) -> Rect {
    open_as_wide(WIDEST, theme, title, lines, frame)
}

/// The same for a table, which is better read in one line a row.
pub(super) fn open_as_wide(widest: u16, theme: &Theme, title: &str, lines: u16, frame: &mut Frame) -> Rect {
    let screen = frame.area();
    let width = screen.width.saturating_sub(4).min(widest).max(screen.width.min(10));
    let height = lines.saturating_add(2).min(screen.height.saturating_sub(1)).max(screen.height.min(3));
    let area =
        Rect { x: screen.x + (screen.width - width) / 2, y: screen.y + (screen.height - height) / 3, width, height };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(format!(" {title} ")).border_style(theme.faint).title_style(theme.heading);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    inner
}

/// A text as lines of so many columns.
pub(super) fn wrapped(text: &str, columns: usize, style: Style) -> Vec<Line<'static>> {
    let wrapped = Wrapped::new(text, columns);
    (0..wrapped.height()).map(|n| Line::styled(wrapped.line(n).to_owned(), style)).collect()
}

/// The first row that is drawn so that the chosen one has a place in so many lines, where some rows have a heading
/// above them.
pub(super) fn first_row(chosen: usize, room: usize, has_heading: impl Fn(usize) -> bool) -> usize {
    let height = |row: usize| 1 + usize::from(has_heading(row));
    let mut first = chosen;
    let mut lines = height(first);
    while let Some(before) = first.checked_sub(1) {
        lines += height(before);
        if lines > room {
            break;
        }
        first = before;
    }
    first
}

/// Lines from the top one on; on the box's lower edge which of them are shown, if not all are.
pub(super) fn scrolled(lines: Vec<Line>, top: usize, theme: &Theme, area: Rect, frame: &mut Frame) {
    let (all, room) = (lines.len(), usize::from(area.height));
    let top = top.min(all.saturating_sub(room));
    let shown: Vec<Line> = lines.into_iter().skip(top).take(room).collect();
    frame.render_widget(Paragraph::new(shown), area);
    let edge = Rect { x: area.x + 1, y: area.bottom(), width: area.width.saturating_sub(1), height: 1 };
    if all > room && edge.bottom() <= frame.area().bottom() {
        let place = format!(" ↑↓ {}–{} of {all} ", top + 1, (top + room).min(all));
        frame.render_widget(Span::styled(place, theme.faint), edge);
    }
}

fn help(theme: &Theme, columns: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for scope in Scope::ALL {
        lines.push(Line::styled(scope.title(), theme.heading));
        for row in COMMANDS.iter().filter(|r| r.scope == scope) {
            let keys: Vec<String> = row.keys.iter().map(|k| shown_key(k)).collect();
            let slash = if row.slash.is_empty() { String::new() } else { format!("/{} {}", row.slash, row.argument) };
            let left = format!("  {:<22} {:<17} ", fit(&keys.join(" "), 22), slash.trim_end());
            let wrapped = Wrapped::new(row.help, columns.saturating_sub(left.chars().count()).max(12));
            for n in 0..wrapped.height() {
                let left = if n == 0 { left.clone() } else { " ".repeat(left.chars().count()) };
                lines.push(Line::from(vec![
                    Span::styled(left, theme.text),
                    Span::styled(wrapped.line(n).to_owned(), theme.faint),
                ]));
            }
        }
        lines.push(Line::default());
    }
    lines
}

fn palette(theme: &Theme, query: &str, at: usize, frame: &mut Frame) {
    let rows = hits(query);
    let inner = open(theme, "Commands (Enter does it, Esc closes)", 14, frame);
    let mut lines = vec![Line::from(vec![
        Span::styled("> ", theme.heading),
        Span::raw(sanitise_line(query)),
        Span::styled("▏", theme.heading),
    ])];
    let room = usize::from(inner.height).saturating_sub(1).max(1);
    let at = at.min(rows.len().saturating_sub(1));
    let first = at.saturating_sub(room - 1);
    for (n, row) in rows.iter().enumerate().skip(first).take(room) {
        let key = row.keys.first().map(|k| shown_key(k)).unwrap_or_default();
        let slash = if row.slash.is_empty() { String::new() } else { format!("/{}", row.slash) };
        let text = format!("{key:<12} {slash:<11} {}", row.help);
        let style = if n == at { theme.chosen } else { theme.text };
        lines.push(Line::styled(fit(&text, usize::from(inner.width)), style));
    }
    if rows.is_empty() {
        lines.push(Line::styled("nothing has these words", theme.faint));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

/// The presets, and what the chosen one would change.
fn presets(app: &App, theme: &Theme, list: &[Preset], at: usize, frame: &mut Frame) {
    let inner = open(theme, "Presets (Enter takes one)", u16::try_from(list.len()).unwrap_or(9) + 4, frame);
    let columns = usize::from(inner.width);
    let room = usize::from(inner.height).saturating_sub(3).max(1);
    let first = at.saturating_sub(room - 1);
    let mut lines: Vec<Line> = list
        .iter()
        .enumerate()
        .skip(first)
        .take(room)
        .map(|(n, preset)| {
            let text = format!("{:<12} {}", sanitise_line(&preset.name), sanitise_line(&preset.about));
            Line::styled(fit(&text, columns), if n == at { theme.chosen } else { theme.text })
        })
        .collect();
    let changes = list.get(at).map(|p| p.changes(&app.chat.conversation.sampling)).unwrap_or_default();
    let told: Vec<String> = changes.iter().map(|c| format!("{} {} → {}", c.label, c.old, c.new)).collect();
    let told = if told.is_empty() { "changes nothing".to_owned() } else { told.join(" · ") };
    lines.push(Line::default());
    lines.extend(wrapped(&told, columns.max(1), theme.faint));
    frame.render_widget(Paragraph::new(lines), inner);
}

fn models(theme: &Theme, list: Option<&[(String, std::path::PathBuf)]>, at: usize, frame: &mut Frame) {
    let inner = open(theme, "Models (Enter loads)", 12, frame);
    let columns = usize::from(inner.width);
    let lines: Vec<Line> = match list {
        None => vec![Line::styled("looking …", theme.faint)],
        Some([]) => vec![Line::raw("No model was found."), Line::raw("Fetch the default one with 'make model'.")],
        Some(list) => {
            let first = at.saturating_sub(usize::from(inner.height).saturating_sub(1));
            let shown = list.iter().enumerate().skip(first).take(usize::from(inner.height));
            shown
                .map(|(n, (name, path))| {
                    let text = format!("{}  {}", sanitise_line(name), sanitise_line(&path.display().to_string()));
                    Line::styled(fit(&text, columns), if n == at { theme.chosen } else { theme.text })
                })
                .collect()
        }
    };
    frame.render_widget(Paragraph::new(lines), inner);
}
