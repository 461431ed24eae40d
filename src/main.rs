//! x
fn main() {
    if std::env::args().nth(1).as_deref() == Some("template") {
        llmchat::cli::template::run_lines(std::io::BufReader::new(std::io::stdin()), std::io::stdout()).unwrap();
        return;
    }
    llmchat::engine::log::to_stderr();
    llmchat::engine::serve::serve(std::io::BufReader::new(std::io::stdin()), std::io::stdout()).unwrap();
}
