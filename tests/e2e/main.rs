//! The whole program as a person uses it, in a pseudo-terminal, with the real model.

#![cfg(unix)]

mod chatting;
mod ending;
mod faults;
mod harness;
mod outside;
mod terminal;
