//! Text in the user's own editor.

use std::io::Write;
use std::process::Command;

/// Opens text in `$VISUAL`, `$EDITOR` or vi and gives what was saved. The terminal must be free.
///
/// # Errors
/// Says why there is no text; what was in the input box stays there.
pub fn edit(text: &str) -> Result<String, String> {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
    let command = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let mut file = tempfile::Builder::new()
        .prefix("llmchat-")
        .suffix(".md")
        .tempfile()
        .map_err(|e| format!("No file for the editor can be made: {e}"))?;
    file.write_all(text.as_bytes()).map_err(|e| format!("The file for the editor cannot be written: {e}"))?;
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = Command::new(program)
        .args(words)
        .arg(file.path())
        .status()
        .map_err(|e| format!("The editor '{command}' cannot be started: {e}. Set EDITOR"))?;
    if !status.success() {
        return Err(format!("The editor '{command}' ended with {status}; the text is as it was"));
    }
    let bytes = std::fs::read(file.path()).map_err(|e| format!("What the editor wrote cannot be read: {e}"))?;
    String::from_utf8(bytes).map_err(|_| "What the editor wrote is not UTF-8 text".to_owned())
}
