//! Subcommands: arguments in, output out. One file each.
