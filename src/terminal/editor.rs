//! Text in the user's own editor.

use std::io::Write;
use std::process::Command;

/// Opens text in `$VISUAL`, `$EDITOR` or vi, waits for it, and gives what was saved. The terminal must be free.
///
/// # Errors
/// Says why there is no text; what was in the input box stays there.
pub fn edit(text: &str) -> Result<String, String> {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
    let command = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // Made by tempfile for its owner only.
    let mut file = tempfile::Builder::new()
        .prefix("llmchat-")
        .suffix(".md")
        .tempfile()
        .map_err(|e| format!("No file for the editor can be made: {e}"))?;
    file.write_all(text.as_bytes()).map_err(|e| format!("The file for the editor cannot be written: {e}"))?;
    // The variables hold a shell's command line, as everywhere: arguments and quotes count.
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{command} \"$1\""))
        .arg("sh")
        .arg(file.path())
        .status()
        .map_err(|e| format!("The editor '{command}' cannot be started: {e}. Set EDITOR"))?;
    match status.code() {
        Some(0) => {}
        Some(127) => return Err(format!("The editor '{command}' is not there. Set EDITOR to one that is")),
        _ => return Err(format!("The editor '{command}' failed ({status}); the text is as it was")),
    }
    // By its name: many editors write a new file and rename it over the old one.
    let bytes = std::fs::read(file.path()).map_err(|e| format!("What the editor wrote cannot be read: {e}"))?;
    String::from_utf8(bytes).map_err(|_| "What the editor wrote is not UTF-8 text; the text is as it was".to_owned())
}
