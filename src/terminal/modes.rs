//! The modes of the terminal that are ours while the chat is on the screen. Whatever way the program ends,
//! they are left once and wholly.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::cursor::Show;
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, KeyboardEnhancementFlags,
    PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::queue;
use crossterm::terminal::{
    Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::writer;

/// Set while the terminal is ours; what is left once is not left again.
static OURS: AtomicBool = AtomicBool::new(false);
static MOUSE: AtomicBool = AtomicBool::new(false);

/// How long the frame that is being written is waited for, and how long the terminal may take the way back.
const SETTLE: Duration = Duration::from_millis(150);

/// Whether the terminal is ours.
pub fn is_ours() -> bool {
    OURS.load(Ordering::SeqCst)
}

/// Takes the terminal. No question is asked of it: an answer that does not come would delay the first frame.
///
/// # Errors
/// If it is no terminal, or gone.
pub fn take(mouse: bool) -> io::Result<()> {
    MOUSE.store(mouse, Ordering::Relaxed);
    // Raw mode that a shell has changed meanwhile is set anew.
    let _ = disable_raw_mode();
    enable_raw_mode()?;
    OURS.store(true, Ordering::SeqCst);
    let mut bytes = Vec::new();
    // A program that was killed may have left the terminal there, with its shell's text on it.
    queue!(bytes, EnterAlternateScreen, Clear(ClearType::All), EnableBracketedPaste)?;
    if understands_keyboard_flags() {
        queue!(bytes, PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES))?;
    }
    if mouse {
        queue!(bytes, EnableMouseCapture)?;
    }
    writer::write_all(&bytes)
}

/// Leaves the full screen, if it is ours: from any thread, without a panic, and in bounded time even where
/// the terminal takes nothing any more.
pub fn leave() {
    if !OURS.swap(false, Ordering::SeqCst) {
        return;
    }
    writer::settle(SETTLE);
    let mut bytes = Vec::new();
    let _ = queue!(bytes, EndSynchronizedUpdate);
    if MOUSE.load(Ordering::Relaxed) {
        let _ = queue!(bytes, DisableMouseCapture);
    }
    if understands_keyboard_flags() {
        let _ = queue!(bytes, PopKeyboardEnhancementFlags);
    }
    let _ = queue!(bytes, DisableBracketedPaste, LeaveAlternateScreen, Show);
    // First: who sees the screen left may rely on what he types being lines again.
    let _ = disable_raw_mode();
    if takes_output(SETTLE) {
        let _ = writer::write_all(&bytes);
    }
}

/// Terminals pass over flags that they do not know; the console of Linux prints their last letters.
fn understands_keyboard_flags() -> bool {
    !matches!(std::env::var("TERM").as_deref(), Ok("linux" | "dumb"))
}

fn takes_output(patience: Duration) -> bool {
    let until = Instant::now() + patience;
    let stdout = rustix::stdio::stdout();
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
        match poll(&mut fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(n) => return n > 0 && !fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
            Err(_) => return false,
        }
    }
}
