//! GGUF files without loading them: what they hold, where they are, what they will need.

mod find;
mod gguf;
mod limits;
mod memory;
mod plan;
mod recurrent;
mod shape;
mod size;

pub use find::{Found, default_model, find, known_models, list, places};
pub use gguf::{Gguf, ModelError, Tensors, Value};
pub use limits::{Backend, limits};
pub use memory::free_memory;
pub use plan::{BRANCHES, Facts, Memory, SEQUENCES, Wish, batch, context};
pub use shape::{KvShape, STEP, Values};
pub use size::{human, parse_bytes};
