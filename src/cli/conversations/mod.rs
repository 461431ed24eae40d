//! `llmchat conversations`: what the chat does with conversations, without its screen.

mod check;
mod export;
mod import;
mod list;
mod pick;
mod search;
mod show;

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::Stop;
use super::context::Context;
use super::replay;
use crate::chat::Summary;
use crate::paths::Paths;
use crate::store::Index;
use crate::transfer::FORMATS;

pub use export::to_file;
pub use pick::{pick, pick_file};

/// The command line of it.
pub fn command() -> Command {
    let json = |help: &'static str| Arg::new("json").long("json").action(ArgAction::SetTrue).help(help);
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let id = Arg::new("id")
        .value_name("ID")
        .help("The conversation: its id or the beginning of it, words of its title, or 'last'");
    let formats: Vec<&str> = FORMATS.iter().map(|r| r.name).collect();
    let format_help: Vec<String> = FORMATS.iter().map(|r| format!("{}: {}", r.name, r.help)).collect();
    Command::new("conversations")
        .visible_alias("chats")
        .about("List, show, search, export, import, replay and check conversations")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("list")
                .about("List them, the last used first")
                .after_help("Example:\n  llmchat conversations list")
                .arg(json("Print a JSON array")),
        )
        .subcommand(
            Command::new("show")
                .about("Print one as text")
                .after_help("Examples:\n  llmchat conversations show last\n  llmchat conversations show river | less")
                .arg(id.clone().required(true))
                .arg(json("Print all of it as one JSON object")),
        )
        .subcommand(
            Command::new("search")
                .about("Find text in titles and messages of all of them")
                .after_help("Example:\n  llmchat conversations search 'KV cache'")
                .arg(Arg::new("words").value_name("TEXT").num_args(1..).required(true).help("What to find: every word must be in a message; '\"two words\"' as they stand; case does not matter"))
                .arg(json("Print a JSON array")),
        )
        .subcommand(
            Command::new("export")
                .about("Write one, some or all of them in another format")
                .after_help(
                    "Examples:\n  llmchat conversations export last > last.md\n  \
                     llmchat conversations export river -o river.html\n  \
                     llmchat conversations export --all --format html -o pages/\n  \
                     llmchat conversations export --all --format jsonl > messages.jsonl",
                )
                .arg(id.num_args(0..))
                .arg(switch("all", "Every conversation"))
                .arg(
                    Arg::new("format")
                        .long("format")
                        .value_name("FORMAT")
                        .value_parser(formats)
                        .help(format!("{} [default: by the end of the file's name, else md]", format_help.join("; "))),
                )
                .arg(
                    Arg::new("output")
                        .long("output")
                        .short('o')
                        .value_name("PATH")
                        .help("A file, or a folder in which each gets a file [default: stdout]"),
                )
                .arg(switch("whole", "Put unseen into md, html and jsonl what they do not show, so that they can be imported as they were"))
                .arg(switch("force", "Write over files that are there"))
                .arg(json("Print what was written as a JSON array; to stdout, take the format json")),
        )
        .subcommand(
            Command::new("import")
                .about("Bring conversations of other programs in; nothing comes in twice")
                .after_help(
                    "Understood by what stands in the file: llama.cpp's web page, ChatGPT's conversations.json, \
                     LM Studio, oterm's store.db, aichat's sessions, ShareGPT, chat messages as JSON or JSONL, \
                     and llmchat's own exports.\n\n\
                     Examples:\n  llmchat conversations import --dry-run conversations.json\n  \
                     llmchat conversations import ~/.lmstudio/conversations\n  \
                     llmchat conversations import ~/.local/share/oterm/store.db",
                )
                .arg(Arg::new("files").value_name("FILE").num_args(1..).required(true).help("Files, or folders of them"))
                .arg(switch("dry-run", "Tell what would come in and what cannot, and write nothing"))
                .arg(json("Print a JSON array, an object a conversation")),
        )
        .subcommand(replay::command())
        .subcommand(
            Command::new("check")
                .about("Look at every file; set torn ends aside, name what is damaged")
                .after_help("Example:\n  llmchat conversations check --dry-run")
                .arg(switch("dry-run", "Change nothing"))
                .arg(json("Print a JSON array")),
        )
}

/// Does what was asked.
pub fn run(matches: &ArgMatches) -> Result<ExitCode, Stop> {
    if let Some(("replay", sub)) = matches.subcommand() {
        return replay::run(sub);
    }
    let context = Context::new().map_err(Stop::Failed)?;
    let paths = &context.paths;
    let Some((name, sub)) = matches.subcommand() else { return Ok(ExitCode::SUCCESS) };
    let flag = |name: &str| sub.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or(false);
    let texts = |name: &str| -> Vec<String> { sub.get_many(name).into_iter().flatten().cloned().collect() };
    let json = flag("json");
    match name {
        "list" => list::run(paths, json),
        "show" => show::run(paths, &texts("id").join(" "), json),
        "search" => search::run(paths, &texts("words").join(" "), json),
        "export" => export::run(
            paths,
            &export::Options {
                ids: texts("id"),
                all: flag("all"),
                format: sub.get_one::<String>("format").cloned(),
                output: sub.get_one::<String>("output").cloned(),
                whole: flag("whole"),
                force: flag("force"),
                json,
            },
        ),
        "import" => import::run(&context, &texts("files"), flag("dry-run"), json),
        _ => check::run(&paths.conversations(), !flag("dry-run"), json),
    }
}

/// The index of all conversations, and the list.
fn indexed(paths: &Paths) -> Result<(Index, Vec<Summary>), String> {
    Index::whole(&paths.conversations(), &paths.cache).map_err(|fault| fault.to_string())
}

/// A time of the list, in the zone of the machine.
fn when(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).ok().filter(|_| ms > 0);
    time.map_or_else(String::new, |t| {
        t.to_zoned_datetime(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
    })
}
