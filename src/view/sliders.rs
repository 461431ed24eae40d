//! The sliders of the panel.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::panel::part;
use super::theme::Theme;
use crate::app::{App, Cutter, Focus};
use crate::chat::{KNOBS, Kind, Knob, Sampling, Spec, Stage};
use crate::text::{Wrapped, fit};

/// Columns of a slider.
const SLIDER: usize = 12;

/// The sliders; beside a selected answer those that it was made with. At most `height` lines, the chosen one in them.
///
/// ```text
/// mode      ‹ sample ›
/// temp      ────●─────── 0.80
/// top-k     ●─────────── 40  keeps 40
/// a: all 29
/// ```
pub fn lines(
    app: &App,
    theme: &Theme,
    sampling: &Sampling,
    used_seed: Option<u32>,
    columns: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let focused = app.focus == Focus::Sliders;
    let chosen = app.slider();
    let mut lines: Vec<Line> = Vec::new();
    let shown = app.sliders();
    for spec in &shown {
        lines.push(line(app, theme, spec, sampling, used_seed, focused && spec.knob == chosen.knob));
    }
    let mut help = Vec::new();
    if focused {
        let hint = if app.all_knobs { "a: the first ones".to_owned() } else { format!("a: all {}", KNOBS.len()) };
        help.push(Line::styled(hint, theme.faint));
        let text = Wrapped::new(&explained(app, chosen, sampling), columns.max(8));
        help.extend((0..text.height().min(4)).map(|n| Line::styled(fit(text.line(n), columns), theme.faint)));
    }
    let room = height.saturating_sub(1 + help.len()).max(1);
    let at = shown.iter().position(|s| s.knob == chosen.knob).unwrap_or(0);
    let first = if lines.len() > room { (at + 1).saturating_sub(room.div_ceil(2)).min(lines.len() - room) } else { 0 };
    let mut lines: Vec<Line> = lines.into_iter().skip(first).take(room).collect();
    lines.extend(help);
    lines
}

/// What a slider does, and what it does now.
fn explained(app: &App, spec: &Spec, sampling: &Sampling) -> String {
    if !spec.modes.contains(&sampling.mode) {
        return format!("Not used in mode {}. {}", sampling.mode.name(), spec.help);
    }
    let of = app.glance().map_or(0, |g| g.vocabulary);
    let now = match does(app, spec.knob) {
        Some(kept) if kept.bytes().all(|b| b.is_ascii_digit()) => format!("Now: {kept} of {of} left. "),
        Some(met) if met.ends_with(" met") => format!("Now: {} tokens get it. ", met.trim_end_matches(" met")),
        Some(other) => format!("Now: {other}. "),
        None => String::new(),
    };
    now + spec.help
}

fn line(
    app: &App,
    theme: &Theme,
    spec: &Spec,
    sampling: &Sampling,
    used_seed: Option<u32>,
    chosen: bool,
) -> Line<'static> {
    let unused = !spec.modes.contains(&sampling.mode);
    let style = match (chosen, unused) {
        (true, _) => theme.chosen,
        (false, true) => theme.faint,
        (false, false) => Style::new(),
    };
    let value = spec.format(sampling);
    let mut spans = vec![Span::styled(format!("{:<9} ", spec.label), if chosen { theme.heading } else { theme.faint })];
    match spec.kind {
        _ if chosen && !app.number.is_empty() => spans.push(Span::styled(format!(" {}▏ ", app.number), style)),
        Kind::Choice(_) => spans.push(Span::styled(format!("‹ {value} ›"), style)),
        Kind::Seed => {
            let value = used_seed.map_or(value, |seed| seed.to_string());
            spans.push(Span::styled(value, style));
        }
        Kind::Real(_) | Kind::Whole => {
            let knob = part(SLIDER - 1, spec.fraction(sampling));
            spans.push(Span::styled("─".repeat(knob), theme.faint));
            spans.push(Span::styled("●", if chosen { theme.bar } else { style }));
            spans.push(Span::styled("─".repeat(SLIDER - 1 - knob), theme.faint));
            spans.push(Span::raw(" "));
            spans.push(Span::styled(value, style));
        }
    }
    // What it does now, to the candidates that are there.
    if let Some(does) = does(app, spec.knob).filter(|_| used_seed.is_none() && !unused) {
        spans.push(Span::styled(format!(" →{does}"), theme.faint));
    }
    Line::from(spans)
}

/// What a slider does to the candidates that are there: how many it leaves, or what else.
fn does(app: &App, knob: Knob) -> Option<String> {
    let stage = match knob {
        Knob::Temperature | Knob::DynatempRange => Stage::Temperature,
        Knob::TopK => Stage::TopK,
        Knob::TopP => Stage::TopP,
        Knob::MinP => Stage::MinP,
        Knob::TypicalP => Stage::TypicalP,
        Knob::TopNSigma => Stage::TopNSigma,
        Knob::XtcProbability => Stage::Xtc,
        Knob::RepeatPenalty | Knob::FrequencyPenalty | Knob::PresencePenalty => Stage::Penalties,
        Knob::DryMultiplier => Stage::Dry,
        Knob::Mirostat => Stage::default(),
        _ => return None,
    };
    let by = if knob == Knob::Mirostat { Cutter::Mirostat } else { Cutter::Stage(stage) };
    let glance = app.glance()?;
    let cut = glance.cuts.iter().find(|c| c.stage == by)?;
    let top = || glance.candidates.first().map_or(0.0, |c| c.after * 100.0);
    Some(match (by, cut.does) {
        (Cutter::Mirostat, Some(mu)) => format!("{} left, μ {mu:.1}", cut.kept),
        (Cutter::Stage(Stage::Temperature), Some(t)) => format!("T {t:.2}, best {:.0}%", top()),
        (_, Some(met)) => format!("{met:.0} met"),
        (_, None) => cut.kept.to_string(),
    })
}
