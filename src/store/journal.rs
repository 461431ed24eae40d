//! One conversation file that is ours: locked, written only at its end, never where somebody else wrote.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::folder;
use super::read::{Contents, read};
use crate::chat::{ConversationId, Entry};

/// A conversation file that is ours to write: it is locked until this is dropped.
#[derive(Debug)]
pub struct Journal {
    /// None until the file could be made.
    file: Option<File>,
    path: PathBuf,
    /// Bytes of the file that the disk has confirmed.
    synced: u64,
    /// The lines after them. After a failed sync nobody knows which of them are on disk, so they are kept
    /// until the disk has confirmed them.
    tail: Vec<u8>,
    /// Bytes of the tail that are written.
    written: usize,
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
        Self { file: None, path, synced: 0, tail: Vec::new(), written: 0 }
    }

    /// Opens, locks and reads a file. A torn last line is moved to `<file>.torn`.
    ///
    /// # Errors
    /// If it is locked by another program, cannot be written, must not be, or is no conversation.
    pub fn open(path: &Path, id: &ConversationId) -> Result<(Self, Contents), NotOurs> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
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
        let mut journal =
            Self { file: Some(file), path: path.to_owned(), synced: contents.whole, tail: Vec::new(), written: 0 };
        journal.cut_torn(&contents)?;
        if contents.unterminated {
            journal.tail.push(b'\n');
        }
        Ok((journal, contents))
    }

    fn cut_torn(&mut self, contents: &Contents) -> io::Result<()> {
        let Some(file) = self.file.as_mut().filter(|_| contents.whole < contents.size) else { return Ok(()) };
        let mut torn = Vec::new();
        file.seek(SeekFrom::Start(contents.whole))?;
        file.read_to_end(&mut torn)?;
        torn.push(b'\n');
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut aside = options.open(self.path.with_extension("jsonl.torn"))?;
        aside.write_all(&torn)?;
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

    /// The bytes of the whole conversation, lines that wait included.
    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0))?;
            Read::take(&*file, self.synced).read_to_end(&mut bytes)?;
        }
        bytes.extend(&self.tail);
        Ok(bytes)
    }

    /// Writes entries after those that wait; what cannot be written now waits.
    ///
    /// # Errors
    /// If something still waits, or is not on disk although `sync` asked for it.
    pub fn append(&mut self, entries: &[Entry], sync: bool) -> Result<(), Fault> {
        for entry in entries {
            serde_json::to_writer(&mut self.tail, entry).map_err(io::Error::from)?;
            self.tail.push(b'\n');
        }
        self.write()?;
        if sync { self.sync() } else { Ok(()) }
    }

    /// Writes everything that waits and asks the disk for it.
    ///
    /// # Errors
    /// If something still waits.
    pub fn settle(&mut self) -> Result<(), Fault> {
        self.append(&[], true)
    }

    fn write(&mut self) -> Result<(), Fault> {
        if self.file.is_none() {
            return self.make();
        }
        if self.written == self.tail.len() {
            return Ok(());
        }
        self.fence()?;
        let Some(file) = &mut self.file else { return Ok(()) };
        file.seek(SeekFrom::Start(self.synced + self.written as u64))?;
        // What is written of a line before an error stays, and the next try goes on behind it.
        while self.written < self.tail.len() {
            match file.write(&self.tail[self.written..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(n) => self.written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        if let Err(error) = file.sync_data() {
            // The system may take these pages for clean now and answer the next sync with a lie: write them again.
            self.written = 0;
            return Err(error.into());
        }
        self.synced += self.written as u64;
        self.tail.drain(..self.written);
        self.written = 0;
        Ok(())
    }

    /// Makes the file under another name and gives it its own when all is in it, so that nothing half is ever there.
    fn make(&mut self) -> Result<(), Fault> {
        let parent = self.path.parent().unwrap_or(Path::new("."));
        folder::make(parent)?;
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(parent)?;
        file.as_file().try_lock().map_err(io::Error::from)?;
        file.write_all(&self.tail)?;
        file.as_file().sync_all()?;
        let file = file.persist_noclobber(&self.path).map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => Fault::Taken("a file of that name is there already"),
            _ => Fault::Io(e.error),
        })?;
        self.file = Some(file);
        self.synced = self.tail.len() as u64;
        self.tail.clear();
        self.written = 0;
        Ok(folder::sync(parent)?)
    }

    /// Refuses to write where somebody else wrote, or where the name leads to another file by now.
    fn fence(&mut self) -> Result<(), Fault> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let ours = file.metadata()?;
        if ours.len() != self.synced + self.written as u64 {
            // Then what stands there must be lines of ours whose sync failed.
            let mut there = Vec::new();
            file.seek(SeekFrom::Start(self.synced))?;
            Read::take(&*file, self.tail.len() as u64 + 1).read_to_end(&mut there)?;
            if ours.len() < self.synced || !self.tail.starts_with(&there) {
                return Err(Fault::Taken("another program has changed the file"));
            }
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let named = std::fs::metadata(&self.path).ok().map(|m| (m.dev(), m.ino()));
            if named != Some((ours.dev(), ours.ino())) {
                return Err(Fault::Taken("another program has moved or replaced the file"));
            }
        }
        Ok(())
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
            for folder in [self.path.parent(), path.parent()].into_iter().flatten() {
                folder::sync(folder)?;
            }
        }
        self.path = path;
        Ok(())
    }
}
