//! `conversations import`: reads files of other programs, tells what of them comes in, and brings it in.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::chat::{Conversation, ConversationId};
use crate::cli::Stop;
use crate::cli::context::Context;
use crate::cli::out::print;
use crate::store;
use crate::text::sanitise_line;
use crate::transfer::{self, Arrival, Found};

/// How deep folders are gone into.
const DEEPEST: usize = 8;
/// Ends of names that are looked at in a folder. A file that is named itself is always looked at.
const ENDS: [&str; 7] = ["json", "jsonl", "yaml", "yml", "db", "html", "md"];

/// What becomes of a conversation, or of a file that is none.
#[derive(Serialize)]
struct Row {
    file: PathBuf,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<ConversationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    messages: usize,
    branches: usize,
    /// What of it does not come in.
    without: Vec<String>,
    /// Why it does not, or not as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    New,
    Grown,
    Here,
    /// A file of a folder that is something else.
    Other,
    Refused,
}

struct Import<'a> {
    context: &'a Context,
    folder: PathBuf,
    dry: bool,
    /// What was here before.
    index: HashMap<ConversationId, PathBuf>,
    /// What came in this time, or would have.
    arrived: HashMap<ConversationId, Conversation>,
    rows: Vec<Row>,
}

/// Imports files and folders. Fails if something could not come in.
pub fn run(context: &Context, files: &[String], dry: bool, as_json: bool) -> Result<ExitCode, Stop> {
    let folder = context.paths.conversations();
    let index = store::files(&folder).map_err(Stop::Failed)?;
    let mut import = Import { context, folder, dry, index, arrived: HashMap::new(), rows: Vec::new() };
    for file in files {
        import.path(Path::new(file), 0);
    }
    let text =
        if as_json { serde_json::to_string(&import.rows).unwrap_or_default() + "\n" } else { told(&import.rows, dry) };
    print(&text)?;
    Ok(ExitCode::from(u8::from(import.rows.iter().any(|r| r.outcome == Outcome::Refused))))
}

impl Import<'_> {
    fn path(&mut self, path: &Path, depth: usize) {
        if !path.is_dir() {
            self.file(path, Outcome::Refused);
            return;
        }
        let mut inside: Vec<PathBuf> = match std::fs::read_dir(path) {
            Ok(entries) => entries.filter_map(|e| Some(e.ok()?.path())).collect(),
            Err(error) => return self.leave(path, Outcome::Refused, format!("the folder cannot be read: {error}")),
        };
        inside.sort();
        for path in inside {
            // A link could lead round in a circle.
            let Ok(kind) = path.symlink_metadata().map(|m| m.file_type()) else { continue };
            if kind.is_dir() && depth < DEEPEST {
                self.path(&path, depth + 1);
            } else if kind.is_file() && path.extension().is_some_and(|e| ENDS.iter().any(|end| e == *end)) {
                self.file(&path, Outcome::Other);
            }
        }
    }

    fn leave(&mut self, path: &Path, outcome: Outcome, why: String) {
        self.rows.push(Row {
            file: path.to_owned(),
            outcome,
            source: None,
            id: None,
            title: None,
            messages: 0,
            branches: 0,
            without: Vec::new(),
            why: Some(why),
        });
    }

    /// Reads a file; `other` is what it is where it is nothing that is understood.
    fn file(&mut self, path: &Path, other: Outcome) {
        let bytes = match path.metadata() {
            Ok(m) if !m.is_file() => Err("it is no file".to_owned()),
            Ok(m) if m.len() > transfer::LARGEST => Err(format!(
                "it has {} MB, and more than {} are not read. Split it",
                m.len() >> 20,
                transfer::LARGEST >> 20
            )),
            Ok(_) => std::fs::read(path).map_err(|e| format!("it cannot be read: {e}")),
            Err(error) => Err(format!("it cannot be read: {error}")),
        };
        let found = bytes.and_then(|bytes| transfer::read(path, bytes, &self.context.settings.sampling));
        match found {
            Ok(found) if found.is_empty() => self.leave(path, other, "there is no conversation in it".to_owned()),
            Ok(found) => found.into_iter().for_each(|found| match found {
                Ok(found) => self.arrive(path, found),
                Err(why) => self.leave(path, Outcome::Refused, why),
            }),
            Err(why) => self.leave(path, other, why),
        }
    }

    fn arrive(&mut self, path: &Path, found: Found) {
        let mut row = Row {
            file: path.to_owned(),
            outcome: Outcome::New,
            source: Some(found.source.name()),
            id: None,
            title: found.conversation.title.clone(),
            messages: found.conversation.messages.len(),
            branches: leaves(&found.conversation),
            without: found.lost.clone(),
            why: None,
        };
        let known = |id: &ConversationId| {
            let load = |path: &PathBuf| Some(store::load(path, id).ok()?.conversation);
            self.arrived.get(id).cloned().or_else(|| self.index.get(id).and_then(load))
        };
        let conversation = match found.arrival(known) {
            Arrival::New(conversation) => Some(conversation),
            Arrival::Here(id) => {
                row.outcome = Outcome::Here;
                row.id = Some(id);
                None
            }
            Arrival::Grown { conversation, beside, more } => {
                row.outcome = Outcome::Grown;
                row.why = Some(format!("it has {more} messages that {beside} has not; it comes in beside that"));
                Some(conversation)
            }
        };
        if let Some(conversation) = conversation {
            row.id = Some(conversation.id.clone());
            let written = if self.dry {
                Ok(())
            } else {
                store::bring_in(&self.folder, &conversation, changed(path, &conversation)).map(|_| ())
            };
            match written {
                Ok(()) => drop(self.arrived.insert(conversation.id.clone(), *conversation)),
                Err(why) => {
                    row.outcome = Outcome::Refused;
                    row.why = Some(why);
                }
            }
        }
        self.rows.push(row);
    }
}

/// When something was said in it last; where that is not known, when its file changed.
fn changed(path: &Path, conversation: &Conversation) -> i64 {
    let file = || path.metadata().ok()?.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok();
    let known = Some(Found::changed(conversation)).filter(|ms| *ms > 0);
    known.or_else(|| i64::try_from(file()?.as_millis()).ok()).unwrap_or(0)
}

/// How many ways a conversation ends.
fn leaves(c: &Conversation) -> usize {
    let parents: std::collections::HashSet<_> = c.messages.iter().filter_map(|m| m.parent).collect();
    c.messages.iter().filter(|m| !parents.contains(&m.id)).count()
}

fn told(rows: &[Row], dry: bool) -> String {
    let mut out = String::new();
    let mut file: Option<&Path> = None;
    for (nth, row) in rows.iter().enumerate().filter(|(_, r)| r.outcome != Outcome::Other) {
        if file != Some(&row.file) {
            file = Some(&row.file);
            let source = rows[nth..].iter().take_while(|r| r.file == row.file).find_map(|r| r.source);
            let source = source.map(|s| format!(" ({s})")).unwrap_or_default();
            let _ = writeln!(out, "{}{source}", sanitise_line(&row.file.display().to_string()));
        }
        let title = sanitise_line(row.title.as_deref().unwrap_or_default());
        let messages = format!("{} message{}", row.messages, if row.messages == 1 { "" } else { "s" });
        let branches = if row.branches > 1 { format!(", {} branches", row.branches) } else { String::new() };
        let why = sanitise_line(row.why.as_deref().unwrap_or_default());
        let _ = match row.outcome {
            Outcome::New => writeln!(out, "  + {title}: {messages}{branches}"),
            Outcome::Grown => writeln!(out, "  + {title}: {messages}{branches}; {why}"),
            Outcome::Here | Outcome::Other => writeln!(out, "  = {title}: is here already"),
            Outcome::Refused if title.is_empty() => writeln!(out, "  ! {why}"),
            Outcome::Refused => writeln!(out, "  ! {title}: {why}"),
        };
        if !row.without.is_empty() && matches!(row.outcome, Outcome::New | Outcome::Grown) {
            let _ = writeln!(out, "      without {}", sanitise_line(&row.without.join("; ")));
        }
    }
    let count = |outcomes: &[Outcome]| rows.iter().filter(|r| outcomes.contains(&r.outcome)).count();
    let (new, here, refused) =
        (count(&[Outcome::New, Outcome::Grown]), count(&[Outcome::Here]), count(&[Outcome::Refused]));
    let came = if dry { "would come in" } else { "came in" };
    let end = if dry { ". Nothing was written" } else { "" };
    let others = count(&[Outcome::Other]);
    let others = if others > 0 { format!(", {others} other files passed over") } else { String::new() };
    let _ = writeln!(out, "{new} {came}, {here} already here, {refused} cannot{others}{end}");
    out
}
