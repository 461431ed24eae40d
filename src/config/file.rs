//! Reading the layers. Whatever is wrong becomes a notice, and the program starts.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::table::{SETTINGS, Written, written};
use super::{Settings, distance, nearest};
use crate::chat::KNOBS;

/// The settings of the file and the environment over the defaults, and what was wrong with them, one
/// sentence each. A file that is not there is no fault.
pub fn load(path: &Path, env: &[(String, String)]) -> (Settings, Vec<String>) {
    let mut settings = Settings::default();
    let mut notices = Vec::new();
    match std::fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => from_text(&text, &path.display().to_string(), &mut settings, &mut notices),
            Err(_) => notices.push(format!("{} is not UTF-8 text; the defaults are used", path.display())),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if env.iter().any(|(name, _)| name == "LLMCHAT_CONFIG") {
                notices.push(format!(
                    "{} is not there, and LLMCHAT_CONFIG names it; the defaults are used",
                    path.display()
                ));
            }
        }
        Err(error) => notices.push(format!("{} cannot be read: {error}; the defaults are used", path.display())),
    }
    from_environment(env, &mut settings, &mut notices);
    (settings, notices)
}

fn from_text(text: &str, name: &str, settings: &mut Settings, notices: &mut Vec<String>) {
    let place = |at: usize| {
        let before = text.get(..at).unwrap_or(text);
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{name}:{}:{column}", before.matches('\n').count() + 1)
    };
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let at = error.span().map_or(0, |s| s.start);
            let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
            notices.push(format!("{}: {message}; the defaults are used", place(at)));
            return;
        }
    };
    for (key, value) in table.get_ref() {
        let (head, at) = (key.get_ref().to_string(), key.span().start);
        match value.get_ref() {
            DeValue::Table(section) => {
                for (key, value) in section {
                    let full = format!("{head}.{}", key.get_ref());
                    one(&full, value.get_ref(), &place(key.span().start), settings, notices);
                }
            }
            value => one(&head, value, &place(at), settings, notices),
        }
    }
}

fn one(name: &str, value: &DeValue<'_>, place: &str, settings: &mut Settings, notices: &mut Vec<String>) {
    let Some(written) = written(name) else {
        notices.push(format!("{place}: there is no setting '{name}'{}", nearest(name)));
        return;
    };
    let text = match value {
        DeValue::String(text) if written == Written::Bare => {
            // A value that is wrong in itself is told so first.
            let why =
                settings.clone().set(name, text).err().unwrap_or_else(|| format!("{name} is written without quotes"));
            notices.push(format!("{place}: {why}; the default is used"));
            return;
        }
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) if written == Written::Text => {
            notices.push(format!("{place}: {name} is a text and needs quotes; the default is used"));
            return;
        }
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Array(items) if written == Written::List => {
            let words: Option<Vec<String>> = items.iter().map(|i| i.get_ref().as_str().map(str::to_owned)).collect();
            match words {
                Some(words) => settings.engine_command = words,
                None => notices.push(format!("{place}: {name} must be a list of texts; the default is used")),
            }
            return;
        }
        _ => {
            notices.push(format!("{place}: {name} has the wrong type; the default is used"));
            return;
        }
    };
    if let Err(why) = settings.set(name, &text) {
        notices.push(format!("{place}: {why}; the default is used"));
    }
}

/// Variables of ours come before llama.cpp's, which many users have set.
fn from_environment(env: &[(String, String)], settings: &mut Settings, notices: &mut Vec<String>) {
    let mut known: Vec<String> =
        ["DATA_DIR", "STATE_DIR", "CACHE_DIR", "CONFIG", "TRACE", "FAULT"].map(|n| format!("LLMCHAT_{n}")).into();
    let mut take = |variable: &str, name: &str| {
        known.push(variable.to_owned());
        if let Some((_, text)) = env.iter().find(|(name, _)| name == variable)
            && let Err(why) = settings.set(name, text)
        {
            notices.push(format!("{variable}: {why}; it is not used"));
        }
    };
    for setting in &SETTINGS {
        if !setting.llama.is_empty() {
            take(setting.llama, setting.name);
        }
        take(&variable(setting.name), setting.name);
    }
    for spec in &KNOBS {
        let name = format!("sampling.{}", spec.name);
        take(&variable(&name), &name);
    }
    for (name, _) in env.iter().filter(|(name, _)| name.starts_with("LLMCHAT_") && !known.contains(name)) {
        // A name that lacks only its section is meant more likely than one that differs by letters.
        let (_, last) = name.split_once('_').unwrap_or_default();
        let section = known.iter().find(|k| k.ends_with(&format!("_{last}"))).map(|k| (0, k));
        let close = section.or_else(|| known.iter().map(|k| (distance(k, name), k)).min().filter(|(d, _)| *d < 5));
        let hint = close.map_or(String::new(), |(_, k)| format!(", did you mean {k}?"));
        notices.push(format!("There is no setting {name}{hint}"));
    }
}

/// The environment variable of a setting.
fn variable(name: &str) -> String {
    format!("LLMCHAT_{}", name.to_uppercase().replace(['.', '-'], "_"))
}
