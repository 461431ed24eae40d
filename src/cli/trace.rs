//! For measuring and testing: time stamps into the file that `LLMCHAT_TRACE` names (see the README's figures), and
//! faults that the file which `LLMCHAT_FAULT` names asks for.

use std::ffi::OsString;
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

/// Panics if the fault file says the name of this place, so that a test can see what becomes of the terminal.
pub fn fault(place: &str) {
    static PATH: OnceLock<Option<OsString>> = OnceLock::new();
    if let Some(path) = PATH.get_or_init(|| std::env::var_os("LLMCHAT_FAULT"))
        && std::fs::read_to_string(path).is_ok_and(|text| text.trim() == place)
    {
        panic!("LLMCHAT_FAULT asked for it at {place}");
    }
}
