//! Subcommands: arguments in, output out. One file each.
pub mod bench;
mod running;
pub mod template;
