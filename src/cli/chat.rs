//! `llmchat`: the loop of the chat. Events in, effects carried out, then one frame for all of them.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::context::Context as Setup;
use crate::app::{App, Effect, Event, Now, Resume, Start};
use crate::engine::client::Client;
use crate::engine::protocol::{EngineNews, Problem};
use crate::store::Worker;
use crate::terminal::{self, Input, Screen, Signal};
use crate::view;

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_millis(16);
/// The same where only text streams in.
const STREAM_FRAME: Duration = Duration::from_millis(33);

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

enum Message {
    App(Event),
    /// The terminal's or the system's wish to end, with an exit code.
    End(u8),
    /// News of the engine that has this number; older ones are gone and mean nothing.
    Engine(u64, EngineNews),
}

/// Runs the chat until it is left.
///
/// # Errors
/// If the terminal cannot be used.
pub fn run(setup: Setup, options: Options) -> Result<ExitCode> {
    let (sender, messages) = mpsc::channel();
    let mut screen = Screen::enter(setup.settings.mouse).context("The terminal cannot be used")?;
    let size = crossterm::terminal::size().unwrap_or((80, 24));
    let start = Start {
        model: setup.model(),
        params: setup.params(),
        sampling: setup.settings.sampling.clone(),
        system: setup.settings.system_prompt.clone(),
        resume: options.resume,
        prompt: options.prompt,
        sidebar: setup.settings.sidebar,
        panel: setup.settings.panel,
        color: std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        size,
        salt: std::process::id().wrapping_mul(0x9E37_79B1),
        notices: setup.notices.clone(),
    };
    let (app, effects) = App::new(start, now());
    // Before anything that may take time: the model, the list, the engine all come after the first frame.
    screen.draw(|frame| view::draw(&app, frame))?;
    trace("first frame");
    let app_sender = sender.clone();
    let gone = sender.clone();
    let input = Input::start(
        move |event| drop(app_sender.send(Message::App(translate(event)))),
        move || drop(gone.send(Message::End(129))),
    )?;
    signals(&sender)?;
    let store_sender = sender.clone();
    let store = Worker::start(setup.paths.conversations(), move |event| {
        let _ = store_sender.send(Message::App(Event::Store(event)));
    })?;
    let mut chat = Loop { app, screen, input, store, setup, sender, engine: None, engines: 0, code: None };
    let result = chat.go(effects, &messages);
    chat.end(result)
}

struct Loop {
    app: App,
    screen: Screen,
    input: Input,
    store: Worker,
    setup: Setup,
    sender: Sender<Message>,
    engine: Option<Client>,
    engines: u64,
    code: Option<u8>,
}

impl Loop {
    fn go(&mut self, effects: Vec<Effect>, messages: &Receiver<Message>) -> Result<()> {
        self.carry_out(effects)?;
        let mut drawn = Instant::now();
        // When the next frame is due, if something changed since the last one.
        let mut frame_at: Option<Instant> = None;
        while self.code.is_none() {
            let wake = [frame_at, self.app.wake_at()].into_iter().flatten().min();
            let first = match wake {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => messages.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match first {
                Ok(message) => {
                    let mut soon = self.take(message)?;
                    while let (None, Ok(message)) = (self.code, messages.try_recv()) {
                        soon |= self.take(message)?;
                        // A flood must not keep the screen from being drawn.
                        if drawn.elapsed() > STREAM_FRAME * 2 && frame_at.is_some() {
                            break;
                        }
                    }
                    let due = drawn + if soon { FRAME } else { STREAM_FRAME };
                    frame_at = Some(frame_at.map_or(due, |at| at.min(due)));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.app.wake_at().is_some_and(|at| at <= Instant::now()) {
                        let effects = self.app.update(Event::Timer, now());
                        self.carry_out(effects)?;
                        frame_at.get_or_insert(drawn + FRAME);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if frame_at.is_some_and(|at| at <= Instant::now()) {
                frame_at = None;
                self.screen.draw(|frame| view::draw(&self.app, frame))?;
                drawn = Instant::now();
                trace("frame");
            }
        }
        Ok(())
    }

    /// Takes a message; tells whether a person waits to see what it does.
    fn take(&mut self, message: Message) -> Result<bool> {
        let (event, soon) = match message {
            Message::App(event) => {
                let soon = !matches!(event, Event::Store(_));
                if matches!(event, Event::Key(_)) {
                    trace("key");
                }
                (event, soon)
            }
            Message::Engine(number, news) if number == self.engines => (Event::Engine(news), false),
            Message::Engine(..) => return Ok(false),
            Message::End(code) => {
                let effects = self.app.update(Event::Terminate, now());
                self.carry_out(effects)?;
                self.code = Some(code);
                return Ok(false);
            }
        };
        let effects = self.app.update(event, now());
        self.carry_out(effects)?;
        Ok(soon)
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
                    let (finder, sender) = (self.setup.finder(), self.sender.clone());
                    std::thread::spawn(move || sender.send(Message::App(Event::ModelFound(finder.find(&name)))));
                }
                Effect::ListModels => {
                    let (finder, sender) = (self.setup.finder(), self.sender.clone());
                    std::thread::spawn(move || {
                        let models = finder.list().into_iter().filter(|f| f.header.is_ok()).map(|f| (f.name, f.path));
                        sender.send(Message::App(Event::Models(models.collect())))
                    });
                }
                Effect::RememberModel(path) => self.setup.remember_model(&path),
                Effect::Copy(text) => self.again(Event::Copied(terminal::copy(&text))),
                Effect::Edit(text) => {
                    let (input, screen) = (&self.input, &mut self.screen);
                    let edited = input.pause(|| screen.lend(|| terminal::edit(&text)))?;
                    self.again(Event::Edited(edited));
                }
                Effect::Suspend => {
                    let (input, screen) = (&self.input, &mut self.screen);
                    input.pause(|| screen.lend(terminal::suspend))?;
                    self.again(Event::Resumed);
                }
                Effect::Repaint => self.screen.repaint()?,
                Effect::Quit => self.code = Some(self.code.unwrap_or(0)),
            }
        }
        Ok(())
    }

    /// An event that comes out of carrying an effect out.
    fn again(&self, event: Event) {
        let _ = self.sender.send(Message::App(event));
    }

    fn start_engine(&mut self) {
        // The old one first: two models at once may not fit into memory.
        self.engine = None;
        self.engines += 1;
        let (number, sender) = (self.engines, self.sender.clone());
        let command = self.setup.engine_command();
        let spawned = Client::spawn(&command, move |news| {
            let _ = sender.send(Message::Engine(number, news));
        });
        match spawned {
            Ok(engine) => self.engine = Some(engine),
            Err(error) => {
                let how = format!("'{}' cannot be started ({error})", command.join(" "));
                let _ = self.sender.send(Message::Engine(number, EngineNews::Died { how, last_words: Vec::new() }));
            }
        }
    }

    /// Everything is saved and the terminal given back, whatever the end was.
    fn end(self, result: Result<()>) -> Result<ExitCode> {
        let Self { mut app, screen, store, engine, code, .. } = self;
        if result.is_err() {
            // A terminal that is gone cannot be drawn to; what was typed and answered is saved all the same.
            for effect in app.update(Event::Terminate, now()) {
                if let Effect::Store(request) = effect {
                    store.send(request);
                }
            }
        }
        drop(screen);
        store.finish();
        drop(engine);
        match result {
            Err(error) if code.is_none() => Err(error),
            _ => Ok(ExitCode::from(code.unwrap_or(1))),
        }
    }
}

fn signals(sender: &Sender<Message>) -> Result<()> {
    let sender = sender.clone();
    terminal::watch(move |signal| {
        let message = match signal {
            Signal::End(code) => Message::End(code),
            Signal::Resize => {
                let Ok((columns, rows)) = crossterm::terminal::size() else { return };
                Message::App(Event::Resize(columns, rows))
            }
            Signal::Continue => Message::App(Event::Resumed),
        };
        let _ = sender.send(message);
    })?;
    Ok(())
}

fn translate(event: crossterm::event::Event) -> Event {
    use crossterm::event::Event as Terminal;
    match event {
        Terminal::Key(key) => Event::Key(key),
        Terminal::Mouse(mouse) => Event::Mouse(mouse),
        Terminal::Paste(text) => Event::Paste(text),
        Terminal::Resize(columns, rows) => Event::Resize(columns, rows),
        Terminal::FocusGained | Terminal::FocusLost => Event::Timer,
    }
}

fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
    Now { mono: Instant::now(), wall_ms: i64::try_from(wall).unwrap_or(i64::MAX) }
}

/// Writes a time stamp to the file that `LLMCHAT_TRACE` names: for measuring, see the README.
fn trace(what: &str) {
    use std::io::Write;
    use std::sync::OnceLock;
    static FILE: OnceLock<Option<std::fs::File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let path = PathBuf::from(std::env::var_os("LLMCHAT_TRACE")?);
        std::fs::OpenOptions::new().create(true).append(true).open(path).ok()
    });
    if let Some(mut file) = file.as_ref() {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros());
        let _ = writeln!(file, "{at} {what}");
    }
}

impl super::context::Finder {
    fn find(&self, name: &str) -> Result<PathBuf, Problem> {
        crate::model::find(name, &self.places, self.home.as_deref()).map_err(|e| Problem::new(e.what(), e.next()))
    }

    fn list(&self) -> Vec<crate::model::Found> {
        crate::model::list(&self.places)
    }
}
