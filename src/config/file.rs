//! Reading the layers. Whatever is wrong becomes a notice, and the program starts.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::table::{SETTINGS, Written, written};
use super::{Settings, nearest};
use crate::chat::KNOBS;

/// The settings of the file and the environment over the defaults, and what was wrong with them, one
/// sentence each. A file that is not there is no fault.
pub fn load(path: &Path, env: impl Fn(&str) -> Option<String>) -> (Settings, Vec<String>) {
    let mut settings = Settings::default();
    let mut notices = Vec::new();
    match std::fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => from_text(&text, &path.display().to_string(), &mut settings, &mut notices),
            Err(_) => notices.push(format!("{} is not UTF-8 text; the defaults are used", path.display())),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
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
fn from_environment(env: impl Fn(&str) -> Option<String>, settings: &mut Settings, notices: &mut Vec<String>) {
    let mut take = |variable: &str, name: &str| {
        if let Some(text) = env(variable)
            && let Err(why) = settings.set(name, &text)
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
}

/// The environment variable of a setting.
fn variable(name: &str) -> String {
    format!("LLMCHAT_{}", name.to_uppercase().replace(['.', '-'], "_"))
}
