//! Conversations on disk: one append-only file of JSON lines each, `<id>-<slug>.jsonl`, and a trash folder.
//!
//! What is promised: an entry that was answered with `Saved` is on disk; a line that was written whole is
//! never changed or lost; a file that was changed by somebody else is never written over.

mod folder;
mod glance;
mod index;
mod journal;
mod librarian;
mod outside;
mod read;
mod words;
mod worker;

pub use index::{Fault, Index};
pub use outside::{Checked, Loaded, State, bring_in, check, files, load};
pub use words::{Excerpt, Words};
pub use worker::Worker;
