//! The map of the cache.

use ratatui::Frame;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::overlay::open;
use super::panel::part;
use super::theme::Theme;
use crate::app::{App, CacheMap, Held, Holder, counted};
use crate::chat::Role;
use crate::text::{fit, sanitise_line, width};

/// Columns of the longest sequence.
const BAR: usize = 24;

/// Draws the map. A sequence's bar begins where it parts from those above it: shared cells are drawn once.
///
/// ```text
/// 812 of 8,192 cells · 17.8 of 180 MiB · 90 % hold nothing; with a cache for each of 2: 91 % · 13 MiB kept in memory
/// at work: system 26 · question 34 · answer 752
/// ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇  at work          812 tokens, 812 its own   Write about a fox …
/// ········▇▇▇▇▇▇▇▇▇▇        memory, 2 ago    598 tokens, 320 its own   and the sea …
/// ```
pub fn draw(app: &App, theme: &Theme, map: Option<&CacheMap>, at: usize, frame: &mut Frame) {
    let lines = map.map_or(1, |m| m.held.len().max(1));
    let inner = open(theme, "KV cache", u16::try_from(lines + 4).unwrap_or(u16::MAX), frame);
    let columns = usize::from(inner.width);
    let Some(map) = map else {
        frame.render_widget(Paragraph::new(Line::styled("looking …", theme.faint)), inner);
        return;
    };
    let mut lines = vec![Line::styled(fit(&facts(app, map), columns), theme.text)];
    if !map.parts.is_empty() {
        lines.push(Line::styled(fit(&messages(map), columns), theme.faint));
    }
    let room = usize::from(inner.height).saturating_sub(2 + lines.len()).max(1);
    let first = (at + 1).saturating_sub(room);
    let longest = map.held.iter().map(|h| h.tokens).max().unwrap_or(0);
    lines.extend(
        map.held
            .iter()
            .enumerate()
            .skip(first)
            .take(room)
            .map(|(n, held)| sequence(held, longest, theme, columns, n == at)),
    );
    if map.held.is_empty() {
        lines.push(Line::styled("It holds nothing.", theme.faint));
    }
    lines.push(Line::default());
    let keys = "↑↓ choose · d gives its cells free · p keeps it (▪) until nothing else can go · Esc";
    lines.push(Line::styled(fit(keys, columns), theme.faint));
    frame.render_widget(Paragraph::new(lines), inner);
}

fn facts(app: &App, map: &CacheMap) -> String {
    let per_token = app.engine.info.as_ref().map_or(0, |info| info.kv_bytes_per_token);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mebibytes = |cells: u32| mib(u64::from(cells) * per_token);
    let (here, apart) = map.waste();
    let each = match map.held.len() {
        0 | 1 => String::new(),
        n => format!("; with a cache for each of {n}: {:.0} %", apart * 100.0),
    };
    format!(
        "{} of {} cells · {:.1} of {:.1} MiB · {:.0} % hold nothing{each}{}",
        counted(map.used),
        counted(map.n_ctx),
        mebibytes(map.used),
        mebibytes(map.n_ctx),
        here * 100.0,
        match (map.memory, map.files) {
            (0, 0) => String::new(),
            (memory, files) => {
                format!(" · kept outside: {:.1} MiB in memory, {:.1} on disk", mib(memory), mib(files))
            }
        }
    )
}

/// When a sequence was at work, in prompts.
fn ago(age: Option<u64>) -> String {
    match age {
        None => "earlier".to_owned(),
        Some(0) => "in use".to_owned(),
        Some(n) => format!("{n} ago"),
    }
}

/// Whose the cells of the sequence at work are, message by message.
fn messages(map: &CacheMap) -> String {
    let name = |role| match role {
        Role::System => "system",
        Role::User => "question",
        Role::Assistant => "answer",
    };
    let parts: Vec<String> = map.parts.iter().map(|(role, n)| format!("{} {}", name(*role), counted(*n))).collect();
    format!("at work: {}", parts.join(" · "))
}

fn sequence(held: &Held, longest: u32, theme: &Theme, columns: usize, chosen: bool) -> Line<'static> {
    let bar = BAR.min(columns / 3);
    let share = |n: u32| part(bar, f64::from(n) / f64::from(longest.max(1)));
    let (shared, all) = (share(held.shared), share(held.tokens));
    let own = all.saturating_sub(shared).max(usize::from(held.tokens > held.shared)).min(bar - shared.min(bar));
    let when = match (held.holder, held.age) {
        (Holder::Main, _) => "at work".to_owned(),
        (Holder::Branch, _) => "beam".to_owned(),
        (Holder::Memory, age) => format!("memory, {}", ago(age)),
        (Holder::File, age) => format!("disk, {}", ago(age)),
    };
    let pin = if held.pinned { "▪" } else { " " };
    let facts = format!("{pin}{when:<16}{:>6} tokens, {:>6} its own  ", counted(held.tokens), counted(held.own));
    let room = columns.saturating_sub(bar + 1 + width(&facts));
    let style = if chosen { theme.chosen } else { theme.text };
    Line::from(vec![
        Span::styled("·".repeat(shared), theme.faint),
        Span::styled("▇".repeat(own), theme.bar),
        Span::raw(" ".repeat(bar + 1 - (shared + own).min(bar))),
        Span::styled(facts, style),
        Span::styled(fit(&sanitise_line(&held.text), room), theme.faint),
    ])
}
