//! The whole program as a person uses it, in a pseudo-terminal, with the real model.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.
#![cfg(unix)]

mod attach;
mod cache;
mod chatting;
mod choosing;
mod disk;
mod ending;
mod faults;
mod harness;
mod killed;
mod list;
mod outside;
mod overflow;
mod replay;
mod terminal;
mod transfer;
mod tree;
