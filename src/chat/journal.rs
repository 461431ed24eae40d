//! The lines of a conversation file, and what the app asks of the store and hears from it.

use serde::{Deserialize, Serialize};

use super::content::Content;
use super::conversation::{Conversation, ConversationId, Message, MessageId};
use super::cut::{Cut, Overflow};
use super::filing::{Filing, Hit};
use super::history::Edit;
use super::metrics::{Made, TokenRecord};
use super::sampling::Sampling;

/// The format that this program writes; a file of a newer one is opened for reading only.
pub const JOURNAL_VERSION: u32 = 1;

/// One line of a conversation file. The first line of a file is a header, and only the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// What file this is.
    Header {
        /// Format version.
        version: u32,
        /// The conversation.
        id: ConversationId,
        /// When it was begun, Unix milliseconds.
        created: i64,
    },
    /// A message is there, or is replaced; it becomes the head.
    Message(Message),
    /// Text came to an open answer.
    Append {
        /// The answer.
        id: MessageId,
        /// What came since the last such entry.
        text: String,
    },
    /// An open answer ended.
    Done {
        /// The answer.
        id: MessageId,
        /// How it was made.
        made: Made,
    },
    /// More tokens of an answer are known.
    Tokens {
        /// The answer.
        id: MessageId,
        /// How probable each was.
        tokens: Vec<TokenRecord>,
    },
    /// Another path is shown.
    Head {
        /// Its last message; none for an empty path.
        id: Option<MessageId>,
    },
    /// The title changed.
    Title {
        /// The new one; empty for none.
        text: String,
    },
    /// The system prompt changed.
    System {
        /// The new one; empty for none.
        text: String,
    },
    /// The settings of the next answer changed.
    Sampling {
        /// The new ones.
        sampling: Sampling,
    },
    /// The text in the input box changed.
    Draft {
        /// The new one.
        text: String,
    },
    /// What is before a place is not sent any more.
    Cut(Cut),
    /// It is sent again.
    Uncut {
        /// The last message that the cut left out.
        after: MessageId,
    },
    /// Something else happens from now on when the conversation does not fit into the context.
    Overflow {
        /// What.
        overflow: Overflow,
    },
    /// A message and all that follows it is deleted: it stays in the file and is not shown.
    Delete {
        /// The message.
        id: MessageId,
    },
    /// It is there again.
    Restore {
        /// The message.
        id: MessageId,
    },
    /// It is filed otherwise.
    Filed(Filing),
    /// Text that a question refers to.
    Content(Content),
    /// An edit begins, which can be undone: a mark that changes nothing itself.
    Step {
        /// Which.
        what: Edit,
        /// The message whose words it changes, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<MessageId>,
    },
    /// What follows, up to the next mark, undoes the last edit: a mark that changes nothing itself.
    Undo,
    /// What follows does again what was undone last: a mark that changes nothing itself.
    Redo,
    /// Something that a newer program wrote; kept in the file, not understood here.
    #[serde(other)]
    Unknown,
}

/// Whether a conversation that is open here can be changed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is locked by this process.
    Write,
    /// It is only read, and this is why.
    ReadOnly(String),
}

/// A row of the conversation list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The conversation.
    pub id: ConversationId,
    /// Its title, or the beginning of its first question.
    pub title: String,
    /// When its file changed last, Unix milliseconds.
    pub changed: i64,
    /// How many messages it holds, without those that are deleted.
    pub messages: usize,
    /// What is wrong with the file, if anything is.
    pub damage: Option<String>,
    /// How it is filed.
    pub filing: Filing,
}

/// What the app asks of the store. Requests about one conversation are carried out in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreRequest {
    /// Answered by `Listed`, and again while conversations that nobody has looked at yet are read.
    List,
    /// Where words are in all conversations; answered by `Found`, and again when all conversations are read.
    Search {
        /// Comes back with the answer.
        number: u64,
        /// The words, all of which must be in a text; several in quotes are one.
        query: String,
    },
    /// Answered by `Opened` or `Failed`. Locks the file if it can, until `Close`.
    Open(ConversationId),
    /// Begins a new conversation; answered by `Opened`, and by `SaveFailed` if its file cannot be made yet. The
    /// conversation may hold a draft, a system prompt, settings and messages; all are written.
    Create(Box<Conversation>),
    /// Writes entries at the end of an open conversation's file. Without `sync` they may wait in the
    /// system's cache. With a ticket, `Saved` answers when they are on disk.
    Append {
        /// The conversation.
        id: ConversationId,
        /// What to write.
        entries: Vec<Entry>,
        /// Whether to wait for the disk.
        sync: bool,
        /// What `Saved` repeats.
        ticket: Option<u64>,
    },
    /// Gives the lock back, as soon as everything is written.
    Close(ConversationId),
    /// Moves the file to the trash folder; answered by `Trashed` or `Failed`.
    Trash(ConversationId),
    /// Brings the last trashed file back; answered by `Restored` or `Failed`.
    Restore(ConversationId),
    /// Writes an edit into a conversation that need not be open here; answered by `Listed` or `Failed`.
    Change(ConversationId, Edit, Box<Entry>),
}

/// What the store answers.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreEvent {
    /// The conversations, youngest change first.
    Listed(Vec<Summary>),
    /// Where the words of a search are.
    Found {
        /// That of the request.
        number: u64,
        /// The places, what was said last first.
        hits: Vec<Hit>,
        /// Whether every conversation was looked at.
        all: bool,
    },
    /// A conversation, whether it can be changed, and what had to be cut or passed over in its file.
    Opened {
        /// What the file holds.
        conversation: Box<Conversation>,
        /// Whether it is ours to change.
        access: Access,
        /// One sentence each.
        notes: Vec<String>,
    },
    /// Entries with a ticket are on disk.
    Saved {
        /// The conversation.
        id: ConversationId,
        /// The ticket.
        ticket: u64,
    },
    /// A write failed; its entries are kept in memory and tried again by themselves.
    SaveFailed {
        /// The conversation.
        id: ConversationId,
        /// Why, in one sentence with the next step.
        reason: String,
    },
    /// What could not be written is written now.
    SaveRecovered {
        /// The conversation.
        id: ConversationId,
    },
    /// Another program has changed or taken the file of a conversation that is open here. What was written since
    /// is in memory only; the file is given up.
    Taken {
        /// The conversation.
        id: ConversationId,
        /// What happened to the file.
        reason: String,
    },
    /// The conversation is in the trash folder.
    Trashed(ConversationId),
    /// The conversation is back.
    Restored(ConversationId),
    /// A request that was not a write failed.
    Failed {
        /// The conversation, where there is one.
        id: Option<ConversationId>,
        /// What, why, and the next step, in one sentence.
        reason: String,
    },
}
