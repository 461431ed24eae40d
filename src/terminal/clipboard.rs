//! Text on the clipboard: through the system's tool where there is one, and through the terminal.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use crossterm::clipboard::CopyToClipboard;
use crossterm::queue;

/// Terminals take no more than this through an escape sequence.
const TERMINAL_LIMIT: usize = 70_000;

/// What came of copying.
#[derive(Debug, PartialEq, Eq)]
pub struct Clipboard {
    /// How the text was copied, or why not.
    pub told: Result<&'static str, String>,
    /// What the terminal must be sent; empty for nothing.
    pub bytes: Vec<u8>,
}

/// Copies text. May wait for the system's tool.
pub fn copy(text: &str) -> Clipboard {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    // Over ssh the system's clipboard is that of the wrong machine.
    let here = !is_set("SSH_TTY");
    let tools: [(bool, &str, &[&str], &'static str); 4] = [
        (cfg!(target_os = "macos"), "pbcopy", &[], "with pbcopy"),
        (is_set("WAYLAND_DISPLAY"), "wl-copy", &[], "with wl-copy"),
        (is_set("DISPLAY"), "xclip", &["-selection", "clipboard"], "with xclip"),
        (is_set("DISPLAY"), "xsel", &["--clipboard", "--input"], "with xsel"),
    ];
    let tool = tools.iter().find(|(usable, tool, arguments, _)| here && *usable && run(tool, arguments, text).is_ok());
    let mut bytes = Vec::new();
    let sent = text.len() <= TERMINAL_LIMIT && queue!(bytes, CopyToClipboard::to_clipboard_from(text)).is_ok();
    let told = match (tool, sent) {
        (Some((.., how)), _) => Ok(*how),
        (None, true) => Ok("through the terminal (OSC 52), if it allows that"),
        (None, false) => {
            Err("the text is too long for the terminal, and wl-copy, xclip or xsel is not there".to_owned())
        }
    };
    Clipboard { told, bytes }
}

fn run(tool: &str, arguments: &[&str], text: &str) -> io::Result<()> {
    let mut child =
        Command::new(tool).args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    if child.wait()?.success() { Ok(()) } else { Err(io::Error::other("the tool failed")) }
}
