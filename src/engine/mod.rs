//! The only room that knows llama.cpp: the child process, its step loop, and the client that the chat holds.

pub mod protocol;
