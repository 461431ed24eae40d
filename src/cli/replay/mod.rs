//! `llmchat replay`: makes the answers of a conversation again and says where, at which token, they differ and why they
//! may. A conversation's file is thus a test of a model or of a build.

mod again;
mod compare;
mod engines;
mod report;
mod why;

use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::Stop;
use super::args::settings;
use super::conversations::pick_file;
use super::out::print;
use super::running::{Ask, Done, Failure, Running, Wish};
use crate::chat::{Conversation, Finish, Message, MessageId, Mode, Role, Sampling, TokenRecord};
use crate::engine::protocol::{EngineEvent, Prompt};
use crate::store;
use again::Again;
use compare::{Answer, apart, difference};
use engines::Engines;
use report::{Outcome, Report, Row, Sums};
use why::{Now, why};

/// Tokens that are waited for behind the first different one.
const BEHIND: usize = 8;

/// The command line of it.
pub fn command() -> Command {
    let switch = |name: &'static str, help: &'static str| Arg::new(name).long(name).num_args(0).help(help);
    settings(Command::new("replay"))
        .about("Make the answers of a conversation again: where do they differ, and why?")
        .after_help(
            "Each answer is made again from what led to it, with the model, the settings, the seed and the context that \
             the file records; flags stand over those. Exit codes: 0 all are the same, 1 some are not.\n\n\
             Examples:\n  llmchat replay last\n  llmchat replay river.jsonl -m qwen\n  \
             llmchat replay last --message 4 --json | jq .answers",
        )
        .arg(Arg::new("id").value_name("FILE|ID").required(true).help(
            "The conversation: its file, its id or the beginning of it, words of its title, or 'last'",
        ))
        .arg(
            Arg::new("message")
                .long("message")
                .value_name("ID")
                .value_parser(value_parser!(MessageId))
                .help("Only this answer; 'conversations show --json' has the ids"),
        )
        .arg(switch("json", "Print one JSON object"))
}

/// Replays.
pub fn run(matches: &ArgMatches) -> Result<ExitCode, Stop> {
    let context = super::setup(matches)?;
    super::told(&context);
    let which = matches.get_one::<String>("id").map(String::as_str).unwrap_or_default();
    let (id, path) = pick_file(&context.paths, which).map_err(Stop::Failed)?;
    let loaded = store::load(&path, &id).map_err(Stop::Failed)?;
    loaded.notes.iter().for_each(|note| eprintln!("note: {}", crate::text::sanitise(note)));
    let json = matches.get_flag("json");
    let mut engines = Engines::new(&context, matches);
    let rows = replay(&loaded.conversation, matches.get_one("message").copied(), &mut engines, |row| {
        if json { Ok(()) } else { print(&row.text()) }
    })?;
    let sums = Sums::of(&rows);
    let code = ExitCode::from(u8::from(!sums.all_same()));
    print(&if json { object(&path, sums, rows) } else { sums.text() })?;
    Ok(code)
}

fn object(path: &Path, sums: Sums, answers: Vec<Row>) -> String {
    let report = Report { file: path.display().to_string(), sums, answers };
    format!("{}\n", serde_json::to_string(&report).unwrap_or_default())
}

/// Makes every answer again, or one. In their order and without emptying the cache where an answer found something in
/// it: then it finds the same now.
fn replay(
    conversation: &Conversation,
    only: Option<MessageId>,
    engines: &mut Engines<'_>,
    mut told: impl FnMut(&Row) -> Result<(), Stop>,
) -> Result<Vec<Row>, Stop> {
    let is_meant = |m: &&Message| match only {
        Some(id) => m.id == id,
        None => !conversation.is_deleted(m.id),
    };
    let answers: Vec<&Message> =
        conversation.messages.iter().filter(|m| m.role == Role::Assistant).filter(is_meant).collect();
    if answers.is_empty() {
        return Err(Stop::Failed(match only {
            Some(id) => format!("There is no answer {id}. 'llmchat conversations show --json' has the ids"),
            None => "There is no answer in this conversation".to_owned(),
        }));
    }
    let mut rows = Vec::new();
    for message in answers {
        let row = one(conversation, message, engines)?;
        told(&row)?;
        rows.push(row);
    }
    Ok(rows)
}

fn one(conversation: &Conversation, message: &Message, engines: &mut Engines<'_>) -> Result<Row, Stop> {
    let made = message.made.as_ref();
    let counted = made.map_or(0, |m| m.usage.completion_tokens as usize);
    let mut row = Row {
        id: message.id,
        outcome: Outcome::Cannot { why: String::new() },
        model: None,
        tokens: message.tokens.len().max(counted),
        recorded: made.is_some_and(|m| m.origin.is_some()),
        notes: Vec::new(),
    };
    let again = match Again::of(conversation, message) {
        Ok(again) => again,
        Err(why) => return Ok(Row { outcome: Outcome::Cannot { why }, ..row }),
    };
    let running = match engines.of(again.made)? {
        Ok(running) => running,
        Err(why) => return Ok(Row { outcome: Outcome::Cannot { why }, ..row }),
    };
    row.model = Some(running.info.name.clone());
    row.notes = notes(&again, row.recorded);
    match make(running, &again) {
        Ok(outcome) => row.outcome = outcome,
        Err(Failure::Interrupted) => return Err(Stop::Interrupted),
        Err(Failure::Problem(problem)) => {
            engines.forget();
            row.outcome = Outcome::Cannot { why: problem.to_string() };
        }
    }
    Ok(row)
}

fn notes(again: &Again<'_>, recorded: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !recorded {
        notes.push("What made it is not recorded; the model's name, the settings and the seed are".to_owned());
    }
    if again.begun > 0 {
        let n = again.begun;
        notes.push(format!("Its first {n} tokens were there before the model went on: they are part of the prompt"));
    }
    if let Some(moved) = again.moved {
        notes
            .push(format!("The settings were moved after token {}; what follows is not compared", again.begun + moved));
    }
    notes
}

/// Makes an answer again and compares.
fn make(running: &mut Running, again: &Again<'_>) -> Result<Outcome, Failure> {
    let prompt = prompt(running, again)?;
    if again.made.usage.reused_tokens == 0 {
        running.clear_cache();
    } else if again.begun > 0 {
        write(running, prompt.clone())?;
    }
    let (done, answers) = answers(running, again, prompt)?;
    let mut was = again.was.clone();
    let outcomes = answers.iter().map(|now| {
        if again.moved.is_some() && was.tokens.is_empty() {
            was.text.truncate(now.text.len());
        }
        (difference(&was, now, again.open_end), now)
    });
    // Of the answers of a search the nearest one is meant.
    let nearest = outcomes.max_by_key(|(difference, _)| difference.as_ref().map_or(usize::MAX, |d| d.at));
    let Some((difference, now)) = nearest else {
        return Ok(Outcome::Cannot { why: "the engine gave no answer".to_owned() });
    };
    let Some(difference) = difference else {
        let compared = again.begun + if was.tokens.is_empty() { now.tokens.len() } else { was.tokens.len() };
        let logprob_difference = apart(&was.tokens, &now.tokens, was.tokens.len());
        return Ok(Outcome::Same { compared, logprob_difference });
    };
    let origin = done.origin.as_deref().unwrap_or(&running.info.origin);
    let (prompt_tokens, reused_tokens) = (done.usage.prompt_tokens, done.usage.reused_tokens);
    let why = why(again.made, &Now { model: &running.info.name, origin, prompt_tokens, reused_tokens });
    Ok(Outcome::differs(again.begun, difference, again.made.finish.label(), why))
}

/// The prompt that an answer was made from: the one with its tokens, or else the likeliest.
fn prompt(running: &mut Running, again: &Again<'_>) -> Result<Prompt, Failure> {
    let wanted = again.made.origin.as_ref().map(|o| o.prompt_sha256.as_str()).filter(|hash| !hash.is_empty());
    if let (Some(wanted), 2..) = (wanted, again.prompts.len()) {
        for prompt in &again.prompts {
            match running.hash(prompt.clone()) {
                Ok(hash) if hash == wanted => return Ok(prompt.clone()),
                Ok(_) | Err(Failure::Problem(_)) => {}
                Err(Failure::Interrupted) => return Err(Failure::Interrupted),
            }
        }
    }
    let likeliest = again.prompts.first().cloned();
    Ok(likeliest.unwrap_or(Prompt::Chat { system: String::new(), turns: Vec::new() }))
}

/// Decodes the beginning of an answer token by token, as it was written: when it went on, its cells were in the cache.
fn write(running: &mut Running, prompt: Prompt) -> Result<(), Failure> {
    let Prompt::Chat { system, mut turns } = prompt else { return Ok(()) };
    let mut text = turns.pop().map(|turn| turn.text);
    let sampling = Sampling::default().by_hand();
    let ask = Ask { prompt: Prompt::Chat { system, turns }, sampling: &sampling, ignore_eog: false, records: None };
    running.generate_while(ask, |event| match event {
        EngineEvent::Waiting { .. } => text.take().map_or(Wish::Stop, Wish::Write),
        _ => Wish::More,
    })?;
    Ok(())
}

/// The answer that is made now, or the several ones of a beam search. It is stopped when it has differed for a while.
fn answers(running: &mut Running, again: &Again<'_>, prompt: Prompt) -> Result<(Done, Vec<Answer>), Failure> {
    let mut now = Answer::default();
    let mut parted = None;
    let ask = Ask { prompt, sampling: &again.sampling, ignore_eog: false, records: Some(TokenRecord::OTHERS) };
    let done = running.generate_while(ask, |event| match event {
        EngineEvent::Token { text, record, .. } => {
            now.text.extend(text.as_bytes());
            now.tokens.extend(record.clone());
            if parted.is_none() && !again.was.text.starts_with(&now.text) {
                parted = Some(now.tokens.len());
            }
            if parted.is_some_and(|at| now.tokens.len() >= at + BEHIND) { Wish::Stop } else { Wish::More }
        }
        EngineEvent::Finished { text, .. } => {
            now.text.extend(text.as_bytes());
            Wish::More
        }
        _ => Wish::More,
    })?;
    if done.finish == Finish::Cancelled && parted.is_none() {
        return Err(Failure::Interrupted);
    }
    if again.sampling.mode != Mode::Beam {
        return Ok((done, vec![now]));
    }
    let answers = done.alternatives.iter().map(|a| Answer { text: a.text.clone().into(), tokens: a.records.clone() });
    let answers = answers.collect();
    Ok((done, answers))
}
