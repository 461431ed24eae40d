//! One conversation file that is ours: locked, written only at its end, never where somebody else wrote.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::folder;
use super::read::{Contents, read};
use crate::chat::{ConversationId, Entry};

const CHANGED: &str = "another program has changed the file";
const GONE: &str = "another program has moved the file away";

/// A conversation file that is ours to write: it is locked until this is dropped.
#[derive(Debug)]
pub struct Journal {
    /// None until the file could be made.
    file: Option<File>,
    path: PathBuf,
    /// Where the lines of this session begin in the file.
    begin: u64,
    /// All of them. They are kept until the end: somebody else may write over the file at any time.
    lines: Vec<u8>,
    /// Bytes of them that the disk has confirmed. After a failed sync nobody knows which of the others are on disk.
    synced: usize,
    /// Bytes of them that are written.
    written: usize,
    /// When the file changed last by our hand.
    changed: Option<SystemTime>,
    /// Its name is not on disk yet.
    nameless: bool,
}

/// Why something was not written.
#[derive(Debug)]
pub enum Fault {
    /// Another program has changed, moved or replaced the file, or its name is taken.
    Taken(&'static str),
    /// It may go better the next time.
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(how) => f.write_str(how),
            Self::Io(error) => error.fmt(f),
        }
    }
}

/// Why a file is not ours.
#[derive(Debug)]
pub enum NotOurs {
    /// Another program has it open.
    Locked,
    /// It cannot be opened for writing.
    Failed(io::Error),
    /// It must not be written to; what it holds.
    ReadOnly(Box<Contents>, String),
    /// It is no conversation, in one sentence.
    Unreadable(String),
}

impl From<io::Error> for NotOurs {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Journal {
    /// A new conversation's journal. Its file is made, with everything in it at once, by the first write that
    /// succeeds.
    pub fn new(path: PathBuf) -> Self {
        let (file, lines, changed) = (None, Vec::new(), None);
        Self { file, path, begin: 0, lines, synced: 0, written: 0, changed, nameless: false }
    }

    /// Opens, locks and reads a file. A torn last line is moved to `<file>.torn`.
    ///
    /// # Errors
    /// If it is locked by another program, cannot be written, must not be, or is no conversation.
    pub fn open(path: &Path, id: &ConversationId) -> Result<(Self, Contents), NotOurs> {
        // Only ever at its end: where somebody else writes in the same moment, nothing of theirs is written over.
        let file = folder::open(path, OpenOptions::new().read(true).append(true))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NotOurs::Locked),
            Err(TryLockError::Error(error)) => return Err(NotOurs::Failed(error)),
        }
        // Read under the lock: what was read before it may be old.
        let contents = read(&file, id).map_err(NotOurs::Unreadable)?;
        if let Some(why) = contents.read_only.clone() {
            return Err(NotOurs::ReadOnly(Box::new(contents), why));
        }
        let mut journal = Self { file: Some(file), begin: contents.whole, ..Self::new(path.to_owned()) };
        journal.cut_torn(&contents)?;
        journal.note_change()?;
        if contents.unterminated {
            journal.lines.push(b'\n');
        }
        Ok((journal, contents))
    }

    fn cut_torn(&mut self, contents: &Contents) -> io::Result<()> {
        let Some(file) = self.file.as_mut().filter(|_| contents.whole < contents.size) else { return Ok(()) };
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut aside = folder::open(&self.path.with_extension("jsonl.torn"), &mut options)?;
        file.seek(SeekFrom::Start(contents.whole))?;
        io::copy(&mut Read::take(&*file, contents.size - contents.whole), &mut aside)?;
        aside.write_all(b"\n")?;
        aside.sync_all()?;
        file.set_len(contents.whole)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the conversation holds, lines that wait included.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn contents(&mut self, id: &ConversationId) -> Result<Contents, String> {
        let bytes = self.bytes().map_err(|e| format!("{} cannot be read: {e}", self.path.display()))?;
        read(bytes.as_slice(), id)
    }

    /// The bytes of the whole conversation, lines that wait included. Where somebody else has written over what was
    /// there before this session, theirs is what there is of it, to the end.
    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(file) = self.file.as_mut().filter(|_| self.begin > 0) {
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut bytes)?;
        }
        let begin = usize::try_from(self.begin).unwrap_or(usize::MAX);
        if bytes.get(begin..).is_some_and(|there| self.lines.starts_with(there)) {
            bytes.truncate(begin);
        } else if bytes.last().is_some_and(|b| *b != b'\n') {
            bytes.push(b'\n');
        }
        bytes.extend(&self.lines);
        Ok(bytes)
    }

    /// Writes entries after those that wait; what cannot be written now waits.
    ///
    /// # Errors
    /// If something still waits, or is not on disk although `sync` asked for it.
    pub fn append(&mut self, entries: &[Entry], sync: bool) -> Result<(), Fault> {
        for entry in entries {
            serde_json::to_writer(&mut self.lines, entry).map_err(io::Error::from)?;
            self.lines.push(b'\n');
        }
        if self.written < self.lines.len() {
            self.write()?;
        }
        if sync { self.sync() } else { Ok(()) }
    }

    /// Writes everything that waits, asks the disk for it, and sees that it still stands there.
    ///
    /// # Errors
    /// If something still waits, or somebody else has written over it.
    pub fn settle(&mut self) -> Result<(), Fault> {
        self.append(&[], true)?;
        match self.fence() {
            // Whole, wherever it is now.
            Ok(_) | Err(Fault::Taken(GONE)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    fn write(&mut self) -> Result<(), Fault> {
        if self.file.is_none() {
            return self.make();
        }
        let there = self.fence()?;
        if there > self.written {
            // The system may have taken what it failed to keep for kept: it is written again, where it stands.
            let mut file = folder::open(&self.path, OpenOptions::new().write(true))?;
            file.seek(SeekFrom::Start(self.begin + self.written as u64))?;
            file.write_all(&self.lines[self.written..there])?;
            self.written = there;
        }
        let Some(mut file) = self.file.as_ref() else { return Ok(()) };
        // What is written of a line before an error stays, and the next try goes on behind it.
        while self.written < self.lines.len() {
            match file.write(&self.lines[self.written..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(n) => self.written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.note_change()? != self.begin + self.written as u64 {
            return Err(Fault::Taken(CHANGED));
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.nameless {
            folder::sync(self.path.parent().unwrap_or(Path::new(".")))?;
            self.nameless = false;
        }
        if let Err(error) = file.sync_data() {
            self.written = self.synced;
            return Err(error.into());
        }
        self.synced = self.written;
        Ok(())
    }

    /// Makes the file under another name and gives it its own when all is in it, so that nothing half is ever there.
    fn make(&mut self) -> Result<(), Fault> {
        let parent = self.path.parent().unwrap_or(Path::new("."));
        folder::make(parent)?;
        let mut file = tempfile::Builder::new().prefix(".new-").append(true).tempfile_in(parent)?;
        file.as_file().try_lock().map_err(io::Error::from)?;
        file.write_all(&self.lines)?;
        file.as_file().sync_all()?;
        let file = file.persist_noclobber(&self.path).map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => Fault::Taken("a file of that name is there already"),
            _ => Fault::Io(e.error),
        })?;
        self.file = Some(file);
        self.synced = self.lines.len();
        self.written = self.synced;
        self.nameless = true;
        self.note_change()?;
        self.sync()
    }

    /// Remembers when the file changed; its length.
    fn note_change(&mut self) -> io::Result<u64> {
        let Some(file) = &self.file else { return Ok(0) };
        let metadata = file.metadata()?;
        self.changed = metadata.modified().ok();
        Ok(metadata.len())
    }

    /// Refuses to write where somebody else wrote, or where the name leads to another file by now. How many bytes of
    /// this session's lines are there.
    fn fence(&mut self) -> Result<usize, Fault> {
        let Some(file) = &mut self.file else { return Ok(self.written) };
        let ours = file.metadata()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let named = match std::fs::metadata(&self.path) {
                Ok(named) => named,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Fault::Taken(GONE)),
                Err(error) => return Err(error.into()),
            };
            if (named.dev(), named.ino()) != (ours.dev(), ours.ino()) {
                return Err(Fault::Taken("another program has replaced the file"));
            }
        }
        let end = self.begin + self.written as u64;
        if ours.len() == end && self.changed.is_some() && self.changed == ours.modified().ok() {
            return Ok(self.written);
        }
        // Then what stands there must be lines of ours, of which some may have been written before a sync failed.
        let mut there = Vec::new();
        file.seek(SeekFrom::Start(self.begin))?;
        Read::take(&*file, self.lines.len() as u64 + 1).read_to_end(&mut there)?;
        if ours.len() < self.begin || there.len() < self.synced || !self.lines.starts_with(&there) {
            return Err(Fault::Taken(CHANGED));
        }
        Ok(there.len())
    }

    /// Gives the file another name; the lock stays. A name that is taken is left alone.
    ///
    /// # Errors
    /// If the name is taken or cannot be given.
    pub fn rename(&mut self, path: PathBuf) -> io::Result<()> {
        if path == self.path {
            return Ok(());
        }
        if path.exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} is there already", path.display())));
        }
        if self.file.is_some() {
            std::fs::rename(&self.path, &path)?;
            self.nameless = true;
        }
        self.path = path;
        Ok(())
    }
}
