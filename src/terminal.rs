//! The terminal: entering and leaving it, the input thread, signals, the clipboard, the editor.

mod clipboard;
mod editor;
mod input;
mod screen;
mod signals;

pub use clipboard::copy;
pub use editor::edit;
pub use input::Input;
pub use screen::{Screen, leave};
pub use signals::{Signal, suspend, watch};
