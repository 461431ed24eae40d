//! `conversations show`.

use std::process::ExitCode;

use super::pick;
use crate::cli::Stop;
use crate::cli::out::print_foreign;
use crate::paths::Paths;
use crate::store;
use crate::transfer::{Format, render};

/// Prints one conversation.
pub fn run(paths: &Paths, which: &str, as_json: bool) -> Result<ExitCode, Stop> {
    let (id, path) = pick(paths, which).map_err(Stop::Failed)?;
    let loaded = store::load(&path, &id).map_err(Stop::Failed)?;
    for note in &loaded.notes {
        eprintln!("note: {}", crate::text::sanitise(note));
    }
    let format = if as_json { Format::Json } else { Format::Text };
    print_foreign(&render(&loaded.conversation, format, false))?;
    Ok(ExitCode::SUCCESS)
}
