//! Runs the command line.

fn main() -> std::process::ExitCode {
    llmchat::cli::run()
}
