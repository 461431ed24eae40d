//! Python's methods and Jinja's filters and tests where minijinja's differ from them.

use minijinja::value::{Rest, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// Methods that change a list or a dictionary.
const CHANGING: [&str; 12] = [
    "append",
    "extend",
    "insert",
    "pop",
    "remove",
    "clear",
    "update",
    "setdefault",
    "popitem",
    "sort",
    "reverse",
    "add",
];
/// The widest field that a format may ask for.
const WIDEST_FIELD: usize = 9_999;

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.into())
}

/// Python's methods of texts, lists and dictionaries. What would change a value is refused, as Transformers'
/// immutable sandbox does.
///
/// # Errors
/// If there is no such method, or it refuses its arguments.
pub fn call(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        if CHANGING.contains(&name) {
            return Err(invalid(format!("the sandbox refuses .{name}()")));
        }
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args);
    };
    // Reading a long text is work too, and minijinja charges only what comes out.
    state.consume_fuel(text.len() as u64 / 64)?;
    match name {
        "format" => bounded(text)?,
        "title" => return Ok(Value::from(title(text))),
        "removeprefix" | "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            let rest = if name == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
            return Ok(Value::from(rest.unwrap_or(text)));
        }
        "partition" | "rpartition" => {
            let (at,): (&str,) = from_args(args)?;
            return Ok(Value::from(Tuple::from(partition(text, at, name == "rpartition"))));
        }
        "rsplit" => {
            if let (Some(at), Some(most)) = from_args::<(Option<&str>, Option<i64>)>(args)? {
                let most = usize::try_from(most).unwrap_or(usize::MAX - 1);
                let mut parts: Vec<Value> = text.rsplitn(most + 1, at).map(Value::from).collect();
                parts.reverse();
                return Ok(Value::from(parts));
            }
            return minijinja_contrib::pycompat::unknown_method_callback(state, value, "split", args);
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let at = if name == "index" { text.find(part) } else { text.rfind(part) };
            let at = at.ok_or_else(|| invalid("substring not found"))?;
            return Ok(Value::from(text[..at].chars().count()));
        }
        _ => {}
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// `str.title`: a letter after anything that is no letter is upper case. The filter `title` is another.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    out
}

fn partition<'t>(text: &'t str, at: &'t str, from_right: bool) -> [Value; 3] {
    let found = if from_right { text.rsplit_once(at) } else { text.split_once(at) };
    let parts = match found {
        Some((before, after)) => [before, at, after],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    parts.map(Value::from)
}

/// Refuses formats whose fields are so wide that they are there to fill the memory.
fn bounded(format: &str) -> Result<(), Error> {
    let numbers = format.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
    if numbers.clone().any(|n| n.parse::<usize>().map_or(true, |n| n > WIDEST_FIELD)) {
        return Err(invalid("format: a field is too wide"));
    }
    Ok(())
}

/// The filter `format`, printf style.
///
/// # Errors
/// If a field is too wide or does not fit its value.
pub fn printf(format: &str, Rest(args): Rest<Value>) -> Result<String, Error> {
    bounded(format)?;
    minijinja::formatting::format(minijinja::formatting::FormatStyle::Printf, format, &args)
}

/// The test `sequence`: what has a length and items, so texts and dictionaries too.
pub fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable)
        && value.len().is_some()
}

/// The filter `int`: what is no number gives the default.
pub fn int(value: &Value, default: Option<i64>) -> Value {
    let default = default.unwrap_or(0);
    match value.as_str() {
        Some(text) => {
            let text = text.trim();
            let whole = text.parse::<i64>().ok();
            Value::from(whole.or_else(|| text.parse::<f64>().ok().map(|f| f as i64)).unwrap_or(default))
        }
        None if value.is_integer() => value.clone(),
        None if matches!(value.kind(), ValueKind::Bool) => Value::from(i64::from(value.is_true())),
        None => Value::from(f64::try_from(value.clone()).map_or(default, |f| f as i64)),
    }
}
