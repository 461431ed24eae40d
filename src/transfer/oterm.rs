//! oterm's `store.db`: the tables `chat` and `message` of an `SQLite` database. Columns came and went with its versions.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use serde_json::Value;

use super::content::text_at;
use super::draft::{Draft, Lost, Source};

/// What every `SQLite` file begins with.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

/// Settings that both have: theirs, older ones too, and ours.
const SETTINGS: [(&str, &str); 8] = [
    ("temperature", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("seed", "seed"),
    ("repeat_penalty", "repeat_penalty"),
    ("num_predict", "max_tokens"),
    ("max_tokens", "max_tokens"),
];

/// Reads every conversation of a database. It is opened for reading only.
///
/// # Errors
/// If it is no database of oterm's.
pub(super) fn read(path: &Path) -> Result<Vec<Draft>, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Vec<Draft>> {
        let db = Connection::open_with_flags(path, flags)?;
        // What stands in the file's own schema is somebody else's code.
        db.pragma_update(None, "trusted_schema", false)?;
        if ["chat", "message"].into_iter().any(|name| !is_table(&db, name)) {
            return Err(rusqlite::Error::InvalidQuery);
        }
        drafts(&db)
    };
    open().map_err(|error| match error {
        rusqlite::Error::InvalidQuery => {
            "it is an SQLite database, but not oterm's: it has no tables of chats".to_owned()
        }
        error => format!("the database cannot be read: {error}"),
    })
}

/// Whether something is a plain table: a view or a virtual table could run for ever.
fn is_table(db: &Connection, name: &str) -> bool {
    let sql =
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1 AND sql NOT LIKE 'create virtual%'";
    db.query_row(sql, [name], |row| row.get::<_, i64>(0)).is_ok_and(|n| n == 1)
}

fn drafts(db: &Connection) -> rusqlite::Result<Vec<Draft>> {
    let mut drafts = Vec::new();
    let mut chats = db.prepare("SELECT * FROM chat ORDER BY id")?;
    let mut rows = chats.query([])?;
    while let Some(row) = rows.next()? {
        let mut draft = Draft::new(Source::Oterm);
        let id = text(row, "id");
        draft.title = Some(text(row, "name"));
        draft.system = text(row, "system");
        let model = Some(text(row, "model")).filter(|m| !m.is_empty());
        settings(&text(row, "parameters"), &mut draft);
        messages(db, &id, model.as_deref(), &mut draft)?;
        draft.key = Some(id);
        drafts.push(draft);
    }
    Ok(drafts)
}

fn messages(db: &Connection, chat: &str, model: Option<&str>, draft: &mut Draft) -> rusqlite::Result<()> {
    let mut messages = db.prepare("SELECT * FROM message WHERE chat_id = ?1 ORDER BY id")?;
    let mut rows = messages.query([chat])?;
    while let Some(row) = rows.next()? {
        let images = serde_json::from_str::<Vec<Value>>(&text(row, "images")).map_or(0, |images| images.len());
        draft.lost.count(Lost::IMAGES, images);
        let author = text(row, "author");
        draft.say(&author, text(row, "text"), 0, model.map(str::to_owned));
    }
    Ok(())
}

fn settings(parameters: &str, draft: &mut Draft) {
    let Ok(parameters) = serde_json::from_str::<Value>(parameters) else { return };
    for (theirs, ours) in SETTINGS {
        draft.settings.extend(text_at(&parameters, theirs).map(|value| (ours, value)));
    }
}

/// A column as text, whatever its type; empty where there is none.
fn text(row: &Row, column: &str) -> String {
    match row.get_ref(column) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Ok(ValueRef::Integer(number)) => number.to_string(),
        Ok(ValueRef::Real(number)) => number.to_string(),
        Ok(ValueRef::Null) | Err(_) => String::new(),
    }
}
