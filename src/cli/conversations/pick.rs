//! Which conversation is meant.

use std::path::{Path, PathBuf};

use super::indexed;
use crate::chat::{ConversationId, Summary};
use crate::paths::Paths;
use crate::store;
use crate::text::sanitise_line;

/// The conversation of that id or beginning of an id, the only one with these words in its title, or the last one that
/// holds words; and its file.
///
/// # Errors
/// If there is none, or several.
pub fn pick(paths: &Paths, text: &str) -> Result<(ConversationId, PathBuf), String> {
    let text = text.trim();
    let index = store::files(&paths.conversations())?;
    let begun: Vec<&ConversationId> =
        index.keys().filter(|id| !text.is_empty() && id.as_str().starts_with(text)).collect();
    let exact = begun.iter().find(|id| id.as_str() == text).copied();
    let id = match (exact, begun.as_slice()) {
        (Some(id), _) => id.clone(),
        (None, [id]) => (*id).clone(),
        (None, []) => titled(paths, text)?,
        (None, several) => {
            return Err(format!("{} conversations begin with '{text}'; write more of the id", several.len()));
        }
    };
    let path = index.get(&id).cloned();
    path.map(|path| (id, path)).ok_or_else(|| format!("There is no conversation '{text}' any more"))
}

/// The same, where the file itself may be named too.
///
/// # Errors
/// If there is none, or several.
pub fn pick_file(paths: &Paths, text: &str) -> Result<(ConversationId, PathBuf), String> {
    let path = Path::new(text);
    if !path.is_file() {
        return pick(paths, text);
    }
    let id = path.file_stem().and_then(|stem| ConversationId::parse(stem.to_str()?));
    Ok((id.unwrap_or_else(|| ConversationId::new(0, 0)), path.to_owned()))
}

fn titled(paths: &Paths, text: &str) -> Result<ConversationId, String> {
    let (_, list) = indexed(paths)?;
    if text == "last" {
        let undamaged = || list.iter().filter(|s| s.damage.is_none());
        let youngest = undamaged().find(|s| s.messages > 0).or_else(|| undamaged().next());
        return youngest.map(|s| s.id.clone()).ok_or_else(|| "There is no conversation yet".to_owned());
    }
    let words = text.to_lowercase();
    let hits: Vec<&Summary> =
        list.iter().filter(|s| !words.is_empty() && s.title.to_lowercase().contains(&words)).collect();
    match hits.as_slice() {
        [one] => Ok(one.id.clone()),
        [] => Err(format!("There is no conversation '{text}'. 'llmchat conversations list' shows all with their ids")),
        several => {
            let names: Vec<String> =
                several.iter().take(5).map(|s| format!("{} ({})", sanitise_line(&s.title), s.id)).collect();
            let more = if several.len() > 5 { ", …" } else { "" };
            Err(format!("'{text}' is in {} titles: {}{more}. Write an id", several.len(), names.join(", ")))
        }
    }
}
