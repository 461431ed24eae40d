//! The real program in a real pseudo-terminal, its screen read by a terminal emulator.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Longest time that a condition may take on a slow machine.
const DEADLINE: Duration = Duration::from_secs(45);

/// Wide enough for list, messages and panel.
pub const SIZE: (u16, u16) = (130, 40);

/// What stands before and behind each frame (synchronised update).
const FRAME_BEGINS: &str = "\x1b[?2026h";
const FRAME_ENDS: &str = "\x1b[?2026l";

/// One chat at a time: several models at once on two cores only make each other slow.
static TURN: Mutex<()> = Mutex::new(());

/// A home with nothing in it but the models.
pub struct Home {
    folder: tempfile::TempDir,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Home {
    pub fn new() -> Self {
        Self::made(Some(TURN.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// One in which no model is loaded: its tests may run beside others.
    pub fn new_beside() -> Self {
        Self::made(None)
    }

    fn made(turn: Option<MutexGuard<'static, ()>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let models = llmchat::paths::Paths::new().unwrap().models();
        assert!(models.join("SmolLM2-135M-Instruct-Q4_1.gguf").is_file(), "run scripts/fetch-model all");
        std::fs::create_dir_all(folder.path().join("data")).unwrap();
        std::fs::write(folder.path().join("config.toml"), "").unwrap();
        std::os::unix::fs::symlink(models, folder.path().join("data/models")).unwrap();
        Self { folder, _turn: turn }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The conversation files, oldest name first.
    pub fn conversations(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path().join("data/conversations")) else { return Vec::new() };
        let mut files: Vec<PathBuf> =
            entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "jsonl")).collect();
        files.sort();
        files
    }

    /// What the only conversation file says.
    pub fn journal(&self) -> String {
        let files = self.conversations();
        assert_eq!(files.len(), 1, "{files:?}");
        std::fs::read_to_string(&files[0]).unwrap()
    }

    pub fn env(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("HOME", self.path().to_owned()),
            ("LLMCHAT_DATA_DIR", self.path().join("data")),
            ("LLMCHAT_STATE_DIR", self.path().join("state")),
            ("LLMCHAT_CACHE_DIR", self.path().join("cache")),
            ("LLMCHAT_CONFIG", self.path().join("config.toml")),
        ]
    }

    pub fn chat(&self, arguments: &[&str]) -> Chat {
        self.chat_with(arguments, &[], SIZE)
    }

    /// Starts the chat with an engine that follows a script.
    pub fn scripted(&self, script: &str) -> Chat {
        let path = self.path().join("engine.sh");
        std::fs::write(&path, script).unwrap();
        let command = format!("sh {}", path.display());
        self.chat_with(&[], &[("LLMCHAT_ENGINE_COMMAND", &command)], SIZE)
    }

    pub fn chat_with(&self, arguments: &[&str], env: &[(&str, &str)], size: (u16, u16)) -> Chat {
        let mut command = self.command(env!("CARGO_BIN_EXE_llmchat"));
        command.args(arguments);
        for (name, value) in env {
            command.env(name, value);
        }
        let mut chat = spawn(command, size);
        // Before the program has the terminal, the terminal itself would echo what is typed.
        chat.wait_wire("\x1b[?1049h", 1);
        chat
    }

    /// An interactive shell, which can stop what it starts.
    pub fn shell(&self) -> Chat {
        let mut command = self.command("sh");
        command.arg("-i");
        command.env("PS1", "prompt> ");
        spawn(command, SIZE)
    }

    fn command(&self, program: &str) -> CommandBuilder {
        let mut command = CommandBuilder::new(program);
        command.env("TERM", "xterm-256color");
        for (name, value) in self.env() {
            command.env(name, value);
        }
        command
    }
}

fn spawn(command: CommandBuilder, size: (u16, u16)) -> Chat {
    let pair =
        native_pty_system().openpty(PtySize { rows: size.1, cols: size.0, pixel_width: 0, pixel_height: 0 }).unwrap();
    let child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().unwrap();
    let writer = pair.master.take_writer().unwrap();
    // Handed over and not stored: a test that takes nothing is a terminal that takes nothing.
    let (sender, bytes) = sync_channel(0);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n) = reader.read(&mut buffer) {
            if n == 0 || sender.send(buffer[..n].to_vec()).is_err() {
                break;
            }
        }
    });
    let parser = vt100::Parser::new(cells(size.1), cells(size.0), 0);
    Chat {
        master: Some(pair.master),
        child,
        writer: Some(writer),
        bytes,
        parser,
        hung_up: None,
        wire: Vec::new(),
        in_frame: false,
    }
}

fn cells(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN)
}

/// A running chat.
pub struct Chat {
    master: Option<Box<dyn MasterPty + Send>>,
    child: Box<dyn Child + Send + Sync>,
    writer: Option<Box<dyn Write + Send>>,
    bytes: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    hung_up: Option<Sender<Vec<u8>>>,
    in_frame: bool,
    /// Everything that the program wrote to the terminal.
    pub wire: Vec<u8>,
}

impl Chat {
    pub fn type_text(&mut self, text: &str) {
        let writer = self.writer.as_mut().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        writer.flush().unwrap();
    }

    pub fn send(&mut self, text: &str) {
        self.type_text(text);
        self.wait_for(text);
        self.type_text("\r");
    }

    pub fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    /// Takes what the program writes next; waits so long for it.
    fn take(&mut self, wait: Duration) -> Result<(), RecvTimeoutError> {
        let bytes = self.bytes.recv_timeout(wait)?;
        self.parser.process(&bytes);
        // What begins or ends a frame may come in two pieces.
        let from = self.wire.len().saturating_sub(FRAME_BEGINS.len() - 1);
        self.wire.extend(bytes);
        let new = String::from_utf8_lossy(&self.wire[from..]);
        match (new.rfind(FRAME_BEGINS), new.rfind(FRAME_ENDS)) {
            (None, None) => {}
            (begin, end) => self.in_frame = begin > end,
        }
        Ok(())
    }

    /// Reads what the program writes for so long: somebody who looks on. Not to wait for something with.
    pub fn look_on(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if self.take(left) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Waits until the program has written this so many times, whatever it means to the terminal.
    pub fn wait_wire(&mut self, bytes: &str, times: usize) {
        let until = Instant::now() + DEADLINE;
        while String::from_utf8_lossy(&self.wire).matches(bytes).count() < times {
            assert!(Instant::now() < until, "{bytes:?} was not written; the screen is\n{}", self.screen());
            let _ = self.take(Duration::from_millis(50));
        }
    }

    /// Waits until the screen is as it should be; a failure prints it.
    pub fn wait_until(&mut self, what: &str, condition: impl Fn(&str) -> bool) {
        let until = Instant::now() + DEADLINE;
        loop {
            // A frame that is not whole shows what never was.
            if !self.in_frame && condition(&self.screen()) {
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited for {what}; the screen is\n{}", self.screen());
            assert!(
                self.take(left.min(Duration::from_millis(200))) != Err(RecvTimeoutError::Disconnected),
                "the program ended before {what}; the screen is\n{}",
                self.screen()
            );
        }
    }

    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    pub fn wait_gone(&mut self, text: &str) {
        self.wait_until(&format!("no more {text}"), |screen| !screen.contains(text));
    }

    /// Waits for the end of the answer that runs.
    pub fn wait_idle(&mut self) {
        self.wait_until("idle", |screen| screen.contains("idle") && !screen.contains("writes …"));
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.parser.screen_mut().set_size(cells(rows), cells(columns));
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.master.as_ref().unwrap().resize(size).unwrap();
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(i32::try_from(self.child.process_id().unwrap()).unwrap()).unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// The process id of the engine: the child of the chat.
    pub fn engine(&self) -> Option<rustix::process::Pid> {
        let pid = self.pid().as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok();
        let of_any_thread = || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
            tasks
                .flatten()
                .find_map(|t| std::fs::read_to_string(t.path().join("children")).ok().filter(|c| !c.trim().is_empty()))
        };
        let text = children.filter(|c| !c.trim().is_empty()).or_else(of_any_thread)?;
        rustix::process::Pid::from_raw(text.split_whitespace().next()?.parse().ok()?)
    }

    pub fn kill_engine(&mut self, signal: rustix::process::Signal) {
        let until = Instant::now() + DEADLINE;
        let engine = loop {
            if let Some(pid) = self.engine() {
                break pid;
            }
            assert!(Instant::now() < until, "there is no engine");
            let _ = self.take(Duration::from_millis(5));
        };
        rustix::process::kill_process(engine, signal).unwrap();
    }

    /// Waits for something outside of the terminal, which meanwhile takes nothing that is written to it.
    pub fn wait_deaf(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + DEADLINE;
        while !condition(self) {
            assert!(Instant::now() < until, "waited for {what}; the screen was\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The exit code, if the program has ended.
    pub fn exit_code(&mut self) -> Option<u32> {
        self.child.try_wait().unwrap().map(|status| status.exit_code())
    }

    /// The terminal is taken away, as when its window is closed.
    pub fn hang_up(&mut self) {
        self.writer = None;
        self.master = None;
        // The reading thread ends with the next bytes that nobody takes, and its end is the last one.
        let (sender, bytes) = channel();
        self.bytes = bytes;
        self.hung_up = Some(sender);
    }

    /// Waits for the end of the program and gives its exit code.
    pub fn wait_exit(&mut self) -> u32 {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(code) = self.exit_code() {
                while self.take(Duration::from_millis(50)).is_ok() {}
                return code;
            }
            assert!(Instant::now() < until, "the program does not end; the screen is\n{}", self.screen());
            let _ = self.take(Duration::from_millis(10));
        }
    }

    pub fn quit(&mut self) {
        self.type_text("\x11");
        assert_eq!(self.wait_exit(), 0);
    }

    /// The terminal is as it was: every mode that was set is unset, once, and the cursor is there.
    pub fn assert_restored(&self) {
        let wire = String::from_utf8_lossy(&self.wire);
        let count = |s: &str| wire.matches(s).count();
        for (on, off) in [("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?2004h", "\x1b[?2004l"), ("\x1b[>1u", "\x1b[<1u")] {
            assert_eq!((count(on), count(off)), (1, 1), "{on:?} and {off:?}");
        }
        assert_eq!(
            wire.rfind("\x1b[?25h").map(|shown| wire.rfind("\x1b[?25l").is_none_or(|hidden| hidden < shown)),
            Some(true)
        );
        assert!(!self.parser.screen().alternate_screen());
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
