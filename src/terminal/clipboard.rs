//! Text on the clipboard: through the system's tool where there is one, and through the terminal.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use crossterm::clipboard::CopyToClipboard;
use crossterm::execute;

/// Terminals take no more than this through an escape sequence.
const TERMINAL_LIMIT: usize = 70_000;

/// Copies text and tells how, or why not.
///
/// # Errors
/// If neither the system nor the terminal can take it.
pub fn copy(text: &str) -> Result<&'static str, String> {
    let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let tools: [(bool, &str, &[&str]); 4] = [
        (cfg!(target_os = "macos"), "pbcopy", &[]),
        (set("WAYLAND_DISPLAY"), "wl-copy", &[]),
        (set("DISPLAY"), "xclip", &["-selection", "clipboard"]),
        (set("DISPLAY"), "xsel", &["--clipboard", "--input"]),
    ];
    let system = tools.iter().any(|(here, tool, arguments)| *here && run(tool, arguments, text).is_ok());
    if text.len() > TERMINAL_LIMIT {
        return if system {
            Ok("to the clipboard")
        } else {
            Err("the text is too long for the terminal's clipboard".to_owned())
        };
    }
    // The terminal's too: over ssh the system's clipboard is that of the wrong machine.
    let sent = execute!(io::stdout(), CopyToClipboard::to_clipboard_from(text));
    match (system, sent) {
        (true, _) => Ok("to the clipboard"),
        (false, Ok(())) => Ok("through the terminal (OSC 52), if it allows that"),
        (false, Err(error)) => Err(error.to_string()),
    }
}

fn run(tool: &str, arguments: &[&str], text: &str) -> io::Result<()> {
    let mut child =
        Command::new(tool).args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("the tool failed")) }
}
