//! The map of the cache.

use ratatui::Frame;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::overlay::{open_as_wide, wrapped};
use super::panel::part;
use super::theme::Theme;
use crate::app::{App, CacheMap, Held, Holder, counted};
use crate::chat::Role;
use crate::text::{fit, sanitise_line, width};

/// Columns of the longest sequence, where there is room for it.
const BAR: usize = 24;
/// Widest box: a row with the beginning of a text.
const WIDEST: u16 = 122;
/// Sequences that are seen before anything else has room.
const FEW: usize = 4;
const KEYS: &str = "↑↓ choose · d gives its cells free · p keeps it (▪) until nothing else can go · Esc";
const SHORT_KEYS: &str = "↑↓ · d free · p keep (▪) · Esc";

/// Draws the map. A sequence's bar begins where it parts from those above it: shared cells are drawn once.
///
/// ```text
/// 812 of 8,192 cells · 17.8 of 180 MiB · 90 % hold nothing; with a cache for each of 2: 91 % · 13 MiB kept in memory
/// at work: system 26 · question 34 · answer 752
///                                    tokens     own  last used        begins with
/// ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇  at work     812     812  now              Write about a fox …
/// ········▇▇▇▇▇▇▇▇▇▇        memory      598     320  2 prompts ago    and the sea …
/// ```
pub fn draw(app: &App, theme: &Theme, map: Option<&CacheMap>, at: usize, frame: &mut Frame) {
    let Some(map) = map else {
        let inner = open_as_wide(WIDEST, theme, "KV cache", 1, frame);
        frame.render_widget(Paragraph::new(Line::styled("looking …", theme.faint)), inner);
        return;
    };
    let columns = usize::from(frame.area().width.saturating_sub(6).clamp(1, WIDEST - 2));
    let room = usize::from(frame.area().height.saturating_sub(3));
    let rows = map.held.len().max(1);
    let (above, below) = around(app, map, theme, columns, room.saturating_sub(rows.min(FEW)));
    let lines = u16::try_from(above.len() + rows + below.len()).unwrap_or(u16::MAX);
    let inner = open_as_wide(WIDEST, theme, "KV cache", lines, frame);
    let room = usize::from(inner.height).saturating_sub(above.len() + below.len()).max(1);
    let first = (at + 1).saturating_sub(room);
    let longest = map.held.iter().map(|h| h.tokens).max().unwrap_or(0);
    let shown = map.held.iter().enumerate().skip(first).take(room);
    let mut lines = above;
    lines.extend(shown.map(|(n, held)| sequence(held, longest, theme, columns, n == at)));
    if map.held.is_empty() {
        lines.push(Line::styled("It holds nothing.", theme.faint));
    }
    lines.extend(below);
    frame.render_widget(Paragraph::new(lines), inner);
}

/// What stands above and below the table, in at most so many lines: all of it, or what is needed to decide.
fn around(
    app: &App,
    map: &CacheMap,
    theme: &Theme,
    columns: usize,
    most: usize,
) -> (Vec<Line<'static>>, Vec<Line<'static>>) {
    let mut above: Vec<Line> = facts(app, map).iter().flat_map(|fact| wrapped(fact, columns, theme.text)).collect();
    above.extend(messages(map).iter().flat_map(|text| wrapped(text, columns, theme.faint)));
    above.push(Line::styled(fit(&heading(columns), columns), theme.faint));
    let mut below = vec![Line::default()];
    below.extend(wrapped(KEYS, columns, theme.faint));
    if above.len() + below.len() <= most {
        return (above, below);
    }
    above.truncate(most.saturating_sub(1).clamp(1, 2));
    (above, vec![Line::styled(fit(SHORT_KEYS, columns), theme.faint)])
}

fn facts(app: &App, map: &CacheMap) -> Vec<String> {
    let per_token = app.engine.info.as_ref().map_or(0, |info| info.kv_bytes_per_token);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mebibytes = |cells: u32| mib(u64::from(cells) * per_token);
    let (here, apart) = map.waste();
    let each = match map.held.len() {
        0 | 1 => String::new(),
        n => format!("; with a cache for each of {n}: {:.0} %", apart * 100.0),
    };
    let used = format!(
        "{} of {} cells · {:.1} of {:.1} MiB · {:.0} % hold nothing{each}",
        counted(map.used),
        counted(map.n_ctx),
        mebibytes(map.used),
        mebibytes(map.n_ctx),
        here * 100.0,
    );
    let outside = format!("kept outside: {:.1} MiB in memory, {:.1} on disk", mib(map.memory), mib(map.files));
    std::iter::once(used).chain((map.memory + map.files > 0).then_some(outside)).collect()
}

/// When a sequence was at work last.
fn ago(held: &Held) -> String {
    match held.age {
        _ if held.holder.is_cell() => "now".to_owned(),
        None => "earlier".to_owned(),
        Some(0) => "in use".to_owned(),
        Some(1) => "1 prompt ago".to_owned(),
        Some(n) => format!("{} prompts ago", counted(u32::try_from(n).unwrap_or(u32::MAX))),
    }
}

/// Whose the cells of the sequence at work are, message by message.
fn messages(map: &CacheMap) -> Option<String> {
    let name = |role| match role {
        Role::System => "system",
        Role::User => "question",
        Role::Assistant => "answer",
    };
    let parts: Vec<String> = map.parts.iter().map(|(role, n)| format!("{} {}", name(*role), counted(*n))).collect();
    (!parts.is_empty()).then(|| format!("at work: {}", parts.join(" · ")))
}

/// Columns of a bar.
fn bar(columns: usize) -> usize {
    if is_wide(columns) { BAR } else { (columns / 5).min(8) }
}

/// Whether there is room for all columns of the table.
fn is_wide(columns: usize) -> bool {
    columns >= BAR + 46
}

/// A row's figures; its last columns only where there is room for them.
fn figures(columns: usize, pin: &str, holder: &str, tokens: &str, own: &str, when: &str) -> String {
    let when = if is_wide(columns) { format!("  {when:<16}") } else { String::new() };
    format!(" {pin}{holder:<7} {tokens:>7} {own:>7}{when} ")
}

fn heading(columns: usize) -> String {
    let begins = if is_wide(columns) { "begins with" } else { "" };
    format!("{}{}{begins}", " ".repeat(bar(columns)), figures(columns, " ", "", "tokens", "own", "last used"))
}

fn sequence(held: &Held, longest: u32, theme: &Theme, columns: usize, chosen: bool) -> Line<'static> {
    let bar = bar(columns);
    let share = |n: u32| part(bar, f64::from(n) / f64::from(longest.max(1)));
    let (shared, all) = (share(held.shared), share(held.tokens));
    let own = all.saturating_sub(shared).max(usize::from(held.tokens > held.shared)).min(bar - shared.min(bar));
    let holder = match held.holder {
        Holder::Main => "at work",
        Holder::Branch => "beam",
        Holder::Memory => "memory",
        Holder::File => "disk",
    };
    let pin = if held.pinned { "▪" } else { " " };
    let facts = figures(columns, pin, holder, &counted(held.tokens), &counted(held.own), &ago(held));
    let room = columns.saturating_sub(bar + width(&facts));
    let style = if chosen { theme.chosen } else { theme.text };
    Line::from(vec![
        Span::styled("·".repeat(shared), theme.faint),
        Span::styled("▇".repeat(own), theme.bar),
        Span::raw(" ".repeat(bar - (shared + own).min(bar))),
        Span::styled(facts, style),
        Span::styled(fit(&sanitise_line(&held.text), room), theme.faint),
    ])
}
