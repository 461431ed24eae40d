//! Pieces that several programs write alike: texts in parts, times in seconds or milliseconds.

use serde_json::Value;

use super::draft::{Losses, Lost};

/// A field that is a text, or a number where programs write ids as numbers.
pub(super) fn text_at(value: &Value, field: &str) -> Option<String> {
    match value.get(field)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The text of a content: a text, or parts of which some are texts. Parts that are none are counted.
pub(super) fn text(content: Option<&Value>, lost: &mut Losses) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts: Vec<String> = parts.iter().filter_map(|part| part_text(part, lost)).collect();
            texts.join("\n\n")
        }
        Some(part @ Value::Object(_)) => part_text(part, lost).unwrap_or_default(),
        _ => String::new(),
    }
}

fn part_text(part: &Value, lost: &mut Losses) -> Option<String> {
    if let Value::String(text) = part {
        return Some(text.clone()).filter(|t| !t.is_empty());
    }
    let kind = text_at(part, "type").or_else(|| text_at(part, "content_type")).unwrap_or_default();
    let text = text_at(part, "text").filter(|t| !t.is_empty());
    if text.is_none() && !matches!(kind.as_str(), "text" | "input_text" | "output_text" | "") {
        lost.count(Lost::of_kind(&kind), 1);
    }
    text
}

/// A time in Unix milliseconds: programs write seconds, milliseconds or a date. 0 where it is not known.
pub(super) fn time(value: Option<&Value>) -> i64 {
    let number = match value {
        Some(Value::Number(number)) => number.as_f64().unwrap_or(0.0),
        Some(Value::String(text)) => {
            return text.parse::<jiff::Timestamp>().map_or(0, |t| t.as_millisecond().max(0));
        }
        _ => 0.0,
    };
    // Seconds of the year 5138 are milliseconds of 1973, when nobody chatted.
    let ms = if number.abs() < 1e11 { number * 1000.0 } else { number };
    if ms.is_finite() && (0.0..1e13).contains(&ms) { ms as i64 } else { 0 }
}

/// A text file that was put into a question, as it stands behind it.
pub(super) fn attached(name: &str, content: &str) -> String {
    format!("\n\n[{}]\n{content}", name.trim())
}

/// What a model thought before its answer, as models themselves write it; templates know it and leave it out.
pub(super) fn thought(thinking: &str, answer: &str) -> String {
    if thinking.trim().is_empty() {
        answer.to_owned()
    } else {
        format!("<think>\n{}\n</think>\n\n{answer}", thinking.trim())
    }
}
