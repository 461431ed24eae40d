//! The log file: what the screen has no room for.

use std::fs::{self, File, OpenOptions};
use std::sync::Mutex;

use super::context::Context;

/// A longer log begins anew; the old one is kept beside it.
const LONGEST: u64 = 4 << 20;

/// Starts logging into the state folder. A log that cannot be written keeps nobody from chatting.
pub fn start(context: &Context) {
    let level = match context.settings.log_level.as_str() {
        "off" => return,
        "error" => tracing::Level::ERROR,
        "warn" => tracing::Level::WARN,
        "debug" => tracing::Level::DEBUG,
        _ => tracing::Level::INFO,
    };
    if let Ok(file) = open(context) {
        let subscriber =
            tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(Mutex::new(file)).finish();
        // Only the first subscriber of a process counts, and this is it.
        let _ = tracing::subscriber::set_global_default(subscriber);
        tracing::info!("llmchat {}", super::version::long());
        for notice in &context.notices {
            tracing::warn!("{notice}");
        }
    }
}

fn open(context: &Context) -> std::io::Result<File> {
    let path = context.paths.log();
    fs::create_dir_all(&context.paths.state)?;
    if fs::metadata(&path).is_ok_and(|m| m.len() > LONGEST) {
        fs::rename(&path, path.with_extension("log.old"))?;
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
