//! What a file is, by what stands in it; its name says nothing. Each conversation is read by itself, so that one that
//! is damaged does not keep the others out.

use std::path::Path;

use serde_json::Value;
use serde_json::value::RawValue;

use super::content::text_at;
use super::found::Found;
use super::{aichat, embed, lm_studio, messages, openai, oterm, own, web_ui};
use crate::chat::Sampling;

/// Largest file that is read, in bytes: all of it is in memory at once.
pub const LARGEST: u64 = 1 << 30;

/// What is understood, for the message about something that is not.
const KNOWN: &str = "llama.cpp's web page, ChatGPT (conversations.json), LM Studio, oterm (store.db), aichat, ShareGPT, \
                     messages in JSON or JSONL, and what llmchat exports as json, or with --whole as html, md or jsonl";

/// Reads every conversation of a file; for each one it, or what is wrong with it. New conversations get `base` where
/// the file sets nothing. The path is opened again only if it is a database.
///
/// # Errors
/// If it is nothing that is understood.
pub fn read(path: &Path, bytes: Vec<u8>, base: &Sampling) -> Result<Vec<Result<Found, String>>, String> {
    if bytes.starts_with(oterm::MAGIC) {
        return Ok(oterm::read(path)?.into_iter().map(|draft| draft.finish(base)).collect());
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return Err("it is a ZIP archive. Unpack it, and import its files or the folder".to_owned());
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err("it is compressed. Unpack it first".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to() + 1;
        format!("it is not UTF-8 text (byte {at} is not). Convert it first, for example with iconv")
    })?;
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.starts_with('[') || text.starts_with('{') {
        return json(text, base).map_or_else(|why| lines(text, base).ok_or(why), Ok);
    }
    if let Some(json) = embed::find(text) {
        return Ok(vec![parse(json).and_then(|value| element(value, base))]);
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    match aichat::read(text, &name) {
        Ok(draft) => Ok(vec![draft.finish(base)]),
        Err(why) => {
            let mapping = text.lines().next().is_some_and(|l| l.contains(": ") || l.ends_with(':'));
            let yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml") || mapping;
            let why = if yaml { format!("as a session of aichat: {why}. ") } else { String::new() };
            Err(format!("it is nothing that is understood. {why}Understood are {KNOWN}"))
        }
    }
}

/// One JSON: a conversation, a list of them, or a list of messages.
fn json(text: &str, base: &Sampling) -> Result<Vec<Result<Found, String>>, String> {
    // Raw, so that only one conversation at a time is taken apart.
    if text.starts_with('[') {
        let raw: Vec<&RawValue> = serde_json::from_str(text).map_err(|e| damaged(&e))?;
        let first = raw.first().and_then(|first| parse(first.get()).ok());
        if first.is_some_and(|first| first.get("role").is_some() && first.get("content").is_some()) {
            let list: Vec<Value> = raw.iter().filter_map(|m| parse(m.get()).ok()).collect();
            return Ok(vec![messages::read(&Value::Null, &list).finish(base)]);
        }
        return Ok(raw.into_iter().map(|raw| parse(raw.get()).and_then(|value| element(value, base))).collect());
    }
    let raw: &RawValue = serde_json::from_str(text).map_err(|e| damaged(&e))?;
    Ok(vec![parse(raw.get()).and_then(|value| element(value, base))])
}

fn damaged(error: &serde_json::Error) -> String {
    format!("it is damaged: {error}. Export it again")
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|e| format!("it is damaged: {e}"))
}

/// JSON Lines: each a conversation, or the lines of one. None where the first line is no JSON.
fn lines(text: &str, base: &Sampling) -> Option<Vec<Result<Found, String>>> {
    let mut all = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    let (_, first) = all.clone().next()?;
    let kind = text_at(&parse(first).ok()?, "type");
    match kind.as_deref() {
        Some("header") => Some(vec![own::read_journal(text)]),
        Some("session") => Some(sessions(all, base)),
        _ => Some(
            all.by_ref()
                .map(|(nth, line)| {
                    let read = parse(line).and_then(|value| element(value, base));
                    read.map_err(|why| format!("line {}: {why}", nth + 1))
                })
                .collect(),
        ),
    }
}

/// The lines of llama.cpp's web page.
fn sessions<'a>(lines: impl Iterator<Item = (usize, &'a str)>, base: &Sampling) -> Vec<Result<Found, String>> {
    let mut out = Vec::new();
    let mut open: Option<(Value, Vec<Value>)> = None;
    let close = |open: Option<(Value, Vec<Value>)>, out: &mut Vec<Result<Found, String>>| {
        out.extend(open.map(|(conv, messages)| web_ui::read(&conv, &messages).finish(base)));
    };
    for (nth, line) in lines {
        match (parse(line), &mut open) {
            (Ok(value), _) if text_at(&value, "type").as_deref() == Some("session") => {
                close(open.replace((value, Vec::new())), &mut out);
            }
            (Ok(mut value), Some((_, messages))) => {
                messages.extend(value.get_mut("message").map(Value::take));
            }
            (Ok(_), None) => {}
            (Err(why), _) => out.push(Err(format!("line {}: {why}", nth + 1))),
        }
    }
    close(open, &mut out);
    out
}

/// One conversation, whosever it is.
fn element(mut value: Value, base: &Sampling) -> Result<Found, String> {
    if value.get("format").and_then(Value::as_str) == Some(own::FORMAT) {
        return own::read(value);
    }
    if let Some(whole) = value.get_mut("llmchat").filter(|w| w.is_object()) {
        return own::read(whole.take());
    }
    let list = |field: &str| value.get(field).and_then(Value::as_array).map(Vec::as_slice);
    let draft = match (list("messages"), list("conversations")) {
        (Some(said), _) if value.get("conv").is_some_and(Value::is_object) => web_ui::read(&value["conv"], said),
        (Some(said), _) if said.iter().any(|m| m.get("versions").is_some()) => lm_studio::read(&value, said),
        (Some(said), _) => messages::read(&value, said),
        (None, Some(turns)) => messages::read_sharegpt(&value, turns),
        (None, None) if value.get("mapping").is_some_and(Value::is_object) => openai::read(&value),
        (None, None) => {
            let keys: Vec<&str> = value.as_object().into_iter().flatten().map(|(k, _)| k.as_str()).take(6).collect();
            let keys = if keys.is_empty() { "it has none".to_owned() } else { format!("it has {}", keys.join(", ")) };
            return Err(format!("it is no conversation of a known kind (by its fields; {keys})"));
        }
    };
    draft.finish(base)
}
