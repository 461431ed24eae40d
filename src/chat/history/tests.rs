use proptest::prelude::*;

use super::*;
use crate::chat::{ConversationId, Role};

fn empty() -> Conversation {
    Conversation::new(ConversationId::new(1, 1), 0, Sampling::default())
}

/// What a person sees of it: the tree without what is deleted, the words, everything that an edit can change.
#[derive(Debug, PartialEq)]
struct Seen {
    tree: Vec<(MessageId, Vec<bool>, String)>,
    head: Option<MessageId>,
    title: Option<String>,
    system: String,
    sampling: Sampling,
    cuts: Vec<Cut>,
    overflow: Overflow,
}

fn seen(c: &Conversation) -> Seen {
    let text = |id| c.message(id).unwrap().text.clone();
    Seen {
        tree: c.tree(false).into_iter().map(|n| (n.id, n.forks, text(n.id))).collect(),
        head: c.head,
        title: c.title.clone(),
        system: c.system.clone(),
        sampling: c.sampling.clone(),
        cuts: c.cuts.clone(),
        overflow: c.overflow,
    }
}

/// A conversation and the lines of its file.
struct Written {
    c: Conversation,
    lines: Vec<String>,
}

impl Written {
    fn new() -> Self {
        let c = empty();
        let lines = c.entries().iter().map(|e| serde_json::to_string(e).unwrap()).collect();
        Self { c, lines }
    }

    fn write(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.lines.push(serde_json::to_string(&entry).unwrap());
            self.c.apply(&entry);
        }
    }

    fn edit(&mut self, what: Edit, message: Option<MessageId>, entries: Vec<Entry>) {
        self.write(vec![Entry::Step { what, message }]);
        self.write(entries);
    }

    fn say(&mut self, role: Role, parent: Option<MessageId>, text: &str) -> MessageId {
        let id = self.c.next_id();
        self.write(vec![Entry::Message(Message::new(id, parent, role, text, 0))]);
        id
    }

    fn ask(&mut self, text: &str) -> (MessageId, MessageId) {
        self.edit(Edit::Question, None, vec![]);
        let question = self.say(Role::User, self.c.head, text);
        (question, self.say(Role::Assistant, Some(question), &format!("answer to {text}")))
    }

    fn undo(&mut self) -> Option<Edit> {
        let (what, entries) = self.c.undo()?;
        self.write(entries);
        Some(what)
    }

    fn redo(&mut self) -> Option<Edit> {
        let (what, entries) = self.c.redo()?;
        self.write(entries);
        Some(what)
    }

    fn read(&self) -> Conversation {
        let mut read = empty();
        self.lines.iter().for_each(|l| read.apply(&serde_json::from_str(l).unwrap()));
        read
    }

    /// The message so many places on, if there is one that is not deleted.
    fn nth(&self, n: usize) -> Option<MessageId> {
        let tree = self.c.tree(false);
        (!tree.is_empty()).then(|| tree[n % tree.len()].id)
    }
}

fn ids(c: &Conversation) -> Vec<MessageId> {
    c.path().iter().map(|m| m.id).collect()
}

#[test]
fn a_deleted_branch_is_not_shown_and_comes_back() {
    let mut w = Written::new();
    w.ask("one");
    w.ask("two");
    w.edit(Edit::Again, None, vec![Entry::Head { id: Some(3) }]);
    let other = w.say(Role::Assistant, Some(3), "another");
    assert_eq!((ids(&w.c), w.c.tries(other)), (vec![1, 2, 3, 5], vec![4, 5]));
    assert_eq!(w.c.head_without(5), Some(4), "the other try");
    assert_eq!(w.c.head_without(3), Some(2), "what was before");
    assert_eq!(w.c.head_without(4), Some(5), "it is not shown");
    w.edit(Edit::Delete, None, vec![Entry::Delete { id: 3 }]);
    assert_eq!(ids(&w.c), [1, 2], "also without a word about the head");
    assert_eq!(w.c.tree(false).len(), 2);
    assert_eq!(w.c.tree(true).iter().filter(|n| n.deleted).map(|n| n.id).collect::<Vec<_>>(), [3, 4, 5]);
    assert!(w.c.is_deleted(5) && w.c.deleted_at(5) == Some(3));
    // What is deleted cannot be shown, whatever a file says.
    w.write(vec![Entry::Head { id: Some(5) }]);
    assert_eq!(ids(&w.c), [1, 2]);
    assert_eq!(w.undo(), Some(Edit::Delete));
    assert_eq!(ids(&w.c), [1, 2, 3, 5]);
    assert_eq!(w.redo(), Some(Edit::Delete));
    assert_eq!(ids(&w.c), [1, 2]);
    w.edit(Edit::Restore, None, vec![Entry::Restore { id: 3 }]);
    assert_eq!(w.c.tree(false).len(), 5);
    assert_eq!(w.read(), w.c);
}

#[test]
fn words_that_an_answer_went_on_with_go_and_come_back() {
    let mut w = Written::new();
    let (_, answer) = w.ask("count");
    w.edit(Edit::Continue, Some(answer), vec![Entry::Append { id: answer, text: " and more".into() }]);
    w.undo();
    assert_eq!(w.c.message(answer).unwrap().text, "answer to count");
    w.redo();
    assert_eq!(w.c.message(answer).unwrap().text, "answer to count and more");
    assert_eq!(w.read(), w.c);
}

#[test]
fn the_first_question_takes_its_title_with_it_and_no_other_does() {
    let mut w = Written::new();
    w.edit(Edit::Question, None, vec![]);
    w.say(Role::User, None, "hello");
    w.write(vec![Entry::Title { text: "hello".into() }]);
    w.ask("more");
    // A title that another program gave.
    w.write(vec![Entry::Title { text: "Named".into() }]);
    w.undo();
    assert_eq!(w.c.title.as_deref(), Some("Named"));
    w.undo();
    assert_eq!((w.c.title.clone(), w.c.head), (None, None));
    w.redo();
    assert_eq!(w.c.title.as_deref(), Some("Named"));
}

#[test]
fn an_answer_that_comes_after_another_edit_stays_when_that_is_undone() {
    let mut w = Written::new();
    w.edit(Edit::Question, None, vec![]);
    w.say(Role::User, None, "hello");
    let warm = Sampling { temperature: 1.5, ..Sampling::default() };
    w.edit(Edit::Settings, None, vec![Entry::Sampling { sampling: warm }]);
    w.say(Role::Assistant, Some(1), "hi");
    w.undo();
    assert_eq!((w.c.sampling.temperature, ids(&w.c)), (0.8, vec![1, 2]));
    w.undo();
    assert_eq!(ids(&w.c), [0; 0]);
}

#[test]
fn marks_that_nothing_follows_or_goes_before_change_nothing() {
    let mut w = Written::new();
    w.ask("one");
    let before = seen(&w.c);
    w.write(vec![Entry::Redo, Entry::Undo, Entry::Undo, Entry::Undo, Entry::Redo]);
    assert_eq!(seen(&w.c), before);
    let newer = r#"{"type":"step","what":"telepathy","by":"a newer program"}"#;
    w.c.apply(&serde_json::from_str(newer).unwrap());
    assert_eq!(w.undo(), Some(Edit::Other));
    assert_eq!(seen(&w.c), before);
}

#[test]
fn only_the_last_edits_are_kept() {
    let mut w = Written::new();
    for n in 0..KEPT + 50 {
        w.edit(Edit::System, None, vec![Entry::System { text: n.to_string() }]);
    }
    let undone = std::iter::from_fn(|| w.undo()).count();
    assert_eq!((undone, w.c.system.as_str()), (KEPT, "49"));
    assert_eq!(w.read(), w.c);
}

#[derive(Clone, Debug)]
enum Op {
    Ask,
    Again(usize),
    Branch(usize),
    Continue(usize),
    Delete(usize),
    Restore(usize),
    Title(u8),
    System(u8),
    Settings(u8),
    Cut(usize, bool),
    Overflow(bool),
    Undo,
    Redo,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Ask),
        2 => (0usize..40).prop_map(Op::Again),
        2 => (0usize..40).prop_map(Op::Branch),
        1 => (0usize..40).prop_map(Op::Continue),
        2 => (0usize..40).prop_map(Op::Delete),
        1 => (0usize..40).prop_map(Op::Restore),
        1 => any::<u8>().prop_map(Op::Title),
        1 => any::<u8>().prop_map(Op::System),
        1 => any::<u8>().prop_map(Op::Settings),
        1 => (0usize..40, any::<bool>()).prop_map(|(n, on)| Op::Cut(n, on)),
        1 => any::<bool>().prop_map(Op::Overflow),
        5 => Just(Op::Undo),
        3 => Just(Op::Redo),
    ]
}

/// Carries an edit out. Tells whether there was anything to edit.
fn edit(w: &mut Written, op: &Op) -> bool {
    match op {
        Op::Ask => drop(w.ask("question")),
        Op::Again(n) => {
            let Some(question) = w.nth(*n).and_then(|id| w.c.question_of(id)) else { return false };
            w.edit(Edit::Again, None, vec![Entry::Head { id: Some(question) }]);
            w.say(Role::Assistant, Some(question), "again");
        }
        Op::Branch(n) => w.edit(Edit::Branch, None, vec![Entry::Head { id: w.nth(*n) }]),
        Op::Continue(n) => {
            let Some(id) = w.nth(*n) else { return false };
            w.edit(Edit::Continue, Some(id), vec![Entry::Append { id, text: " more".into() }]);
        }
        Op::Delete(n) => {
            let Some(id) = w.nth(*n) else { return false };
            let head = w.c.head_without(id);
            w.edit(Edit::Delete, None, vec![Entry::Delete { id }, Entry::Head { id: head }]);
        }
        Op::Restore(n) => {
            let Some(id) = w.c.deleted.iter().nth(*n % w.c.deleted.len().max(1)).copied() else { return false };
            w.edit(Edit::Restore, None, vec![Entry::Restore { id }]);
        }
        Op::Title(n) => w.edit(Edit::Title, None, vec![Entry::Title { text: n.to_string() }]),
        Op::System(n) => w.edit(Edit::System, None, vec![Entry::System { text: n.to_string() }]),
        Op::Settings(n) => {
            let sampling = Sampling { top_k: u32::from(*n), ..w.c.sampling.clone() };
            w.edit(Edit::Settings, None, vec![Entry::Sampling { sampling }]);
        }
        Op::Cut(n, on) => {
            let Some(after) = w.nth(*n) else { return false };
            let cut = Entry::Cut(Cut { after, tokens: 7, summary: None });
            w.edit(Edit::Cut, None, vec![if *on { cut } else { Entry::Uncut { after } }]);
        }
        Op::Overflow(on) => {
            let overflow = if *on { Overflow::Drop } else { Overflow::Ask };
            w.edit(Edit::Overflow, None, vec![Entry::Overflow { overflow }]);
        }
        Op::Undo | Op::Redo => return false,
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Undo shows what was before the edit, redo what was before the undo; the file says the same, and nothing
    /// that was said is ever gone.
    #[test]
    fn every_edit_can_be_undone_and_done_again(ops in proptest::collection::vec(op(), 1..60)) {
        let mut w = Written::new();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for op in &ops {
            let now = seen(&w.c);
            match op {
                Op::Undo => {
                    let undone = w.undo();
                    prop_assert_eq!(undone.is_some(), !before.is_empty());
                    if let Some(was) = before.pop() {
                        prop_assert_eq!(&seen(&w.c), &was);
                        after.push(now);
                    }
                }
                Op::Redo => {
                    let redone = w.redo();
                    prop_assert_eq!(redone.is_some(), !after.is_empty());
                    if let Some(was) = after.pop() {
                        prop_assert_eq!(&seen(&w.c), &was);
                        before.push(now);
                    }
                }
                op => if edit(&mut w, op) {
                    before.push(now);
                    after.clear();
                },
            }
            let c = &w.c;
            prop_assert!(c.path().iter().all(|m| !c.is_deleted(m.id)), "what is deleted is shown");
            let mut all: Vec<MessageId> = c.tree(true).iter().map(|n| n.id).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (1..c.next_id()).collect::<Vec<_>>());
        }
        prop_assert_eq!(w.read(), w.c.clone());
        // A file that is written anew says the same, but for what could be undone.
        let mut copy = empty();
        for entry in w.c.entries() {
            let line = serde_json::to_string(&entry).unwrap();
            copy.apply(&serde_json::from_str(&line).unwrap());
        }
        w.c.history = History::default();
        prop_assert_eq!(copy, w.c);
    }
}

#[test]
fn what_was_is_kept_for_the_last_edits_and_for_so_many_bytes_only() {
    let mut w = Written::new();
    let id = w.say(Role::User, None, &"x".repeat(KEPT_BYTES / 4));
    for _ in 0..20 {
        w.edit(Edit::Continue, Some(id), vec![]);
    }
    assert_eq!(w.c.history.done.len(), 4);
    for _ in 0..4 {
        w.write(vec![Entry::Undo]);
    }
    assert_eq!((w.c.history.done.len(), w.c.history.undone.len()), (0, 4));
    // One that is larger than all can be undone.
    w.write(vec![Entry::Append { id, text: "x".repeat(KEPT_BYTES) }]);
    w.edit(Edit::Continue, Some(id), vec![]);
    w.edit(Edit::Continue, Some(id), vec![]);
    assert_eq!(w.c.history.done.len(), 1);
}
