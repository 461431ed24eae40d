use std::sync::mpsc::{Receiver, channel};

use proptest::prelude::*;

use super::*;
use crate::chat::{Cut, Message, MessageState, Overflow, Role, Sampling};
use crate::store::Index;

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

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.folder.path()).unwrap().map(|e| e.unwrap().file_name());
        let mut names: Vec<String> = names.map(|n| n.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn path(&self) -> PathBuf {
        folder::path_of(self.folder.path(), &id()).unwrap()
    }

    fn append(&self, id: &ConversationId, entries: Vec<Entry>) -> StoreEvent {
        self.ask(StoreRequest::Append { id: id.clone(), entries, sync: true, ticket: Some(7) })
    }
}

fn start(folder: &Path) -> (Worker, Receiver<StoreEvent>) {
    let (sender, events) = channel();
    let worker = Worker::start(folder.to_owned(), None, move |e| {
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
    Entry::Message(Message::new(id, parent, role, text, 1))
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
    let names = rig.names();
    assert_eq!(names, ["1764590000000-00000007-ber-the-title.jsonl"]);
    let StoreEvent::Listed(list) = rig.ask(StoreRequest::List) else { panic!() };
    assert_eq!((list[0].title.as_str(), list[0].messages, &list[0].damage), ("Über: the/../title!", 1, &None));
    // The list is kept, and what changed is seen.
    rig.append(&id(), vec![message(2, Role::Assistant, "hello"), Entry::Title { text: "Another".into() }]);
    let StoreEvent::Listed(list) = rig.ask(StoreRequest::List) else { panic!() };
    assert_eq!((list[0].title.as_str(), list[0].messages), ("Another", 2));
    assert_eq!(rig.names(), names, "only a file without a title in its name is renamed");
}

#[test]
fn what_is_deleted_is_not_counted_and_a_message_that_grew_once() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let listed = |entries| {
        rig.append(&id(), entries);
        let StoreEvent::Listed(list) = rig.ask(StoreRequest::List) else { panic!() };
        (list[0].title.clone(), list[0].messages)
    };
    let first = vec![message(1, Role::User, "hi"), message(2, Role::Assistant, "hel"), message(3, Role::User, "and")];
    assert_eq!(listed(first), ("hi".to_owned(), 3));
    assert_eq!(listed(vec![message(2, Role::Assistant, "hello")]).1, 3);
    // With a message goes what follows it.
    assert_eq!(listed(vec![Entry::Delete { id: 2 }]).1, 1);
    assert_eq!(listed(vec![Entry::Delete { id: 1 }]), ("New conversation".to_owned(), 0));
    assert_eq!(listed(vec![Entry::Restore { id: 1 }, Entry::Restore { id: 2 }]), ("hi".to_owned(), 3));
}

#[test]
fn a_conversation_is_made_with_all_that_it_holds() {
    let rig = Rig::new();
    let mut whole = new();
    for entry in [
        message(1, Role::User, "hi"),
        message(2, Role::Assistant, "hello"),
        message(3, Role::User, "and on"),
        Entry::Cut(Cut { after: 2, tokens: 9, summary: Some("They met.".into()) }),
        Entry::Overflow { overflow: Overflow::Summarise },
        Entry::System { text: "Be brief.".into() },
        Entry::Draft { text: "next".into() },
    ] {
        whole.apply(&entry);
    }
    opened(rig.ask(StoreRequest::Create(Box::new(whole.clone()))));
    assert_eq!(opened(rig.ask(StoreRequest::Open(id()))).0, whole);
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_it() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    assert_eq!(mode(&rig.path()), 0o600);
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().unwrap().permissions().mode() & 0o777
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

/// What the file of a conversation says, read by nobody's journal.
fn texts(path: &Path) -> Vec<String> {
    only_read(path, &id()).unwrap().conversation.messages.into_iter().map(|m| m.text).collect()
}

#[test]
fn what_cannot_be_written_is_told_kept_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conversations");
    std::fs::write(&path, "a file stands where the folder should").unwrap();
    let (worker, events) = start(&path);
    let next = || events.recv_timeout(Duration::from_secs(20)).unwrap();
    let append = |n, ticket| {
        let entries = vec![message(n, Role::User, "x")];
        worker.send(StoreRequest::Append { id: id(), entries, sync: false, ticket });
    };
    worker.send(StoreRequest::Create(Box::new(new())));
    opened(next());
    let failed = next();
    assert!(
        matches!(&failed, StoreEvent::SaveFailed { reason, .. } if reason.contains("kept in memory")),
        "{failed:?}"
    );
    // Each ticket is answered: the question that waits for it must not wait for the disk.
    for ticket in [7, 8, 9] {
        append(u32::try_from(ticket).unwrap(), Some(ticket));
        assert!(matches!(next(), StoreEvent::SaveFailed { .. }));
    }
    // It is closed only when it is written.
    worker.send(StoreRequest::Close(id()));
    std::fs::remove_file(&path).unwrap();
    assert_eq!([next(), next(), next()], [7, 8, 9].map(|ticket| StoreEvent::Saved { id: id(), ticket }));
    assert_eq!(next(), StoreEvent::SaveRecovered { id: id() });
    assert_eq!(texts(&folder::path_of(&path, &id()).unwrap()), ["x", "x", "x"]);
    let (second, events) = start(&path);
    second.send(StoreRequest::Open(id()));
    assert_eq!(opened(events.recv().unwrap()).1, Access::Write, "the lock was given back");
    assert_eq!((second.finish(), worker.finish()), (vec![], vec![]));
}

#[test]
fn what_cannot_be_saved_at_the_end_is_put_aside_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conversations");
    std::fs::write(&path, "").unwrap();
    let (worker, _events) = start(&path);
    worker.send(StoreRequest::Create(Box::new(new())));
    let entries = vec![message(1, Role::User, "precious")];
    worker.send(StoreRequest::Append { id: id(), entries, sync: false, ticket: None });
    let told = worker.finish();
    let aside = told[0].split(" is in ").nth(1).unwrap().split(": move it there").next().unwrap();
    assert_eq!(texts(Path::new(aside)), ["precious"]);
    #[cfg(unix)]
    assert_eq!(mode(Path::new(aside)), 0o600);
    std::fs::remove_file(aside).unwrap();
}

#[test]
fn what_somebody_else_wrote_is_never_written_over() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let path = rig.path();
    let mut theirs = std::fs::read(&path).unwrap();
    theirs.extend(serde_json::to_vec(&message(1, Role::User, "theirs")).unwrap());
    theirs.push(b'\n');
    std::fs::write(&path, &theirs).unwrap();
    let taken = rig.append(&id(), vec![message(1, Role::User, "ours")]);
    assert!(matches!(&taken, StoreEvent::Taken { reason, .. } if reason.contains("changed")), "{taken:?}");
    assert_eq!(std::fs::read(&path).unwrap(), theirs);
    // What still comes for it is in the copy by now, and it can be opened again.
    rig.worker.as_ref().unwrap().send(StoreRequest::Append {
        id: id(),
        entries: vec![message(2, Role::User, "late")],
        sync: false,
        ticket: None,
    });
    assert_eq!(opened(rig.ask(StoreRequest::Open(id()))).0.messages[0].text, "theirs");
}

#[test]
fn what_an_editor_wrote_over_last_is_in_a_copy() {
    // In the place of the file, or as another file of its name; the conversation is closed, or the program ends.
    for (in_place, ends) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut rig = Rig::new();
        opened(rig.ask(StoreRequest::Create(Box::new(new()))));
        rig.append(&id(), vec![message(1, Role::User, "before")]);
        rig.worker.as_ref().unwrap().send(StoreRequest::Close(id()));
        opened(rig.ask(StoreRequest::Open(id())));
        let mut theirs = std::fs::read(rig.path()).unwrap();
        rig.append(&id(), vec![message(2, Role::Assistant, "ours")]);
        theirs.extend(b"{\"type\":\"draft\",\"text\":\"theirs\"}\n");
        if in_place {
            std::fs::write(rig.path(), &theirs).unwrap();
        } else {
            std::fs::write(rig.folder.path().join("new"), &theirs).unwrap();
            std::fs::rename(rig.folder.path().join("new"), rig.path()).unwrap();
        }
        let told = if ends {
            rig.worker.take().unwrap().finish().remove(0)
        } else {
            rig.worker.as_ref().unwrap().send(StoreRequest::Close(id()));
            let StoreEvent::Failed { reason, .. } = rig.next() else { panic!() };
            reason
        };
        assert!(told.contains("in a copy"), "{told}");
        let mine = rig.path();
        assert_eq!(std::fs::read(&mine).unwrap(), theirs);
        let copy = folder::conversations(rig.folder.path()).unwrap().into_iter().find(|p| *p != mine).unwrap();
        assert_eq!(texts(&copy), ["before", "ours"]);
    }
}

#[test]
fn a_change_of_the_same_length_is_seen() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    rig.append(&id(), vec![message(1, Role::User, "ours")]);
    let text = std::fs::read_to_string(rig.path()).unwrap();
    std::fs::write(rig.path(), text.replace("ours", "hers")).unwrap();
    assert!(matches!(rig.append(&id(), vec![message(2, Role::User, "more")]), StoreEvent::Taken { .. }));
    assert_eq!(texts(&rig.path()), ["hers"]);
}

/// An editor saves what it read a while ago, again and again, while words come: each of both sides is in some file.
#[test]
fn no_word_of_two_writers_is_lost() {
    let rig = Rig::new();
    let mut mine = new();
    let mut theirs = 0;
    opened(rig.ask(StoreRequest::Create(Box::new(mine.clone()))));
    let mut edited = rig.path();
    let mut read = std::fs::read(&edited).unwrap();
    for n in 1..200 {
        if n % 3 == 0 {
            // It has what it read, and a word of its own.
            theirs += 1;
            read.extend(format!("{{\"type\":\"message\",\"id\":{},\"parent\":null,\"role\":\"user\",\"text\":\"theirs {theirs}.\"}}\n", 5000 + theirs).into_bytes());
            std::fs::write(&edited, &read).unwrap();
        }
        if n % 5 == 0 {
            // It opens what is written to by now.
            edited = folder::path_of(rig.folder.path(), &mine.id).unwrap();
            read = std::fs::read(&edited).unwrap();
        }
        let entry = message(n, Role::User, &format!("ours {n}."));
        mine.apply(&entry);
        if matches!(rig.append(&mine.id, vec![entry]), StoreEvent::Taken { .. }) {
            // As the chat does.
            mine.id = ConversationId::new(1_764_590_000_000, 1000 + n);
            opened(rig.ask(StoreRequest::Create(Box::new(mine.clone()))));
        }
    }
    let files = folder::conversations(rig.folder.path()).unwrap();
    let all: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for word in (1..200).map(|n| format!("ours {n}.")).chain((1..=theirs).map(|n| format!("theirs {n}."))) {
        assert!(all.contains(&format!("\"{word}\"")), "{word}");
    }
}

#[test]
fn a_file_that_was_moved_away_is_not_written_to() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let away = rig.folder.path().join("away");
    std::fs::rename(rig.path(), &away).unwrap();
    let before = std::fs::read(&away).unwrap();
    let taken = rig.append(&id(), vec![message(1, Role::User, "ours")]);
    assert!(matches!(&taken, StoreEvent::Taken { reason, .. } if reason.contains("moved")), "{taken:?}");
    assert_eq!(std::fs::read(&away).unwrap(), before);
}

#[test]
fn a_conversation_that_is_open_elsewhere_is_not_moved_away() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let (second, events) = start(rig.folder.path());
    second.send(StoreRequest::Trash(id()));
    assert!(matches!(events.recv().unwrap(), StoreEvent::Failed { reason, .. } if reason.contains("Another llmchat")));
    assert!(rig.path().exists());
    second.finish();
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
    let StoreEvent::Listed(list) =
        rig.ask(StoreRequest::Change(id(), Edit::Title, Box::new(Entry::Title { text: "Second".into() })))
    else {
        panic!()
    };
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
    let mut entries = new().entries();
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
    for end in 1..=bytes.len() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(folder::file_name(&id(), None));
        std::fs::write(&path, &bytes[..end]).unwrap();
        let opened = Journal::open(&path, &id());
        if end < header {
            assert!(matches!(opened, Err(NotOurs::Unreadable(_))), "cut at {end}");
            assert_eq!(std::fs::read(&path).unwrap(), bytes[..end], "what is not understood is left alone");
            continue;
        }
        let (mut journal, contents) = opened.unwrap();
        // An entry that lacks no more than its line end is whole.
        let lines = bytes[..(end + 1).min(bytes.len())].iter().filter(|b| **b == b'\n').count();
        let mut expected = Conversation::new(id(), 5, Sampling::default());
        entries[..lines].iter().for_each(|e| expected.apply(e));
        assert_eq!(contents.conversation, expected, "cut at {end}");
        journal.settle().unwrap();
        drop(journal);
        let mut kept = std::fs::read(&path).unwrap();
        assert_eq!(kept.last(), Some(&b'\n'));
        let aside = path.with_extension("jsonl.torn");
        if let Ok(torn) = std::fs::read(&aside) {
            kept.extend(torn);
            assert_eq!(kept.pop(), Some(b'\n'));
            #[cfg(unix)]
            assert_eq!(mode(&aside), 0o600);
        }
        assert!(kept == bytes[..end] || kept == bytes[..=end], "cut at {end}");
    }
}

#[test]
fn a_file_whose_first_line_is_damaged_is_shown() {
    let (mut bytes, _) = whole_file();
    bytes[3] = b'#';
    let rig = Rig::new();
    let path = rig.folder.path().join(folder::file_name(&id(), None));
    std::fs::write(&path, &bytes).unwrap();
    let (read, access, _) = opened(rig.ask(StoreRequest::Open(id())));
    assert!(matches!(access, Access::ReadOnly(why) if why.contains("first line")));
    assert_eq!(read.message(1).unwrap().text, "a question with ünïcode");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn only_an_answer_that_nobody_writes_was_broken_off() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let answer = Message::new(1, None, Role::Assistant, "so f", 1);
    let open = Entry::Message(Message { state: MessageState::Open, ..answer });
    rig.append(&id(), vec![open]);
    let (second, events) = start(rig.folder.path());
    for worker in [&second, rig.worker.as_ref().unwrap()] {
        worker.send(StoreRequest::Open(id()));
    }
    assert_eq!(opened(events.recv().unwrap()).2, [""; 0]);
    assert_eq!(opened(rig.next()).2, [""; 0]);
    rig.worker.as_ref().unwrap().send(StoreRequest::Close(id()));
    let (_, _, notes) = opened(rig.ask(StoreRequest::Open(id())));
    assert!(notes[0].contains("broken off"), "{notes:?}");
    second.finish();
}

#[test]
fn a_copied_file_is_another_conversation() {
    let rig = Rig::new();
    opened(rig.ask(StoreRequest::Create(Box::new(new()))));
    let other = ConversationId::new(1_764_590_000_000, 8);
    std::fs::copy(rig.path(), rig.folder.path().join(folder::file_name(&other, None))).unwrap();
    assert_eq!(opened(rig.ask(StoreRequest::Open(other.clone()))).0.id, other);
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
        let _ = Index::open(folder.path(), None).and_then(|mut index| index.refresh(Duration::from_mins(1)));
        // A question on a line that nobody touched is still there.
        if let Ok(contents) = only_read(&path, &id()) {
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
