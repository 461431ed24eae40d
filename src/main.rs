//! x
fn main() {
    llmchat::engine::log::to_stderr();
    llmchat::engine::serve::serve(std::io::BufReader::new(std::io::stdin()), std::io::stdout()).unwrap();
}
