//! The panel: the two phases of inference, the cache, the sliders; and the same in one line.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::theme::Theme;
use super::{lens, sliders};
use crate::app::{App, Figures, Focus, Job, Phase, SURPRISING, State, perplexity};
use crate::chat::{KNOBS, Made, Message, Role, first_knobs};
use crate::text::{fit, sanitise_line, width};

const EIGHTHS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws the panel.
///
/// ```text
///  SmolLM2-135M-Instruct-Q4_1
///  CPU · 2 threads · decode
///  ─ prefill ─────────────────────────
///  ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇  45 / 45   142 ms
///  reused 812 · fresh 45 · 317 tok/s
///  TTFT 158 ms
///  ─ decode ──────────────────────────
///  61.2 tok/s now · 58.0 on average
///  TPOT 16.3 ms · p95 18.0 ms
///  ▁▃▅▅▆▅▅▆▇▆
///  ─ KV cache ────────────────────────
///  ▇▇▇▇▇▇▇▇▇▇▇░░░░░░░  3120 / 8192
///  68.6 of 180 MiB · f16
///  ■ system  ■ you  ■ model
///  ─ sampling ────────────────────────
///  mode     ‹ sample ›
///  temp     ────●───────  0.80
/// ```
pub fn draw(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    let columns = usize::from(area.width).saturating_sub(2);
    let message = app.shown_message();
    let past = message.and_then(|m| m.made.as_ref()).map(|m| Figures::of(m.usage, m.timings));
    let figures = past.as_ref().unwrap_or(&app.engine.figures);
    let mut lines = head(app, theme, columns, past.is_some());
    lines.push(rule(theme, "prefill", columns));
    lines.extend(prefill(figures, theme, columns));
    lines.push(rule(theme, "decode", columns));
    lines.extend(decode(figures, theme, columns));
    lines.push(rule(theme, "KV cache", columns));
    lines.extend(cache(app, theme, columns));
    if let Some(message) = message.filter(|m| !m.tokens.is_empty()) {
        lines.push(Line::styled(fit(&surprise(message), columns), theme.text));
    }
    if let Some(made) = message.and_then(|m| m.made.as_ref()) {
        lines.extend(earlier(made).into_iter().map(|text| Line::styled(fit(&text, columns), theme.text)));
    }
    let made = message.and_then(|m| m.made.as_ref()).map(|m| (&m.sampling, Some(m.seed)));
    let (sampling, seed) = made.unwrap_or((&app.chat.conversation.sampling, None));
    let rules = [("bias", sampling.bias.is_empty()), ("grammar", sampling.grammar.is_empty())];
    let rules = rules.iter().filter(|(_, none)| !none).map(|(name, _)| format!(" · {name}"));
    lines.push(rule(theme, &format!("sampling{}", rules.collect::<String>()), columns));
    let height = usize::from(area.height);
    let knobs = sliders::lines(app, theme, sampling, seed, columns, height);
    // What is worked with has the room; the microscope comes next, and the figures take what is left.
    let candidates = if app.lens.open {
        let worked = app.focus == Focus::Candidates;
        let room = height.saturating_sub(knobs.len() + if worked { 1 } else { lines.len() });
        lens::lines(app, theme, columns, room)
    } else {
        Vec::new()
    };
    let cut = (lines.len() + knobs.len() + candidates.len()).saturating_sub(height);
    if matches!(app.focus, Focus::Sliders | Focus::Candidates) && cut > 0 {
        lines.drain(..cut.min(lines.len()));
    }
    lines.extend(knobs);
    lines.extend(candidates);
    let text: Vec<Line> = lines
        .into_iter()
        .map(|mut line| {
            line.spans.insert(0, Span::raw(" "));
            line
        })
        .collect();
    frame.render_widget(Paragraph::new(text), area);
}

/// How surprised the model was by its own answer.
fn surprise(message: &Message) -> String {
    let perplexity = perplexity(message.tokens.iter().map(|t| t.logprob)).unwrap_or_default();
    let surprising = message.tokens.iter().filter(|t| -t.logprob > SURPRISING).count();
    let score = message.made.as_ref().and_then(|m| m.score).map_or(String::new(), |s| format!("score {s:.3} · "));
    format!("{score}perplexity {perplexity:.2} · {surprising} surprising")
}

/// How the settings were before they were changed in the answer: what differs from those after it.
fn earlier(made: &Made) -> Vec<String> {
    let after = made.earlier.iter().skip(1).map(|(_, s)| s).chain([&made.sampling]);
    let told = made.earlier.iter().zip(after).map(|((until, before), after)| {
        let differs = KNOBS.iter().filter(|s| before.get(s.knob) != after.get(s.knob));
        let values: Vec<String> = differs.map(|s| format!("{} {}", s.label, s.format(before))).collect();
        format!("to token {until}: {}", values.join(", "))
    });
    let told: Vec<String> = told.collect();
    // The last few: each takes a line of the panel.
    told[told.len().saturating_sub(3)..].to_vec()
}

fn head(app: &App, theme: &Theme, columns: usize, past: bool) -> Vec<Line<'static>> {
    let name = fit(&sanitise_line(&app.engine.model_name()), columns);
    let phase = if past { "selected answer".to_owned() } else { phase(app) };
    let mut facts = Vec::new();
    if let Some(info) = &app.engine.info {
        facts.push(sanitise_line(&info.device));
        facts.push(format!("{} thread{}", info.threads, if info.threads == 1 { "" } else { "s" }));
    }
    facts.push(phase);
    vec![Line::styled(name, theme.heading), Line::styled(fit(&facts.join(" · "), columns), theme.faint)]
}

fn phase(app: &App) -> String {
    match (&app.engine.state, app.engine.figures.phase) {
        (State::Loading(fraction), _) => format!("loading {:.0} %", fraction * 100.0),
        (State::Failed(_), _) => "no model".to_owned(),
        (State::Dead(_), _) => "engine gone (F5)".to_owned(),
        (State::Ready, _) if app.engine.job.is_none() => "idle".to_owned(),
        (State::Ready, _) if app.engine.job.as_ref().is_some_and(Job::is_stopping) => "stops".to_owned(),
        (State::Ready, _) if app.is_by_hand() => "waits for you".to_owned(),
        (State::Ready, Phase::Waiting) => "waiting".to_owned(),
        (State::Ready, Phase::Prefill) => "prefill".to_owned(),
        (State::Ready, Phase::Decode | Phase::Done) => match app.engine.figures.repeats {
            Some((rounds, period)) => format!("repeats {rounds} × {period}"),
            None => "decode".to_owned(),
        },
    }
}

pub(super) fn rule(theme: &Theme, title: &str, columns: usize) -> Line<'static> {
    let rest = columns.saturating_sub(3 + title.chars().count());
    Line::from(vec![
        Span::styled("─ ", theme.faint),
        Span::styled(title.to_owned(), theme.faint),
        Span::styled(format!(" {}", "─".repeat(rest)), theme.faint),
    ])
}

fn prefill(f: &Figures, theme: &Theme, columns: usize) -> Vec<Line<'static>> {
    let total = f.usage.fresh_tokens();
    if f.phase == Phase::Waiting || (total == 0 && f.read == 0) {
        return vec![Line::styled("–", theme.faint), Line::default(), Line::default()];
    }
    let beside = format!(" {}/{total} {:.0} ms", f.read.min(total), f.timings.prefill_ms);
    let bar = columns.saturating_sub(beside.chars().count());
    let share = if total == 0 { 1.0 } else { f64::from(f.read) / f64::from(total) };
    let filled = part(bar, share);
    let rate = f.prefill_rate().map_or_else(String::new, |r| format!(" · {r:.0} tok/s"));
    let ttft = if f.timings.ttft_ms > 0.0 { format!("{:.0} ms", f.timings.ttft_ms) } else { "–".to_owned() };
    let aside = match (f.because, f.restored) {
        (Some(because), _) => format!(" · {}", because.text()),
        (None, 0) => String::new(),
        (None, n) => format!(" · {n} brought back"),
    };
    vec![
        Line::from(vec![
            Span::styled("▇".repeat(filled), theme.bar),
            Span::styled("░".repeat(bar - filled), theme.faint),
            Span::styled(beside, theme.text),
        ]),
        Line::styled(format!("reused {} · fresh {total}{rate}", f.usage.reused_tokens), theme.text),
        Line::from(vec![
            Span::styled("TTFT ", theme.faint),
            Span::styled(ttft, theme.figure),
            Span::styled(aside, theme.faint),
        ]),
    ]
}

fn decode(f: &Figures, theme: &Theme, columns: usize) -> Vec<Line<'static>> {
    let average = f.timings.tokens_per_second;
    if average <= 0.0 {
        let n = f.usage.completion_tokens;
        let first = if n > 0 { format!("{n} token") } else { "–".to_owned() };
        return vec![Line::styled(first, theme.faint), Line::default(), Line::default()];
    }
    let now = f.rate_now().filter(|_| f.phase == Phase::Decode);
    let rates = match now {
        Some(now) => vec![
            Span::styled(format!("{now:.1} tok/s"), theme.figure),
            Span::styled(format!(" now · {average:.1} on average"), theme.text),
        ],
        None => vec![
            Span::styled(format!("{average:.1} tok/s"), theme.figure),
            Span::styled(format!(" · {} tokens", f.usage.completion_tokens), theme.text),
        ],
    };
    let p95 = f.p95().map_or_else(String::new, |p| format!(" · p95 {p:.1} ms"));
    vec![
        Line::from(rates),
        Line::styled(format!("TPOT {:.1} ms{p95}", f.timings.tpot_ms), theme.text),
        Line::styled(sparkline(&f.sparkline(columns)), theme.bar),
    ]
}

/// Rates as columns of eighths, from nothing to the largest.
fn sparkline(rates: &[f32]) -> String {
    let most = rates.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    rates.iter().map(|r| EIGHTHS[part(7, f64::from(r / most))]).collect()
}

pub(super) fn part(whole: usize, share: f64) -> usize {
    ((whole as f64 * share.clamp(0.0, 1.0)).round() as usize).min(whole)
}

fn cache(app: &App, theme: &Theme, columns: usize) -> Vec<Line<'static>> {
    let Some(info) = &app.engine.info else {
        return vec![Line::styled("–", theme.faint), Line::default(), Line::default()];
    };
    let cells = app.engine.cells;
    let own = cells.total() - cells.others;
    let used = cells.total().min(info.n_ctx);
    let beside = format!(" {used} / {}", info.n_ctx);
    let bar = columns.saturating_sub(beside.chars().count());
    let share = |n: u32| f64::from(n) / f64::from(info.n_ctx.max(1));
    let system = part(bar, share(cells.system));
    let people = part(bar, share(cells.system + cells.user));
    let all = part(bar, share(own)).max(usize::from(own > 0));
    let others = part(bar, share(cells.others)).min(bar.saturating_sub(all.max(people)));
    let bytes = u64::from(used) * info.kv_bytes_per_token;
    let mut spans = Vec::new();
    for (from, to, role) in [(0, system, Role::System), (system, people, Role::User), (people, all, Role::Assistant)] {
        spans.push(Span::styled("▇".repeat(to.saturating_sub(from)), theme.role(role)));
    }
    // What other conversations and branches have there, behind this one's whatever cells it is.
    spans.push(Span::styled("▒".repeat(others), theme.faint));
    spans.push(Span::styled("░".repeat(bar.saturating_sub(all.max(people) + others)), theme.faint));
    spans.push(Span::styled(beside, theme.text));
    let legend = [(Role::System, cells.system), (Role::User, cells.user), (Role::Assistant, cells.assistant)];
    let mut key = Vec::new();
    for ((role, n), name) in legend.into_iter().zip(["system", "you", "model"]) {
        key.push(Span::styled("■ ", theme.role(role)));
        key.push(Span::styled(format!("{name} {n}  "), theme.text));
    }
    if cells.others > 0 {
        key.push(Span::styled(format!("▒ others {}", cells.others), theme.faint));
    }
    let memory = if info.kv_bytes_reserved > 0 {
        format!("{} of {} MiB · {}", mebibytes(bytes), mebibytes(info.kv_bytes_reserved), info.kv_type)
    } else {
        info.kv_type.clone()
    };
    vec![Line::from(spans), Line::styled(memory, theme.text), Line::from(key)]
}

fn mebibytes(bytes: u64) -> String {
    let size = bytes as f64 / f64::from(1 << 20);
    if size < 100.0 { format!("{size:.1}") } else { format!("{size:.0}") }
}

/// The panel in one line, where it has no room.
pub fn folded(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    let f = &app.engine.figures;
    let mut facts = vec![phase(app)];
    match f.phase {
        Phase::Waiting => {}
        Phase::Prefill => facts.push(format!("{}/{} tokens", f.read, f.usage.fresh_tokens())),
        Phase::Decode | Phase::Done => {
            facts.push(format!("TTFT {:.0} ms", f.timings.ttft_ms));
            let rate = f.rate_now().filter(|_| f.phase == Phase::Decode).unwrap_or(f.timings.tokens_per_second);
            facts.push(format!("{rate:.1} tok/s"));
        }
    }
    if let Some(info) = &app.engine.info {
        facts.push(format!("KV {}/{}", app.engine.cells.total(), info.n_ctx));
    }
    let sampling = &app.chat.conversation.sampling;
    let settings = first_knobs(sampling.mode).iter().map(|k| k.spec());
    let settings = settings.map(|s| format!("{} {}", s.label, s.format(sampling)));
    facts.push(settings.collect::<Vec<_>>().join(" "));
    facts.push(sanitise_line(&app.engine.model_name()));
    let text = fit(&format!(" {}", facts.join(" · ")), usize::from(area.width));
    debug_assert!(width(&text) <= usize::from(area.width));
    frame.render_widget(Paragraph::new(Line::styled(text, theme.faint)), area);
}
