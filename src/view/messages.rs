//! The messages, and the title above them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::theme::Theme;
use crate::app::{App, Focus, INDENT, Job, Phase, Row, State, mark};
use crate::chat::{MessageId, Role};
use crate::text::{Wrapped, fit, sanitise_line, width};

/// The title of the conversation and what is special about it.
pub fn title(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    let mut notes = Vec::new();
    if !app.chat.is_ours() {
        notes.push("read only");
    }
    if !app.chat.conversation.system.is_empty() {
        notes.push("system prompt");
    }
    if app.engine.info.as_ref().is_some_and(|i| !i.has_template) {
        notes.push("raw completion: no chat template");
    }
    let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
    let title = fit(&sanitise_line(app.chat.title()), usize::from(area.width).saturating_sub(1 + notes.len()));
    let line = Line::from(vec![Span::raw(" "), Span::styled(title, theme.heading), Span::styled(notes, theme.faint)]);
    frame.render_widget(Paragraph::new(line), area);
}

/// The messages that are in view.
pub fn draw(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    if area.is_empty() {
        return;
    }
    let height = usize::from(area.height);
    let transcript = &app.chat.transcript;
    if transcript.lines() == 0 {
        welcome(app, theme, area, frame);
        return;
    }
    let top = transcript.top(height);
    let selected = transcript.selected.filter(|_| app.focus == Focus::Messages);
    let lines: Vec<Line> = transcript
        .rows(top, height)
        .map(|row| match row {
            Row::Head(id) => head(app, theme, id, selected == Some(id)),
            Row::Text(id, text) => text_line(theme, text, selected == Some(id)),
            Row::Foot(id) => foot(app, theme, id),
            Row::Cut => cut(app, theme, usize::from(area.width)),
            Row::Gap => Line::default(),
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
    let below = transcript.lines().saturating_sub(top + height);
    if below > 0 && !transcript.follows() {
        let text = format!(" ↓ {below} more lines (Ctrl-End) ");
        let width = u16::try_from(text.chars().count()).unwrap_or(0).min(area.width);
        let place = Rect { x: area.right() - width, y: area.bottom() - 1, width, height: 1 };
        frame.render_widget(Paragraph::new(Line::styled(text, theme.chosen)), place);
    }
}

/// Who wrote a message.
pub(super) fn name(role: Role) -> &'static str {
    match role {
        Role::User => "you",
        Role::Assistant => "model",
        Role::System => "system",
    }
}

fn head(app: &App, theme: &Theme, id: MessageId, chosen: bool) -> Line<'static> {
    let Some(message) = app.chat.conversation.message(id) else { return Line::default() };
    let style = theme.role(message.role).add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled(name(message.role), if chosen { style.patch(theme.chosen) } else { style })];
    let tries = app.chat.conversation.tries(id);
    if tries.len() > 1 {
        let at = tries.iter().position(|t| *t == id).unwrap_or(0) + 1;
        let score = message.made.as_ref().and_then(|m| m.score).map_or(String::new(), |s| format!(" · score {s:.3}"));
        let steps = if chosen { format!("‹ {at}/{} ›", tries.len()) } else { format!("{at}/{}", tries.len()) };
        spans.push(Span::styled(format!("  {steps}{score}"), theme.faint));
    }
    if app.is_running(id) {
        spans.push(Span::styled(running(app), theme.faint));
    }
    Line::from(spans)
}

/// What stands after a message that did not end by itself: there, where its reader arrives.
fn foot(app: &App, theme: &Theme, id: MessageId) -> Line<'static> {
    let mark = app.chat.conversation.message(id).and_then(mark).filter(|_| !app.is_running(id));
    mark.map_or_else(Line::default, |mark| Line::styled(format!("  ({mark})"), theme.faint))
}

/// The line that tells what is no longer sent.
fn cut(app: &App, theme: &Theme, columns: usize) -> Line<'static> {
    let text = fit(&format!(" {} ", app.cut_line().unwrap_or_default()), columns.saturating_sub(4));
    let dashes = columns.saturating_sub(width(&text));
    let line = format!("{}{text}{}", "─".repeat(dashes / 2), "─".repeat(dashes - dashes / 2));
    Line::styled(line, theme.heading)
}

fn running(app: &App) -> String {
    match app.engine.figures.phase {
        _ if app.engine.job.as_ref().is_some_and(Job::is_stopping) => "  stops …".to_owned(),
        _ if app.is_by_hand() => "  waits for you".to_owned(),
        Phase::Prefill => "  reads …".to_owned(),
        _ => "  writes …".to_owned(),
    }
}

fn text_line(theme: &Theme, text: &str, chosen: bool) -> Line<'static> {
    let margin = if chosen { "▌ " } else { "  " };
    debug_assert_eq!(margin.chars().count(), usize::from(INDENT));
    Line::from(vec![Span::styled(margin, theme.bar), Span::styled(text.to_owned(), theme.text)])
}

/// What an empty conversation shows: what to do, and what the model is doing.
fn welcome(app: &App, theme: &Theme, area: Rect, frame: &mut Frame) {
    let state = match &app.engine.state {
        State::Loading(fraction) => {
            format!("{} is being loaded ({:.0} %). Type already.", app.engine.model_name(), fraction * 100.0)
        }
        State::Ready => format!("{} is ready.", app.engine.model_name()),
        State::Failed(problem) => problem.to_string(),
        State::Dead(how) => format!("The engine {how}. Press F5 to start it again."),
    };
    let help = "Enter sends · Esc stops · F2 sliders · Ctrl-O conversations · F1 all keys";
    let width = usize::from(area.width).saturating_sub(4).max(1);
    let mut lines = vec![Line::default()];
    for (text, style) in [(state, theme.text), (String::new(), Style::new()), (help.to_owned(), theme.faint)] {
        let wrapped = Wrapped::new(&text, width);
        lines.extend((0..wrapped.height()).map(|n| Line::styled(format!("  {}", wrapped.line(n)), style)));
    }
    frame.render_widget(Paragraph::new(lines), area);
}
