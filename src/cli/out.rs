//! What goes to stdout outside of the screen.

use std::io::{self, IsTerminal, Write};

use super::Stop;

/// Writes text to stdout. A reader who has gone wants no more, and that is no fault.
///
/// # Errors
/// If it cannot be written for another reason.
pub fn print(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

/// Writes text that other people or a model may have written: harmless where a terminal would read it.
///
/// # Errors
/// If it cannot be written.
pub fn print_foreign(text: &str) -> Result<(), Stop> {
    if io::stdout().is_terminal() { print(&crate::text::sanitise(text)) } else { print(text) }
}

/// Why output is missing.
pub fn unwritten(error: &io::Error) -> Stop {
    Stop::Failed(format!("stdout cannot be written: {error}. Free some space, or send it elsewhere"))
}
