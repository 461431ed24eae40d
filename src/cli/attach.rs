//! What is put into a question: files, folders by pattern, what a command prints.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::chat::Content;

/// Bytes of the longest file, and of all together.
const LONGEST: u64 = 4 << 20;
/// Files of the largest folder.
const MOST: usize = 200;

/// The files that a path, several paths or a pattern name; and what is to be said of those that are left out.
///
/// # Errors
/// If there is none, or one that is named cannot be put in.
pub fn read(argument: &str, home: Option<&Path>) -> Result<(Vec<Content>, Option<String>), String> {
    let whole = expanded(argument, home);
    let named = if whole.exists() { vec![argument] } else { argument.split_whitespace().collect() };
    let mut contents = Vec::new();
    let mut left_out = 0;
    for name in named {
        let path = expanded(name, home);
        if path.is_file() {
            contents.push(Content::new(name, text(&path).map_err(|why| format!("{name} {why}"))?));
            continue;
        }
        let pattern = if path.is_dir() { path.join("**/*") } else { path };
        let pattern = pattern.to_string_lossy();
        // What is hidden is only put in by its name.
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::default() };
        let found = glob::glob_with(&pattern, options);
        let found = found.map_err(|e| format!("'{name}' is neither a file nor a pattern: {e}"))?;
        let files: Vec<PathBuf> = found.flatten().filter(|p| p.is_file()).take(MOST + 1).collect();
        if files.is_empty() {
            return Err(format!("There is no file '{name}'. A path, a folder, or a pattern such as src/**/*.rs"));
        }
        if files.len() > MOST {
            return Err(format!("'{name}' names more than {MOST} files. Take a narrower pattern"));
        }
        for path in files {
            match text(&path) {
                Ok(text) => contents.push(Content::new(&path.to_string_lossy(), text)),
                Err(_) => left_out += 1,
            }
        }
    }
    let all: u64 = contents.iter().map(|c| c.text.len() as u64).sum();
    match contents.len() {
        0 => Err(format!("'{argument}' names no text file")),
        _ if all > LONGEST => Err(format!("'{argument}' is more than {} MiB. Take less of it", LONGEST >> 20)),
        _ => Ok((
            contents,
            (left_out > 0).then(|| format!("{left_out} files that are no text, or too long, are left out")),
        )),
    }
}

fn expanded(name: &str, home: Option<&Path>) -> PathBuf {
    match (name.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(name),
    }
}

/// The text of a file, or what is wrong with it.
fn text(path: &Path) -> Result<String, String> {
    let facts = std::fs::metadata(path).map_err(|e| format!("cannot be read: {e}"))?;
    if !facts.is_file() {
        return Err("is no ordinary file".to_owned());
    }
    if facts.len() > LONGEST {
        return Err(format!("is longer than {} MiB. Take a part of it, for example with /run head", LONGEST >> 20));
    }
    let bytes = std::fs::read(path).map_err(|e| format!("cannot be read: {e}"))?;
    let not_text = || "is no UTF-8 text. Convert it first, for example with /run iconv".to_owned();
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(not_text)
}

/// What a command of the shell prints, errors too.
///
/// # Errors
/// If it cannot be started, prints nothing, or no text.
pub fn run(line: &str) -> Result<Content, String> {
    let shell = if cfg!(windows) { ["cmd", "/C"] } else { ["sh", "-c"] };
    let both = if cfg!(windows) { line.to_owned() } else { format!("{{ {line}\n}} 2>&1") };
    let failed = |e: std::io::Error| format!("'{line}' cannot be run: {e}");
    let mut child = Command::new(shell[0])
        .args([shell[1], &both])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut bytes = Vec::new();
    let read = child.stdout.take().map_or(Ok(0), |out| out.take(LONGEST + 1).read_to_end(&mut bytes));
    // A command that prints without end is ended.
    let long = bytes.len() as u64 > LONGEST;
    if long {
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    read.map_err(failed)?;
    if long {
        return Err(format!(
            "'{line}' prints more than {} MiB. Take less of it, for example with | head",
            LONGEST >> 20
        ));
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("'{line}' prints no UTF-8 text"))?;
    if text.trim().is_empty() {
        return Err(format!("'{line}' prints nothing ({status})"));
    }
    Ok(Content::new(&format!("$ {line}"), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_patterns_and_folders_are_read_and_what_is_no_text_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        put("my notes.txt", b"one");
        put("a.rs", b"fn a() {}");
        put("deep/b.rs", b"fn b() {}");
        put("deep/.hidden.rs", b"no");
        put("picture.rs", &[0xff, 0xd8, 0]);
        let read = |name: &str| {
            let read = read(&format!("{}/{name}", folder.path().display()), None);
            read.map(|(contents, note)| (contents.into_iter().map(|c| c.text).collect::<Vec<_>>(), note.is_some()))
        };
        assert_eq!(read("my notes.txt"), Ok((vec!["one".into()], false)), "a blank is part of a name");
        assert_eq!(read("**/*.rs"), Ok((vec!["fn a() {}".into(), "fn b() {}".into()], true)));
        assert_eq!(read("deep"), Ok((vec!["fn b() {}".into()], false)));
        assert!(read("picture.rs").unwrap_err().contains("no UTF-8 text"));
        assert!(read("none*").unwrap_err().contains("There is no file"));
        assert!(super::read("~/a.rs", Some(folder.path())).is_ok());
        put("long.txt", &vec![b'x'; LONGEST as usize + 1]);
        assert!(read("long.txt").unwrap_err().contains("longer than 4 MiB"));
    }

    #[test]
    fn a_command_gives_what_it_prints_and_its_errors() {
        let content = run("echo out; echo err >&2").unwrap();
        assert_eq!((content.name.as_str(), content.text.as_str()), ("$ echo out; echo err >&2", "out\nerr\n"));
        assert!(run("true").unwrap_err().contains("prints nothing"));
        assert!(run("yes").unwrap_err().contains("more than 4 MiB"), "one without end is ended");
        assert!(run("printf '\\377'").unwrap_err().contains("no UTF-8"));
    }
}
