//! Reading a conversation file, whatever its state.

use std::io::{self, BufRead, BufReader, Read};

use crate::chat::{Conversation, ConversationId, Entry, JOURNAL_VERSION, MessageId, MessageState, Sampling};

/// A longer line is passed over: no message is that long, and memory stays bounded.
const LONGEST_LINE: u64 = 64 << 20;

/// A file with a larger id of a message is only shown: the ids of new ones could run out.
const LAST_ID: MessageId = MessageId::MAX - (1 << 20);

/// What a file holds.
#[derive(Debug)]
pub struct Contents {
    /// The fold of its entries.
    pub conversation: Conversation,
    /// What is to be said about it, one sentence each.
    pub notes: Vec<String>,
    /// Bytes up to the end of its last whole entry.
    pub whole: u64,
    /// Its size.
    pub size: u64,
    /// Its last entry is whole but has no line end yet.
    pub unterminated: bool,
    /// Lines that are no entries.
    pub broken: usize,
    /// Why it must not be written to, if so.
    pub read_only: Option<String>,
}

/// Folds the lines of a conversation file. The id is that of the file's name; a copied file has another one inside.
///
/// # Errors
/// If it cannot be read, or nothing in it is a conversation of this program.
pub fn read(input: impl Read, id: &ConversationId) -> Result<Contents, String> {
    let mut lines = Lines::new(input);
    let mut conversation = Conversation::new(id.clone(), 0, Sampling::default());
    let (mut size, mut whole, mut entries, mut broken) = (0, 0, 0usize, 0usize);
    let mut unterminated = false;
    let mut read_only = Some("its first line is damaged; it is only shown".to_owned());
    while let Some(read) = lines.next().map_err(|e| format!("The conversation cannot be read: {e}"))? {
        let first = size == 0;
        size += read.length;
        let entry = if read.long { None } else { serde_json::from_slice::<Entry>(&lines.line).ok() };
        if !read.ended && entry.is_none() {
            break;
        }
        unterminated = !read.ended;
        whole = size;
        match entry {
            Some(Entry::Header { version, created, .. }) if first => {
                conversation.created = created;
                entries += 1;
                read_only = (version > JOURNAL_VERSION)
                    .then(|| "a newer version of llmchat wrote this conversation; it is only shown".to_owned());
            }
            Some(entry) => {
                conversation.apply(&entry);
                entries += 1;
            }
            None if lines.line.trim_ascii().is_empty() => {}
            None => broken += 1,
        }
    }
    if entries == 0 {
        let what = if size == 0 { "is empty" } else { "is not a conversation of this program" };
        return Err(format!("The file of {id} {what}; it stays as it is"));
    }
    if read_only.is_none() && conversation.next_id() > LAST_ID {
        read_only = Some("there are no numbers left for new messages; it is only shown".to_owned());
    }
    let mut notes = Vec::new();
    if size > whole {
        let torn = size - whole;
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
            if conversation.head == Some(message.id) {
                notes.push("The last answer of this conversation was broken off when the program ended".to_owned());
            }
        }
    }
    Ok(Contents { conversation, notes, whole, size, unterminated, broken, read_only })
}

/// The lines of a file.
pub(super) struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
}

/// A line that was read.
pub(super) struct Line {
    /// Bytes, its end included.
    pub length: u64,
    /// Whether a line end is there.
    pub ended: bool,
    /// Longer than is looked at.
    pub long: bool,
}

impl<R: Read> Lines<R> {
    /// Reads from a place where a line begins.
    pub fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(64 << 10, input), line: Vec::new() }
    }

    /// The line that was read last, as far as it is looked at.
    pub fn bytes(&self) -> &[u8] {
        &self.line
    }

    /// Reads the next line.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn next(&mut self) -> io::Result<Option<Line>> {
        self.line.clear();
        let n = self.input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.line)? as u64;
        let ended = self.line.last() == Some(&b'\n');
        if n == 0 || ended || n < LONGEST_LINE {
            return Ok((n > 0).then_some(Line { length: n, ended, long: false }));
        }
        let (length, ended) = self.pass_over(n)?;
        Ok(Some(Line { length, ended, long: true }))
    }

    fn pass_over(&mut self, mut length: u64) -> io::Result<(u64, bool)> {
        loop {
            let bytes = self.input.fill_buf()?;
            if bytes.is_empty() {
                return Ok((length, false));
            }
            let end = bytes.iter().position(|b| *b == b'\n');
            let n = end.map_or(bytes.len(), |at| at + 1);
            self.input.consume(n);
            length += n as u64;
            if end.is_some() {
                return Ok((length, true));
            }
        }
    }
}
