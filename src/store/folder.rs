//! The folder of conversations: names, listing, finding.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::chat::ConversationId;

/// Makes a folder that only its owner can look into.
pub fn make(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Opens a file. Anything else of that name, such as a pipe that nobody fills, keeps nobody waiting.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

/// Opens a file for reading, with the same care.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true))
}

/// Makes the names in a folder durable.
pub fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The name of a conversation's file. The slug is for people; only the id counts.
pub fn file_name(id: &ConversationId, title: Option<&str>) -> String {
    format!("{}.jsonl", id.file_stem(title))
}

/// Whether a file has no slug yet. Only such a one is renamed: a name that changes is bad for backups.
pub fn is_plain(path: &Path, id: &ConversationId) -> bool {
    path.file_stem().is_some_and(|stem| stem == id.as_str())
}

/// Every conversation file of a folder. A folder that is not there holds none.
///
/// # Errors
/// Says why the folder cannot be read, and what to do.
pub(super) fn conversations(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let list = || {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            // The folder itself mostly says what its entries are: a question to each would take longer than all else.
            let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_symlink() && path.is_file());
            if path.extension().is_some_and(|e| e == "jsonl") && is_file() {
                paths.push(path);
            }
        }
        Ok(paths)
    };
    list().or_else(|error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => Err(format!(
            "The conversations in {} cannot be listed: {error}. Check the folder's rights",
            folder.display()
        )),
    })
}

/// The id in a file's name.
pub(super) fn id_of(path: &Path) -> Option<ConversationId> {
    // Two groups of an id: time and salt.
    let plain: Vec<&str> = path.file_stem()?.to_str()?.splitn(3, '-').take(2).collect();
    ConversationId::parse(&plain.join("-"))
}

/// The file of a conversation.
pub fn path_of(folder: &Path, id: &ConversationId) -> Option<PathBuf> {
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        name.strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with(['.', '-']))
    };
    conversations(folder).ok()?.into_iter().find(named)
}
