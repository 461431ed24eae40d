//! `llmchat ask`: one question, the answer on stdout and nothing else.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::Stop;
use super::context::{Context, now};
use super::keep::Kept;
use super::out::{print, unwritten};
use super::running::{Ask, Done, Running};
use crate::app::title_of;
use crate::chat::{Conversation, ConversationId, Entry, Finish, Made, Message, Role, StoreRequest};
use crate::chat::{Mode, Sampling, Timings, TokenRecord, Usage};
use crate::engine::protocol::{EngineEvent, Prompt, Turn};
use crate::store::Worker;
use crate::text::Sanitiser;

/// What to ask, and how to answer.
pub struct Options {
    /// The question.
    pub prompt: String,
    /// One JSON object instead of the text.
    pub json: bool,
    /// Keep it as a conversation.
    pub save: bool,
    /// Figures to stderr.
    pub stats: bool,
    /// Continue the text without a template.
    pub raw: bool,
    /// A JSON line a token with its probability and so many others, instead of the text.
    pub logprobs: Option<u32>,
    /// The conversation that it goes on with, and its system prompt where it gets another one.
    pub going_on: Option<(Kept, Option<String>)>,
}

/// The question.
///
/// # Errors
/// If there is none, or the pipe does not bring UTF-8.
pub fn prompt(arguments: Option<String>) -> Result<String, Stop> {
    let none = || Stop::Usage("there is no question. Write it behind 'llmchat ask', or pipe it in".to_owned());
    text(arguments)?.ok_or_else(none)
}

/// What the arguments say, and what comes through a pipe; none if there is nothing.
///
/// # Errors
/// If the pipe does not bring UTF-8.
pub fn text(arguments: Option<String>) -> Result<Option<String>, Stop> {
    let dash = arguments.as_deref() == Some("-");
    let mut parts: Vec<String> = arguments.into_iter().filter(|a| a != "-").collect();
    if dash || !io::stdin().is_terminal() {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map_err(|e| Stop::Failed(format!("stdin cannot be read: {e}")))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to() + 1;
            Stop::Failed(format!(
                "stdin is not UTF-8 text (byte {at} is not). Convert it first, for example with iconv"
            ))
        })?;
        parts.extend(Some(text).filter(|t| !t.trim().is_empty()));
    }
    parts.retain(|p| !p.trim().is_empty());
    Ok((!parts.is_empty()).then(|| parts.join("\n\n")))
}

/// Asks and prints.
pub fn run(context: &Context, mut options: Options) -> Result<ExitCode, Stop> {
    let mut kept = options.going_on.take();
    let options = &options;
    let model = context.model().map_err(|p| Stop::Failed(p.to_string()))?;
    // What is kept of the cache is words of a conversation: only one that is kept itself leaves some.
    let params = if options.save || kept.is_some() { context.chat_params() } else { context.params() };
    let mut running = Running::start(&context.engine_command(), &model, &params)?;
    let system = context.settings.system_prompt.clone();
    let prompt = if options.raw {
        Prompt::Raw(options.prompt.clone())
    } else if let Some((kept, system)) = &mut kept {
        kept.question(&options.prompt, system.as_deref()).map_err(Stop::Failed)?
    } else {
        Prompt::Chat { system: system.clone(), turns: vec![Turn { role: Role::User, text: options.prompt.clone() }] }
    };
    if options.raw && !system.is_empty() {
        eprintln!("note: a raw text has no system prompt; it is left out");
    }
    let mut text = String::new();
    let mut tokens: Vec<TokenRecord> = Vec::new();
    let others = options.logprobs.unwrap_or(0) as usize;
    let mut out = Output::new(options);
    let notes = running.info.notes.clone();
    for note in &notes {
        eprintln!("note: {note}");
    }
    let mut kept = kept.map(|(kept, _)| kept);
    let records = options.logprobs.max((options.save || kept.is_some()).then_some(TokenRecord::OTHERS));
    let ask = Ask { prompt, sampling: &context.settings.sampling, ignore_eog: false, records };
    let result = running.generate(ask, |event| match event {
        EngineEvent::Started { notes, .. } => {
            let beam = context.settings.sampling.mode == Mode::Beam;
            notes.iter().filter(|_| options.stats || beam).for_each(|note| eprintln!("note: {note}"));
        }
        EngineEvent::Token { text: piece, record, .. } => {
            text.push_str(piece);
            out.write(piece);
            kept.iter_mut().for_each(|kept| kept.grow(&text));
            if let Some(record) = record {
                out.line(&Line::of(piece, record, others));
                tokens.push(record.clone());
            }
        }
        EngineEvent::Beams { agreed, .. } => {
            text.push_str(agreed);
            out.write(agreed);
            kept.iter_mut().for_each(|kept| kept.grow(&text));
        }
        EngineEvent::Finished { text: rest, alternatives, .. } => {
            text.push_str(rest);
            out.write(rest);
            // A beam search knows its tokens only at its end.
            if let Some(best) = alternatives.first() {
                let mut at = 0;
                for record in &best.records {
                    let end = at + record.bytes as usize;
                    let piece = String::from_utf8_lossy(best.text.as_bytes().get(at..end).unwrap_or_default());
                    out.line(&Line::of(&piece, record, others));
                    at = end;
                }
                tokens.clone_from(&best.records);
            }
        }
        _ => {}
    });
    let done = match result {
        Ok(done) => done,
        Err(failure) => {
            if !text.is_empty() {
                out.write("\n");
            }
            if let Some(kept) = kept.filter(|_| !text.is_empty()) {
                kept.end(&text, tokens, &broken_off(context, &running), &[]).map_err(Stop::Failed)?;
            }
            return Err(failure.into());
        }
    };
    if !out.silent && !text.ends_with('\n') {
        out.write("\n");
    }
    if options.json {
        print(&format!("{}\n", object(&text, &done, &running)))?;
    }
    if let Some(fault) = &out.fault {
        return Err(unwritten(fault));
    }
    if options.stats {
        figures(&done);
    } else if done.finish == Finish::Loop && !options.json {
        eprintln!("note: the answer repeated itself and was stopped");
    }
    tokens.iter_mut().for_each(|t| t.others.truncate(TokenRecord::OTHERS as usize));
    if let Some(kept) = kept {
        let others = done.alternatives.get(1..).unwrap_or_default();
        kept.end(&text, tokens, &made(&done, &running), others).map_err(Stop::Failed)?;
    } else if options.save {
        save(context, options, &system, Answer { text, tokens }, &done, &running).map_err(Stop::Failed)?;
    }
    running.close();
    Ok(if done.finish == Finish::Cancelled { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// What `--logprobs` prints of a token. Logarithms are natural ones.
#[derive(Serialize)]
struct Line<'a> {
    token: &'a str,
    logprob: f32,
    rank: u32,
    others: Vec<Other<'a>>,
}

#[derive(Serialize)]
struct Other<'a> {
    token: &'a str,
    logprob: f32,
}

impl<'a> Line<'a> {
    fn of(token: &'a str, record: &'a TokenRecord, most: usize) -> Self {
        let others =
            record.others.iter().take(most).map(|(token, logprob)| Other { token, logprob: *logprob }).collect();
        Self { token, logprob: record.logprob, rank: record.rank, others }
    }
}

struct Output {
    to_terminal: bool,
    lines: bool,
    silent: bool,
    sanitiser: Sanitiser,
    broken: bool,
    fault: Option<io::Error>,
}

impl Output {
    fn new(options: &Options) -> Self {
        Self {
            to_terminal: io::stdout().is_terminal(),
            lines: options.logprobs.is_some(),
            silent: options.json || options.logprobs.is_some(),
            sanitiser: Sanitiser::default(),
            broken: false,
            fault: None,
        }
    }

    /// Writes text: as it is into a pipe, harmless to a terminal. A reader who has gone gets no more.
    fn write(&mut self, text: &str) {
        if self.silent || self.broken {
            return;
        }
        let mut out = io::stdout();
        let written = if self.to_terminal {
            let mut harmless = String::new();
            self.sanitiser.push(text, &mut harmless);
            out.write_all(harmless.as_bytes())
        } else {
            out.write_all(text.as_bytes())
        };
        self.check(written.and_then(|()| out.flush()));
    }

    /// A reader who has gone is no fault; what could not be written for another reason is told at the end.
    fn check(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.broken = true;
            self.fault = Some(error).filter(|e| e.kind() != io::ErrorKind::BrokenPipe);
        }
    }

    /// Writes a token's line, where lines are asked for.
    fn line(&mut self, line: &Line<'_>) {
        if self.lines && !self.broken {
            let mut out = io::stdout();
            let text = serde_json::to_string(line).unwrap_or_default();
            self.check(writeln!(out, "{text}").and_then(|()| out.flush()));
        }
    }
}

/// What `--json` prints. A struct and no `json!`: that would print a temperature of 0.8 as 0.800000011920929.
#[derive(Serialize)]
struct Object<'a> {
    text: &'a str,
    finish_reason: Finish,
    model: &'a str,
    seed: u32,
    sampling: &'a Sampling,
    usage: Usage,
    timings: Timings,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alternatives: Vec<Best<'a>>,
}

/// An answer of a beam search.
#[derive(Serialize)]
struct Best<'a> {
    text: &'a str,
    score: f32,
    /// Whether the model ended it.
    ended: bool,
    tokens: usize,
}

fn object(text: &str, done: &Done, running: &Running) -> String {
    let object = Object {
        text,
        finish_reason: done.finish,
        model: &running.info.name,
        seed: done.seed,
        sampling: &done.sampling,
        usage: done.usage,
        timings: Timings { load_ms: running.info.load_ms, ..done.timings },
        alternatives: done
            .alternatives
            .iter()
            .map(|a| Best { text: &a.text, score: a.score, ended: a.whole, tokens: a.records.len() })
            .collect(),
    };
    serde_json::to_string(&object).unwrap_or_default()
}

fn figures(done: &Done) {
    let (u, t) = (&done.usage, &done.timings);
    eprintln!(
        "prompt {} tokens in {:.0} ms · first token {:.0} ms · answer {} tokens, {:.1} tokens/s · seed {} · {}",
        u.prompt_tokens,
        t.prefill_ms,
        t.ttft_ms,
        u.completion_tokens,
        t.tokens_per_second,
        done.seed,
        done.finish.label()
    );
}

fn made(done: &Done, running: &Running) -> Made {
    Made {
        seed: done.seed,
        usage: done.usage,
        timings: done.timings,
        score: done.alternatives.first().map(|a| a.score),
        origin: done.origin.clone(),
        ..Made::new(&running.info.name, done.sampling.clone(), done.finish)
    }
}

/// How an answer was made that the engine did not end.
fn broken_off(context: &Context, running: &Running) -> Made {
    Made::new(&running.info.name, context.settings.sampling.clone(), Finish::Failed)
}

struct Answer {
    text: String,
    tokens: Vec<TokenRecord>,
}

fn save(
    context: &Context,
    options: &Options,
    system: &str,
    answer: Answer,
    done: &Done,
    running: &Running,
) -> Result<(), String> {
    let now = now();
    let id = ConversationId::new(now, std::process::id().wrapping_mul(0x9E37_79B1));
    let mut conversation = Conversation::new(id, now, context.settings.sampling.clone());
    system.clone_into(&mut conversation.system);
    conversation.title = Some(title_of(&options.prompt));
    let made = made(done, running);
    conversation.apply(&Entry::Message(Message::new(1, None, Role::User, options.prompt.as_str(), now)));
    let message = Message::new(2, Some(1), Role::Assistant, answer.text, now);
    conversation.apply(&Entry::Message(Message { made: Some(made.clone()), tokens: answer.tokens, ..message }));
    for (id, other) in (3..).zip(done.alternatives.iter().skip(1)) {
        let message = Message::new(id, Some(1), Role::Assistant, other.text.as_str(), now);
        let made = other.made(&made);
        conversation.apply(&Entry::Message(Message { made: Some(made), tokens: other.records.clone(), ..message }));
    }
    conversation.apply(&Entry::Head { id: Some(2) });
    let worker = Worker::start(context.paths.conversations(), None, |_| {})
        .map_err(|e| format!("The answer is not saved: {e}"))?;
    worker.send(StoreRequest::Create(Box::new(conversation)));
    match worker.finish().into_iter().next() {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}
