//! `conversations export`, and `/export` of the chat.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::pick;
use crate::chat::{Conversation, ConversationId};
use crate::cli::Stop;
use crate::cli::out::{print, print_foreign};
use crate::paths::Paths;
use crate::store;
use crate::text::sanitise_line;
use crate::transfer::{self, Format};

/// What to export, and where to.
#[derive(Debug)]
pub struct Options {
    /// Which conversations.
    pub ids: Vec<String>,
    /// All of them.
    pub all: bool,
    /// The format's name.
    pub format: Option<String>,
    /// A file or a folder; stdout without it.
    pub output: Option<String>,
    /// Carry what is not seen.
    pub whole: bool,
    /// Write over what is there.
    pub force: bool,
    /// Tell in JSON what was written.
    pub json: bool,
}

/// Exports.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode, Stop> {
    let output = options.output.as_deref().map(Path::new);
    let named = options.format.as_deref().and_then(Format::named);
    let to_stdout_as_json = (options.json && output.is_none()).then_some(Format::Json);
    let format = named.or(to_stdout_as_json).or_else(|| Format::of_path(output?)).unwrap_or(Format::Markdown);
    let row = format.row();
    if options.whole && !row.whole {
        return Err(Stop::Usage(format!("{} cannot carry what is not seen; take json", row.name)));
    }
    let (files, missing) = chosen(paths, options)?;
    let into_folder = options.output.as_deref().is_some_and(|o| o.ends_with('/') || Path::new(o).is_dir());
    if (options.all || files.len() != 1) && !into_folder && !row.several {
        return Err(Stop::Usage(format!("several conversations do not fit into one {}; write -o FOLDER/", row.name)));
    }
    let mut written = Vec::new();
    let mut faults = missing;
    let mut together = Vec::new();
    for (id, path) in files {
        let loaded = match store::load(&path, &id) {
            Ok(loaded) => loaded.conversation,
            Err(why) => {
                faults.push(why);
                continue;
            }
        };
        if !into_folder {
            together.push(loaded);
            continue;
        }
        let target = output.unwrap_or(Path::new(".")).join(transfer::file_name(&loaded, format));
        match write(&target, &transfer::render(&loaded, format, options.whole), options.force) {
            Ok(()) => written.push((Some(id), target)),
            Err(why) => faults.push(why),
        }
    }
    let text = match together.as_slice() {
        [one] if !options.all => transfer::render(one, format, options.whole),
        several => transfer::render_all(several, format, options.whole),
    };
    match output.filter(|_| !into_folder) {
        Some(path) if !together.is_empty() => match write(path, &text, options.force) {
            Ok(()) => written.push((together.first().map(|c| c.id.clone()), path.to_owned())),
            Err(why) => faults.push(why),
        },
        None if output.is_none() => print_foreign(&text)?,
        _ => {}
    }
    if output.is_some() {
        tell(&written, options.json)?;
    }
    for fault in &faults {
        eprintln!("error: {}", crate::text::sanitise(fault));
    }
    Ok(ExitCode::from(u8::from(!faults.is_empty())))
}

type Chosen = (Vec<(ConversationId, PathBuf)>, Vec<String>);

/// The conversations that are meant, and what is wrong with the names of others.
fn chosen(paths: &Paths, options: &Options) -> Result<Chosen, Stop> {
    if options.all {
        if !options.ids.is_empty() {
            return Err(Stop::Usage("--all and an id do not go together".to_owned()));
        }
        let mut files: Vec<_> = store::files(&paths.conversations()).map_err(Stop::Failed)?.into_iter().collect();
        files.sort();
        return Ok((files, Vec::new()));
    }
    if options.ids.is_empty() {
        return Err(Stop::Usage("which conversation? Write an id, 'last', or --all".to_owned()));
    }
    let mut files = Vec::new();
    let mut faults = Vec::new();
    for id in &options.ids {
        match pick(paths, id) {
            Ok(file) if !files.contains(&file) => files.push(file),
            Ok(_) => {}
            Err(why) => faults.push(why),
        }
    }
    if files.is_empty() {
        return Err(Stop::Failed(faults.join("; ")));
    }
    Ok((files, faults))
}

fn tell(written: &[(Option<ConversationId>, PathBuf)], as_json: bool) -> Result<(), Stop> {
    if as_json {
        let rows: Vec<_> = written.iter().map(|(id, path)| json!({ "id": id, "path": path })).collect();
        return print(&format!("{}\n", json!(rows)));
    }
    print(
        &written
            .iter()
            .map(|(_, path)| format!("{}\n", sanitise_line(&path.display().to_string())))
            .collect::<String>(),
    )
}

/// Writes a file at once and for its owner only. One that is there is left alone without `force`.
fn write(path: &Path, text: &str, force: bool) -> Result<(), String> {
    let there = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => format!("{} is there already; it stays as it is", path.display()),
        _ => format!("{} cannot be written: {e}", path.display()),
    };
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(there)?;
    let mut file = tempfile::Builder::new().prefix(".export-").tempfile_in(parent).map_err(there)?;
    file.write_all(text.as_bytes()).map_err(there)?;
    file.as_file().sync_all().map_err(there)?;
    let kept = if force { file.persist(path) } else { file.persist_noclobber(path) };
    kept.map(|_| ()).map_err(|e| there(e.error))
}

/// Carries `/export` out: a format, a path or both; by itself a Markdown file in the folder where the program was
/// started. Tells where it is.
///
/// # Errors
/// If the argument is wrong, or the file is there already or cannot be written.
pub fn to_file(conversation: &Conversation, argument: &str, home: Option<&Path>) -> Result<String, String> {
    let (format, path) = transfer::target(argument)?;
    let text = transfer::render(conversation, format, false);
    let in_home = |path: PathBuf| match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    };
    let path = path.map(in_home);
    let folder = path.clone().filter(|p| p.is_dir() || argument.trim().ends_with('/'));
    let target = match (folder, path) {
        (None, Some(file)) => file,
        (folder, _) => free(&folder.unwrap_or_default(), &transfer::file_name(conversation, format)),
    };
    write(&target, &text, false)?;
    let whole = std::path::absolute(&target).unwrap_or(target);
    Ok(whole.display().to_string())
}

/// A name that no file has: the second export of a conversation is another file.
fn free(folder: &Path, name: &str) -> PathBuf {
    let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
    let names = std::iter::once(name.to_owned()).chain((2..1000).map(|n| format!("{stem}-{n}.{end}")));
    let mut paths = names.map(|name| folder.join(name));
    paths.find(|path| !path.exists()).unwrap_or_else(|| folder.join(name))
}
