//! Each system call that saving makes fails once, on a disk that is full, read-only, not ours or broken, or takes only
//! a part: nothing is lost, it is told, it is tried again, and no file is damaged.
//!
//! `inject.c` beside it lets the n-th call fail, for n from 1 on until there is none left. The ordinary run goes through
//! the errors in turn; `LLMCHAT_FAULTS=all cargo test --release --test saving -- --nocapture` tries each at each call.
#![allow(clippy::unwrap_used)] // In a test it is an assertion.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use llmchat::chat::{
    Access, Conversation, ConversationId, Edit, Entry, Message, MessageState, Role, Sampling, StoreEvent, StoreRequest,
    TokenRecord,
};
use llmchat::store::{self, Worker};
use rustix::io::Errno;

const TORN: &str = "{\"type\":\"message\",\"id\":2,\"te";
/// No more calls than that.
const MANY: usize = 1000;
/// What may fail unseen: a look at what is there, a title that does not come into a file's name, a folder that cannot
/// be synced after a file was moved in it.
fn is_quiet(call: &str) -> bool {
    let of_folder = call.ends_with("/conversations") || call.ends_with("/trash");
    call.starts_with("stat ") || call.starts_with("rename ") || of_folder
}

fn id(salt: u32) -> ConversationId {
    ConversationId::new(1_764_590_000_000, salt)
}

fn said(id: u32, role: Role, text: &str) -> Entry {
    Entry::Message(Message::new(id, (id > 1).then(|| id - 1), role, text, 1))
}

/// Somebody who writes, as the chat does.
struct Writer {
    worker: Worker,
    events: Receiver<StoreEvent>,
    conversation: Conversation,
    ticket: u64,
    failing: bool,
    copies: u32,
    told: Vec<String>,
}

impl Writer {
    /// The next answer that is not about a write.
    fn answer(&mut self) -> StoreEvent {
        loop {
            match self.events.recv_timeout(Duration::from_secs(10)).unwrap() {
                StoreEvent::SaveFailed { reason, .. } => self.failed(reason),
                StoreEvent::SaveRecovered { .. } => self.failing = false,
                StoreEvent::Taken { reason, .. } => self.copy(reason),
                event => return event,
            }
        }
    }

    fn failed(&mut self, reason: String) {
        self.failing = true;
        self.told.push(reason);
    }

    fn copy(&mut self, reason: String) {
        self.told.push(reason);
        self.failing = false;
        self.copies += 1;
        self.conversation.id = id(100 + self.copies);
        self.worker.send(StoreRequest::Create(Box::new(self.conversation.clone())));
    }

    fn ask(&mut self, request: StoreRequest) -> StoreEvent {
        self.worker.send(request);
        self.answer()
    }

    fn write(&mut self, entries: Vec<Entry>, wait: bool) {
        entries.iter().for_each(|entry| self.conversation.apply(entry));
        self.ticket += u64::from(wait);
        let ticket = wait.then_some(self.ticket);
        let id = self.conversation.id.clone();
        self.worker.send(StoreRequest::Append { id: id.clone(), entries, sync: wait, ticket });
        let until = Instant::now() + Duration::from_secs(10);
        if !wait {
            return self.wait_for_retry();
        }
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap() {
                StoreEvent::Saved { ticket, .. } if ticket == self.ticket => break,
                StoreEvent::SaveFailed { reason, .. } => self.failed(reason),
                StoreEvent::SaveRecovered { .. } => self.failing = false,
                StoreEvent::Taken { reason, .. } => {
                    self.copy(reason);
                    break;
                }
                _ => {}
            }
        }
        self.wait_for_retry();
    }

    /// What failed is tried again by itself.
    fn wait_for_retry(&mut self) {
        while self.failing {
            match self.events.recv_timeout(Duration::from_secs(10)).unwrap() {
                StoreEvent::SaveRecovered { .. } => self.failing = false,
                StoreEvent::SaveFailed { reason, .. } => self.failed(reason),
                _ => {}
            }
        }
    }

    /// Opens a conversation, a second time if it must be.
    fn open(&mut self, id: &ConversationId) -> Conversation {
        for _ in 0..2 {
            match self.ask(StoreRequest::Open(id.clone())) {
                StoreEvent::Opened { conversation, access: Access::Write, .. } => return *conversation,
                StoreEvent::Opened { access: Access::ReadOnly(why), .. } => self.told.push(why),
                StoreEvent::Failed { reason, .. } => self.told.push(reason),
                _ => {}
            }
        }
        panic!("{id} cannot be opened: {:?}", self.told);
    }

    /// Asks for something that may fail once.
    fn twice(&mut self, request: &StoreRequest, good: &StoreEvent) {
        for _ in 0..3 {
            match self.ask(request.clone()) {
                event if event == *good => return,
                StoreEvent::Failed { reason, .. } => self.told.push(reason),
                _ => {}
            }
        }
        panic!("{request:?} fails: {:?}", self.told);
    }
}

/// Not a test but the program whose calls fail: it does everything that a chat does with its files.
#[test]
#[ignore = "started by the test below"]
fn saves() {
    let Some(folder) = std::env::var_os("SAVING").map(PathBuf::from) else { return };
    let (sender, events) = channel();
    let worker = Worker::start(folder.join("conversations"), None, move |event| drop(sender.send(event))).unwrap();
    let conversation = Conversation { system: "Be brief.".into(), ..Conversation::new(id(1), 5, Sampling::default()) };
    let (ticket, failing, copies, told) = (0, false, 0, Vec::new());
    let mut w = Writer { worker, events, conversation, ticket, failing, copies, told };
    let created = w.ask(StoreRequest::Create(Box::new(w.conversation.clone())));
    assert!(matches!(created, StoreEvent::Opened { access: Access::Write, .. }));
    let step = |what| Entry::Step { what, message: None };
    let title = |text: &str| Entry::Title { text: text.into() };
    w.write(vec![step(Edit::Question), said(1, Role::User, "question one"), title("Words")], true);
    let open = Message { state: MessageState::Open, ..Message::new(2, Some(1), Role::Assistant, "", 1) };
    w.write(vec![Entry::Message(open)], false);
    w.write(vec![Entry::Append { id: 2, text: "answer one, ".into() }], false);
    w.write(vec![Entry::Append { id: 2, text: "its end".into() }], false);
    let token = TokenRecord { bytes: 3, logprob: -0.5, rank: 1, others: vec![] };
    w.write(vec![Entry::Tokens { id: 2, tokens: vec![token] }, step(Edit::Title), title("Other words")], true);
    w.worker.send(StoreRequest::Close(w.conversation.id.clone()));
    let (of, texts) = (w.conversation.id.clone(), |c: &Conversation| -> Vec<String> {
        c.messages.iter().map(|m| m.text.clone()).collect()
    });
    let read = w.open(&of);
    if of == w.conversation.id {
        assert_eq!(texts(&read), texts(&w.conversation));
    }
    w.write(vec![said(3, Role::User, "question two")], true);
    // One with a torn end is opened and written to.
    let first = std::mem::replace(&mut w.conversation, Conversation::new(id(2), 5, Sampling::default()));
    w.conversation = w.open(&id(2));
    w.write(vec![said(2, Role::Assistant, "answer of old")], true);
    w.worker.send(StoreRequest::Close(w.conversation.id.clone()));
    w.conversation = first;
    let of = w.conversation.id.clone();
    w.twice(&StoreRequest::Trash(of.clone()), &StoreEvent::Trashed(of.clone()));
    w.twice(&StoreRequest::Restore(of.clone()), &StoreEvent::Restored(of.clone()));
    assert_eq!(texts(&w.open(&of)), texts(&w.conversation));
    w.write(vec![said(4, Role::Assistant, "answer two"), Entry::Draft { text: "half a thought".into() }], false);
    let mut told = w.told;
    told.extend(w.worker.finish());
    std::fs::write(folder.join("told"), told.join("\n")).unwrap();
}

/// Everything in the conversations below a folder; each file is to be whole lines.
fn kept(folder: &Path) -> String {
    let mut all = String::new();
    for folder in ["conversations", "conversations/trash", "tmp"].map(|name| folder.join(name)) {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "jsonl")) {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.ends_with('\n'), "{text}");
            text.lines().for_each(|line| drop(serde_json::from_str::<Entry>(line).unwrap()));
            let conversation = store::load(&path, &id(9)).unwrap().conversation;
            for text in conversation.messages.iter().map(|m| &m.text).chain([&conversation.draft]) {
                all.push_str(text);
                all.push('\n');
            }
        }
    }
    all
}

/// Lets one call fail. Its name, if there was one, and whether something was told.
fn fail(program: &Path, nth: usize, error: i32) -> Option<(String, bool)> {
    let home = tempfile::tempdir().unwrap();
    let conversations = home.path().join("conversations");
    std::fs::create_dir(home.path().join("tmp")).unwrap();
    std::fs::create_dir(&conversations).unwrap();
    let mut old = Conversation::new(id(2), 5, Sampling::default()).entries();
    old.push(said(1, Role::User, "question of old"));
    let old: String = old.iter().map(|e| serde_json::to_string(e).unwrap() + "\n").collect();
    let torn = conversations.join(format!("{}.jsonl", id(2)));
    std::fs::write(&torn, old + TORN).unwrap();
    let report = home.path().join("report");
    let output = Command::new(program)
        .arg(&conversations)
        .args([nth.to_string(), error.to_string()])
        .arg(&report)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "saves", "--ignored", "--nocapture"])
        .env("SAVING", home.path())
        .env("TMPDIR", home.path().join("tmp"))
        .output()
        .unwrap();
    let calls = std::fs::read_to_string(&report).unwrap();
    let failed = calls.lines().find_map(|line| line.strip_suffix(" failed"));
    let failed = failed.map(|call| call.replace(home.path().to_str().unwrap(), ""));
    let what = format!("call {nth}, {failed:?} of {:?}, error {error}: {output:?}", calls.lines().collect::<Vec<_>>());
    assert!(output.status.success(), "{what}");
    let kept = kept(home.path());
    for words in [
        "question one",
        "answer one, its end",
        "question two",
        "answer two",
        "half a thought",
        "question of old",
        "answer of old",
    ] {
        assert!(kept.contains(words), "'{words}' is lost: {what}");
    }
    let aside = std::fs::read_to_string(torn.with_extension("jsonl.torn")).unwrap_or_default();
    assert!(aside.contains(TORN), "the torn end is lost: {what}");
    Some((failed?, !std::fs::read_to_string(home.path().join("told")).unwrap().is_empty()))
}

/// The program that lets calls fail, made of its source with the compiler that llama.cpp needs.
fn inject(folder: &Path) -> PathBuf {
    let program = folder.join("inject");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/saving/inject.c");
    let made = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(source).status();
    assert!(made.is_ok_and(|status| status.success()), "inject.c is not compiled");
    program
}

#[test]
fn each_call_may_fail_once_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let program = inject(folder.path());
    let all = std::env::var_os("LLMCHAT_FAULTS").is_some_and(|which| which == "all");
    let errors = [Errno::NOSPC, Errno::ACCESS, Errno::ROFS, Errno::IO].map(Errno::raw_os_error);
    // Each pass goes through the calls from the first on; the last one takes half of each write.
    let mut passes: Vec<Vec<i32>> = if all { errors.iter().map(|e| vec![*e]).collect() } else { vec![errors.to_vec()] };
    passes.push(vec![0]);
    let count = passes.len() - 1;
    let (mut total, mut unseen) = (0, BTreeMap::new());
    for errors in passes {
        let (next, end) = (AtomicUsize::new(1), AtomicUsize::new(MANY));
        let seen = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    loop {
                        let nth = next.fetch_add(1, Ordering::Relaxed);
                        if nth >= end.load(Ordering::Relaxed) {
                            break;
                        }
                        match fail(&program, nth, errors[nth % errors.len()]) {
                            Some((call, told)) => seen.lock().unwrap().push((nth, call, told)),
                            None => drop(end.fetch_min(nth, Ordering::Relaxed)),
                        }
                    }
                });
            }
        });
        let seen = seen.into_inner().unwrap();
        assert!(seen.len() > 8 && seen.len() < MANY - 10, "{seen:?}");
        total += seen.len();
        for (nth, call, _) in seen.into_iter().filter(|(.., told)| !told && errors[0] != 0) {
            unseen.entry(call).or_insert_with(Vec::new).push(nth);
        }
    }
    println!("{total} calls failed, one at a time; not told were {unseen:?}");
    unseen.retain(|call, _| !is_quiet(call));
    // The last words are written once more at once by the end of the program.
    assert!(unseen.keys().all(|call| call.starts_with("write ")), "{unseen:?}");
    assert!(unseen.values().map(Vec::len).sum::<usize>() <= count, "{unseen:?}");
}
