//! stand-in
use super::protocol::{Problem, Turn};
use crate::chat::Role;
pub struct Rendered {
    pub segments: Vec<String>,
    pub owners: Vec<(usize, Role)>,
    pub notes: Vec<String>,
}
pub struct ChatTemplate;
impl ChatTemplate {
    pub fn new(_: Option<&str>, _: &str, _: &str) -> Self {
        Self
    }
    pub fn is_some(&self) -> bool {
        true
    }
    pub fn notes(&self) -> Vec<String> {
        vec![]
    }
}
pub fn render(_: &ChatTemplate, system: &str, turns: &[Turn], _: &[String]) -> Result<Rendered, Problem> {
    let mut s = String::new();
    let mut owners = vec![];
    s += &format!(
        "<|im_start|>system\n{}<|im_end|>\n",
        if system.is_empty() { "You are a helpful AI assistant named SmolLM, trained by Hugging Face" } else { system }
    );
    owners.push((s.len(), Role::System));
    for t in turns {
        s +=
            &format!("<|im_start|>{}\n{}<|im_end|>\n", if t.role == Role::User { "user" } else { "assistant" }, t.text);
        owners.push((s.len(), t.role));
    }
    s += "<|im_start|>assistant\n";
    owners.push((s.len(), Role::Assistant));
    Ok(Rendered { segments: vec![s], owners, notes: vec![] })
}
pub fn raw(text: &str, _: &[String]) -> Rendered {
    Rendered { segments: vec![text.to_owned()], owners: vec![(text.len(), Role::User)], notes: vec![] }
}
