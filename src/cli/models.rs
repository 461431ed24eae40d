//! `llmchat models`: what is found, and where.

use std::fmt::Write;

use serde_json::json;

use super::Stop;
use super::context::Context;
use super::out::print;
use crate::model::{self, Gguf, ModelError, human};
use crate::text::sanitise_line;

/// Prints every model that is found, also those that cannot be used and why.
pub fn run(context: &Context, as_json: bool) -> Result<(), Stop> {
    let finder = context.finder();
    let found = model::list(&finder.places);
    if as_json {
        let list: Vec<_> = found
            .iter()
            .map(|f| {
                let header = f.header.as_ref().ok();
                json!({
                    "name": f.name,
                    "path": f.path,
                    "bytes": f.bytes,
                    "architecture": header.map(Gguf::architecture),
                    "n_ctx_train": header.and_then(Gguf::n_ctx_train),
                    "error": f.header.as_ref().err().map(ModelError::what),
                })
            })
            .collect();
        return print(&format!("{}\n", json!(list)));
    }
    if found.is_empty() {
        let mut out = "No model is found. Looked in:\n".to_owned();
        for place in &finder.places {
            let _ = writeln!(out, "  {}", place.display());
        }
        out += "Fetch the default model with 'make model', or put GGUF files into the first of these.\n";
        return print(&out);
    }
    let mut out = String::new();
    for f in &found {
        let facts = match &f.header {
            Ok(header) => format!("{}, {} tokens", header.architecture(), header.n_ctx_train().unwrap_or(0)),
            Err(error) => error.what(),
        };
        let _ = writeln!(out, "{:<36} {:>9}  {}", sanitise_line(&f.name), human(f.bytes), sanitise_line(&facts));
        let _ = writeln!(out, "  {}", sanitise_line(&f.path.display().to_string()));
    }
    print(&out)
}
