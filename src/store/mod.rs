//! Conversations on disk: one append-only file of JSON lines each, `<id>-<slug>.jsonl`, and a trash folder.
//!
//! What is promised: an entry that was answered with `Saved` is on disk; a line that was written whole is
//! never changed or lost; a file that was changed by somebody else is never written over.

mod folder;
mod journal;
mod outside;
mod read;
mod worker;

pub use outside::{Checked, Loaded, State, bring_in, check, index, list, load};
pub use worker::Worker;
