//! The only room that knows llama.cpp: the child process, its step loop, and the client that the chat holds.

pub mod client;
mod guard;
mod job;
mod load;
pub mod log;
mod loopguard;
mod native;
mod origin;
mod prompt;
pub mod protocol;
mod sampler;
mod sequences;
pub mod serve;
mod states;
mod step;
mod strategy;
pub mod template;
mod threads;
mod tokens;
mod utf8;

pub use origin::instructions;
pub use step::Sink;
pub use threads::cores;
