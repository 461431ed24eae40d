//! The index of a folder of conversations: the rows of the list and every word that was said, in an `SQLite` file of
//! the cache folder. It holds nothing that the conversations do not; whoever deletes it loses the time to make it anew.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use sha2::{Digest, Sha256};

use super::folder;
use super::glance::{self, Said, Seen};
use super::words::Words;
use crate::chat::{ConversationId, Filing, Hit, Role, Summary, hex};

/// Raised when the tables change: an index of another version is made anew.
const VERSION: i32 = 1;
/// How long another program that writes is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of a long title or question the list shows.
const LONGEST_TITLE: usize = 80;

const TABLES: &str = "
CREATE TABLE files (
    file     INTEGER PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE,
    size     INTEGER NOT NULL,
    changed  INTEGER NOT NULL,  -- nanoseconds since 1970
    taken    INTEGER NOT NULL,  -- bytes whose lines are in here
    mark     BLOB NOT NULL,     -- of the last of these bytes, to know that they are the same
    created  INTEGER NOT NULL,  -- milliseconds since 1970
    title    TEXT NOT NULL,
    shown    TEXT NOT NULL,     -- in the list
    messages INTEGER NOT NULL,
    damage   TEXT,
    filing   TEXT NOT NULL
);
CREATE TABLE texts (
    place   INTEGER PRIMARY KEY, -- the younger the larger
    file    INTEGER NOT NULL,
    message INTEGER NOT NULL,    -- 0: the title, -1: the system prompt
    parent  INTEGER,
    role    INTEGER NOT NULL,    -- 0: a question, 1: an answer, 2: neither
    deleted INTEGER NOT NULL,    -- it was deleted itself
    gone    INTEGER NOT NULL,    -- it, or something that it follows, is deleted
    text    TEXT NOT NULL,
    UNIQUE (file, message)
);
CREATE VIRTUAL TABLE words USING fts5(text, content='', contentless_delete=1, detail=none, tokenize='trigram');
";

/// The index.
pub struct Index {
    base: Connection,
    folder: PathBuf,
}

/// A file as the folder has it.
struct File {
    id: ConversationId,
    name: String,
    size: u64,
    changed: i64,
}

/// A file as the index has it.
struct Row {
    size: u64,
    changed: i64,
    title: String,
    messages: usize,
    damage: Option<String>,
    filing: Filing,
}

/// By the names of the files.
type Rows = HashMap<String, Row>;

/// Why the index is of no use.
#[derive(Debug)]
pub enum Fault {
    /// The conversations cannot be looked at.
    Folder(String),
    /// `SQLite` says so.
    Base(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Base(error)
    }
}

impl From<FromSqlError> for Fault {
    fn from(error: FromSqlError) -> Self {
        Self::Base(error.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(why) => f.write_str(why),
            Self::Base(error) => write!(f, "The index of the conversations cannot be used: {error}"),
        }
    }
}

impl Index {
    /// Opens or makes the index of a folder, in a file of the cache folder; in memory where that cannot be used.
    ///
    /// # Errors
    /// If `SQLite` does not even work in memory.
    pub fn open(folder: &Path, cache: Option<&Path>) -> Result<Self, Fault> {
        let file = cache.map(|cache| {
            let name = Sha256::digest(folder.as_os_str().as_encoded_bytes());
            cache.join(format!("conversations-{}.sqlite", hex(&name[..8])))
        });
        let kept = file.and_then(|file| {
            let open = || base(Connection::open(&file)?);
            let made = private(&file).ok().map(|()| open())?;
            let again = |error| {
                tracing::warn!("the index {} is made anew: {error}", file.display());
                // With what `SQLite` keeps beside it.
                for end in ["", "-wal", "-shm"] {
                    let _ = std::fs::remove_file(format!("{}{end}", file.display()));
                }
                open()
            };
            made.or_else(again).inspect_err(|error| tracing::warn!("the index is not kept: {error}")).ok()
        });
        let base = kept.map_or_else(|| base(Connection::open_in_memory()?), Ok)?;
        Ok(Self { base, folder: folder.to_owned() })
    }

    /// The index with all that is in the folder, and every conversation, youngest change first.
    ///
    /// # Errors
    /// If the folder cannot be read, or `SQLite` does not even work in memory.
    pub fn whole(folder: &Path, cache: &Path) -> Result<(Self, Vec<Summary>), Fault> {
        let mut index = Self::open(folder, Some(cache))?;
        loop {
            match index.refresh(PATIENCE) {
                Ok((list, 0)) => return Ok((index, list)),
                Ok(_) => {}
                Err(Fault::Base(_)) if index.is_kept() => index.in_memory()?,
                Err(fault) => return Err(fault),
            }
        }
    }

    fn is_kept(&self) -> bool {
        self.base.path().is_some_and(|path| !path.is_empty())
    }

    /// Goes on without a file.
    ///
    /// # Errors
    /// If `SQLite` does not even work in memory.
    pub fn in_memory(&mut self) -> Result<(), Fault> {
        self.base = base(Connection::open_in_memory()?)?;
        Ok(())
    }

    /// Takes in what changed in the folder, the youngest first, for about so long. Gives every conversation, youngest
    /// change first, and how many files are not taken in yet: those are told by their names.
    ///
    /// # Errors
    /// If the folder cannot be read, or the index cannot be used.
    pub fn refresh(&mut self, time: Duration) -> Result<(Vec<Summary>, usize), Fault> {
        let until = Instant::now() + time;
        let there = files(&self.folder).map_err(Fault::Folder)?;
        let mut rows = self.rows()?;
        let (taken, left) = self.take_in(&there, &rows, until)?;
        if taken {
            rows = self.rows()?;
        }
        let mut list: Vec<Summary> = there.into_iter().map(|file| summary(file, &mut rows)).collect();
        list.sort_by(|a, b| b.changed.cmp(&a.changed).then_with(|| b.id.cmp(&a.id)));
        Ok((list, left))
    }

    /// Takes in what changed; whether anything did, and how many files are left.
    fn take_in(&mut self, there: &[File], rows: &Rows, until: Instant) -> rusqlite::Result<(bool, usize)> {
        let names: BTreeSet<&str> = there.iter().map(|f| f.name.as_str()).collect();
        let fresh = |f: &&File| rows.get(&f.name).is_none_or(|row| (row.size, row.changed) != (f.size, f.changed));
        let mut stale: Vec<&File> = there.iter().filter(fresh).collect();
        stale.sort_by_key(|file| std::cmp::Reverse(file.changed));
        let lost: Vec<&String> = rows.keys().filter(|name| !names.contains(name.as_str())).collect();
        if stale.is_empty() && lost.is_empty() {
            return Ok((false, 0));
        }
        let base = self.base.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for name in lost {
            forget(&base, name)?;
        }
        let mut left = stale.len();
        for file in stale {
            take_in(&base, &self.folder, file)?;
            left -= 1;
            if Instant::now() >= until {
                break;
            }
        }
        base.commit()?;
        Ok((true, left))
    }

    fn rows(&self) -> rusqlite::Result<Rows> {
        let mut rows =
            self.base.prepare_cached("SELECT name, size, changed, shown, messages, damage, filing FROM files")?;
        let row = |row: &rusqlite::Row| {
            let known = Row {
                size: row.get::<_, i64>(1)?.cast_unsigned(),
                changed: row.get(2)?,
                title: row.get(3)?,
                messages: usize::try_from(row.get::<_, i64>(4)?).unwrap_or_default(),
                damage: row.get(5)?,
                filing: serde_json::from_str(row.get_ref(6)?.as_str()?).unwrap_or_default(),
            };
            Ok((row.get(0)?, known))
        };
        rows.query_map([], row)?.collect()
    }

    /// Where words are found, what was said last first; at most so many.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn search(&self, words: &Words, most: usize) -> Result<Vec<Hit>, Fault> {
        const COLUMNS: &str = "SELECT f.name, f.shown, f.changed, f.filing, t.message, t.role, t.text";
        const JOINED: &str = "JOIN files f ON f.file = t.file WHERE t.gone = 0";
        // Words of fewer letters than the index knows are looked for one text after the other.
        let indexed = words.indexed();
        let from = match &indexed {
            Some(_) => "FROM words w JOIN texts t ON t.place = w.rowid",
            None => "FROM texts t",
        };
        let (matching, order) = match &indexed {
            Some(_) => ("AND words MATCH ?1 ", "w.rowid"),
            None => ("AND ?1 IS NULL ", "t.place"),
        };
        let mut rows =
            self.base.prepare_cached(&format!("{COLUMNS} {from} {JOINED} {matching}ORDER BY {order} DESC"))?;
        let mut rows = rows.query([indexed])?;
        let mut hits = Vec::new();
        while let Some(row) = rows.next()?.filter(|_| hits.len() < most) {
            let (name, text) = (row.get_ref(0)?.as_str()?, row.get_ref(6)?.as_str()?);
            let Some((id, excerpt)) = folder::id_of(Path::new(name)).zip(words.find(text)) else { continue };
            let (message, role): (i64, i64) = (row.get(4)?, row.get(5)?);
            hits.push(Hit {
                id,
                title: row.get(1)?,
                changed: row.get::<_, i64>(2)? / 1_000_000,
                archived: serde_json::from_str::<Filing>(row.get_ref(3)?.as_str()?).unwrap_or_default().archived,
                message: u32::try_from(message).ok().filter(|id| *id > 0),
                role: [Role::User, Role::Assistant].get(usize::try_from(role).unwrap_or(2)).copied(),
                text: excerpt.text,
                marks: excerpt.marks,
            });
        }
        Ok(hits)
    }
}

/// Makes the tables where they are not there yet.
fn base(mut base: Connection) -> rusqlite::Result<Connection> {
    base.busy_timeout(PATIENCE)?;
    // What is deleted is overwritten. What a crash of the whole machine damages is made anew.
    base.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA secure_delete = ON;")?;
    let made = base.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match made.query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0))? {
        0 => made.execute_batch(&format!("{TABLES} PRAGMA user_version = {VERSION};"))?,
        VERSION => {}
        _ => return Err(rusqlite::Error::InvalidQuery),
    }
    made.commit()?;
    Ok(base)
}

/// Makes a file that only its owner can read, in a folder of the same kind.
fn private(file: &Path) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        folder::make(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file).map(drop)
}

/// What the list says of a file; of one that is not taken in yet, what its name says.
fn summary(file: File, rows: &mut Rows) -> Summary {
    let File { id, name, changed, .. } = file;
    let changed = changed / 1_000_000;
    match rows.remove(&name) {
        Some(Row { title, messages, damage, filing, .. }) => Summary { id, title, changed, messages, damage, filing },
        None => Summary { id, title: slug(&name), changed, messages: 0, damage: None, filing: Filing::default() },
    }
}

/// Every conversation file.
fn files(at: &Path) -> Result<Vec<File>, String> {
    let file = |path: PathBuf| {
        let facts = path.metadata().ok()?;
        let changed = facts.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        Some(File {
            id: folder::id_of(&path)?,
            name: path.file_name()?.to_str()?.to_owned(),
            size: facts.len(),
            changed: i64::try_from(changed).unwrap_or(i64::MAX),
        })
    };
    Ok(folder::conversations(at)?.into_iter().filter_map(file).collect())
}

fn forget(base: &Transaction<'_>, name: &str) -> rusqlite::Result<()> {
    let file: Option<i64> =
        base.query_row("SELECT file FROM files WHERE name = ?", [name], |row| row.get(0)).optional()?;
    if let Some(file) = file {
        base.execute("DELETE FROM words WHERE rowid IN (SELECT place FROM texts WHERE file = ?)", [file])?;
        base.execute("DELETE FROM texts WHERE file = ?", [file])?;
        base.execute("DELETE FROM files WHERE file = ?", [file])?;
    }
    Ok(())
}

/// A file as far as it is taken in.
struct Taken {
    file: i64,
    seen: Seen,
}

/// Takes in a file: what came at its end, where the rest is what it was.
fn take_in(base: &Transaction<'_>, folder: &Path, file: &File) -> rusqlite::Result<()> {
    let path = folder.join(&file.name);
    let old = taken(base, &file.name)?;
    let more = old.and_then(|old| Some((old.file, glance::read_on(&path, old.seen).ok()??)));
    let (number, seen) = if let Some(more) = more {
        more
    } else {
        // It is seen for the first time, or was written anew.
        forget(base, &file.name)?;
        base.execute("INSERT INTO files VALUES (NULL, ?, 0, 0, 0, x'', 0, '', '', 0, NULL, '')", [&file.name])?;
        let failed = |error| Seen { damage: Some(format!("cannot be read: {error}")), ..Seen::default() };
        (base.last_insert_rowid(), glance::read(&path).unwrap_or_else(failed))
    };
    for (message, text) in &seen.texts {
        put(base, number, *message, text)?;
    }
    for (message, deleted) in &seen.deleted {
        base.execute("UPDATE texts SET deleted = ? WHERE file = ? AND message = ?", params![deleted, number, message])?;
    }
    mark_gone(base, number)?;
    let messages: i64 =
        base.query_row("SELECT count(*) FROM texts WHERE file = ? AND message > 0 AND gone = 0", [number], |row| {
            row.get(0)
        })?;
    base.execute(
        "UPDATE files SET size = ?, changed = ?, taken = ?, mark = ?, created = ?, title = ?, shown = ?, messages = ?,
         damage = ?, filing = ? WHERE file = ?",
        params![
            file.size.cast_signed(),
            file.changed,
            seen.taken.cast_signed(),
            seen.mark,
            seen.created,
            seen.title,
            shown(base, number, &file.name, &seen)?,
            messages,
            seen.damage,
            serde_json::to_string(&seen.filing).unwrap_or_default(),
            number
        ],
    )?;
    Ok(())
}

fn taken(base: &Transaction<'_>, name: &str) -> rusqlite::Result<Option<Taken>> {
    let mut rows = base.prepare_cached(
        "SELECT file, taken, mark, created, title, filing FROM files WHERE name = ? AND damage IS NULL",
    )?;
    let row = |row: &rusqlite::Row| {
        Ok(Taken {
            file: row.get(0)?,
            seen: Seen {
                taken: row.get::<_, i64>(1)?.cast_unsigned(),
                mark: row.get(2)?,
                created: row.get(3)?,
                title: row.get(4)?,
                filing: serde_json::from_str(row.get_ref(5)?.as_str()?).unwrap_or_default(),
                ..Seen::default()
            },
        })
    };
    rows.query_row([name], row).optional()
}

/// Writes what was said in a message.
fn put(base: &Transaction<'_>, file: i64, message: i64, said: &Said) -> rusqlite::Result<()> {
    let old: Option<(i64, String)> = base
        .prepare_cached("SELECT place, text FROM texts WHERE file = ? AND message = ?")?
        .query_row([file, message], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let place = match (&old, said) {
        (Some((place, _)), _) => *place,
        (None, Said::Whole { at, .. }) => free(base, *at)?,
        // More of a message that is not there.
        (None, Said::More(_)) => return Ok(()),
    };
    if old.is_some() {
        base.prepare_cached("DELETE FROM words WHERE rowid = ?")?.execute([place])?;
    }
    let text = match (old, said) {
        (Some((_, old)), Said::More(more)) => {
            let text = old + more;
            base.prepare_cached("UPDATE texts SET text = ? WHERE place = ?")?.execute(params![text, place])?;
            text
        }
        (_, Said::More(_)) => return Ok(()),
        (_, Said::Whole { parent, role, text, .. }) => {
            base.prepare_cached(
                "INSERT INTO texts VALUES (?, ?, ?, ?, ?, 0, 0, ?)
                 ON CONFLICT DO UPDATE SET parent = excluded.parent, role = excluded.role, text = excluded.text",
            )?
            .execute(params![place, file, message, parent, role, text])?;
            text.clone()
        }
    };
    base.prepare_cached("INSERT INTO words (rowid, text) VALUES (?, ?)")?.execute(params![place, text])?;
    Ok(())
}

/// A place for a text of that time (Unix milliseconds).
fn free(base: &Transaction<'_>, at: i64) -> rusqlite::Result<i64> {
    /// Texts that may have the same time before they take the place of the next millisecond.
    const EACH: i64 = 1 << 10;
    let mut place = at.clamp(0, i64::MAX / EACH - 1) * EACH;
    let mut taken = base.prepare_cached("SELECT 1 FROM texts WHERE place = ?")?;
    while taken.exists([place])? {
        place += 1;
    }
    Ok(place)
}

/// Marks what is deleted with something that it follows, which is older.
fn mark_gone(base: &Transaction<'_>, file: i64) -> rusqlite::Result<()> {
    let some = "SELECT 1 FROM texts WHERE file = ? AND (deleted OR gone)";
    if !base.prepare_cached(some)?.exists([file])? {
        return Ok(());
    }
    let mut rows =
        base.prepare_cached("SELECT message, parent, deleted, gone FROM texts WHERE file = ? ORDER BY message")?;
    let row = |row: &rusqlite::Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let rows: Vec<(i64, Option<i64>, bool, bool)> = rows.query_map([file], row)?.collect::<Result<_, _>>()?;
    let mut gone: BTreeSet<i64> = BTreeSet::new();
    let mut set = base.prepare_cached("UPDATE texts SET gone = ? WHERE file = ? AND message = ?")?;
    for (message, parent, deleted, was) in rows {
        let is = deleted || parent.is_some_and(|parent| gone.contains(&parent));
        if is {
            gone.insert(message);
        }
        if is != was {
            set.execute(params![is, file, message])?;
        }
    }
    Ok(())
}

/// What the list shows: the title, the first question, or the name of the file.
fn shown(base: &Transaction<'_>, file: i64, name: &str, seen: &Seen) -> rusqlite::Result<String> {
    let question = "SELECT text FROM texts WHERE file = ? AND role = 0 AND gone = 0 ORDER BY message LIMIT 1";
    let text = if seen.title.is_empty() {
        base.prepare_cached(question)?.query_row([file], |row| row.get(0)).optional()?.unwrap_or_default()
    } else {
        seen.title.clone()
    };
    let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    let line: String = line.trim().chars().take(LONGEST_TITLE).collect();
    Ok(match (line.is_empty(), &seen.damage) {
        (false, _) => line,
        (true, Some(_)) => name.trim_end_matches(".jsonl").to_owned(),
        (true, None) => "New conversation".to_owned(),
    })
}

/// A title from the name of a file.
fn slug(name: &str) -> String {
    let slug = name.trim_end_matches(".jsonl").splitn(3, '-').nth(2).unwrap_or_default().replace('-', " ");
    if slug.is_empty() { "…".to_owned() } else { slug }
}

#[cfg(test)]
mod tests;
