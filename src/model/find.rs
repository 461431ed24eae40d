//! Where models are, and which one a name means.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::gguf::{Gguf, ModelError};

/// How deep a folder of models is looked into: hubs nest publisher, repository and snapshot.
const DEPTH: usize = 6;

/// A model that `scripts/fetch-model` knows.
#[derive(Clone, Debug, Deserialize)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Its file in the models folder.
    pub file: String,
    /// `default`, or `test` for one that only the tests need.
    pub role: String,
    /// The file's size.
    pub bytes: u64,
    /// The file's hash.
    pub sha256: String,
}

/// The models of `assets/models.toml`.
pub fn known_models() -> Vec<Known> {
    #[derive(Deserialize)]
    struct Table {
        model: Vec<Known>,
    }
    toml::from_str::<Table>(include_str!("../../assets/models.toml")).map(|t| t.model).unwrap_or_default()
}

/// The file of the default model in the models folder.
pub fn default_model(models: &Path) -> Option<PathBuf> {
    known_models().into_iter().find(|m| m.role == "default").map(|m| models.join(m.file))
}

/// A model that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The file's name without its ending.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// What its header says, or why it cannot be used.
    pub header: Result<Gguf, ModelError>,
}

/// Folders in which models are looked for: ours first, then those of other programs, which are only read.
pub fn places(models: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut places = vec![models.to_owned()];
    if let Some(home) = home {
        let others =
            [".lmstudio/models", ".cache/lm-studio/models", ".cache/llama.cpp", ".cache/huggingface/hub", "models"];
        places.extend(others.iter().map(|other| home.join(other)));
    }
    places
}

fn files(folder: &Path, depth: usize, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut entries: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if depth > 0 {
                files(&path, depth - 1, out);
            }
        } else if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) && !is_later_part(&path) {
            out.push(path);
        }
    }
}

/// Whether it is the second or a later file of a model in several parts, which llama.cpp opens by the first.
fn is_later_part(path: &Path) -> bool {
    let name = stem(path);
    let Some((head, _)) = name.rsplit_once("-of-") else { return false };
    head.rsplit_once('-').is_some_and(|(_, n)| n.len() == 5 && n != "00001" && n.bytes().all(|b| b.is_ascii_digit()))
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Every model in these folders, each file once.
pub fn list(places: &[PathBuf]) -> Vec<Found> {
    let mut paths = Vec::new();
    for place in places {
        files(place, DEPTH, &mut paths);
    }
    let mut seen = std::collections::HashSet::new();
    paths.retain(|p| seen.insert(p.canonicalize().unwrap_or_else(|_| p.clone())));
    paths
        .into_iter()
        .map(|path| Found {
            name: stem(&path),
            bytes: std::fs::metadata(&path).map_or(0, |m| m.len()),
            header: Gguf::read(&path),
            path,
        })
        .collect()
}

/// The model that is meant: a file, or the name of one in these folders – whole, its beginning, or a part.
///
/// # Errors
/// If there is none, or several.
pub fn find(query: &str, places: &[PathBuf], home: Option<&Path>) -> Result<PathBuf, ModelError> {
    let path = match (query.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(query),
    };
    let looks_like_a_path =
        query.contains(['/', '\\']) || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    if path.exists() {
        return Ok(path);
    }
    let mut paths = Vec::new();
    for place in places {
        files(place, DEPTH, &mut paths);
    }
    let wanted = query.trim_end_matches(".gguf").to_lowercase();
    let tests: [fn(&str, &str) -> bool; 3] = [|n, w| n == w, |n, w| n.starts_with(w), |n, w| n.contains(w)];
    for test in tests {
        let mut hits: Vec<&PathBuf> = paths.iter().filter(|p| test(&stem(p).to_lowercase(), &wanted)).collect();
        hits.dedup_by_key(|p| stem(p));
        match hits.as_slice() {
            [] => {}
            [one] => return Ok((*one).clone()),
            several => return Err(ModelError::Ambiguous(query.to_owned(), several.iter().map(|p| stem(p)).collect())),
        }
    }
    if looks_like_a_path {
        return Err(ModelError::Missing(path));
    }
    let near = paths.iter().map(|p| stem(p)).take(5).collect();
    Err(ModelError::Unknown(query.to_owned(), near))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_parts() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("publisher/repository");
        std::fs::create_dir_all(&deep).unwrap();
        for name in
            ["Alpha-1B.gguf", "Alpha-7B.gguf", "beta-00001-of-00002.gguf", "beta-00002-of-00002.gguf", "notes.txt"]
        {
            std::fs::write(deep.join(name), "x").unwrap();
        }
        let places = [folder.path().to_owned()];
        let name = |query: &str| find(query, &places, None).map(|p| stem(&p));
        assert_eq!(name("alpha-1b"), Ok("Alpha-1B".into()));
        assert_eq!(name("7b"), Ok("Alpha-7B".into()));
        assert_eq!(name("beta"), Ok("beta-00001-of-00002".into()));
        assert!(matches!(name("alpha"), Err(ModelError::Ambiguous(_, names)) if names.len() == 2));
        assert!(matches!(name("gamma"), Err(ModelError::Unknown(_, near)) if near.len() == 3));
        assert!(matches!(name("./no/such.gguf"), Err(ModelError::Missing(_))));
        assert_eq!(list(&places).len(), 3);
    }

    #[test]
    fn the_default_model_is_known() {
        let path = default_model(Path::new("models")).unwrap();
        assert_eq!(path, Path::new("models/SmolLM2-135M-Instruct-Q4_1.gguf"));
        assert!(known_models().iter().all(|m| m.sha256.len() == 64));
    }
}
