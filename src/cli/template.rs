//! `llmchat template --lines`: renders chat templates, one JSON request a line in, one JSON answer a line out.

use std::io::{BufRead, Write};

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::template::Template;

#[derive(Deserialize)]
struct Request {
    template: String,
    #[serde(default)]
    bos_token: Option<String>,
    #[serde(default)]
    eos_token: Option<String>,
    messages: Vec<Value>,
    #[serde(default)]
    add_generation_prompt: bool,
    #[serde(default)]
    now: Option<String>,
}

/// Answers every line of `input` with `{"text"}` or `{"error"}`; a line that is no request is an error too.
///
/// # Errors
/// If the input cannot be read or the output cannot be written.
pub fn run_lines(input: impl BufRead, mut output: impl Write) -> Result<()> {
    // Templates come in runs: the last one is kept parsed.
    let mut last: Option<(String, Template)> = None;
    for line in input.split(b'\n') {
        let answer = match answer(&line?, &mut last) {
            Ok(text) => json!({ "text": text }),
            Err(error) => json!({ "error": error }),
        };
        serde_json::to_writer(&mut output, &answer)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

fn answer(line: &[u8], last: &mut Option<(String, Template)>) -> Result<String, String> {
    let request: Request = serde_json::from_slice(line).map_err(|e| format!("not a request: {e}"))?;
    let (bos, eos) = (request.bos_token.unwrap_or_default(), request.eos_token.unwrap_or_default());
    let key = format!("{bos}\n{eos}\n{}", request.template);
    if last.as_ref().is_none_or(|(k, _)| *k != key) {
        *last = Some((key, Template::parse(&request.template, &bos, &eos).map_err(|e| e.to_string())?));
    }
    let Some((_, template)) = last else { return Err("no template".to_owned()) };
    template.render(&request.messages, request.add_generation_prompt, request.now.as_deref()).map_err(|e| e.to_string())
}
