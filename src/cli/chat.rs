//! `llmchat`: the loop of the chat. Events in, effects carried out, then one frame for all of them.
//!
//! ```text
//! keys, signals, store ─► messages ─┐ first             ┌► engine, store, clipboard, editor, models:
//!                                   ├─► Loop ─► effects ┤  all on threads of their own
//! engine ──────────────► news ──────┘      │            └► answers come back as messages
//!        (bounded: its reader waits)       └► frame ─► writer (one on its way at most)
//! ```
//! Nothing in the loop waits for a terminal or a disk, so that keys and saving go on whatever else is stuck.

use std::io::{self, IsTerminal};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::attach;
use super::context::Context as Setup;
use super::conversations::to_file;
use super::queue::{Next, Queue};
use super::trace::{fault, trace};
use crate::app::{App, Effect, Event, Now, Resume, Start};
use crate::engine::client::Client;
use crate::engine::protocol::EngineNews;
use crate::store::Worker;
use crate::terminal::{self, Clipboard, Input, Screen, Signal};
use crate::view;

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_micros(16_600);
/// The same where only text streams in.
const STREAM_FRAME: Duration = Duration::from_millis(33);
/// A stop that the system did not carry out is over by then.
const STOPPED: Duration = Duration::from_millis(300);
/// The exit code where the terminal went away: that of a hang-up.
const GONE: u8 = 129;

/// What the chat is started with, beside the settings.
#[derive(Debug, Default)]
pub struct Options {
    /// With which conversation.
    pub resume: Resume,
    /// A first question.
    pub prompt: Option<String>,
}

/// Whether keyboard and screen are a terminal.
pub fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// What the loop hears, beside the engine.
enum Message {
    App(Event),
    Signal(Signal),
    /// A frame has arrived, or the terminal is gone.
    Shown(io::Result<()>),
    /// Text is copied, or is to be copied by the terminal.
    Copied(Clipboard),
    /// The editor is closed.
    Edited(Result<String, String>),
    /// Some thread panicked.
    Panicked,
}

type Messages = Arc<Queue<Message>>;

/// Whose the terminal is while it is not ours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    /// The editor's.
    Editor,
    /// The shell's, until we are continued; by then if nobody stopped us.
    Shell(Instant),
}

/// Runs the chat until it is left.
///
/// # Errors
/// If the terminal cannot be used, or the program is at fault.
pub fn run(setup: Setup, options: Options) -> Result<ExitCode> {
    let messages = Messages::default();
    let teller = Arc::clone(&messages);
    terminal::watch_panics(move || teller.push(Message::Panicked));
    let shown = Arc::clone(&messages);
    let mut screen = Screen::enter(setup.settings.mouse, move |result| shown.push(Message::Shown(result)))
        .context("The terminal cannot be used")?;
    let (presets, fault) = setup.presets();
    let notices = setup.notices.iter().cloned().chain(fault).collect();
    let start = Start {
        model: setup.model(),
        params: setup.chat_params(),
        sampling: setup.settings.sampling.clone(),
        system: setup.settings.system_prompt.clone(),
        overflow: setup.settings.overflow,
        resume: options.resume,
        prompt: options.prompt,
        sidebar: setup.settings.sidebar,
        panel: setup.settings.panel,
        color: std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        size: screen.size(),
        salt: std::process::id().wrapping_mul(0x9E37_79B1),
        presets,
        zone: jiff::tz::TimeZone::system(),
        notices,
    };
    let (app, effects) = App::new(start, now());
    // Before anything that may take time: the model, the list, the engine all come after the first frame.
    screen.draw(|frame| view::draw(&app, frame))?;
    trace("draw");
    let heard = Arc::clone(&messages);
    terminal::watch(move |signal| heard.push(Message::Signal(signal)))?;
    let answers = Arc::clone(&messages);
    let store = Worker::start(setup.paths.conversations(), Some(setup.paths.cache.clone()), move |event| {
        answers.push(Message::App(Event::Store(event)));
    })?;
    let mut chat = Loop {
        app,
        screen,
        input: None,
        store,
        setup,
        messages,
        engine: None,
        away: None,
        drawn: Instant::now(),
        frame_at: None,
        code: None,
    };
    // What the app holds is saved also if the loop itself is at fault.
    let result = catch_unwind(AssertUnwindSafe(|| chat.go(effects)));
    chat.end(result.unwrap_or(Ok(())))
}

struct Loop {
    app: App,
    screen: Screen,
    input: Option<Input>,
    store: Worker,
    setup: Setup,
    messages: Messages,
    engine: Option<Client>,
    away: Option<Away>,
    drawn: Instant,
    /// When the next frame is due, if something changed since the last one.
    frame_at: Option<Instant>,
    code: Option<u8>,
}

impl Loop {
    fn go(&mut self, effects: Vec<Effect>) -> Result<()> {
        self.listen()?;
        self.carry_out(effects)?;
        while self.code.is_none() {
            // While a frame is on its way the next one waits for `Shown`, not for a time.
            let frame = self.frame_at.filter(|_| self.screen.is_ready());
            let stopped = if let Some(Away::Shell(until)) = self.away { Some(until) } else { None };
            match self.messages.next([frame, stopped, self.app.wake_at()].into_iter().flatten().min()) {
                Next::Message(message) => self.hear(message)?,
                Next::News(news) => self.update(Event::Engine(news), STREAM_FRAME)?,
                Next::Late => self.late()?,
            }
            // Everything that waits comes first, except in a flood: the frame is drawn when it is due.
            if self.frame_at.is_some_and(|at| at <= Instant::now()) && self.screen.is_ready() {
                self.frame_at = None;
                self.drawn = Instant::now();
                self.screen.draw(|frame| {
                    fault("draw");
                    view::draw(&self.app, frame);
                })?;
                trace("draw");
            }
        }
        Ok(())
    }

    fn hear(&mut self, message: Message) -> Result<()> {
        match message {
            Message::App(Event::Terminate) | Message::Shown(Err(_)) => self.terminate(GONE),
            Message::App(event) => {
                let pace = if matches!(event, Event::Store(_)) { STREAM_FRAME } else { FRAME };
                if let Event::Resize(columns, rows) = event {
                    self.screen.resize((columns, rows))?;
                }
                self.update(event, pace)
            }
            // A key that ends programs was meant for the editor, and when it is continued it draws itself.
            Message::Signal(Signal::Interrupt(_) | Signal::Continue) if self.away == Some(Away::Editor) => Ok(()),
            Message::Signal(Signal::Interrupt(code) | Signal::End(code)) => self.terminate(code),
            Message::Signal(Signal::Resize) => {
                let (columns, rows) = terminal::size();
                if self.screen.size() == (columns, rows) {
                    return Ok(());
                }
                self.hear(Message::App(Event::Resize(columns, rows)))
            }
            Message::Signal(Signal::Continue) => self.come_back(Event::Resumed),
            Message::Shown(Ok(())) => {
                trace("shown");
                Ok(())
            }
            Message::Copied(Clipboard { told, bytes }) => {
                self.screen.send(&bytes);
                self.update(Event::Copied(told), FRAME)
            }
            Message::Edited(edited) => self.come_back(Event::Edited(edited)),
            Message::Panicked => {
                self.code = Some(1);
                Ok(())
            }
        }
    }

    fn late(&mut self) -> Result<()> {
        if matches!(self.away, Some(Away::Shell(until)) if until <= Instant::now()) {
            self.come_back(Event::Resumed)?;
        }
        if self.app.wake_at().is_some_and(|at| at <= Instant::now()) {
            self.update(Event::Timer, FRAME)?;
        }
        Ok(())
    }

    fn update(&mut self, event: Event, pace: Duration) -> Result<()> {
        let effects = self.app.update(event, now());
        let due = self.drawn + pace;
        self.frame_at = Some(self.frame_at.map_or(due, |at| at.min(due)));
        self.carry_out(effects)
    }

    fn terminate(&mut self, code: u8) -> Result<()> {
        self.code = Some(code);
        self.update(Event::Terminate, FRAME)
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> Result<()> {
        for effect in effects {
            match effect {
                Effect::StartEngine => self.start_engine(),
                Effect::Engine(request) => {
                    if let Some(engine) = &self.engine {
                        engine.send(&request);
                    }
                }
                Effect::Store(request) => self.store.send(request),
                Effect::FindModel(name) => {
                    let finder = self.setup.finder();
                    self.aside(move || Message::App(Event::ModelFound(finder.find(&name))))?;
                }
                Effect::ListModels => {
                    let finder = self.setup.finder();
                    self.aside(move || Message::App(Event::Models(finder.list())))?;
                }
                Effect::RememberModel(path) => {
                    let setup = self.setup.clone();
                    std::thread::Builder::new().spawn(move || setup.remember_model(&path))?;
                }
                Effect::Copy(text) => self.aside(move || Message::Copied(terminal::copy(&text)))?,
                Effect::Attach(files) => {
                    let home = self.setup.paths.home.clone();
                    self.aside(move || Message::App(Event::Attached(attach::read(&files, home.as_deref()))))?;
                }
                Effect::Run(line) => self.aside(move || {
                    Message::App(Event::Attached(attach::run(&line).map(|content| (vec![content], None))))
                })?,
                Effect::ReadGrammar(path) => self.aside(move || {
                    let read = std::fs::read_to_string(&path);
                    let read = read.map_err(|e| format!("{} cannot be read: {e}", path.display()));
                    Message::App(Event::GrammarRead(read))
                })?,
                Effect::Export(conversation, how) => {
                    let home = self.setup.paths.home.clone();
                    self.aside(move || Message::App(Event::Exported(to_file(&conversation, &how, home.as_deref()))))?;
                }
                Effect::SavePresets(presets) => {
                    let setup = self.setup.clone();
                    self.aside(move || Message::App(Event::PresetsSaved(setup.save_presets(&presets))))?;
                }
                Effect::Edit(text) => {
                    self.go_away(Away::Editor);
                    self.aside(move || Message::Edited(terminal::edit(&text)))?;
                }
                Effect::Suspend => {
                    self.go_away(Away::Shell(Instant::now() + STOPPED));
                    terminal::stop_group();
                }
                Effect::Repaint => self.screen.repaint()?,
                Effect::Quit => self.code = self.code.or(Some(0)),
            }
        }
        Ok(())
    }

    /// Does something that may take time on a thread of its own.
    fn aside(&self, work: impl FnOnce() -> Message + Send + 'static) -> Result<()> {
        let messages = Arc::clone(&self.messages);
        std::thread::Builder::new().spawn(move || messages.push(work()))?;
        Ok(())
    }

    fn listen(&mut self) -> Result<()> {
        let messages = Arc::clone(&self.messages);
        self.input = Some(Input::start(move |event| {
            if matches!(event, Event::Key(_) | Event::Paste(_)) {
                fault("key");
                trace("key");
            }
            messages.push(Message::App(event));
        })?);
        Ok(())
    }

    /// Gives the terminal to somebody else. Tokens and saving go on meanwhile.
    fn go_away(&mut self, away: Away) {
        self.input = None;
        terminal::leave();
        self.away = Some(away);
    }

    /// The terminal is ours again; a shell or an editor may have changed all of it.
    fn come_back(&mut self, event: Event) -> Result<()> {
        self.away = None;
        // Where it was not given away, as after a `kill -STOP`, what is set twice would not be left twice.
        terminal::leave();
        if self.screen.take_back().is_err() {
            return self.terminate(GONE);
        }
        if self.input.is_none() {
            self.listen()?;
        }
        let (columns, rows) = self.screen.size();
        self.update(Event::Resize(columns, rows), FRAME)?;
        self.update(event, FRAME)
    }

    fn start_engine(&mut self) {
        let number = self.messages.next_engine();
        // The old one first: two models at once may not fit into memory.
        self.engine = None;
        let messages = Arc::clone(&self.messages);
        let command = self.setup.engine_command();
        match Client::spawn(&command, move |news| messages.push_news(number, news)) {
            Ok(engine) => self.engine = Some(engine),
            Err(error) => {
                let how = format!("'{}' cannot be started ({error})", command.join(" "));
                self.messages.push(Message::App(Event::Engine(EngineNews::Died { how, last_words: Vec::new() })));
            }
        }
    }

    /// Everything is saved and the terminal given back, whatever the end was.
    fn end(self, result: Result<()>) -> Result<ExitCode> {
        let Self { mut app, screen, store, engine, messages, setup, code, away, .. } = self;
        // If the loop did not end in order, what was typed and answered is saved all the same.
        if result.is_err() || terminal::last_panic().is_some() {
            let effects = catch_unwind(AssertUnwindSafe(|| app.update(Event::Terminate, now())));
            for effect in effects.into_iter().flatten() {
                if let Effect::Store(request) = effect {
                    store.send(request);
                }
            }
        }
        // An engine that waits until somebody hears it must not be waited for.
        messages.next_engine();
        let engine = std::thread::spawn(move || drop(engine));
        // The terminal of an editor is not ours to give back.
        if away.is_none() {
            drop(screen);
        }
        for sentence in store.finish() {
            eprintln!("llmchat: {sentence}");
        }
        let _ = engine.join();
        if let Some(panic) = terminal::last_panic() {
            let log = setup.paths.log();
            return Err(anyhow!(
                "llmchat has a fault: {panic}. Everything is saved; start it again with --continue, and report the end of {}",
                log.display()
            ));
        }
        result.map(|()| ExitCode::from(code.unwrap_or(0)))
    }
}

fn now() -> Now {
    Now { mono: Instant::now(), wall_ms: super::context::now() }
}
