//! The conversation as a tree, in the place of messages and input box.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::messages::name;
use super::overlay::wrapped;
use super::theme::Theme;
use crate::app::{App, Areas, Focus, Tree, glance, how, seed, size};
use crate::chat::{Message, Node};
use crate::text::{fit, sanitise_line, width};

/// Lines under the rows: a line, and what is known of the chosen message; more where the screen is narrow.
const DETAILS: usize = 3;
const DETAILS_NARROW: usize = 5;
/// Columns from which on [`DETAILS`] have room.
const WIDE: usize = 90;

/// Draws the tree. Only forks are indented; the path that is shown has filled dots.
///
/// ```text
/// 7 messages · 3 branches
/// ● you    What is a fox?                                  14 ch
/// ├ ○ model  A small wild animal with a bushy tail. 3 tok · greedy
/// └ ● model  An animal.            3 tok · sample 0.80 · score -0.7
///   ● you    And a river?                                  12 ch
/// ──────────────────────────────────────────────────────────────
/// try 2 of 2 · SmolLM2 · sample · temp 0.80 · top-k 40 · seed 7
/// 41 tokens of prompt, 29 read in 60 ms · 166.7 tok/s
/// ```
pub fn draw(app: &App, theme: &Theme, areas: &Areas, frame: &mut Frame) {
    let Some(tree) = app.tree.as_ref().filter(|_| app.focus == Focus::Tree) else { return };
    let messages = areas.messages;
    let area = Rect { height: areas.input.bottom().saturating_sub(messages.y), ..messages };
    let area = area.intersection(frame.area());
    if area.is_empty() {
        return;
    }
    frame.render_widget(Clear, area);
    let (columns, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = vec![Line::styled(fit(&summary(app, tree), columns), theme.heading)];
    // Where there is hardly room, the rows have it.
    let wanted = if columns < WIDE { DETAILS_NARROW } else { DETAILS };
    let details = if height >= 3 * wanted { wanted } else { 0 };
    let room = height.saturating_sub(1 + details).max(1);
    let first = tree.at.saturating_sub(room / 2).min(tree.rows.len().saturating_sub(room));
    let rows = tree.rows.iter().enumerate().skip(first).take(room);
    lines.extend(rows.map(|(n, node)| row(app, tree, theme, node, n == tree.at, columns)));
    if details > 0 {
        lines.resize(1 + room, Line::default());
        lines.push(Line::styled("─".repeat(columns), theme.faint));
        let chosen = tree.chosen().and_then(|id| app.chat.conversation.message(id));
        let told = chosen.map(|m| told(app, m)).unwrap_or_default().join("\n");
        lines.extend(wrapped(&told, columns, theme.text).into_iter().take(details - 1));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn summary(app: &App, tree: &Tree) -> String {
    let standing: Vec<&Node> = tree.rows.iter().filter(|n| !n.deleted).collect();
    let parent = |node: &Node| app.chat.conversation.message(node.id).and_then(|m| m.parent);
    // In the order of the tree a branch ends where the next row does not follow this one.
    let goes_on = standing.windows(2).filter(|pair| parent(pair[1]) == Some(pair[0].id)).count();
    let plural = |n: usize, what: &str, end: &str| format!("{n} {what}{}", if n == 1 { "" } else { end });
    let mut told = vec![plural(standing.len(), "message", "s"), plural(standing.len() - goes_on, "branch", "es")];
    let hidden = app.chat.conversation.deleted.len();
    if tree.deleted {
        told.push(format!("{} deleted", tree.rows.iter().filter(|n| n.deleted).count()));
    } else if hidden > 0 {
        told.push(format!("{} deleted (x)", plural(hidden, "branch", "es")));
    }
    told.join(" · ")
}

fn row(app: &App, tree: &Tree, theme: &Theme, node: &Node, chosen: bool, columns: usize) -> Line<'static> {
    let Some(message) = app.chat.conversation.message(node.id) else { return Line::default() };
    let dot = match node {
        Node { deleted: true, .. } => "×",
        Node { shown: true, .. } => "●",
        _ => "○",
    };
    let mark = if tree.marked == Some(node.id) { "*" } else { " " };
    let before = format!("{}{dot}{mark}", forks(node, columns / 3));
    let who = format!("{:<6}", name(message.role));
    let room = columns.saturating_sub(width(&before) + width(&who));
    // The words come first; what is told of them has at most half of the room.
    let mut facts = String::new();
    for fact in glance(message) {
        let more = if facts.is_empty() { fact } else { format!("{facts} · {fact}") };
        if width(&more) + 1 > room / 2 {
            break;
        }
        facts = more;
    }
    let first = message.text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    let words = fit(sanitise_line(first).trim(), room.saturating_sub(width(&facts) + 1));
    let gap = " ".repeat(room.saturating_sub(width(&words) + width(&facts)));
    let (own, faint) = match (chosen, node.deleted) {
        (true, _) => (theme.chosen, theme.chosen),
        (false, true) => (theme.faint, theme.faint),
        (false, false) => (theme.text, theme.faint),
    };
    Line::from(vec![
        Span::styled(fit(&before, columns), theme.faint),
        Span::styled(who, if chosen || node.deleted { own } else { theme.role(message.role) }),
        Span::styled(words, own),
        Span::styled(gap + &facts, faint),
    ])
}

/// The lines of the forks above a row; of very many only the nearest.
fn forks(node: &Node, columns: usize) -> String {
    let most = (columns / 2).max(1);
    let cut = node.forks.len().saturating_sub(most);
    let last = node.forks.len().wrapping_sub(1);
    let drawn = node.forks.iter().enumerate().skip(cut).map(|(n, more)| match (n == last && node.begins, more) {
        (true, true) => "├ ",
        (true, false) => "└ ",
        (false, true) => "│ ",
        (false, false) => "  ",
    });
    let drawn: String = drawn.collect();
    if cut > 0 { format!("…{drawn}") } else { drawn }
}

/// What is known of a message: which try it is, how it was made, its figures.
fn told(app: &App, message: &Message) -> Vec<String> {
    let tries = app.chat.conversation.tries(message.id);
    let at = tries.iter().position(|t| *t == message.id).unwrap_or(0) + 1;
    let mut first = Vec::new();
    if tries.len() > 1 {
        first.push(format!("try {at} of {}", tries.len()));
    }
    let Some(made) = &message.made else {
        first.extend([name(message.role).to_owned(), size(message)]);
        return vec![first.join(" · ")];
    };
    first.extend([sanitise_line(&made.model), how(made)]);
    first.extend(seed(made).map(|seed| format!("seed {seed}")));
    let (usage, times) = (made.usage, made.timings);
    let second = format!(
        "{} tokens of prompt, {} read in {:.0} ms · {} at {:.1} tok/s · first after {:.0} ms",
        usage.prompt_tokens,
        usage.fresh_tokens(),
        times.prefill_ms,
        size(message),
        times.tokens_per_second,
        times.ttft_ms
    );
    vec![first.join(" · "), second]
}
