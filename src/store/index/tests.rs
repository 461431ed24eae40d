use super::*;
use crate::chat::{Conversation, ConversationId, Entry, Message, MessageId, Sampling};
use crate::store::journal::Journal;

const LONG: Duration = Duration::from_mins(1);

/// A folder of conversations and the folder of the index.
struct Rig {
    folder: tempfile::TempDir,
    cache: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), cache: tempfile::tempdir().unwrap() }
    }

    fn path(&self, nth: u32) -> PathBuf {
        self.folder.path().join(folder::file_name(&id(nth), None))
    }

    fn make(&self, nth: u32, entries: Vec<Entry>) {
        let conversation = Conversation::new(id(nth), i64::from(nth), Sampling::default());
        Journal::new(self.path(nth)).append(&[conversation.entries(), entries].concat(), false).unwrap();
    }

    fn append(&self, nth: u32, entries: &[Entry]) {
        Journal::open(&self.path(nth), &id(nth)).ok().unwrap().0.append(entries, false).unwrap();
    }

    fn index(&self) -> Index {
        Index::open(self.folder.path(), Some(self.cache.path())).unwrap()
    }

    /// The texts in which words are found, by an index that was there before and by a new one.
    fn search(&self, query: &str) -> Vec<String> {
        let words = Words::parse(query).unwrap();
        let found = |mut index: Index| {
            assert_eq!(index.refresh(LONG).unwrap().1, 0);
            index.search(&words, 100).unwrap().into_iter().map(|hit| hit.text).collect::<Vec<_>>()
        };
        let found = [found(self.index()), found(Index::open(self.folder.path(), None).unwrap())];
        assert_eq!(found[0], found[1], "what was taken in bit by bit is what is taken in at once");
        found[0].clone()
    }
}

fn id(nth: u32) -> ConversationId {
    ConversationId::new(1_764_590_000_000 + i64::from(nth), 7)
}

fn said(id: MessageId, role: Role, text: &str) -> Entry {
    Entry::Message(Message::new(id, id.checked_sub(1).filter(|p| *p > 0), role, text, i64::from(id) * 1000))
}

#[test]
fn what_is_said_last_is_found_first_while_it_is_written() {
    let rig = Rig::new();
    rig.make(1, vec![said(1, Role::User, "A fox and a river"), said(2, Role::Assistant, "The RI")]);
    assert_eq!(rig.search("ri"), ["The RI", "A fox and a river"]);
    assert_eq!(rig.search("river"), ["A fox and a river"]);
    rig.append(1, &[Entry::Append { id: 2, text: "VER runs".into() }]);
    assert_eq!(rig.search("river"), ["The RIVER runs", "A fox and a river"]);
    // As another program may write it.
    let text = std::fs::read_to_string(rig.path(1)).unwrap();
    let more = "{ \"text\": \" to the sea\", \"id\": 2, \"type\": \"append\" }\n";
    std::fs::write(rig.path(1), text + more).unwrap();
    assert_eq!(rig.search("sea"), ["The RIVER runs to the sea"]);
    rig.append(1, &[said(2, Role::Assistant, "No water")]);
    assert_eq!(rig.search("river"), ["A fox and a river"]);
    rig.append(1, &[said(3, Role::User, "漢字の川"), Entry::Delete { id: 2 }]);
    assert!(rig.search("川").is_empty() && rig.search("water").is_empty(), "with a message goes what follows it");
    rig.append(1, &[Entry::Restore { id: 2 }]);
    assert_eq!((rig.search("川"), rig.search("water").len()), (vec!["漢字の川".to_owned()], 1));
}

#[test]
fn titles_and_system_prompts_are_found_and_the_list_has_them() {
    let rig = Rig::new();
    rig.make(1, vec![said(1, Role::User, "\n  hello there\nand more"), Entry::System { text: "Be a pirate".into() }]);
    let row = |rig: &Rig| {
        let (list, left) = rig.index().refresh(LONG).unwrap();
        assert_eq!(left, 0);
        (list[0].title.clone(), list[0].messages, list[0].filing.clone())
    };
    assert_eq!(row(&rig), ("hello there".into(), 1, Filing::default()));
    let filing = Filing { pinned: true, tags: Filing::tags_of("sea"), ..Filing::default() };
    rig.append(1, &[Entry::Title { text: "Ships".into() }, Entry::Filed(filing.clone())]);
    assert_eq!(row(&rig), ("Ships".into(), 1, filing));
    assert_eq!((rig.search("ships"), rig.search("pirate")), (vec!["Ships".to_owned()], vec!["Be a pirate".to_owned()]));
    rig.append(1, &[Entry::Title { text: String::new() }, Entry::Filed(Filing::default())]);
    assert_eq!((row(&rig).0.as_str(), rig.search("ships").len()), ("hello there", 0));
}

#[test]
fn a_file_that_is_written_anew_or_gone_is_noticed() {
    let rig = Rig::new();
    rig.make(1, vec![said(1, Role::User, "fox")]);
    rig.make(2, vec![said(1, Role::User, "fox")]);
    assert_eq!(rig.search("fox").len(), 2);
    // By another program, and as long as before.
    let text = std::fs::read_to_string(rig.path(1)).unwrap().replace("fox", "cat");
    std::fs::write(rig.path(1), text).unwrap();
    std::fs::File::options().write(true).open(rig.path(1)).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    assert_eq!((rig.search("fox").len(), rig.search("cat").len()), (1, 1));
    std::fs::remove_file(rig.path(2)).unwrap();
    assert!(rig.search("fox").is_empty());
    std::fs::write(rig.path(3), "nothing of ours\n").unwrap();
    std::fs::write(rig.path(4), "").unwrap();
    let (list, _) = rig.index().refresh(LONG).unwrap();
    let damage: Vec<_> = list.iter().filter_map(|s| s.damage.as_deref()).collect();
    assert_eq!(damage.len(), 2, "{list:?}");
    std::fs::remove_file(rig.path(3)).unwrap();
    rig.make(3, vec![said(1, Role::User, "whole again")]);
    assert!(rig.index().refresh(LONG).unwrap().0.iter().any(|s| s.title == "whole again" && s.damage.is_none()));
}

#[test]
fn the_list_is_there_before_all_files_are_read() {
    let rig = Rig::new();
    for nth in 0..5 {
        rig.make(nth, vec![said(1, Role::User, &format!("question {nth}"))]);
        let file = std::fs::File::options().write(true).open(rig.path(nth)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(u64::from(nth) + 9)).unwrap();
    }
    let named = rig.path(0).with_file_name(format!("{}-old-ships.jsonl", id(0)));
    std::fs::rename(rig.path(0), named).unwrap();
    let mut index = rig.index();
    for left in (0..5).rev() {
        let (list, told) = index.refresh(Duration::ZERO).unwrap();
        assert_eq!((list.len(), told), (5, left));
        assert_eq!(list[0].title, "question 4", "the youngest are read first");
        assert_eq!(list[4].title, if left > 0 { "old ships" } else { "question 0" });
    }
}

#[test]
fn an_index_that_is_damaged_or_cannot_be_kept_is_made_anew() {
    let rig = Rig::new();
    rig.make(1, vec![said(1, Role::User, "fox")]);
    assert_eq!(rig.search("fox").len(), 1);
    let file = std::fs::read_dir(rig.cache.path()).unwrap().flatten().map(|e| e.path());
    let file = file.into_iter().find(|p| p.extension().is_some_and(|e| e == "sqlite")).unwrap();
    for damage in ["no index at all, and long enough for a header of a hundred bytes".repeat(99), String::new()] {
        std::fs::write(&file, damage).unwrap();
        assert_eq!(rig.search("fox").len(), 1);
    }
    let newer = Connection::open(&file).unwrap();
    newer.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(newer);
    assert_eq!(rig.search("fox").len(), 1);
    let nowhere = rig.cache.path().join("file");
    std::fs::write(&nowhere, "").unwrap();
    assert_eq!(Index::whole(rig.folder.path(), &nowhere).unwrap().1.len(), 1);
    let (_, list) = Index::whole(&rig.cache.path().join("none"), rig.cache.path()).unwrap();
    assert!(list.is_empty(), "a folder that is not there holds none");
}
