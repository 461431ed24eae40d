//! GGUF files without loading them: what they hold, where they are, what they will need.

mod find;
mod gguf;
mod memory;
mod shape;

pub use find::{Found, default_model, find, known_models, list, places};
pub use gguf::{Gguf, ModelError, Value};
pub use memory::{check, free_memory};
pub use shape::{KvShape, human};
