//! Everything that can happen to the app, and everything that it can ask for.

use std::path::PathBuf;
use std::time::Instant;

use crossterm::event::{KeyEvent, MouseEvent};

use crate::chat::{Content, Conversation, ConversationId, Overflow, Preset, Sampling, StoreEvent, StoreRequest};
use crate::engine::protocol::{ContextParams, EngineNews, Problem, Request};

/// The time of an event, so that the app has no clock of its own.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For measuring.
    pub mono: Instant,
    /// Unix milliseconds, for stamps.
    pub wall_ms: i64,
}

/// With which conversation the chat starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// A new one.
    #[default]
    New,
    /// The one that changed last; a new one where there is none.
    Last,
    /// That one.
    Id(ConversationId),
}

/// What the app starts with.
#[derive(Clone, Debug)]
pub struct Start {
    /// The model to load: its file, or why there is none.
    pub model: Result<PathBuf, Problem>,
    /// How its context is made.
    pub params: ContextParams,
    /// The settings of a new conversation.
    pub sampling: Sampling,
    /// The system prompt of a new conversation; empty for none.
    pub system: String,
    /// What happens when a new conversation does not fit into the context.
    pub overflow: Overflow,
    /// With which conversation.
    pub resume: Resume,
    /// A first question to send at once.
    pub prompt: Option<String>,
    /// Show the list at the left.
    pub sidebar: bool,
    /// Show the panel at the right.
    pub panel: bool,
    /// Draw with colours.
    pub color: bool,
    /// Size of the screen: columns, rows.
    pub size: (u16, u16),
    /// A number that differs between processes; part of new ids.
    pub salt: u32,
    /// The user's own presets.
    pub presets: Vec<Preset>,
    /// Where the days of the list begin and end.
    pub zone: jiff::tz::TimeZone,
    /// What to tell the user at the start, such as warnings about the config file.
    pub notices: Vec<String>,
}

/// Something happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A key was pressed or repeated.
    Key(KeyEvent),
    /// The mouse, where it is captured.
    Mouse(MouseEvent),
    /// Text was pasted; line ends are newlines.
    Paste(String),
    /// The terminal has a new size.
    Resize(u16, u16),
    /// The engine said something or died.
    Engine(EngineNews),
    /// The store answered.
    Store(StoreEvent),
    /// Answer to [`Effect::FindModel`].
    ModelFound(Result<PathBuf, Problem>),
    /// Answer to [`Effect::ListModels`]: name and file.
    Models(Vec<(String, PathBuf)>),
    /// Answer to [`Effect::Edit`].
    Edited(Result<String, String>),
    /// Answer to [`Effect::Copy`]: how it was copied, or why not.
    Copied(Result<&'static str, String>),
    /// Answer to [`Effect::Attach`] and [`Effect::Run`]: what is put into the question, and a note.
    Attached(Result<(Vec<Content>, Option<String>), String>),
    /// Answer to [`Effect::ReadGrammar`].
    GrammarRead(Result<String, String>),
    /// Answer to [`Effect::SavePresets`]: where, or why not.
    PresetsSaved(Result<String, String>),
    /// Answer to [`Effect::Export`]: where, or why not.
    Exported(Result<String, String>),
    /// Back from [`Effect::Suspend`].
    Resumed,
    /// The time that [`super::App::wake_at`] named has come.
    Timer,
    /// A signal or the loss of the terminal asks to end.
    Terminate,
}

/// Something to do for the app.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start the engine's process; one that lives is ended first.
    StartEngine,
    /// Ask the engine.
    Engine(Request),
    /// Ask the store.
    Store(StoreRequest),
    /// Find the model of that name or path.
    FindModel(String),
    /// List the models that are there.
    ListModels,
    /// Remember this model and start with it next time.
    RememberModel(PathBuf),
    /// Put text on the clipboard.
    Copy(String),
    /// Read the files that a path or pattern names.
    Attach(String),
    /// Run a command of the shell and take what it prints.
    Run(String),
    /// Read a grammar or JSON schema.
    ReadGrammar(PathBuf),
    /// Write a conversation into a file: what stood behind the command says how and where.
    Export(Box<Conversation>, String),
    /// Save the user's presets.
    SavePresets(Vec<Preset>),
    /// Open text in the user's editor.
    Edit(String),
    /// Stop as Ctrl-Z does.
    Suspend,
    /// Draw every cell anew.
    Repaint,
    /// Leave.
    Quit,
}
