//! A model's chat template: Jinja 2 as Hugging Face Transformers sets it up for `apply_chat_template`.
//!
//! Source of the semantics: the Transformers documentation, "Chat templates", and Jinja's own; the corpus
//! of `tests/templates` and, where it is there, of `shared/templates` holds it.

use jiff::civil::DateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use serde::Serialize;

/// Work that one rendering may do before it is called off: about a hundred times what the largest template
/// of the corpus needs for a full context.
const FUEL: u64 = 200_000_000;
/// Marks a refusal of the template's own among the errors.
const REFUSED: &str = "the chat template refuses: ";

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

/// Why a template gives no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// It is not the Jinja that is known here.
    Syntax(String),
    /// It calls `raise_exception`, with this sentence.
    Refused(String),
    /// It fails on these messages.
    Failed(String),
}

impl std::fmt::Display for TemplateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax(why) => write!(f, "the chat template cannot be parsed: {why}"),
            Self::Refused(why) => write!(f, "{REFUSED}{why}"),
            Self::Failed(why) => write!(f, "the chat template fails: {why}"),
        }
    }
}

impl std::error::Error for TemplateError {}

impl Template {
    /// Parses a template as a GGUF carries it. `bos` and `eos` are the texts of the special tokens.
    ///
    /// # Errors
    /// If it cannot be parsed.
    pub fn parse(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| TemplateError::Syntax(describe(&e)))?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_formatter(|out, _, value| {
            if !value.is_undefined() {
                std::fmt::Write::write_str(out, &python(value))?;
            }
            Ok(())
        });
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(200);
        environment.set_unknown_method_callback(method);
        environment.add_filter("tojson", tojson);
        environment.add_filter("string", |value: &Value| python(value));
        environment.add_function("raise_exception", |text: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, format!("{REFUSED}{text}")))
        });
        environment.add_function("strftime_now", |state: &State, format: &str| -> Result<String, Error> {
            let now = state.lookup("now").and_then(|v| v.as_str().and_then(|s| s.parse::<DateTime>().ok()));
            let now = now.unwrap_or_else(|| jiff::ZonedDateTime::now().datetime());
            jiff::fmt::strtime::format(format, now)
                .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}")))
        });
        let source = without_generation(&source.replace("\r\n", "\n").replace('\r', "\n"));
        environment.add_template_owned("chat", source).map_err(|e| TemplateError::Syntax(describe(&e)))?;
        Ok(Self { environment, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// Renders messages: objects with `role` and `content`, or whatever else the template reads. `now` is what
    /// `strftime_now` formats, as `2026-12-01T09:30:00`; the local time where it is none.
    ///
    /// # Errors
    /// If the template refuses the messages or fails on them.
    pub fn render<M: Serialize>(
        &self,
        messages: &[M],
        add_generation_prompt: bool,
        now: Option<&str>,
    ) -> Result<String, TemplateError> {
        let template = self.environment.get_template("chat").map_err(|e| TemplateError::Syntax(describe(&e)))?;
        let context = minijinja::context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt => add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            now => now,
        };
        template.render(context).map_err(|error| {
            let text = describe(&error);
            match text.split_once(REFUSED) {
                Some((_, why)) => TemplateError::Refused(why.to_owned()),
                None => TemplateError::Failed(text),
            }
        })
    }
}

fn describe(error: &Error) -> String {
    let mut text = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    if let Some(line) = error.line()
        && !text.contains(REFUSED)
    {
        text = format!("{text} (line {line} of the template)");
    }
    text
}

/// Takes the `{% generation %}` and `{% endgeneration %}` tags out. Transformers renders what stands between
/// them and only marks it for training.
fn without_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        let Some(end) = tag.find("%}") else { break };
        let inner = tag[2..end].trim_matches(['-', '+']).trim();
        out.push_str(before);
        if inner == "generation" || inner == "endgeneration" {
            // A tag that renders nothing and trims as the other did.
            let (left, right) = (tag[2..end].starts_with('-'), tag[2..end].ends_with('-'));
            out.push_str(if left { "{%-" } else { "{%" });
            out.push_str(" set generation_mark = 1 ");
            out.push_str(if right { "-%}" } else { "%}" });
        } else {
            out.push_str(&tag[..end + 2]);
        }
        rest = &tag[end + 2..];
    }
    out + rest
}

/// A value as Python prints it.
fn python(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => repr(value),
    }
}

/// A value as Python prints it inside a list: texts in quotes.
fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "None".to_owned(),
        ValueKind::Undefined => String::new(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_owned(),
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<String> = value.try_iter().into_iter().flatten().map(|v| repr(&v)).collect();
            format!("[{}]", items.join(", "))
        }
        ValueKind::Map => {
            let items: Vec<String> = value
                .try_iter()
                .into_iter()
                .flatten()
                .map(|key| {
                    let item = value.get_item(&key).unwrap_or_default();
                    format!("{}: {}", repr(&key), repr(&item))
                })
                .collect();
            format!("{{{}}}", items.join(", "))
        }
        ValueKind::Number => number(value),
        _ => value.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.extend(format!("\\x{:02x}", u32::from(c)).chars()),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
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
    let size = float.abs();
    if float != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{float:e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let power: i32 = power.parse().unwrap_or(0);
        return format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs());
    }
    let text = float.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

/// `tojson` as Python's `json.dumps(ensure_ascii=False)`.
#[allow(clippy::needless_pass_by_value)] // minijinja passes its arguments so
fn tojson(value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get::<Option<usize>>("indent").unwrap_or(None);
    // Other arguments of json.dumps change nothing that is read here.
    for name in ["ensure_ascii", "sort_keys", "separators"] {
        let _ = kwargs.get::<Option<Value>>(name);
    }
    let mut out = String::new();
    dump(value, indent, 0, &mut out)?;
    Ok(out)
}

fn dump(value: &Value, indent: Option<usize>, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > 100 {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested too deep"));
    }
    let line = |out: &mut String, depth: usize| {
        if let Some(n) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', n * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Undefined => {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is undefined"));
        }
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut any = false;
            for item in value.try_iter()? {
                if any {
                    out.push_str(comma);
                }
                any = true;
                line(out, depth + 1);
                dump(&item, indent, depth + 1, out)?;
            }
            if any {
                line(out, depth);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            let mut any = false;
            for key in value.try_iter()? {
                if any {
                    out.push_str(comma);
                }
                any = true;
                line(out, depth + 1);
                json_text(&python(&key), out);
                out.push_str(": ");
                dump(&value.get_item(&key)?, indent, depth + 1, out)?;
            }
            if any {
                line(out, depth);
            }
            out.push('}');
        }
        _ => json_text(&python(value), out),
    }
    Ok(())
}

fn json_text(text: &str, out: &mut String) {
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
            c if u32::from(c) < 0x20 => out.extend(format!("\\u{:04x}", u32::from(c)).chars()),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Python's methods of texts, lists and dictionaries. What would change a value is refused, as Transformers'
/// immutable sandbox does.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
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
    if CHANGING.contains(&name) && !matches!(value.kind(), ValueKind::String) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("the sandbox refuses .{name}()")));
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}
