//! Subcommands: arguments in, output out. One file each.

mod args;
mod ask;
mod attach;
mod bandwidth;
mod bench;
mod chat;
mod context;
mod conversations;
mod keep;
mod kv_compare;
mod log;
mod models;
mod out;
mod plan;
mod probe;
mod queue;
mod replay;
mod running;
mod template;
mod trace;
mod version;

use std::io::{self, BufReader};
use std::process::ExitCode;

use clap::ArgMatches;

use crate::app::Resume;
use crate::chat::{ConversationId, KvType, KvTypes, Mode, Preset};
use crate::engine;
use crate::model::parse_bytes;
use context::Context;
use running::Failure;

/// Why the program ends without what was asked for.
enum Stop {
    /// It failed: what, and what to do.
    Failed(String),
    /// It was used wrongly.
    Usage(String),
    /// It was interrupted.
    Interrupted,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Problem(problem) => Self::Failed(problem.to_string()),
            Failure::Interrupted => Self::Interrupted,
        }
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(format!("{error:#}"))
    }
}

/// Runs the program with the process's arguments. Exit codes: 0, 1 failed, 2 used wrongly, 130 interrupted.
pub fn run() -> ExitCode {
    crate::terminal::outlive_file_limits();
    let given: Result<Vec<String>, _> = std::env::args_os().map(std::ffi::OsString::into_string).collect();
    let arguments = match given {
        Ok(arguments) => args::familiar(arguments),
        Err(bad) => return complain(&format!("the argument {} is not UTF-8 text", bad.display()), 2),
    };
    let matches = match args::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match dispatch(&matches) {
        Ok(code) => code,
        Err(Stop::Failed(why)) => complain(&why, 1),
        Err(Stop::Usage(why)) => complain(&why, 2),
        Err(Stop::Interrupted) => ExitCode::from(130),
    }
}

fn complain(why: &str, code: u8) -> ExitCode {
    eprintln!("error: {}", crate::text::sanitise(why));
    ExitCode::from(code)
}

fn dispatch(matches: &ArgMatches) -> Result<ExitCode, Stop> {
    match matches.subcommand() {
        Some(("engine", _)) => {
            let all = Context::new().is_ok_and(|context| context.settings.log_level == "debug");
            engine::log::to_stderr(all);
            engine::serve::serve(BufReader::new(io::stdin()), io::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
        Some(("template", _)) => {
            template::run_lines(BufReader::new(io::stdin()), io::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
        Some(("version", _)) => {
            out::print(&format!("{}\n", version::long()))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(("models", sub)) => {
            let context = Context::new().map_err(Stop::Failed)?;
            models::run(&context, sub.get_flag("json"))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(("conversations", sub)) => conversations::run(sub),
        Some(("ask", sub)) => ask(sub),
        Some(("bench", sub)) => bench(sub),
        Some(("probe", sub)) => probe(sub),
        Some(("plan", sub)) => plan(sub),
        Some(("kv-compare", sub)) => kv_compare(sub),
        Some(("replay", sub)) => replay::run(sub),
        _ => chat(matches),
    }
}

/// Folders and settings with the flags over them. What is wrong in the file is told, and the program goes on.
fn setup(matches: &ArgMatches) -> Result<Context, Stop> {
    let mut context = Context::new().map_err(Stop::Failed)?;
    let (own, fault) = context.presets();
    let applied = args::apply(matches, &mut context.settings, &Preset::with_own(&own));
    applied.map_err(|why| Stop::Usage(fault.map_or_else(|| why.clone(), |fault| format!("{why}. {fault}"))))?;
    log::start(&context);
    Ok(context)
}

fn told(context: &Context) {
    for notice in &context.notices {
        eprintln!("warning: {}", crate::text::sanitise(notice));
    }
}

fn chat(matches: &ArgMatches) -> Result<ExitCode, Stop> {
    if !chat::has_terminal() {
        return ask(matches);
    }
    let context = setup(matches)?;
    let resume = match (matches.get_flag("continue"), matches.get_one::<String>("resume")) {
        (_, Some(id)) => {
            Resume::Id(ConversationId::parse(id).ok_or_else(|| Stop::Usage(format!("'{id}' is no conversation's id")))?)
        }
        (true, None) => Resume::Last,
        (false, None) => Resume::New,
    };
    let prompt = args::prompt(matches).map_err(Stop::Usage)?;
    Ok(chat::run(context, chat::Options { resume, prompt })?)
}

fn ask(matches: &ArgMatches) -> Result<ExitCode, Stop> {
    let mut context = setup(matches)?;
    told(&context);
    let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
    let going_on = text("in").map(|which| going_on(matches, &which, &mut context)).transpose()?;
    let flag = |name: &str| matches.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or(false);
    if context.settings.sampling.mode == Mode::Hand {
        return Err(Stop::Usage("nobody can choose by hand here: take another --mode, or the chat".to_owned()));
    }
    let options = ask::Options {
        prompt: ask::prompt(args::prompt(matches).map_err(Stop::Usage)?)?,
        json: flag("json"),
        save: flag("save"),
        stats: flag("stats"),
        raw: flag("raw"),
        logprobs: matches.try_get_one::<u32>("logprobs").ok().flatten().copied(),
        going_on: going_on.map(|kept| (kept, text("system-prompt"))),
    };
    ask::run(&context, options)
}

/// Opens the conversation that goes on. Its settings count and not those of the config; flags stand over them, for this
/// answer.
fn going_on(matches: &ArgMatches, which: &str, context: &mut Context) -> Result<keep::Kept, Stop> {
    let kept = keep::Kept::open(&context.paths, which).map_err(Stop::Failed)?;
    let own = context.presets().0;
    context.settings.sampling = kept.conversation.sampling.clone();
    args::apply(matches, &mut context.settings, &Preset::with_own(&own)).map_err(Stop::Usage)?;
    Ok(kept)
}

fn probe(matches: &ArgMatches) -> Result<ExitCode, Stop> {
    let context = setup(matches)?;
    told(&context);
    let flag = |name: &str| matches.get_flag(name);
    let text = args::prompt(matches).map_err(Stop::Usage)?;
    let Some(text) = ask::text(text)? else {
        return Err(Stop::Usage("there is no text. Write it behind 'llmchat probe', or pipe it in".to_owned()));
    };
    let candidates = matches.get_one::<u32>("candidates").copied().unwrap_or(engine::protocol::Glance::CANDIDATES);
    probe::run(&context, &text, &probe::Options { chat: flag("chat"), json: flag("json"), candidates })
}

fn bench(matches: &ArgMatches) -> Result<ExitCode, Stop> {
    let context = setup(matches)?;
    told(&context);
    let number = |name: &str| matches.get_one::<u32>(name).copied().unwrap_or(0);
    bench::run(&bench::Options {
        engine: context.engine_command(),
        model: context.model().map_err(|p| Stop::Failed(p.to_string()))?,
        params: context.params(),
        prompt: number("prompt-tokens"),
        generate: number("generate"),
        depth: number("depth"),
        runs: number("runs"),
        beams: number("beams"),
        json: matches.get_flag("json"),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn plan(matches: &ArgMatches) -> Result<ExitCode, Stop> {
    let context = setup(matches)?;
    told(&context);
    let read = |name: &str, parse: fn(&str) -> Result<u64, String>| {
        let value = matches.get_one::<String>(name).map(|text| parse(text));
        value.transpose().map_err(|why| Stop::Usage(format!("--{name}: {why}")))
    };
    let weights = read("weights", parse_bytes)?;
    let shape = matches.get_one::<String>("shape").map(|text| plan::shape(text)).transpose();
    let given = match (shape.map_err(|why| Stop::Usage(format!("--shape: {why}")))?, weights) {
        (Some(shape), Some(weights)) => Some((shape, weights)),
        (None, None) => None,
        _ => return Err(Stop::Usage("--shape and --weights belong together: 32,32,128 and 14G".to_owned())),
    };
    let used = matches.get_one::<String>("used").map_or("25%", String::as_str);
    plan::run(
        &context,
        &plan::Options {
            given,
            memory: read("memory", parse_bytes)?,
            bandwidth: read("bandwidth", parse_bytes)?,
            chats: matches.get_one::<u32>("chats").copied().unwrap_or(1).into(),
            used: plan::share(used).map_err(|why| Stop::Usage(format!("--used: {why}")))?,
            json: matches.get_flag("json"),
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

fn kv_compare(matches: &ArgMatches) -> Result<ExitCode, Stop> {
    let context = setup(matches)?;
    told(&context);
    let text = args::prompt(matches).map_err(Stop::Usage)?.filter(|text| !text.trim().is_empty());
    let types = matches.get_one::<String>("types").map(|text| kv_compare::types(text)).transpose();
    kv_compare::run(&kv_compare::Options {
        engine: context.engine_command(),
        model: context.model().map_err(|p| Stop::Failed(p.to_string()))?,
        params: context.params(),
        types: types
            .map_err(|why| Stop::Usage(format!("--types: {why}")))?
            .unwrap_or_else(|| KvType::ALL.map(KvTypes::both).to_vec()),
        text: text.ok_or_else(|| Stop::Usage("the text is empty".to_owned()))?,
        runs: matches.get_one::<u32>("runs").copied().unwrap_or(1),
        json: matches.get_flag("json"),
    })?;
    Ok(ExitCode::SUCCESS)
}
