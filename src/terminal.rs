//! The terminal: taking it and giving it back, frames, keys, signals, panics, the clipboard, the editor.
//!
//! Nothing here may hold the loop of the chat: a frame is written by a thread of its own ([`Screen`]), so a
//! terminal that is slow or stuck costs frames, but no key, no token and no saved line. Keys are read by
//! another ([`Input`]), signals come on a third ([`watch`]).

mod clipboard;
mod editor;
mod input;
mod modes;
mod panic;
mod screen;
mod signals;
mod writer;

pub use clipboard::{Clipboard, copy};
pub use editor::edit;
pub use input::Input;
pub use modes::leave;
pub use panic::{last_panic, watch_panics};
pub use screen::{Screen, size};
pub use signals::{Signal, outlive_file_limits, stop_group, watch};
