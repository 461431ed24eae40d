//! Entering and leaving the full screen. Whatever way the program ends, it is left once and wholly.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::Show;
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
    KeyboardEnhancementFlags, PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

/// Set while the terminal is ours; what is left once is not left again.
static OURS: AtomicBool = AtomicBool::new(false);
static MOUSE: AtomicBool = AtomicBool::new(false);

/// The full screen.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    /// Takes the terminal and prepares the way back for every end: also a panic in any thread.
    ///
    /// # Errors
    /// If the terminal does not answer.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        MOUSE.store(mouse, Ordering::Relaxed);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            tracing::error!("{panic}");
            before(panic);
        }));
        take()?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(1 << 16, io::stdout()));
        Ok(Self { terminal: Terminal::new(backend)? })
    }

    /// Draws a frame; the terminal shows it in one piece if it can.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(draw)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Has every cell drawn anew by the next frame.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn repaint(&mut self) -> io::Result<()> {
        // Not `clear`: that asks the terminal where its cursor is, and the answer would go to the input thread.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Gives the terminal away for as long as `meanwhile` runs.
    ///
    /// # Errors
    /// If it cannot be taken back.
    pub fn lend<T>(&mut self, meanwhile: impl FnOnce() -> T) -> io::Result<T> {
        leave();
        let result = meanwhile();
        take()?;
        self.repaint()?;
        Ok(result)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    OURS.store(true, Ordering::SeqCst);
    let mut out = io::stdout();
    // Flags that a terminal does not know are passed over by it; asking it first would delay the first frame.
    let flags = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES;
    queue!(out, EnterAlternateScreen, EnableBracketedPaste, PushKeyboardEnhancementFlags(flags))?;
    if MOUSE.load(Ordering::Relaxed) {
        queue!(out, EnableMouseCapture)?;
    }
    out.flush()
}

/// Leaves the full screen, if it is ours; from any thread, and without a panic whatever the terminal does.
pub fn leave() {
    if !OURS.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    let _ = queue!(out, EndSynchronizedUpdate, PopKeyboardEnhancementFlags, DisableBracketedPaste, DisableFocusChange);
    if MOUSE.load(Ordering::Relaxed) {
        let _ = queue!(out, DisableMouseCapture);
    }
    let _ = queue!(out, LeaveAlternateScreen, Show);
    let _ = out.flush();
    let _ = disable_raw_mode();
}
