//! Values as Python writes them: printed, and as `json.dumps`.

use minijinja::value::{Kwargs, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Deeper lists are refused: a template can make them deep enough to overflow the stack.
const DEEPEST: usize = 100;
/// The widest `indent` of `tojson`.
const WIDEST: usize = 64;

/// A value as `str()` gives it; nothing for an undefined one.
///
/// # Errors
/// If it is nested too deep.
pub fn text(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None if value.is_undefined() => Ok(String::new()),
        None => {
            let mut out = String::new();
            repr(value, 0, &mut out)?;
            Ok(out)
        }
    }
}

fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, "a value is nested too deep")
}

/// A value as `repr()` gives it, which is how it stands inside a list.
fn repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.downcast_object_ref::<Tuple>().is_some();
            out.push(if tuple { '(' } else { '[' });
            let mut items = 0;
            for item in value.try_iter()? {
                if items > 0 {
                    out.push_str(", ");
                }
                items += 1;
                repr(&item, depth + 1, out)?;
            }
            out.push_str(match (tuple, items) {
                (true, 1) => ",)",
                (true, _) => ")",
                (false, _) => "]",
            });
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(&key, depth + 1, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if unprintable(c) && u32::from(c) < 0x100 => escape(out, 'x', 2, u32::from(c)),
            c if unprintable(c) => escape(out, 'u', 4, u32::from(c)),
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// `\x0a`, `\u200b`: a code in hexadecimal digits.
fn escape(out: &mut String, mark: char, digits: usize, code: u32) {
    out.extend(['\\', mark]);
    out.extend(format!("{code:0digits$x}").chars());
}

/// What Python escapes: controls, blanks other than the space, and marks of writing direction and joining.
fn unprintable(c: char) -> bool {
    let format = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c.is_control() || format || (c != ' ' && c.is_whitespace())
}

/// A number as Python prints it: whole floats keep their `.0`, large and small ones are in powers of ten.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(float) = f64::try_from(value.clone()) else { return value.to_string() };
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if float != 0.0 && !(1e-4..1e16).contains(&float.abs()) {
        let text = format!("{float:e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let power: i32 = power.parse().unwrap_or(0);
        return format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs());
    }
    let text = float.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

/// The layout of `json.dumps`.
struct Layout {
    indent: Option<usize>,
    comma: String,
    colon: String,
    ascii: bool,
    sorted: bool,
}

/// The filter `tojson`, as Transformers has it: Python's `json.dumps` with `ensure_ascii=False`.
///
/// # Errors
/// If there is no JSON for the value.
#[allow(clippy::needless_pass_by_value)] // minijinja passes its arguments so
pub fn tojson(state: &State, value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get::<Option<i64>>("indent")?.map(|n| usize::try_from(n).unwrap_or(0));
    if indent.is_some_and(|n| n > WIDEST) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the indent is too wide"));
    }
    let (comma, colon) = match kwargs.get::<Option<Value>>("separators")? {
        Some(pair) => (text(&pair.get_item_by_index(0)?)?, text(&pair.get_item_by_index(1)?)?),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let flag = |name: &str| kwargs.get::<Option<bool>>(name).map(|given| given.unwrap_or(false));
    let layout = Layout { indent, comma, colon, ascii: flag("ensure_ascii")?, sorted: flag("sort_keys")? };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    layout.dump(state, value, 0, &mut out)?;
    Ok(out)
}

impl Layout {
    fn dump(&self, state: &State, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(too_deep());
        }
        state.consume_fuel(1)?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Undefined => {
                return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is undefined"));
            }
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&json_number(value)),
            ValueKind::Seq | ValueKind::Iterable => {
                out.push('[');
                let mut any = false;
                for item in value.try_iter()? {
                    self.next(&mut any, depth, out);
                    self.dump(state, &item, depth + 1, out)?;
                }
                self.close(any, depth, out);
                out.push(']');
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                out.push('{');
                let mut any = false;
                for key in keys {
                    self.next(&mut any, depth, out);
                    self.string(&json_key(&key)?, out);
                    out.push_str(&self.colon);
                    self.dump(state, &value.get_item(&key)?, depth + 1, out)?;
                }
                self.close(any, depth, out);
                out.push('}');
            }
            _ => self.string(&text(value)?, out),
        }
        Ok(())
    }

    fn next(&self, any: &mut bool, depth: usize, out: &mut String) {
        if std::mem::replace(any, true) {
            out.push_str(&self.comma);
        }
        self.line(depth + 1, out);
    }

    fn close(&self, any: bool, depth: usize, out: &mut String) {
        if any {
            self.line(depth, out);
        }
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(n) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', n * depth));
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if u32::from(c) < 0x20 || (self.ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        escape(out, 'u', 4, u32::from(*unit));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn json_number(value: &Value) -> String {
    match number(value).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        number => number.to_owned(),
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number => json_number(key),
        _ => text(key)?,
    })
}
