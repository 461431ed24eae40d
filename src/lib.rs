//! `llmchat`: a terminal chat for local GGUF models in which inference can be seen and steered.
//!
//! # The map
//!
//! One binary, two processes. The terminal (`llmchat`) draws and saves; its child (`llmchat engine`)
//! owns llama.cpp. They talk in JSON lines ([`engine::protocol`]), because llama.cpp ends its process on
//! a failed assertion and nothing that a person wrote may go with it.
//!
//! ```text
//!  keyboard ─┐                                     ┌ reader thread ─► queue
//!  signals ──┼─► Event ─► app::update ─► Effect ──►│ step loop: gather ─► decode ─► distribute
//!  engine ───┤                 │                   └ events out
//!  store ────┘              view::draw
//! ```
//!
//! A token's way: `engine::step` decodes → `engine::strategy` chooses → `engine::serve` writes a line →
//! `engine::client` reads it → `app` appends it to the message → `text` wraps it → `view` draws it, and
//! `store` checkpoints it about once a second.
//!
//! # What may surprise
//!
//! * Prefill decodes whole batches, not small chunks: those cost a tenth to a fifth of its rate. A stop and the
//!   progress bar come from llama.cpp's abort callback, which is called once a graph node (`engine::native`).
//! * The step loop serves one job at a time and others wait. What runs is always sequence 0 of the cache; what a prompt
//!   leaves is kept outside of the cache, in memory and in files (`engine::states`): resident sequences would slow each
//!   step down, and cells that lie elsewhere than in a cold run give other last bits.
//! * What is shown is not always what is sent: a conversation may be cut (`chat::Conversation::sent_to`).
//! * Threads are watched by what a step takes, and the engine's process gets a short OpenMP spin.
//!
//! # Who may use whom (held by `tests/architecture.rs`)
//!
//! ```text
//! text chat              nothing of ours
//! store model config     chat
//! transfer               chat, text          (formats in and out; touches no file)
//! paths                  nothing of ours
//! engine                 chat, model          (llama_cpp_2 appears nowhere else)
//! app                    chat, text, engine::protocol
//! view                   app, chat, text
//! terminal               app
//! cli, lib.rs            everything; nothing uses them
//! ```

pub mod app;
pub mod chat;
pub mod cli;
pub mod config;
pub mod engine;
pub mod model;
pub mod paths;
pub mod store;
pub mod terminal;
pub mod text;
pub mod transfer;
pub mod view;
