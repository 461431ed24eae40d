//! The state of the chat and how it changes: an [`Event`] in, [`Effect`]s out. Pure: no file, no clock, no
//! terminal, no process is touched here.

mod answer;
mod attach;
mod branches;
mod cache;
mod chat;
pub mod commands;
mod compare;
mod engine;
mod event;
mod figures;
mod full;
mod input;
mod keys;
mod layout;
mod lens;
mod library;
mod made;
mod overflow;
mod overlay;
mod perform;
mod search;
mod shelf;
mod slash;
mod sliders;
mod summary;
mod tokens;
mod transcript;
mod tree;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

pub use chat::{Chat, mark, title_of};
pub use commands::{Command, Scope};
pub use compare::{Comparison, Fact, Side};
pub use engine::{Ask, Engine, Job, State};
pub use event::{Effect, Event, Now, Resume, Start};
pub use figures::{Figures, Phase};
pub use full::{Full, counted};
pub use input::Input;
pub use keys::shown as shown_key;
pub use layout::{Areas, SMALLEST};
pub use lens::Lens;
pub use library::Library;
pub use made::{glance, how, seed, size};
pub use overlay::{Asked, Overlay, hits};
pub use search::Search;
pub use shelf::{Filter, Group};
pub use tokens::{SURPRISING, Split, Tokens, perplexity};
pub use transcript::{INDENT, Row};
pub use tree::Tree;

pub use crate::engine::protocol::{CacheMap, Cutter, Glance, Held, Holder, Seen};

use crate::chat::{Access, Conversation, ConversationId, Knob, Message, MessageId, Overflow, Preset, Sampling};
use crate::text::Wrapped;

/// How long a passing notice stays.
const NOTICE: Duration = Duration::from_secs(6);
/// Within this time a second Ctrl-C leaves, and a second Esc edits.
const TWICE: Duration = Duration::from_secs(2);
/// Lines of one turn of the wheel.
const WHEEL: isize = 3;

/// Where keys go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// The input box.
    Input,
    /// The messages.
    Messages,
    /// The sliders.
    Sliders,
    /// The list of conversations.
    List,
    /// The candidates of the next token.
    Candidates,
    /// Tokens that are gone through one by one.
    Tokens,
    /// The tree of the conversation.
    Tree,
    /// Two alternatives side by side.
    Compare,
}

impl Focus {
    /// The scope of the commands that count there.
    pub fn scope(self) -> Scope {
        match self {
            Self::Input => Scope::Input,
            Self::Messages => Scope::Messages,
            Self::Sliders => Scope::Sliders,
            Self::List => Scope::List,
            Self::Candidates => Scope::Candidates,
            Self::Tokens => Scope::Tokens,
            Self::Tree => Scope::Tree,
            Self::Compare => Scope::Compare,
        }
    }
}

/// A line that tells something.
#[derive(Clone, Debug)]
pub struct Notice {
    /// What.
    pub text: String,
    /// It tells of a fault and stays until Esc or the next one.
    pub is_error: bool,
    until: Option<Instant>,
}

/// The whole state.
#[derive(Debug)]
pub struct App {
    /// Columns and rows.
    pub size: (u16, u16),
    /// Draw with colours.
    pub color: bool,
    /// Where keys go.
    pub focus: Focus,
    /// What stands over the screen.
    pub overlay: Option<Overlay>,
    /// What is told in the footer.
    pub notice: Option<Notice>,
    /// The conversations that there are.
    pub library: Library,
    /// The conversation that is shown.
    pub chat: Chat,
    /// The engine and its work.
    pub engine: Engine,
    /// The input box.
    pub input: Input,
    /// Which slider is chosen.
    pub knob: Knob,
    /// All sliders are shown, not only those that matter first.
    pub all_knobs: bool,
    /// The candidates of the next token.
    pub lens: Lens,
    /// Tokens that are gone through one by one.
    pub tokens: Option<Tokens>,
    /// The tree of the conversation, while it is shown.
    pub tree: Option<Tree>,
    /// Two alternatives, while they are compared.
    pub comparison: Option<Comparison>,
    /// What is being typed in tokens, where that is shown.
    pub split: Option<Split>,
    /// Texts of which the engine counts the tokens.
    counting: Vec<attach::Counting>,
    /// Bias and grammar before those that the engine is asked about.
    rules: Option<(Vec<crate::chat::Bias>, String)>,
    /// The user's presets.
    own_presets: Vec<Preset>,
    /// A prompt that is being scored.
    scoring: Option<u64>,
    /// A prompt whose size was asked for.
    measuring: Option<overflow::Measuring>,
    /// A number being typed on a slider.
    pub number: String,
    /// The list is to be shown.
    pub show_list: bool,
    /// The panel is to be shown.
    pub show_panel: bool,
    /// Conversations that are not shown and still get an answer.
    background: HashMap<ConversationId, Chat>,
    asks: VecDeque<Ask>,
    /// Settings, system prompt and what happens when the context is full, of a new conversation.
    defaults: (Sampling, String, Overflow),
    salt: u32,
    counter: u64,
    pressed_c: Option<Instant>,
    pressed_esc: Option<Instant>,
    now: Now,
    effects: Vec<Effect>,
}

impl App {
    /// The state at the start, and what to do first.
    pub fn new(start: Start, now: Now) -> (Self, Vec<Effect>) {
        let id = ConversationId::new(now.wall_ms, start.salt);
        let defaults = (start.sampling, start.system, start.overflow);
        let conversation = fresh(now, id, &defaults);
        let mut app = Self {
            size: start.size,
            color: start.color,
            focus: Focus::Input,
            overlay: None,
            notice: None,
            library: Library::new(start.resume, start.zone),
            chat: Chat::new(conversation, Access::Write, false),
            engine: Engine::new(start.params),
            input: Input::default(),
            knob: Knob::Mode,
            all_knobs: false,
            lens: Lens::default(),
            tokens: None,
            tree: None,
            comparison: None,
            split: None,
            counting: Vec::new(),
            rules: None,
            own_presets: start.presets,
            scoring: None,
            measuring: None,
            number: String::new(),
            show_list: start.sidebar,
            show_panel: start.panel,
            background: HashMap::new(),
            asks: VecDeque::new(),
            defaults,
            salt: start.salt,
            counter: 0,
            pressed_c: None,
            pressed_esc: None,
            now,
            effects: Vec::new(),
        };
        match start.model {
            Ok(path) => app.load(path),
            Err(problem) => {
                app.error(problem.to_string());
                app.engine.state = State::Failed(problem);
            }
        }
        if let Some(first) = start.notices.first() {
            let more = start.notices.len() - 1;
            app.error(if more > 0 { format!("{first} (and {more} more)") } else { first.clone() });
        }
        app.begin_library();
        if let Some(prompt) = start.prompt {
            app.send(prompt);
        }
        app.refresh();
        let effects = std::mem::take(&mut app.effects);
        (app, effects)
    }

    /// Takes an event and tells what to do.
    pub fn update(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.now = now;
        match event {
            Event::Key(key) => self.key(&key),
            Event::Mouse(mouse) => self.mouse(mouse),
            Event::Paste(text) => self.paste(&text),
            Event::Resize(columns, rows) => self.size = (columns, rows),
            Event::Engine(news) => self.engine_news(news),
            Event::Store(event) => self.store_event(event),
            Event::ModelFound(found) => match found {
                Ok(path) => self.load(path),
                Err(problem) => self.error(problem.to_string()),
            },
            Event::Models(models) => {
                if let Some(Overlay::Models { list, .. }) = &mut self.overlay {
                    *list = Some(models);
                }
            }
            Event::Edited(Ok(text)) => {
                self.input.set(text.trim_end_matches('\n'));
                self.typed();
            }
            Event::Edited(Err(why)) | Event::PresetsSaved(Err(why)) | Event::Exported(Err(why)) => self.error(why),
            Event::Attached(read) => self.attached(read),
            Event::GrammarRead(read) => self.grammar_read(read),
            Event::PresetsSaved(Ok(path)) => self.tell(format!("Saved in {path}")),
            Event::Exported(Ok(path)) => self.tell(format!("Exported to {path}")),
            Event::Copied(Ok(how)) => self.tell(format!("Copied {how}")),
            Event::Copied(Err(why)) => self.error(format!("Not copied: {why}")),
            Event::Resumed => self.effects.push(Effect::Repaint),
            Event::Timer => {}
            Event::Terminate => self.quit(),
        }
        self.due();
        self.watch();
        self.refresh();
        std::mem::take(&mut self.effects)
    }

    /// When the app wants a [`Event::Timer`]; never, where nothing waits.
    pub fn wake_at(&self) -> Option<Instant> {
        let notice = self.notice.as_ref().and_then(|n| n.until);
        let chats = self.background.values().chain([&self.chat]).filter_map(Chat::wake_at).min();
        [notice, chats, self.engine.wake_at()].into_iter().flatten().min()
    }

    /// What has to happen by now.
    fn due(&mut self) {
        let now = self.now.mono;
        if self.notice.as_ref().is_some_and(|n| n.until.is_some_and(|until| until <= now)) {
            self.notice = None;
        }
        self.chat.save_rested(now, &mut self.effects);
        for chat in self.background.values_mut() {
            chat.save_rested(now, &mut self.effects);
        }
        self.checkpoint();
        self.watch_engine();
        self.ask_next();
    }

    /// Brings what is derived up to date.
    fn refresh(&mut self) {
        let columns = self.areas().map_or(80, |a| usize::from(a.messages.width));
        self.chat.transcript.update(&self.chat.conversation, columns);
        self.refresh_tree();
        if let Some(comparison) = &mut self.comparison {
            comparison.fit(self.size.0);
        }
    }

    /// Where everything stands; none where the screen is too small.
    pub fn areas(&self) -> Option<Areas> {
        let searches = self.engine.job.as_ref().is_some_and(|j| j.chat == self.chat.conversation.id);
        let beams = if searches { self.engine.beams.len() } else { 0 };
        let footer = self
            .notice
            .as_ref()
            .map_or(1, |n| Wrapped::new(&n.text, usize::from(self.size.0).saturating_sub(1).max(1)).height());
        let wish = layout::Wish {
            footer: u16::try_from(footer).unwrap_or(1),
            // A heading, and a line for what the living ones agree on.
            beams: if beams > 0 { u16::try_from(beams + 2).unwrap_or(u16::MAX) } else { 0 },
            list: self.show_list,
            list_focus: self.focus == Focus::List,
            panel: self.show_panel,
            panel_focus: matches!(self.focus, Focus::Sliders | Focus::Candidates),
        };
        layout::areas(self.size, wish, |columns| self.input.height(columns))
    }

    /// Whether the panel has a place of its own.
    fn panel_has_room(&self) -> bool {
        self.areas().is_some_and(|a| a.panel.width > 0)
    }

    fn view_height(&self) -> usize {
        self.areas().map_or(1, |a| usize::from(a.messages.height))
    }

    /// The message whose figures the panel shows: the selected one.
    pub fn shown_message(&self) -> Option<&Message> {
        let selected = match self.focus {
            Focus::Messages => self.chat.transcript.selected,
            Focus::Tree => self.tree.as_ref().and_then(Tree::chosen),
            _ => None,
        };
        self.chat.conversation.message(selected?)
    }

    /// Whether this message is the answer that runs.
    pub fn is_running(&self, id: MessageId) -> bool {
        self.engine.job.as_ref().is_some_and(|j| j.chat == self.chat.conversation.id && j.answer == Some(id))
    }

    /// Whether an answer for the conversation that is shown runs or waits.
    pub fn is_busy(&self) -> bool {
        let id = &self.chat.conversation.id;
        self.engine.job.as_ref().is_some_and(|j| j.chat == *id) || self.asks.iter().any(|a| a.chat == *id)
    }

    fn tell(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), is_error: false, until: Some(self.now.mono + NOTICE) });
    }

    /// The same until it is no longer true.
    fn tell_on(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), is_error: false, until: None });
    }

    fn error(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), is_error: true, until: None });
    }

    fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn chat_mut(&mut self, id: &ConversationId) -> Option<&mut Chat> {
        if self.chat.conversation.id == *id { Some(&mut self.chat) } else { self.background.get_mut(id) }
    }

    fn key(&mut self, key: &KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        if self.overlay.is_some() {
            self.overlay_key(key);
            return;
        }
        let again = |since: Option<Instant>| since.is_some_and(|at| self.now.mono.duration_since(at) < TWICE);
        let (twice_c, twice_esc) = (again(self.pressed_c.take()), again(self.pressed_esc.take()));
        if self.focus == Focus::Sliders && self.slider_key(key) || self.focus == Focus::List && self.filter_key(key) {
            return;
        }
        let command = keys::command(key, self.focus.scope());
        match command {
            Some(Command::Interrupt) => self.interrupt(twice_c),
            Some(Command::Stop) => self.escape(twice_esc),
            Some(Command::NextArea) if self.focus == Focus::Input && self.complete_slash() => {}
            Some(command) => self.perform(command),
            None if self.focus == Focus::Input && self.is_question_mark(key) => self.perform(Command::Help),
            None if self.focus == Focus::Input && self.input.key(key) => {
                self.typed();
            }
            // Typing from anywhere else goes to the input box.
            None if is_text(key) && matches!(self.focus, Focus::Messages | Focus::List | Focus::Input) => {
                self.focus = Focus::Input;
                if self.input.key(key) {
                    self.typed();
                }
            }
            None => {}
        }
    }

    fn is_question_mark(&self, key: &KeyEvent) -> bool {
        key.code == KeyCode::Char('?') && self.input.is_empty()
    }

    fn paste(&mut self, text: &str) {
        match &mut self.overlay {
            Some(Overlay::Ask { input, .. }) => input.paste(text),
            Some(Overlay::Palette { query, at }) => {
                query.push_str(text.lines().next().unwrap_or_default());
                *at = 0;
            }
            Some(Overlay::Search(_)) => self.search_paste(text),
            Some(_) => {}
            None if self.focus == Focus::List && self.library.filter.typing => {
                self.library.filter.query.push_str(text.lines().next().unwrap_or_default());
                self.filter_changed();
            }
            None => {
                self.go(Focus::Input);
                self.input.paste(text);
                self.typed();
            }
        }
    }

    /// The text in the input box changed.
    fn typed(&mut self) {
        let text = self.input.text();
        let now = self.now.mono;
        self.chat.typed(text, now, &mut self.effects);
        self.split_again();
    }

    fn mouse(&mut self, mouse: MouseEvent) {
        let height = self.view_height();
        match mouse.kind {
            MouseEventKind::ScrollUp if self.focus == Focus::Tree => self.step_tree(-WHEEL),
            MouseEventKind::ScrollDown if self.focus == Focus::Tree => self.step_tree(WHEEL),
            MouseEventKind::ScrollUp if self.focus == Focus::Compare => self.scroll_comparison(-WHEEL),
            MouseEventKind::ScrollDown if self.focus == Focus::Compare => self.scroll_comparison(WHEEL),
            MouseEventKind::Down(_) if matches!(self.focus, Focus::Tree | Focus::Compare) => {}
            MouseEventKind::ScrollUp => self.chat.transcript.scroll_by(-WHEEL, height),
            MouseEventKind::ScrollDown => self.chat.transcript.scroll_by(WHEEL, height),
            MouseEventKind::Down(MouseButton::Left) => self.click(mouse.column, mouse.row, height),
            _ => {}
        }
    }

    fn click(&mut self, column: u16, row: u16, height: usize) {
        let Some(areas) = self.areas() else { return };
        let at = ratatui::layout::Position { x: column, y: row };
        if areas.input.contains(at) {
            self.focus = Focus::Input;
        } else if areas.panel.contains(at) {
            self.focus = Focus::Sliders;
        } else if areas.messages.contains(at) {
            let line = self.chat.transcript.top(height) + usize::from(row - areas.messages.y);
            self.focus = Focus::Messages;
            self.chat.transcript.selected = self.chat.transcript.at(line);
        } else if areas.list.contains(at) {
            self.focus = Focus::List;
        }
    }
}

fn is_text(key: &KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char(_)) && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
}

fn fresh(now: Now, id: ConversationId, (sampling, system, overflow): &(Sampling, String, Overflow)) -> Conversation {
    let new = Conversation::new(id, now.wall_ms, sampling.clone());
    Conversation { system: system.clone(), overflow: *overflow, ..new }
}

#[cfg(test)]
mod draft_tests;
#[cfg(test)]
pub(crate) mod overflow_tests;
#[cfg(test)]
pub(crate) mod shelf_tests;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
pub(crate) mod tree_tests;
