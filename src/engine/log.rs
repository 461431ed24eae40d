//! llama.cpp's own words: to stderr, which the chat writes into its log, and the last errors to the message.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

/// How many lines are kept.
const KEPT: usize = 16;

static LAST: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Sends warnings and errors of this process to stderr, and keeps the last of them; with `all` also what llama.cpp
/// says of its model and buffers.
pub fn to_stderr(all: bool) {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(if all { tracing::Level::INFO } else { tracing::Level::WARN })
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_writer(Tee)
        .finish();
    // Only the first subscriber of a process counts; in tests there may be one already.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Forgets the lines so far.
pub fn forget() {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// The first error since [`forget`]: llama.cpp tells the cause first and its consequences after it.
pub fn last_error() -> Option<String> {
    let lines = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let text = lines.iter().find(|l| l.contains("ERROR")).or(lines.back())?;
    let text = text.trim().trim_start_matches("ERROR").trim_start_matches("WARN").trim();
    // "llama_model_load: error loading model: unknown …" – the function's name tells a user nothing.
    let text = text.split_once(": ").filter(|(head, _)| !head.contains(' ')).map_or(text, |(_, rest)| rest);
    // Fields of the log stand behind the sentence.
    let text = text.split_once(" module=").map_or(text, |(text, _)| text);
    Some(text.trim_start_matches("error loading model: ").to_owned())
}

struct Tee;

impl<'a> MakeWriter<'a> for Tee {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A stop that was asked for is no fault.
        if String::from_utf8_lossy(bytes).contains("failed to decode, ret = 2") {
            return Ok(bytes.len());
        }
        let line = String::from_utf8_lossy(bytes);
        // What is merely told is no cause, and must not push one out.
        if !line.trim_start().starts_with("INFO") {
            let mut lines = LAST.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push_back(line.trim_end().to_owned());
            if lines.len() > KEPT {
                lines.pop_front();
            }
        }
        io::stderr().write_all(bytes)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
