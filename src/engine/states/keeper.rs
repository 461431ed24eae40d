//! The thread that keeps states in files, beside whatever the engine does.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use super::file::{self, Identity};
use super::{Bytes, Key, Piece, States};
use crate::chat::hex;

enum Job {
    Write(Arc<Piece>, Bytes),
    Touch(Vec<Key>),
    Remove(Vec<Key>),
}

/// Files of states: a folder for each identity, a file for each piece.
#[derive(Debug)]
pub struct Keeper {
    folder: PathBuf,
    identity: Identity,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Keeps states of that identity below `root`, where all files together may have `limit` bytes.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(root: &Path, identity: Identity, limit: u64) -> io::Result<Self> {
        let folder = root.join(&hex(&identity)[..16]);
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&folder)?;
        let (jobs, queue) = channel();
        let (root, at) = (root.to_owned(), folder.clone());
        let work = move || {
            while let Ok(job) = queue.recv() {
                // All that waits first: what goes is decided once, and only if there is more than before.
                let mut more = false;
                for job in std::iter::once(job).chain(queue.try_iter()) {
                    more |= matches!(job, Job::Write(..));
                    perform(job, &at, &identity);
                }
                if more {
                    enforce(&root, limit);
                }
            }
        };
        let thread = std::thread::Builder::new().name("states".into()).spawn(work)?;
        Ok(Self { folder, identity, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Notes the states that are in files. A file that is of no use is removed.
    pub fn index(&self, states: &mut States) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        let mut found = Vec::new();
        for path in entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "kv")) {
            match file::head(&path, &self.identity) {
                Some((piece, bytes)) => found.push((piece, bytes)),
                None => remove(&path),
            }
        }
        found.sort_by_key(|(piece, _)| piece.from);
        for (piece, bytes) in found {
            let key = piece.key();
            if !states.insert_filed(piece, bytes) {
                remove(&file::path(&self.folder, key));
            }
        }
    }

    /// The state of a piece, if its file is what it must be.
    pub fn read(&self, piece: &Piece) -> Option<Vec<u8>> {
        file::read(&self.folder, &self.identity, piece)
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // Without the thread nothing is kept in files, and nothing else is lost.
            let _ = jobs.send(job);
        }
    }

    /// Writes a state when its turn comes.
    pub fn write(&self, piece: Arc<Piece>, state: Bytes) {
        self.send(Job::Write(piece, state));
    }

    /// These were used now.
    pub fn touch(&self, keys: Vec<Key>) {
        self.send(Job::Touch(keys));
    }

    /// Removes the files of pieces.
    pub fn remove(&self, keys: Vec<Key>) {
        self.send(Job::Remove(keys));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn perform(job: Job, folder: &Path, identity: &Identity) {
    match job {
        Job::Write(piece, state) => {
            if let Err(error) = file::write(folder, identity, &piece, &state) {
                tracing::warn!("a state is not kept in a file: {error}");
            }
        }
        Job::Touch(keys) => {
            // The first of a line last, so that it never looks older than what goes on from it.
            for key in keys.into_iter().rev() {
                let file = std::fs::File::options().write(true).open(file::path(folder, key));
                // A file that is gone is found to be so when it is read.
                let _ = file.and_then(|f| f.set_modified(SystemTime::now()));
            }
        }
        Job::Remove(keys) => keys.into_iter().for_each(|key| remove(&file::path(folder, key))),
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!("{} cannot be removed: {error}", path.display());
    }
}

/// Removes what was used longest ago, of whichever identity, until the rest is within the limit.
fn enforce(root: &Path, limit: u64) {
    let mut files = files(root);
    let mut total: u64 = files.iter().map(|(_, _, bytes)| bytes).sum();
    files.sort();
    for (_, path, bytes) in files {
        if total <= limit {
            return;
        }
        remove(&path);
        total -= bytes;
    }
}

/// Every file of states: when it was used, where it is, its bytes.
fn files(root: &Path) -> Vec<(SystemTime, PathBuf, u64)> {
    let folders = std::fs::read_dir(root).into_iter().flatten().flatten();
    let entries = folders.flat_map(|f| std::fs::read_dir(f.path()).into_iter().flatten().flatten());
    let facts = entries.filter_map(|e| Some((e.path(), e.metadata().ok().filter(std::fs::Metadata::is_file)?)));
    facts.map(|(path, meta)| (meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), path, meta.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(parent: Option<&Piece>, first: i32) -> Piece {
        let tokens = (first..first + 10).collect();
        Piece { parent: parent.map(Piece::key), from: parent.map_or(0, Piece::end), tokens, whole: false }
    }

    fn states() -> States {
        States::new(1 << 20)
    }

    #[test]
    fn states_come_back_after_a_restart_and_orphans_and_strangers_go() {
        let root = tempfile::tempdir().unwrap();
        let (trunk, leaf, orphan) = {
            let trunk = piece(None, 0);
            let leaf = piece(Some(&trunk), 10);
            let orphan = piece(Some(&leaf), 50);
            (trunk, leaf, Piece { parent: Some(Key([9; 32])), ..orphan })
        };
        let text: Vec<i32> = (0..20).collect();
        let folder = {
            let keeper = Keeper::new(root.path(), [1; 32], 1 << 20).unwrap();
            for piece in [trunk, leaf, orphan] {
                keeper.write(Arc::new(piece), Arc::new(vec![5; 100]));
            }
            keeper.folder.clone()
        };
        std::fs::write(folder.join("note.kv"), "no state").unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(folder.join("pipe.kv")).status();
        assert!(!cfg!(unix) || pipe.unwrap().success());
        let keeper = Keeper::new(root.path(), [1; 32], 1 << 20).unwrap();
        let mut again = states();
        keeper.index(&mut again);
        let (path, n) = again.find(&text);
        assert_eq!((path.len(), n), (2, 20));
        let (piece, state) = again.get(path[1]).unwrap();
        assert!(state.is_none());
        assert_eq!(keeper.read(&piece), Some(vec![5; 100]));
        assert_eq!(files(root.path()).len(), 2);
        let other = Keeper::new(root.path(), [2; 32], 1 << 20).unwrap();
        let mut none = states();
        other.index(&mut none);
        assert_eq!(none.find(&text).1, 0, "another model has its own");
    }

    #[test]
    fn the_oldest_files_go_when_there_are_too_many_bytes() {
        let root = tempfile::tempdir().unwrap();
        let keeper = || Keeper::new(root.path(), [1; 32], 4000).unwrap();
        let folder = keeper().folder.clone();
        // Its end waits until all is written.
        let write = |first: i32| keeper().write(Arc::new(piece(None, first)), Arc::new(vec![5; 1000]));
        for first in 0..3 {
            write(first);
            let path = file::path(&folder, piece(None, first).key());
            let past = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + first as u64);
            std::fs::File::options().write(true).open(path).unwrap().set_modified(past).unwrap();
        }
        keeper().touch(vec![piece(None, 0).key()]);
        write(3);
        let there: Vec<bool> = (0..4).map(|n| file::path(&folder, piece(None, n).key()).exists()).collect();
        assert_eq!(there, [true, false, true, true]);
    }
}
