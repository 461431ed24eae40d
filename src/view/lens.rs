//! The microscope: the candidates of the next token, and where each stage of the chain cuts them.

use ratatui::text::{Line, Span};

use super::panel::{part, rule};
use super::theme::Theme;
use crate::app::{App, Focus, Glance, Seen};
use crate::text::{fit, sanitise_line, width};

/// Columns of a bar.
const BAR: usize = 8;
/// Columns of a token's text.
const TEXT: usize = 11;

/// The candidates in at most so many lines.
///
/// ```text
/// ─ next token ──────────────────────
/// 2.10 bits · 5 of 49152 left
///  river     ▇▇▇▇▇▇▇▇  41 %   60 %
///  water     ▇▇▇░░░░░  17 %   24 %
/// ┄ top_p: 5 left ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
///  bank      ░░░░░░░░   3 %      –
/// ```
pub fn lines(app: &App, theme: &Theme, columns: usize, room: usize) -> Vec<Line<'static>> {
    if room < 3 {
        return Vec::new();
    }
    let title = if app.is_by_hand() { "next token: choose" } else { "next token" };
    let mut lines = vec![rule(theme, title, columns)];
    let Some(glance) = app.glance() else {
        lines.push(Line::styled("– (after the first question)", theme.faint));
        return lines;
    };
    let facts = format!("{:.2} bits · {} of {} left", glance.entropy, glance.left(), glance.vocabulary);
    lines.push(Line::styled(fit(&facts, columns), theme.text));
    let chosen = (app.focus == Focus::Candidates).then_some(app.lens.at);
    let body = candidates(glance, theme, columns, chosen);
    // The chosen candidate is in view.
    let at = chosen.and_then(|at| body.iter().position(|(nth, _)| *nth == Some(at))).unwrap_or(0);
    let first = (at + 1).saturating_sub(room - lines.len());
    lines.extend(body.into_iter().skip(first).map(|(_, line)| line).take(room - 2));
    lines
}

/// What may be chosen, then what each stage cuts under its line.
fn candidates(
    glance: &Glance,
    theme: &Theme,
    columns: usize,
    chosen: Option<usize>,
) -> Vec<(Option<usize>, Line<'static>)> {
    let mut lines = Vec::new();
    let mut drawn = Vec::new();
    let most = glance.candidates.iter().map(|c| c.before).fold(f32::MIN_POSITIVE, f32::max);
    for (nth, seen) in glance.candidates.iter().enumerate() {
        if let Some(stage) = seen.cut.filter(|stage| !drawn.contains(stage)) {
            drawn.push(stage);
            let kept = glance.cuts.iter().find(|c| c.stage == stage).map_or(0, |c| c.kept);
            let text = format!("┄ {}: {kept} left ", stage.name());
            let rest = "┄".repeat(columns.saturating_sub(width(&text)));
            lines.push((None, Line::styled(text + &rest, theme.bar)));
        }
        lines.push((Some(nth), candidate(seen, theme, most, chosen == Some(nth), glance.chosen == Some(seen.token))));
    }
    lines
}

fn candidate(seen: &Seen, theme: &Theme, most: f32, here: bool, taken: bool) -> Line<'static> {
    let style = match (here, seen.cut.is_some()) {
        (true, _) => theme.chosen,
        (false, true) => theme.faint,
        (false, false) => theme.text,
    };
    let filled = part(BAR, f64::from(seen.before / most));
    let after = if seen.after > 0.0 { percent(seen.after) } else { "     –".to_owned() };
    let text = shown(&seen.text);
    let pad = " ".repeat(TEXT.saturating_sub(width(&text)));
    Line::from(vec![
        Span::styled(if taken { "▸" } else { " " }, theme.bar),
        Span::styled(text, style),
        Span::raw(pad),
        Span::styled("▇".repeat(filled), if seen.cut.is_some() { theme.faint } else { theme.bar }),
        Span::styled("░".repeat(BAR - filled), theme.faint),
        Span::styled(percent(seen.before), theme.faint),
        Span::styled(after, if seen.cut.is_some() { theme.faint } else { theme.figure }),
    ])
}

/// A token's text as it can be seen, in the columns of a candidate.
pub fn shown(text: &str) -> String {
    let marked = marked(text);
    if marked.is_empty() { "(nothing)".to_owned() } else { fit(&marked, TEXT) }
}

/// A text in which blanks and line ends have a mark.
pub fn marked(text: &str) -> String {
    let marked: String = text
        .chars()
        .map(|c| match c {
            ' ' => '·',
            '\n' => '⏎',
            '\t' => '→',
            c => c,
        })
        .collect();
    sanitise_line(&marked)
}

fn percent(share: f32) -> String {
    let percent = share * 100.0;
    if percent >= 9.95 { format!("{percent:>5.0}%") } else { format!("{percent:>5.1}%") }
}
