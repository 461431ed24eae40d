use proptest::prelude::*;

use super::tests::Rig;
use super::*;
use crate::chat::{Entry, Finish, StoreRequest};

const WIDE: (u16, u16) = (120, 40);

impl Rig {
    pub fn alt(&mut self, c: char) {
        self.event(Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::ALT)));
    }

    /// Another answer to the last question.
    pub fn again(&mut self, text: &str) {
        self.key(KeyCode::F(7));
        self.save();
        self.let_answer(text);
    }

    /// The engine answers what it was asked.
    pub fn let_answer(&mut self, text: &str) {
        let job = self.started();
        for (n, word) in (1..).zip(text.split_inclusive(' ')) {
            self.token(job, n, word);
        }
        self.finish(job, Finish::Stop);
    }

    /// Selects the message that begins so.
    pub fn select(&mut self, text: &str) {
        self.app.go(Focus::Messages);
        let path = self.app.chat.conversation.path();
        let id = path.iter().find(|m| m.text.starts_with(text)).map(|m| m.id).expect("it is on the path");
        self.app.chat.transcript.selected = Some(id);
    }

    pub fn shown(&self) -> Vec<String> {
        self.app.chat.conversation.path().iter().map(|m| m.text.clone()).collect()
    }

    fn told(&self) -> String {
        self.app.notice.as_ref().map(|n| n.text.clone()).unwrap_or_default()
    }

    /// What the file of a conversation says, if it has one.
    pub fn file(&self, id: &ConversationId) -> Option<Conversation> {
        let mut read: Option<Conversation> = None;
        for effect in &self.done {
            let entries = match effect {
                Effect::Store(StoreRequest::Create(made)) if made.id == *id => {
                    read = Some(Conversation::new(made.id.clone(), made.created, Sampling::default()));
                    made.entries()
                }
                Effect::Store(StoreRequest::Append { id: of, entries, .. }) if of == id => entries.clone(),
                _ => continue,
            };
            let read = read.as_mut().expect("it was made before it was written to");
            for entry in entries {
                let line = serde_json::to_string(&entry).unwrap();
                read.apply(&serde_json::from_str::<Entry>(&line).unwrap());
            }
        }
        read
    }
}

#[test]
fn undo_takes_back_each_edit_and_redo_does_it_again() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("hi", "first");
    rig.again("second");
    rig.send("/system Be brief.");
    rig.send("/temp 0.3");
    rig.wait(1.0);
    let undone = |rig: &mut Rig| {
        rig.alt('z');
        rig.told().split(". ").next().unwrap().to_owned()
    };
    assert_eq!(undone(&mut rig), "Undone: settings");
    assert_eq!(rig.app.chat.conversation.sampling.temperature, 0.8);
    assert_eq!(undone(&mut rig), "Undone: system prompt");
    assert_eq!(rig.app.chat.conversation.system, "");
    assert_eq!(undone(&mut rig), "Undone: another answer");
    assert_eq!(rig.shown(), ["hi", "first"]);
    assert_eq!(rig.app.chat.conversation.tries(2), [2]);
    assert_eq!(undone(&mut rig), "Undone: question");
    assert_eq!((rig.shown().len(), rig.app.chat.title()), (0, "New conversation"));
    assert_eq!(undone(&mut rig), "There is nothing to undo");
    for _ in 0..4 {
        rig.alt('y');
    }
    assert_eq!(rig.shown(), ["hi", "second"]);
    let c = &rig.app.chat.conversation;
    assert_eq!((c.system.as_str(), c.sampling.temperature), ("Be brief.", 0.3));
    rig.alt('y');
    assert_eq!(rig.told(), "There is nothing to do again");
    assert_eq!(rig.file(&rig.app.chat.conversation.id.clone()).as_ref(), Some(&rig.app.chat.conversation));
}

#[test]
fn an_edited_question_and_its_answer_are_one_edit() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("helo", "what?");
    rig.key(KeyCode::F(8));
    rig.control('u');
    rig.answer("hello", "hi");
    assert_eq!(rig.shown(), ["hello", "hi"]);
    rig.alt('z');
    assert_eq!(rig.shown(), ["helo", "what?"]);
    rig.alt('y');
    assert_eq!(rig.shown(), ["hello", "hi"]);
}

#[test]
fn the_tree_closes_with_its_last_row() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("hi", "first");
    rig.alt('g');
    rig.alt('z');
    assert_eq!((rig.app.focus, rig.told().starts_with("Undone: question")), (Focus::Input, true));
    rig.alt('y');
    rig.alt('g');
    rig.key(KeyCode::Home);
    rig.key(KeyCode::Char('d'));
    assert_eq!((rig.app.focus, rig.shown().len()), (Focus::Input, 0));
    // What was deleted is what there is to see then.
    rig.alt('g');
    assert_eq!((rig.app.focus, rig.app.tree.as_ref().unwrap().rows.len()), (Focus::Tree, 2));
    rig.key(KeyCode::Char('x'));
    assert_eq!(rig.app.focus, Focus::Input);
}

#[test]
fn nothing_is_undone_while_an_answer_runs() {
    let mut rig = Rig::ready(WIDE);
    rig.send("hi");
    let job = rig.started();
    rig.token(job, 1, "Well");
    rig.alt('z');
    assert_eq!((rig.shown().len(), rig.told().as_str()), (2, "An answer runs; Esc stops it"));
}

#[test]
fn another_path_is_shown_when_no_answer_runs_and_the_file_is_told() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("hi", "first");
    rig.again("second");
    let id = rig.app.chat.conversation.id.clone();
    rig.send("and?");
    rig.select("second");
    rig.key(KeyCode::Left);
    assert_eq!((rig.shown()[1].as_str(), rig.told().as_str()), ("second", "An answer runs; Esc stops it"));
    rig.let_answer("so");
    rig.select("second");
    rig.key(KeyCode::Left);
    assert_eq!(rig.shown(), ["hi", "first"]);
    assert_eq!(rig.file(&id).unwrap().head, Some(2));
}

#[test]
fn a_slider_that_moved_just_now_is_undone_and_done_again() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("hi", "first");
    rig.send("/temp 0.3");
    rig.alt('z');
    assert_eq!(rig.app.chat.conversation.sampling.temperature, 0.8);
    rig.alt('y');
    rig.wait(2.0);
    assert_eq!(rig.app.chat.conversation.sampling.temperature, 0.3);
    assert_eq!(rig.file(&rig.app.chat.conversation.id.clone()).as_ref(), Some(&rig.app.chat.conversation));
}

#[test]
fn going_on_with_an_answer_is_undone_to_the_words_before() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("count", "one two");
    rig.send("/continue");
    rig.let_answer(" three");
    assert_eq!(rig.shown()[1], "one two three");
    rig.alt('z');
    assert_eq!(rig.shown()[1], "one two");
    rig.alt('y');
    assert_eq!(rig.shown()[1], "one two three");
}

#[test]
fn a_branch_goes_on_from_any_point_and_is_deleted_and_brought_back() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("a", "one");
    rig.answer("b", "two");
    rig.select("one");
    rig.key(KeyCode::Char('b'));
    assert_eq!((rig.shown(), rig.app.focus), (vec!["a".to_owned(), "one".into()], Focus::Input));
    rig.answer("c", "three");
    assert_eq!(rig.shown(), ["a", "one", "c", "three"]);
    rig.select("c");
    rig.key(KeyCode::Char('d'));
    assert_eq!(rig.shown(), ["a", "one", "b", "two"]);
    assert!(rig.told().starts_with("2 messages are deleted; Alt-Z"), "{}", rig.told());
    // After other edits the trash in the tree still has it.
    rig.key(KeyCode::Esc);
    rig.send("/rename Letters");
    rig.alt('g');
    rig.key(KeyCode::Char('x'));
    assert_eq!(rig.app.tree.as_ref().unwrap().rows.iter().filter(|n| n.deleted).count(), 2);
    rig.key(KeyCode::Char('G'));
    rig.key(KeyCode::Enter);
    assert_eq!(rig.told(), "This is deleted; u brings it back");
    rig.key(KeyCode::Char('u'));
    assert_eq!(rig.told(), "2 messages are back");
    rig.key(KeyCode::Enter);
    assert_eq!(
        (rig.shown(), rig.app.focus),
        (vec!["a".into(), "one".into(), "c".to_owned(), "three".into()], Focus::Messages)
    );
    rig.select("a");
    rig.key(KeyCode::Delete);
    assert_eq!(rig.shown(), [""; 0]);
    rig.alt('z');
    assert_eq!(rig.shown().len(), 4);
}

#[test]
fn a_copy_has_the_path_and_the_other_stays() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("a", "one");
    rig.again("two");
    rig.answer("b", "three");
    let old = rig.app.chat.conversation.clone();
    rig.send("/branch");
    assert_eq!(rig.shown(), ["a", "two", "b", "three"]);
    let new = rig.app.chat.conversation.clone();
    assert_eq!((new.messages.len(), new.title.as_deref()), (4, Some("a (branch)")));
    assert_ne!(new.id, old.id);
    assert_eq!(rig.file(&new.id).unwrap(), new);
    assert_eq!(rig.file(&old.id).unwrap().messages, old.messages);
    // From the tree all that follows goes along.
    rig.again("four");
    rig.alt('g');
    rig.key(KeyCode::Char('g'));
    rig.key(KeyCode::Char('n'));
    assert_eq!((rig.app.chat.conversation.messages.len(), rig.shown().len()), (5, 4));
}

#[test]
fn the_tree_jumps_between_tries_and_marks_two_to_compare() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("a", "the red fox");
    rig.again("the grey fox");
    rig.answer("b", "three");
    rig.alt('g');
    rig.key(KeyCode::Home);
    rig.key(KeyCode::Down);
    rig.key(KeyCode::Char('m'));
    rig.key(KeyCode::Right);
    let tree = rig.app.tree.as_ref().unwrap();
    assert_eq!((tree.marked, tree.chosen()), (Some(2), Some(3)));
    rig.key(KeyCode::Char('v'));
    let found = rig.app.comparison.as_ref().unwrap();
    assert_eq!(found.alike, (2, 3, 3));
    assert!(found.facts.iter().any(|f| f.label == "seed" && f.values[0] == "7"));
    rig.key(KeyCode::Char('s'));
    assert_eq!(rig.app.comparison.as_ref().unwrap().sides[1].id, 2);
    rig.key(KeyCode::Esc);
    assert_eq!(rig.app.focus, Focus::Tree);
    rig.key(KeyCode::Left);
    rig.key(KeyCode::Enter);
    assert_eq!((rig.shown(), rig.app.chat.transcript.selected), (vec!["a".to_owned(), "the red fox".into()], Some(2)));
    rig.key(KeyCode::Char('v'));
    rig.key(KeyCode::Enter);
    assert_eq!(rig.shown(), ["a", "the grey fox", "b", "three"]);
}

#[test]
fn a_conversation_that_is_only_read_can_be_walked_through_and_copied() {
    let mut rig = Rig::ready(WIDE);
    rig.answer("a", "one");
    rig.again("two");
    rig.app.chat.access = Access::ReadOnly("another llmchat has it".into());
    rig.done.clear();
    rig.select("two");
    rig.key(KeyCode::Left);
    assert_eq!(rig.shown(), ["a", "one"]);
    rig.key(KeyCode::Char('d'));
    rig.alt('z');
    assert_eq!(rig.app.chat.conversation.tries(2), [2, 3]);
    assert!(!rig.done.iter().any(|e| matches!(e, Effect::Store(StoreRequest::Append { .. }))), "{:?}", rig.done);
    rig.send("/branch");
    assert!(rig.app.chat.is_ours() && rig.shown() == ["a", "one"]);
}

/// What somebody may do, one key or command a time.
fn act() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "send",
        "send",
        "again",
        "again",
        "change",
        "older",
        "older",
        "newer",
        "cut off",
        "cut off",
        "go on",
        "jump",
        "bring back",
        "/continue",
        "/system Be brief.",
        "/system Be long.",
        "/temp 0.3",
        "/temp 1.1",
        "/overflow drop",
        "/overflow ask",
        "/rename Other",
        "/uncut",
        "/branch",
        "tab",
        "up",
        "down",
        "left",
        "right",
        "b",
        "d",
        "e",
        "r",
        "n",
        "v",
        "esc",
        "tree",
        "x",
        "u",
        "g",
        "G",
        "enter",
        "m",
        "s",
        "undo",
        "undo",
        "undo",
        "redo",
        "redo",
        "slide",
        "wait",
        "stop",
        "new",
        "chats",
    ])
}

/// Selects a message of the path, if there is one.
fn select_some(rig: &mut Rig, nth: u8) {
    rig.app.overlay = None;
    rig.app.go(Focus::Messages);
    let path: Vec<MessageId> = rig.app.chat.conversation.path().iter().map(|m| m.id).collect();
    rig.app.chat.transcript.selected = path.get(usize::from(nth) % path.len().max(1)).copied();
}

fn perform(rig: &mut Rig, act: &str, engine: u8, nth: u8) {
    let to_input = |rig: &mut Rig| {
        rig.app.overlay = None;
        rig.app.go(Focus::Input);
        rig.app.input.set("");
    };
    match act {
        "send" => {
            to_input(rig);
            rig.send("a question");
        }
        "again" => rig.key(KeyCode::F(7)),
        "change" => rig.key(KeyCode::F(8)),
        "older" | "newer" => {
            select_some(rig, nth);
            let c = &rig.app.chat.conversation;
            let several = c.path().iter().map(|m| m.id).find(|id| c.tries(*id).len() > 1);
            rig.app.chat.transcript.selected = several.or(rig.app.chat.transcript.selected);
            rig.key(if act == "older" { KeyCode::Left } else { KeyCode::Right });
        }
        "cut off" | "go on" => {
            select_some(rig, nth);
            rig.text(if act == "go on" { "b" } else { "d" });
        }
        "jump" => {
            to_input(rig);
            rig.alt('g');
            if let Some(tree) = &mut rig.app.tree {
                tree.at = usize::from(nth) % tree.rows.len().max(1);
                rig.key(KeyCode::Enter);
            }
        }
        "bring back" => {
            to_input(rig);
            rig.alt('g');
            rig.text("x");
            if let Some(tree) = &mut rig.app.tree {
                tree.at = tree.rows.iter().position(|node| node.deleted).unwrap_or(0);
                rig.text("u");
            }
        }
        "tab" => rig.key(KeyCode::Tab),
        "up" => rig.key(KeyCode::Up),
        "down" => rig.key(KeyCode::Down),
        "left" => rig.key(KeyCode::Left),
        "right" => rig.key(KeyCode::Right),
        "esc" | "stop" => rig.key(KeyCode::Esc),
        "enter" => rig.key(KeyCode::Enter),
        "tree" => rig.alt('g'),
        "undo" => rig.alt('z'),
        "redo" => rig.alt('y'),
        "slide" => {
            rig.key(KeyCode::F(2));
            rig.key(KeyCode::Down);
            rig.key(KeyCode::Right);
        }
        "wait" => rig.wait(0.4),
        "new" => rig.control('n'),
        "chats" => rig.control('o'),
        slash if slash.starts_with('/') => {
            to_input(rig);
            rig.send(slash);
        }
        key if rig.app.focus != Focus::Input => rig.text(key),
        _ => rig.key(KeyCode::Tab),
    }
    // The disk may take its time.
    if engine != 9 {
        rig.save();
    }
    let Some(job) = rig.app.engine.job.as_ref().map(|j| j.id) else { return };
    let begun = rig.app.engine.job.as_ref().is_some_and(|j| j.answer.is_some());
    match engine {
        0 | 1 if !begun => drop(rig.started()),
        2 if begun => rig.token(job, 1, "some words "),
        3 if begun => rig.finish(job, Finish::Stop),
        4 if begun => rig.finish(job, Finish::Cancelled),
        5.. if !begun => {
            rig.started();
            rig.token(job, 1, "all of it");
            rig.finish(job, Finish::Stop);
        }
        5.. => rig.finish(job, Finish::Stop),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Whatever is done: each conversation's file folds to what is in memory, its history included.
    #[test]
    fn the_file_says_what_is_shown(acts in proptest::collection::vec((act(), 0u8..10, 0u8..8), 1..70)) {
        let mut rig = Rig::ready((100, 30));
        for (act, engine, nth) in acts {
            perform(&mut rig, act, engine, nth);
        }
        rig.save();
        // All that runs ends, all that rests is saved.
        while let Some(job) = rig.app.engine.job.as_ref().map(|j| j.id) {
            if rig.app.engine.job.as_ref().is_some_and(|j| j.answer.is_none()) {
                rig.started();
            }
            rig.finish(job, Finish::Stop);
            rig.save();
        }
        rig.wait(2.0);
        let App { chat, background, .. } = &rig.app;
        for chat in background.values().chain([chat]) {
            let c = &chat.conversation;
            prop_assert!(c.path().iter().all(|m| !c.is_deleted(m.id)));
            if let Some(file) = rig.file(&c.id) {
                prop_assert_eq!(&file, c);
            }
        }
    }
}
