//! One conversation file: reading it whatever its state, and writing at its end.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::chat::{Conversation, Entry, JOURNAL_VERSION, MessageState, Sampling};

/// A longer line is passed over: no message is that long, and memory stays bounded.
const LONGEST_LINE: u64 = 64 << 20;

/// What a file holds.
#[derive(Debug)]
pub struct Contents {
    /// The fold of its entries.
    pub conversation: Conversation,
    /// What is to be said about it, one sentence each.
    pub notes: Vec<String>,
    /// Bytes up to the end of its last whole line.
    pub whole: u64,
    /// Its size.
    pub size: u64,
    /// Written by a newer program: it may mean more than is understood here.
    pub newer: bool,
}

/// Reads a conversation file.
///
/// # Errors
/// If it cannot be read, or its first line does not say what it is.
pub fn read(path: &Path) -> Result<Contents, String> {
    let file = File::open(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    let mut input = BufReader::new(file);
    let mut line = Vec::new();
    let mut size = 0u64;
    let mut next = |line: &mut Vec<u8>| -> Result<Option<Line>, String> {
        line.clear();
        let n = input
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', line)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        if n == 0 {
            return Ok(None);
        }
        let mut length = n as u64;
        let mut whole = line.last() == Some(&b'\n');
        let long = !whole && length == LONGEST_LINE;
        if long {
            (length, whole) = pass_over(&mut input, length).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(Some(Line { length, whole, long }))
    };
    let header = next(&mut line)?.ok_or_else(|| format!("{} is empty", path.display()))?;
    let Ok(Entry::Header { version, id, created }) = serde_json::from_slice(&line) else {
        return Err(format!("{} does not begin like a conversation of this program", path.display()));
    };
    size += header.length;
    let mut whole = if header.whole { size } else { 0 };
    let mut conversation = Conversation::new(id, created, Sampling::default());
    let mut broken = 0usize;
    let mut torn = 0u64;
    while let Some(read) = next(&mut line)? {
        size += read.length;
        if !read.whole {
            torn = read.length;
            break;
        }
        whole = size;
        let blank = line.trim_ascii().is_empty();
        match serde_json::from_slice::<Entry>(&line) {
            Ok(entry) if !read.long => conversation.apply(&entry),
            _ if blank => {}
            _ => broken += 1,
        }
    }
    let mut notes = Vec::new();
    if torn > 0 {
        notes.push(format!(
            "The last line of this conversation was not written whole; {torn} bytes of it were set aside"
        ));
    }
    if broken > 0 {
        notes.push(format!("{broken} damaged lines of this conversation were passed over; they stay in the file"));
    }
    for message in &mut conversation.messages {
        if message.state == MessageState::Open {
            message.state = MessageState::Complete;
            notes.push("An answer of this conversation was broken off when the program ended".to_owned());
        }
    }
    Ok(Contents { conversation, notes, whole, size, newer: version > JOURNAL_VERSION })
}

struct Line {
    length: u64,
    whole: bool,
    long: bool,
}

fn pass_over(input: &mut impl BufRead, mut length: u64) -> io::Result<(u64, bool)> {
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok((length, false));
        }
        let end = bytes.iter().position(|b| *b == b'\n');
        let n = end.map_or(bytes.len(), |at| at + 1);
        input.consume(n);
        length += n as u64;
        if end.is_some() {
            return Ok((length, true));
        }
    }
}

/// A conversation file that is ours to write: it is locked until this is dropped.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Its length after our last write; if it is another now, somebody else wrote.
    length: u64,
    /// Lines that could not be written yet.
    pending: Vec<u8>,
}

/// Why a journal is not ours.
#[derive(Debug)]
pub enum NotOurs {
    /// Another program has it open.
    Locked,
    /// It cannot be opened for writing.
    Failed(io::Error),
}

impl Journal {
    /// Makes the file of a new conversation with these entries in it, on disk.
    ///
    /// # Errors
    /// If it exists or cannot be written.
    pub fn create(path: PathBuf, entries: &[Entry]) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        file.try_lock().map_err(io::Error::from)?;
        let mut journal = Self { file, path, length: 0, pending: Vec::new() };
        let made = journal.append(entries, true).and_then(|()| sync_folder(&journal.path));
        if let Err(error) = made {
            // Nothing of it is of use: an empty file would look like a lost conversation.
            let _ = std::fs::remove_file(&journal.path);
            return Err(error);
        }
        Ok(journal)
    }

    /// Opens and locks a file that was read. A torn last line is moved to `<file>.torn`.
    ///
    /// # Errors
    /// If it is locked by another program or cannot be written.
    pub fn open(path: &Path, contents: &Contents) -> Result<Self, NotOurs> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(NotOurs::Failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NotOurs::Locked),
            Err(TryLockError::Error(error)) => return Err(NotOurs::Failed(error)),
        }
        let mut journal = Self { file, path: path.to_owned(), length: contents.size, pending: Vec::new() };
        journal.cut_torn(contents).map_err(NotOurs::Failed)?;
        Ok(journal)
    }

    fn cut_torn(&mut self, contents: &Contents) -> io::Result<()> {
        if contents.whole == contents.size {
            return Ok(());
        }
        // Somebody wrote since it was read: then nothing is known to be torn.
        self.fence()?;
        let mut torn = Vec::new();
        self.file.seek(SeekFrom::Start(contents.whole))?;
        self.file.read_to_end(&mut torn)?;
        let aside = self.path.with_extension("jsonl.torn");
        let mut aside = OpenOptions::new().create(true).append(true).open(aside)?;
        aside.write_all(&torn)?;
        aside.write_all(b"\n")?;
        aside.sync_all()?;
        self.file.set_len(contents.whole)?;
        self.length = contents.whole;
        Ok(())
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether lines wait to be written.
    pub fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The lines that wait.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Writes entries after those that wait; what cannot be written now waits.
    ///
    /// # Errors
    /// If something still waits, or is not on disk although `sync` asked for it.
    pub fn append(&mut self, entries: &[Entry], sync: bool) -> io::Result<()> {
        for entry in entries {
            serde_json::to_writer(&mut self.pending, entry)?;
            self.pending.push(b'\n');
        }
        self.flush()?;
        if sync { self.file.sync_data() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.fence()?;
        self.file.seek(SeekFrom::Start(self.length))?;
        if let Err(error) = self.file.write_all(&self.pending) {
            // Part of it may be there; it must not stand before the retry.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Refuses to write where somebody else wrote, or where the name leads to another file by now.
    fn fence(&self) -> io::Result<()> {
        let ours = self.file.metadata()?;
        if ours.len() != self.length {
            return Err(io::Error::other("another program has changed the file"));
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let named = std::fs::metadata(&self.path).ok().map(|m| (m.dev(), m.ino()));
            if named != Some((ours.dev(), ours.ino())) {
                return Err(io::Error::other("the file was moved or replaced by another program"));
            }
        }
        Ok(())
    }

    /// Gives the file another name in its folder; the lock stays.
    pub fn rename(&mut self, path: PathBuf) -> io::Result<()> {
        if path != self.path && !path.exists() {
            std::fs::rename(&self.path, &path)?;
            self.path = path;
        }
        Ok(())
    }

    /// Writes everything that waits and asks the disk for it.
    pub fn settle(&mut self) -> io::Result<()> {
        self.append(&[], true)
    }
}

/// Makes a new name in the file's folder durable.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}
