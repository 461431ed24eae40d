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
    let now = does(app, spec.knob).map_or(String::new(), |(_, told)| format!("Now: {told}. "));
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
    if let Some((does, _)) = does(app, spec.knob).filter(|_| used_seed.is_none() && !unused) {
        spans.push(Span::styled(format!(" →{does}"), theme.faint));
    }
    Line::from(spans)
}

/// What a slider does to the candidates that are there: as it stands beside it, and as the help says it.
fn does(app: &App, knob: Knob) -> Option<(String, String)> {
    let by = match knob {
        Knob::Temperature | Knob::DynatempRange => Cutter::Stage(Stage::Temperature),
        Knob::TopK => Cutter::Stage(Stage::TopK),
        Knob::TopP => Cutter::Stage(Stage::TopP),
        Knob::MinP => Cutter::Stage(Stage::MinP),
        Knob::TypicalP => Cutter::Stage(Stage::TypicalP),
        Knob::TopNSigma => Cutter::Stage(Stage::TopNSigma),
        Knob::XtcProbability => Cutter::Stage(Stage::Xtc),
        Knob::RepeatPenalty | Knob::FrequencyPenalty | Knob::PresencePenalty => Cutter::Stage(Stage::Penalties),
        Knob::DryMultiplier => Cutter::Stage(Stage::Dry),
        Knob::Mirostat => Cutter::Mirostat,
        _ => return None,
    };
    let glance = app.glance()?;
    let cut = glance.cuts.iter().find(|c| c.stage == by)?;
    Some(match (by, cut.does) {
        (Cutter::Mirostat, Some(mu)) => {
            let text = format!("{} left, μ {mu:.1}", cut.kept);
            (text.clone(), text)
        }
        (Cutter::Stage(Stage::Temperature), Some(t)) => {
            let best = glance.candidates.first().map_or(0.0, |c| c.after * 100.0);
            let text = format!("T {t:.2}, best {best:.0}%");
            (text.clone(), text)
        }
        (_, Some(met)) => (format!("{met:.0} met"), format!("{met:.0} tokens get it")),
        (_, None) => (cut.kept.to_string(), format!("{} of {} left", cut.kept, glance.vocabulary)),
    })
}
