//! The whole program as a person uses it, in a pseudo-terminal, with the real model.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.
#![cfg(unix)]

mod cache;
mod chatting;
mod choosing;
mod disk;
mod ending;
mod faults;
mod harness;
mod killed;
mod outside;
mod overflow;
mod terminal;
mod transfer;
mod tree;
