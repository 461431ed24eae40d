//! `llmchat models`: what is found, and where.

use serde_json::json;

use super::context::Context;
use crate::model::{self, Gguf, ModelError, human};
use crate::text::sanitise_line;

/// Prints every model that is found, also those that cannot be used and why.
pub fn run(context: &Context, as_json: bool) {
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
        println!("{}", json!(list));
        return;
    }
    if found.is_empty() {
        println!("No model is found. Looked in:");
        for place in &finder.places {
            println!("  {}", place.display());
        }
        println!("Fetch the default model with 'make model', or put GGUF files into the first of these.");
        return;
    }
    for f in &found {
        let facts = match &f.header {
            Ok(header) => format!("{}, {} tokens", header.architecture(), header.n_ctx_train().unwrap_or(0)),
            Err(error) => error.what(),
        };
        println!("{:<36} {:>9}  {}", sanitise_line(&f.name), human(f.bytes), sanitise_line(&facts));
        println!("  {}", sanitise_line(&f.path.display().to_string()));
    }
}
