//! The state of the chat and how it changes: an [`Event`] in, [`Effect`]s out. Pure: no file, no clock, no
//! terminal, no process is touched here.

mod event;

pub use event::{Effect, Event, Now, Resume, Start};
