use std::sync::mpsc::{Receiver, channel};

use proptest::prelude::*;

use super::*;
use crate::chat::{Message, MessageState, Role, Sampling};

struct Rig {
    worker: Option<Worker>,
    events: Receiver<StoreEvent>,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (worker, events) = start(folder.path());
        Self { worker: Some(worker), events, folder }
    }

    fn ask(&self, request: StoreRequest) -> StoreEvent {
        self.worker.as_ref().unwrap().send(request);
        self.next()
    }

    fn next(&self) -> StoreEvent {
        self.events.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn append(&self, id: &ConversationId, entries: Vec<Entry>) -> StoreEvent {
        self.ask(StoreRequest::Append { id: id.clone(), entries, sync: true, ticket: Some(7) })
    }
}

fn start(folder: &Path) -> (Worker, Receiver<StoreEvent>) {
    let (sender, events) = channel();
    let worker = Worker::start(folder.to_owned(), move |e| {
        let _ = sender.send(e);
    });
    (worker.unwrap(), events)
}

fn id() -> ConversationId {
    ConversationId::new(1_764_590_000_000, 7)
}

fn new() -> Conversation {
    Conversation { draft: "hel".into(), ..Conversation::new(id(), 5, Sampling::default()) }
}

fn message(id: u32, role: Role, text: &str) -> Entry {
    let parent = id.checked_sub(1).filter(|p| *p > 0);
    Entry::Message(Message { id, parent, role, text: text.into(), at: 1, state: MessageState::Complete, made: None })
}

fn opened(event: StoreEvent) -> (Conversation, Access, Vec<String>) {
    match event {
        StoreEvent::Opened { conversation, access, notes } => (*conversation, access, notes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written_is_read_again() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let entries =
        vec![message(1, Role::User, "hi\n\u{202e}there"), Entry::Title { text: "Über: the/../title!".into() }];
    assert_eq!(rig.append(&id(), entries.clone()), StoreEvent::Saved { id: id(), ticket: 7 });
    let mut expected = new();
    entries.iter().for_each(|e| expected.apply(e));
    let (read, access, notes) = opened(rig.ask(StoreRequest::Open(id())));
    assert_eq!((read, access, notes), (expected, Access::Write, vec![]));
    let names: Vec<_> = std::fs::read_dir(rig.folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["1764590000000-00000007-ber-the-title.jsonl"]);
    let StoreEvent::Listed(list) = rig.ask(StoreRequest::List) else { panic!() };
    assert_eq!((list[0].title.as_str(), list[0].messages, &list[0].damage), ("Über: the/../title!", 1, &None));
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let path = folder::path_of(rig.folder.path(), &id()).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_second_opener_only_reads() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let (second, events) = start(rig.folder.path());
    second.send(StoreRequest::Open(id()));
    let (_, access, _) = opened(events.recv().unwrap());
    assert!(matches!(access, Access::ReadOnly(why) if why.contains("another llmchat")));
    second.send(StoreRequest::Append {
        id: id(),
        entries: vec![message(9, Role::User, "x")],
        sync: true,
        ticket: None,
    });
    assert!(matches!(events.recv().unwrap(), StoreEvent::SaveFailed { .. }));
    // When the first one closes it, the second may write.
    rig.worker.as_ref().unwrap().send(StoreRequest::Close(id()));
    rig.ask(StoreRequest::List);
    second.send(StoreRequest::Open(id()));
    assert_eq!(opened(events.recv().unwrap()).1, Access::Write);
    second.finish();
}

#[test]
fn a_failed_write_is_told_once_kept_and_tried_again() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let path = folder::path_of(rig.folder.path(), &id()).unwrap();
    let away = rig.folder.path().join("away");
    std::fs::rename(&path, &away).unwrap();
    let failed = rig.append(&id(), vec![message(1, Role::User, "one")]);
    assert!(
        matches!(&failed, StoreEvent::SaveFailed { reason, .. } if reason.contains("kept in memory")),
        "{failed:?}"
    );
    rig.worker.as_ref().unwrap().send(StoreRequest::Append {
        id: id(),
        entries: vec![message(2, Role::Assistant, "two")],
        sync: false,
        ticket: None,
    });
    std::fs::rename(&away, &path).unwrap();
    assert_eq!(rig.next(), StoreEvent::Saved { id: id(), ticket: 7 });
    assert_eq!(rig.next(), StoreEvent::SaveRecovered { id: id() });
    let texts: Vec<String> = journal::read(&path).unwrap().conversation.messages.into_iter().map(|m| m.text).collect();
    assert_eq!(texts, ["one", "two"]);
}

#[test]
fn what_somebody_else_wrote_is_never_written_over() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let path = folder::path_of(rig.folder.path(), &id()).unwrap();
    let mut theirs = std::fs::read(&path).unwrap();
    theirs.extend(serde_json::to_vec(&message(1, Role::User, "theirs")).unwrap());
    theirs.push(b'\n');
    std::fs::write(&path, &theirs).unwrap();
    assert!(matches!(rig.append(&id(), vec![message(1, Role::User, "ours")]), StoreEvent::SaveFailed { .. }));
    assert_eq!(std::fs::read(&path).unwrap(), theirs);
}

#[test]
fn trash_keeps_and_gives_back() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    assert_eq!(rig.ask(StoreRequest::Trash(id())), StoreEvent::Trashed(id()));
    assert_eq!(rig.ask(StoreRequest::List), StoreEvent::Listed(vec![]));
    assert_eq!(rig.ask(StoreRequest::Restore(id())), StoreEvent::Restored(id()));
    assert_eq!(opened(rig.ask(StoreRequest::Open(id()))).0, new());
    assert!(matches!(rig.ask(StoreRequest::Restore(id())), StoreEvent::Failed { .. }));
}

#[test]
fn a_closed_conversation_can_be_renamed() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    rig.worker.as_ref().unwrap().send(StoreRequest::Close(id()));
    let StoreEvent::Listed(list) = rig.ask(StoreRequest::Rename(id(), "Second".into())) else { panic!() };
    assert_eq!(list[0].title, "Second");
}

#[test]
fn a_newer_file_is_only_shown_and_unknown_entries_stay() {
    let rig = Rig::new();
    let path = rig.folder.path().join(folder::file_name(&id(), None));
    let text = format!(
        "{{\"type\":\"header\",\"version\":99,\"id\":\"{}\",\"created\":1,\"new\":true}}\n{{\"type\":\"hologram\",\"x\":1}}\n",
        id()
    );
    std::fs::write(&path, &text).unwrap();
    let (_, access, notes) = opened(rig.ask(StoreRequest::Open(id())));
    assert!(matches!(access, Access::ReadOnly(why) if why.contains("newer version")));
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

/// A journal with everything in it, as bytes.
fn whole_file() -> (Vec<u8>, Vec<Entry>) {
    let mut entries = entries_of(&new());
    entries.push(message(1, Role::User, "a question with ünïcode"));
    entries.push(message(2, Role::Assistant, ""));
    entries.push(Entry::Append { id: 2, text: "an ".into() });
    entries.push(Entry::Append { id: 2, text: "answer".into() });
    entries.push(Entry::System { text: "be brief".into() });
    let bytes = entries.iter().flat_map(|e| [serde_json::to_vec(e).unwrap(), b"\n".to_vec()].concat()).collect();
    (bytes, entries)
}

#[test]
fn every_torn_end_loses_only_its_line() {
    let (bytes, entries) = whole_file();
    let header = bytes.iter().position(|b| *b == b'\n').unwrap();
    for end in header + 1..=bytes.len() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(folder::file_name(&id(), None));
        std::fs::write(&path, &bytes[..end]).unwrap();
        let contents = journal::read(&path).unwrap();
        let lines = bytes[..end].iter().filter(|b| **b == b'\n').count();
        let mut expected = Conversation::new(id(), 5, Sampling::default());
        entries[..lines].iter().for_each(|e| expected.apply(e));
        assert_eq!(contents.conversation, expected, "cut at {end}");
        let journal = Journal::open(&path, &contents).unwrap();
        drop(journal);
        let kept = std::fs::read(&path).unwrap();
        assert_eq!(kept, bytes[..usize::try_from(contents.whole).unwrap()]);
        let torn = std::fs::read(path.with_extension("jsonl.torn")).unwrap_or_default();
        assert_eq!([kept, torn.strip_suffix(b"\n").unwrap_or_default().to_vec()].concat(), bytes[..end].to_vec());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn damage_is_told_and_never_a_panic(changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
                                        cut in any::<proptest::sample::Index>()) {
        let (mut bytes, entries) = whole_file();
        let header = bytes.iter().position(|b| *b == b'\n').unwrap() + 1;
        let mut touched = std::collections::HashSet::new();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            let line = bytes[..at].iter().filter(|b| **b == b'\n').count();
            touched.extend([line, line + 1]);
            bytes[at] = byte;
        }
        if cut.index(3) == 0 {
            bytes.truncate(header.max(cut.index(bytes.len())));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(folder::file_name(&id(), None));
        std::fs::write(&path, &bytes).unwrap();
        let _ = folder::list(folder.path());
        // A question on a line that nobody touched is still there.
        if let Ok(contents) = journal::read(&path) {
            let question = entries.iter().position(|e| matches!(e, Entry::Message(m) if m.id == 1)).unwrap();
            let there = bytes.iter().filter(|b| **b == b'\n').count() > question;
            if there && !touched.contains(&question) && (0..question).all(|l| !touched.contains(&l)) {
                prop_assert!(contents.conversation.message(1).is_some());
            }
        }
    }

    #[test]
    fn the_file_is_the_fold(texts in proptest::collection::vec((any::<bool>(), ".{0,40}"), 0..20)) {
        let rig = Rig::new();
        opened(rig.ask(StoreRequest::Create(Box::new(new()))));
        let mut expected = new();
        for (i, (user, text)) in texts.into_iter().enumerate() {
            let entry = message(u32::try_from(i).unwrap() + 1, if user { Role::User } else { Role::Assistant }, &text);
            expected.apply(&entry);
            rig.worker.as_ref().unwrap().send(StoreRequest::Append { id: id(), entries: vec![entry], sync: false, ticket: None });
        }
        prop_assert_eq!(opened(rig.ask(StoreRequest::Open(id()))).0, expected);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.finish();
        }
    }
}
