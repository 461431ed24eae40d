//! A model's chat template: Jinja 2 as Hugging Face Transformers sets it up for `apply_chat_template`.
//!
//! Source of the semantics: the Transformers documentation, "Chat templates", and Jinja's own; the corpus
//! of `tests/templates` and, where it is there, of `shared/templates` holds it.
//!
//! A template comes with a model file from anywhere. It can ask for work without end, so its work is counted
//! (fuel bounds time and memory), and for recursion without end, so it has a thread with a large stack.

mod generation;
mod methods;
mod python;

use std::collections::BTreeMap;

use jiff::civil::DateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use serde::Serialize;

/// Work of one rendering: about one for an instruction or 64 bytes made, so no more than 320 MB.
const FUEL: u64 = 5_000_000;
/// What a message may take more; the most that one takes in the corpus is below a thousand.
const FUEL_PER_MESSAGE: u64 = 5_000;
/// Longer sources are refused; the largest known template has 18 kB.
const LONGEST_SOURCE: usize = 128 * 1024;
/// Stack of the thread that parses and renders: enough for the deepest nesting that a source of that length
/// and that much fuel can make. Only what is used of it becomes memory.
const STACK: usize = 256 * 1024 * 1024;
/// Calls within calls.
const DEEPEST_CALL: usize = 200;
/// Marks a refusal of the template's own among the errors.
const REFUSED: &str = "the chat template refuses: ";
/// Hands `now` to `strftime_now` under a name that no template can write.
const NOW: &str = "now for strftime_now";

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
        if source.len() > LONGEST_SOURCE {
            return Err(TemplateError::Syntax(format!("it has more than {LONGEST_SOURCE} bytes")));
        }
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let environment = with_stack(|| environment(&generation::as_with_blocks(&source)));
        let environment = environment.and_then(|parsed| parsed.map_err(|e| describe(&e)));
        environment
            .map(|environment| Self { environment, bos: bos.to_owned(), eos: eos.to_owned() })
            .map_err(TemplateError::Syntax)
    }

    /// Renders messages: objects with `role` and `content`, or whatever else the template reads. `now` is what
    /// `strftime_now` formats, as `2026-12-01T09:30:00`; the local time where it is none.
    ///
    /// # Errors
    /// If the template refuses the messages or fails on them.
    pub fn render<M: Serialize + Sync>(
        &self,
        messages: &[M],
        add_generation_prompt: bool,
        now: Option<&str>,
    ) -> Result<String, TemplateError> {
        let rendered = with_stack(|| {
            let mut environment = self.environment.clone();
            environment.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * messages.len() as u64));
            let template = environment.get_template("chat")?;
            template.render(Value::from(BTreeMap::from([
                ("messages", Value::from(Serde(messages))),
                ("add_generation_prompt", Value::from(add_generation_prompt)),
                ("bos_token", Value::from(self.bos.as_str())),
                ("eos_token", Value::from(self.eos.as_str())),
                (NOW, Value::from(now)),
            ])))
        });
        rendered.map_err(TemplateError::Failed)?.map_err(|error| {
            let text = describe(&error);
            match text.split_once(REFUSED) {
                Some((_, why)) => TemplateError::Refused(why.to_owned()),
                None => TemplateError::Failed(text),
            }
        })
    }
}

/// Runs the work on a thread with the large stack.
fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("template".to_owned()).stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| format!("no thread for it: {e}"))?;
        thread.join().map_err(|_| "it panicked".to_owned())
    })
}

fn environment(source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|out, _, value| Ok(std::fmt::Write::write_str(out, &python::text(value)?)?));
    environment.set_recursion_limit(DEEPEST_CALL);
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("tojson", python::tojson);
    environment.add_filter("string", |value: &Value| python::text(value));
    environment.add_filter("format", methods::printf);
    environment.add_filter("int", methods::int);
    environment.add_test("sequence", methods::is_sequence);
    environment.add_function("raise_exception", |why: &Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{REFUSED}{}", python::text(why)?)))
    });
    environment.add_function("strftime_now", strftime_now);
    environment.add_template_owned("chat", source.to_owned())?;
    Ok(environment)
}

fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let now = state.lookup(NOW).and_then(|v| v.as_str().and_then(|s| s.parse::<DateTime>().ok()));
    let now = now.unwrap_or_else(|| jiff::ZonedDateTime::now().datetime());
    jiff::fmt::strtime::format(format, now)
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}")))
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

#[cfg(test)]
mod tests;
