//! Time stamps for measuring, into the file that `LLMCHAT_TRACE` names; see the README's figures.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Notes that something happened: Unix microseconds and its name, one line each. `key`: keys were read;
/// `draw`: a frame begins; `shown`: it has been written to the terminal.
pub fn trace(what: &str) {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let path = std::env::var_os("LLMCHAT_TRACE")?;
        OpenOptions::new().create(true).append(true).open(path).ok()
    });
    if let Some(mut file) = file.as_ref() {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros());
        let _ = file.write_all(format!("{at} {what}\n").as_bytes());
    }
}
