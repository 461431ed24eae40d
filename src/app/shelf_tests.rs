//! The list: its order and groups, what is looked for in it, filing; and the search in all conversations.

use crossterm::event::KeyCode;

use super::tests::Rig;
use super::*;
use crate::chat::{Entry, Filing, Hit, Role, StoreEvent, StoreRequest, Summary};

const HOUR: i64 = 3_600_000;
/// Monday, 1 December 2025, 11:53 UTC.
const NOW: i64 = 1_764_590_000_000;

pub fn id(nth: u32) -> ConversationId {
    ConversationId::new(1_000_000 + i64::from(nth), nth)
}

pub fn summary(nth: u32, title: &str, hours: i64) -> Summary {
    let changed = NOW - hours * HOUR;
    Summary { id: id(nth), title: title.into(), changed, messages: 2, damage: None, filing: Filing::default() }
}

/// A list of conversations from today to last year.
pub fn items() -> Vec<Summary> {
    let filed = |s: Summary, filing| Summary { filing, ..s };
    let tags = Filing { tags: Filing::tags_of("work rust"), ..Filing::default() };
    vec![
        summary(1, "A fox and a river", 0),
        filed(summary(2, "Borrow checker", 3), tags),
        summary(3, "Bread", 20),
        filed(summary(4, "Old ships", 50), Filing { archived: true, ..Filing::default() }),
        summary(5, "Trains", 80),
        filed(summary(6, "Groceries", 24 * 40), Filing { pinned: true, ..Filing::default() }),
        summary(7, "The sea", 24 * 400),
    ]
}

pub fn hit(nth: u32, title: &str, message: u32, text: &str, mark: &str) -> Hit {
    let at = text.find(mark).unwrap();
    Hit {
        id: id(nth),
        title: title.into(),
        changed: NOW,
        archived: nth == 4,
        message: Some(message),
        role: Some(if message % 2 == 1 { Role::User } else { Role::Assistant }),
        text: text.into(),
        marks: std::iter::once(at..at + mark.len()).collect(),
    }
}

impl Rig {
    pub fn listed() -> Self {
        let mut rig = Self::ready((160, 45));
        rig.event(Event::Store(StoreEvent::Listed(items())));
        rig.control('o');
        rig
    }

    fn rows(&self) -> Vec<(String, String)> {
        let row = |(at, s): (usize, &Summary)| (self.app.group(at).unwrap().title(), s.title.clone());
        self.app.library.shown().enumerate().map(row).collect()
    }

    fn titles(&self) -> Vec<String> {
        self.app.library.shown().map(|s| s.title.clone()).collect()
    }

    pub fn searched(&self) -> (u64, String) {
        let of = |effect: &Effect| match effect {
            Effect::Store(StoreRequest::Search { number, query }) => Some((*number, query.clone())),
            _ => None,
        };
        self.done.iter().rev().find_map(of).unwrap()
    }

    /// The last change of a conversation that is not open.
    fn filed(&self) -> Filing {
        let of = |effect: &Effect| match effect {
            Effect::Store(StoreRequest::Change(_, _, entry)) => match entry.as_ref() {
                Entry::Filed(filing) => Some(filing.clone()),
                _ => None,
            },
            _ => None,
        };
        self.done.iter().rev().find_map(of).unwrap()
    }
}

#[test]
fn the_list_has_groups_and_what_is_archived_only_when_asked() {
    let mut rig = Rig::listed();
    let row = |group: &str, title: &str| (group.to_owned(), title.to_owned());
    let mut rows = vec![
        row("Pinned", "Groceries"),
        row("Today", "A fox and a river"),
        row("Today", "Borrow checker"),
        row("Yesterday", "Bread"),
        row("Friday", "Trains"),
        row("October 2024", "The sea"),
    ];
    assert_eq!(rig.rows(), rows);
    rig.text("A");
    rows.push(row("Archived", "Old ships"));
    assert_eq!(rig.rows(), rows);
    rig.text("A");
    assert_eq!(rig.rows().len(), 6);
}

#[test]
fn letters_of_titles_and_tags_find_and_then_what_was_said() {
    let mut rig = Rig::listed();
    rig.text("/brw");
    assert_eq!(rig.titles(), ["Borrow checker"]);
    assert_eq!(rig.searched().1, "brw");
    for _ in 0..3 {
        rig.key(KeyCode::Backspace);
    }
    assert_eq!(rig.titles().len(), 6, "nothing is looked for");
    rig.text("#work");
    assert_eq!(rig.titles(), ["Borrow checker"]);
    rig.key(KeyCode::Esc);
    assert_eq!((rig.titles().len(), rig.app.focus), (6, Focus::List), "Esc shows all again");
    rig.text("/sea");
    let (number, query) = rig.searched();
    let hits = vec![hit(7, "The sea", 1, "the sea", "sea"), hit(4, "Old ships", 8, "over the sea", "sea")];
    let found = |number| Event::Store(StoreEvent::Found { number, hits: hits.clone(), all: true });
    rig.event(found(number - 1));
    assert_eq!((query.as_str(), rig.titles()), ("sea", vec!["The sea".to_owned()]), "of letters before");
    rig.event(found(number));
    let rows: Vec<String> = rig.rows().into_iter().map(|(group, title)| format!("{group}: {title}")).collect();
    assert_eq!(rows, ["By title: The sea", "By what was said: Old ships"]);
    rig.key(KeyCode::Down);
    rig.key(KeyCode::Enter);
    assert!(rig.done.contains(&Effect::Store(StoreRequest::Open(id(4)))));
    assert_eq!(rig.titles().len(), 6);
}

#[test]
fn commands_count_for_what_is_found_once_the_words_are_left() {
    let mut rig = Rig::listed();
    rig.text("/bread");
    rig.key(KeyCode::Tab);
    rig.text("p");
    assert_eq!((rig.titles(), rig.filed().pinned), (vec!["Bread".to_owned()], true));
    rig.text("a");
    assert!(rig.filed().archived);
    rig.text("t");
    rig.text("#kitchen, flour");
    rig.key(KeyCode::Enter);
    assert_eq!(rig.filed().typed(), "flour kitchen");
}

#[test]
fn the_open_conversation_is_filed_with_a_slash_and_that_is_undone() {
    let mut rig = Rig::ready((160, 45));
    rig.answer("hi", "first");
    let filing = |rig: &Rig| rig.app.chat.conversation.filing.clone();
    for command in ["/pin", "/tags one two", "/archive"] {
        rig.send(command);
    }
    assert_eq!((filing(&rig).pinned, filing(&rig).archived, filing(&rig).typed().as_str()), (true, true, "one two"));
    let id = rig.app.chat.conversation.id.clone();
    assert_eq!(rig.file(&id).unwrap().filing, filing(&rig));
    let lists = |rig: &Rig| rig.done.iter().filter(|e| **e == Effect::Store(StoreRequest::List)).count();
    let before = lists(&rig);
    rig.alt('z');
    rig.alt('z');
    assert_eq!(lists(&rig), before + 2, "the list shows it");
    assert_eq!(filing(&rig), Filing { pinned: true, ..Filing::default() });
    rig.alt('y');
    assert_eq!(filing(&rig).typed(), "one two");
    assert_eq!(rig.file(&id).unwrap().filing, filing(&rig));
}

#[test]
fn the_search_opens_the_place() {
    let mut rig = Rig::ready((160, 45));
    rig.answer("Tell me of a fox", "A fox swam.");
    rig.again("Another fox ran.");
    rig.send("/search fox");
    let (number, query) = rig.searched();
    assert_eq!(query, "fox");
    let own = rig.app.chat.conversation.id.clone();
    let mut hits = vec![
        hit(1, "A fox", 3, "Another fox ran.", "fox"),
        hit(2, "Other", 1, "fox", "fox"),
        hit(1, "A fox", 2, "A fox swam.", "fox"),
    ];
    hits.iter_mut().filter(|h| h.title == "A fox").for_each(|h| h.id = own.clone());
    rig.event(Event::Store(StoreEvent::Found { number, hits, all: true }));
    let Some(Overlay::Search(search)) = &rig.app.overlay else { panic!() };
    let titles: Vec<&str> = search.hits.iter().map(|h| h.title.as_str()).collect();
    assert_eq!(titles, ["A fox", "A fox", "Other"], "of one conversation behind each other");
    rig.key(KeyCode::Down);
    rig.key(KeyCode::Enter);
    assert_eq!(rig.shown(), ["Tell me of a fox", "A fox swam."], "the path through the place");
    assert_eq!((rig.app.chat.transcript.selected, rig.app.focus), (Some(2), Focus::Messages));
    rig.control('f');
    rig.text("fo");
    let first = rig.searched().0;
    rig.text("x");
    assert!(rig.searched().0 > first && rig.searched().1 == "fox");
}
