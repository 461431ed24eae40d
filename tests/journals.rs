//! Conversation files that are damaged, foreign, huge or hostile: what can be read of them is read, the rest is told,
//! nothing panics, and the memory does not grow with what they ask for.
//!
//! `LLMCHAT_MUTATIONS=100000 cargo test --release --test journals -- --nocapture` tries more of them than the ordinary
//! run; `LLMCHAT_SEED` makes others.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use llmchat::chat::{
    Content, Conversation, ConversationId, Cut, Edit, Entry, Filing, Finish, Made, Message, MessageId, MessageState,
    Role, Sampling, Timings, TokenRecord, Usage,
};
use llmchat::store::{self, Index};
use llmchat::transfer::{FORMATS, render};

const MUTATIONS: u64 = 4000;

/// Numbers that look random and are the same again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (n.max(1) as u64)).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

fn id() -> ConversationId {
    ConversationId::new(1_764_590_000_000, 7)
}

/// A folder that need not wait for a disk, where there is one.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The lines of a conversation with everything in it.
fn journal() -> Vec<Vec<u8>> {
    let said = |id, parent: MessageId, role, text: &str| {
        Entry::Message(Message::new(id, Some(parent).filter(|p| *p > 0), role, text, 1_764_590_000_000))
    };
    let step = |what| Entry::Step { what, message: None };
    let token = |bytes| TokenRecord { bytes, logprob: -0.5, rank: 1, others: vec![("a".into(), -1.0)] };
    let made = Made {
        model: "large".into(),
        sampling: Sampling::default(),
        seed: 7,
        finish: Finish::Stop,
        usage: Usage::default(),
        timings: Timings::default(),
        score: None,
        earlier: vec![(3, Sampling::default())],
        looped: false,
        origin: None,
    };
    let filing = Filing { pinned: true, archived: true, tags: Filing::tags_of("a b") };
    let open = Message { state: MessageState::Open, ..Message::new(2, Some(1), Role::Assistant, "", 5) };
    let mut entries = vec![
        Entry::Header { version: 1, id: id(), created: 1_764_590_000_000 },
        Entry::Sampling { sampling: Sampling::default() },
        Entry::System { text: "Be brief.".into() },
        step(Edit::Filing),
        Entry::Filed(filing),
        Entry::Content(Content::new("notes.txt", "words\n".into())),
        step(Edit::Question),
        said(1, 0, Role::User, "a question with ünïcode \u{202e} and \"marks\"\n"),
        Entry::Title { text: "../../Über \u{1b}[2J".into() },
        Entry::Message(open),
        Entry::Append { id: 2, text: "an ".into() },
        Entry::Append { id: 2, text: "answer".into() },
        Entry::Tokens { id: 2, tokens: vec![token(3), token(6)] },
        Entry::Done { id: 2, made },
        step(Edit::Settings),
        Entry::Sampling { sampling: Sampling { temperature: 0.3, ..Sampling::default() } },
        step(Edit::Again),
        said(3, 1, Role::Assistant, "another"),
        step(Edit::Question),
        said(4, 3, Role::User, "and on?"),
        said(5, 4, Role::Assistant, "on and on"),
        Entry::Step { what: Edit::Continue, message: Some(5) },
        Entry::Append { id: 5, text: " and on".into() },
        step(Edit::Cut),
        Entry::Cut(Cut { after: 3, tokens: 9, summary: Some("They met.".into()) }),
        step(Edit::Delete),
        Entry::Delete { id: 4 },
        Entry::Head { id: Some(2) },
        Entry::Undo,
        Entry::Restore { id: 4 },
        Entry::Head { id: Some(5) },
        Entry::Redo,
        Entry::Delete { id: 4 },
        Entry::Draft { text: "half a thought".into() },
    ];
    entries.extend((6..30).map(|id| {
        let role = if id % 2 == 0 { Role::User } else { Role::Assistant };
        said(id, id - 1 - id % 3, role, &format!("text {id}"))
    }));
    entries.iter().map(|entry| serde_json::to_vec(entry).unwrap()).collect()
}

/// Lines that this program did not write.
fn foreign(dice: &mut Dice) -> Vec<u8> {
    let nested = |open: &str, close: &str, depth: usize| format!("{}{}", open.repeat(depth), close.repeat(depth));
    let depth = 10_usize.pow(u32::try_from(1 + dice.below(4)).unwrap());
    let line = match dice.below(22) {
        0 => r#"{"role":"user","content":"Dear diary"}"#.to_owned(),
        1 => r#"{"type":"message","id":7,"parent":7,"role":"user","text":"its own parent"}"#.to_owned(),
        2 => r#"{"type":"message","id":8,"parent":9,"role":"user","text":"a circle"}"#.to_owned(),
        3 => r#"{"type":"message","id":9,"parent":8,"role":"user","text":"a circle"}"#.to_owned(),
        4 => r#"{"type":"message","id":3,"parent":1,"role":"assistant","text":"there twice"}"#.to_owned(),
        5 => r#"{"type":"message","id":4294967295,"parent":null,"role":"user","text":"the last id"}"#.to_owned(),
        6 => r#"{"type":"message","id":18446744073709551616,"parent":null,"role":"user","text":"beyond"}"#.to_owned(),
        7 => r#"{"type":"message","id":-1,"parent":1e400,"role":"user","text":"below"}"#.to_owned(),
        8 => r#"{"type":"message","id":0,"parent":null,"role":"user","text":"","at":9223372036854775807}"#.to_owned(),
        9 => r#"{"type":"message","id":2,"parent":null,"role":"system","text":"of the system","at":-9223372036854775808}"#.to_owned(),
        10 => format!(r#"{{"type":"header","version":{},"id":"../../x","created":-1}}"#, dice.below(4)),
        11 => r#"{"type":"sampling","sampling":{"temperature":1e308,"top_k":-5,"seed":99999999999}}"#.to_owned(),
        12 => r#"{"type":"sampling","sampling":{"temperature":-3,"max_tokens":0,"stop":["",""]}}"#.to_owned(),
        13 => r#"{"type":"hologram","x":[1,2,{"y":null}]}"#.to_owned(),
        14 => nested("[", "]", depth),
        15 => format!(r#"{{"type":"title","text":"deep","x":{}}}"#, nested("{\"a\":[", "]}", depth)),
        16 => format!(r#"{{"type":"title","text":"{}"}}"#, "x".repeat(depth * 10)),
        17 => "\0".repeat(depth),
        18 => "\u{feff}{\"type\":\"undo\"}".to_owned(),
        19 => format!(r#"{{"type":"tokens","id":2,"tokens":[[{},-2147483648,0,[]]]}}"#, u32::MAX),
        20 => ["undo", "redo", "step", "uncut", "delete"][dice.below(5)].to_owned(),
        _ => format!(r#"{{"type":"cut","after":{},"tokens":4294967295}}"#, dice.below(40)),
    };
    line.into_bytes()
}

/// A journal to which something happened.
fn mutated(lines: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut lines = lines.to_vec();
    let mut end: &[u8] = b"\n";
    let some = |dice: &mut Dice, n: usize| dice.below(n);
    for _ in 0..=dice.below(5) {
        let n = lines.len();
        let (a, b) = (some(dice, n), some(dice, n));
        match dice.below(14) {
            0 => lines.swap(a, b),
            1 => lines.insert(a, lines[b].clone()),
            2 if n > 1 => drop(lines.remove(a)),
            3 => lines[a].truncate(b * 4),
            4 => lines.extend(lines.clone().into_iter().take(60)),
            5 if a > 0 => lines.rotate_left(a),
            6 => end = [b"\r\n".as_slice(), b"\n\n", b"\n\0", b" "][dice.below(4)],
            7 => lines.truncate(a.max(1)),
            8 | 9 => {
                for _ in 0..=dice.below(6) {
                    let at = dice.below(lines[a].len());
                    if let Some(byte) = lines[a].get_mut(at) {
                        *byte = dice.byte();
                    }
                }
            }
            10 => {
                // Numbers and names change places.
                let text = String::from_utf8_lossy(&lines[a]).into_owned();
                let from = ["1", "2", "\"id\"", "null", "user", "message", "append"][dice.below(7)];
                let to =
                    ["3", "99", "4294967296", "-1", "\"id\"", "null", "1e9", "delete", "\"parent\""][dice.below(9)];
                lines[a] = text.replace(from, to).into_bytes();
            }
            _ => lines.insert(a, foreign(dice)),
        }
    }
    let mut bytes = lines.join(end);
    match dice.below(3) {
        0 => bytes.truncate(dice.below(bytes.len() + 1)),
        1 => {}
        _ => bytes.push(b'\n'),
    }
    bytes
}

/// The texts of the messages that whole lines of it add or replace, the last one of each id.
fn added(bytes: &[u8]) -> (HashMap<MessageId, String>, usize) {
    let (mut texts, mut damaged) = (HashMap::new(), 0);
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    for line in bytes[..whole].split(|b| *b == b'\n') {
        match serde_json::from_slice::<Entry>(line) {
            Ok(Entry::Message(message)) => drop(texts.insert(message.id, message.text)),
            Ok(_) => {}
            Err(_) => damaged += usize::from(!line.trim_ascii().is_empty()),
        }
    }
    (texts, damaged)
}

/// What holds of every conversation that was opened.
fn assert_sound(c: &Conversation, what: &str) {
    assert!(c.messages.is_sorted_by(|a, b| a.id < b.id), "{what}");
    assert_eq!(c.tree(true).len(), c.messages.len(), "{what}");
    assert!(c.path().iter().all(|m| !c.is_deleted(m.id)), "{what}");
    let mut again = Conversation::new(c.id.clone(), c.created, Sampling::default());
    c.entries().iter().for_each(|entry| again.apply(entry));
    again.history = c.history.clone();
    // A cut at a place that is not there, and what is not a number, may come otherwise; words may not.
    assert_eq!((&again.messages, &again.deleted, again.head), (&c.messages, &c.deleted, c.head), "{what}");
    for format in &FORMATS {
        render(c, format.format, format.whole);
    }
    let mut undone = c.clone();
    for _ in 0..30 {
        let Some((_, entries)) = undone.undo() else { break };
        entries.iter().for_each(|entry| undone.apply(entry));
    }
    assert_eq!(undone.messages.len(), c.messages.len(), "{what}");
}

#[test]
fn what_can_be_opened_is_opened_and_the_rest_is_told() {
    let (mutations, seed) = (number("LLMCHAT_MUTATIONS", MUTATIONS), number("LLMCHAT_SEED", 1));
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let folder = folder();
    let path = folder.path().join(format!("{}.jsonl", id()));
    let aside = path.with_extension("jsonl.torn");
    let lines = journal();
    let (mut opened, mut told) = (0, 0);
    for nth in 0..mutations {
        let bytes = mutated(&lines, &mut dice);
        let what =
            format!("mutation {nth} of seed {seed}:\n{}", String::from_utf8_lossy(&bytes[..bytes.len().min(9000)]));
        std::fs::write(&path, &bytes).unwrap();
        let (texts, damaged) = added(&bytes);
        Index::open(folder.path(), None).unwrap().refresh(Duration::from_mins(1)).unwrap();
        let Ok(loaded) = store::load(&path, &id()) else {
            assert!(texts.is_empty(), "{what}");
            continue;
        };
        opened += 1;
        for (id, text) in texts {
            let there = loaded.conversation.message(id).map(|m| m.text.as_str());
            assert!(there.is_some_and(|there| there.starts_with(&text)), "{id} {there:?}; {what}");
        }
        if damaged > 0 {
            told += 1;
            let note = format!("{damaged} damaged lines");
            assert!(loaded.notes.iter().any(|n| n.contains(&note)), "{note}: {:?}; {what}", loaded.notes);
        }
        assert_sound(&loaded.conversation, &what);
        // To set a torn end aside changes nothing and loses no byte.
        let checked = store::check(folder.path(), true).unwrap();
        assert_eq!(checked.len(), 1, "{what}");
        let again = store::load(&path, &id()).unwrap();
        assert_eq!(again.conversation, loaded.conversation, "{what}");
        let mut kept = std::fs::read(&path).unwrap();
        if let Ok(mut torn) = std::fs::read(&aside) {
            torn.pop();
            kept.extend(torn);
            std::fs::remove_file(&aside).unwrap();
        }
        assert!(kept == bytes || kept == [bytes.as_slice(), b"\n"].concat(), "{what}");
    }
    let most = peak() >> 20;
    println!("{mutations} mutations, seed {seed}: {opened} opened, {told} with damaged lines; {most} MiB at most");
    assert!(opened > mutations / 2 && told > mutations / 8);
    assert!(most < BOUND, "{most} MiB");
}

/// MiB that no small file and no line of it may take.
const BOUND: u64 = 1024;

/// The most memory that this process had so far.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0");
    line.split_whitespace().next().unwrap_or("0").parse::<u64>().unwrap() << 10
}

fn written(folder: &Path, parts: &[&[u8]]) -> PathBuf {
    let path = folder.join(format!("{}.jsonl", id()));
    std::fs::write(&path, parts.concat()).unwrap();
    path
}

#[test]
fn no_file_fills_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let lines = journal();
    let header = &lines[0];
    // A line without an end that is longer than the memory; the file takes no room.
    let question = lines.iter().find(|line| line.starts_with(b"{\"type\":\"message\"")).unwrap();
    let path = written(folder.path(), &[header, b"\n", question, b"\n"]);
    let whole = path.metadata().unwrap().len();
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(whole + (1 << 30)).unwrap();
    let loaded = store::load(&path, &id()).unwrap();
    assert_eq!((loaded.conversation.messages.len(), loaded.notes.len()), (1, 1), "{:?}", loaded.notes);
    // Edits that each remember what was: a small file that asks for much.
    let long = format!(r#"{{"type":"message","id":1,"parent":null,"role":"user","text":"{}"}}"#, "x".repeat(16 << 20));
    let step = br#"{"type":"step","what":"continue","message":1}"#;
    let mut parts: Vec<&[u8]> = vec![header, b"\n", long.as_bytes(), b"\n"];
    (0..190).for_each(|_| parts.extend([step.as_slice(), b"\n"]));
    (0..150).for_each(|_| parts.extend([b"{\"type\":\"undo\"}".as_slice(), b"\n"]));
    let path = written(folder.path(), &parts);
    let loaded = store::load(&path, &id()).unwrap();
    assert!(loaded.conversation.undo().is_some() || loaded.conversation.redo().is_some());
    drop(loaded);
    // Ids that come in the wrong order.
    let mut text = String::from_utf8(header.clone()).unwrap();
    (1..8000).rev().for_each(|id| {
        let message =
            format!("{{\"type\":\"message\",\"id\":{id},\"parent\":{},\"role\":\"user\",\"text\":\"\"}}", id - 1);
        text.push('\n');
        text.push_str(&message);
    });
    let path = written(folder.path(), &[text.as_bytes()]);
    assert_eq!(store::load(&path, &id()).unwrap().conversation.messages.len(), 7_999);
    let most = peak() >> 20;
    assert!(most < BOUND, "{most} MiB");
}

/// Whatever the title is, the file lies in the folder under a plain name, and is found again.
#[test]
fn no_title_leads_out_of_the_folder() {
    let titles = [
        "../../x",
        "..",
        "/etc/passwd",
        "CON",
        "nul.txt",
        "🦊🌊",
        "a\0b\r\n\x1b[2J",
        "\u{202e}gnp.exe",
        "-rf",
        "~",
        "a:b|c?*",
    ];
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("conversations");
    let titles = titles.map(str::to_owned).into_iter().chain(["x".repeat(4000), "ü/".repeat(2000), String::new()]);
    let mut count = 0;
    for (nth, title) in (0..).zip(titles) {
        let id = ConversationId::new(1_764_590_000_000, nth);
        let c = Conversation { title: Some(title.clone()), ..Conversation::new(id.clone(), 5, Sampling::default()) };
        let path = store::bring_in(&folder, &c, 0).unwrap();
        count += 1;
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(path, folder.join(name), "{title:?}");
        assert!(name.len() < 80 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)), "{name}");
        assert_eq!(store::files(&folder).unwrap()[&id], path);
        assert!(store::load(&path, &id).unwrap().conversation.title.unwrap_or_default() == title);
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), count);
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

/// Pipes and other things with the name of a conversation keep nobody waiting.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_left_alone() {
    use std::process::Command;
    let folder = tempfile::tempdir().unwrap();
    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let named = folder.path().join(format!("{}.jsonl", id()));
    pipe(&named);
    std::fs::create_dir(folder.path().join(format!("{}-folder.jsonl", ConversationId::new(1, 1)))).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("0000000000002-00000002.jsonl")).unwrap();
    assert_eq!(Index::open(folder.path(), None).unwrap().refresh(Duration::from_mins(1)).unwrap().0, []);
    assert!(store::files(folder.path()).unwrap().is_empty() && store::check(folder.path(), true).unwrap().is_empty());
    // Also where it became one since it was listed, and where a torn end should go.
    assert!(store::load(&named, &id()).unwrap_err().contains("it is no file"));
    assert!(store::load(Path::new("/dev/zero"), &id()).is_err());
    std::fs::remove_file(&named).unwrap();
    std::fs::write(&named, [journal()[0].as_slice(), b"\n{\"torn"].concat()).unwrap();
    pipe(&named.with_extension("jsonl.torn"));
    let checked = store::check(folder.path(), true).unwrap();
    assert_eq!((checked[0].state, std::fs::read(&named).unwrap().ends_with(b"{\"torn")), (store::State::Damaged, true));
}
