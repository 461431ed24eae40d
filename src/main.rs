//! Parses arguments, runs, prints the error.

fn main() {}
