//! The screen at three sizes in the states that people see most.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::app::Event;
use crate::app::overflow_tests::refuse;
use crate::app::tests::{Rig, info};
use crate::chat::Finish;
use crate::engine::protocol::{EngineEvent, EngineNews};

const SIZES: [(u16, u16); 3] = [(60, 18), (100, 30), (160, 45)];

fn screen(rig: &Rig) -> String {
    let (width, height) = rig.app.size;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| super::draw(&rig.app, frame)).unwrap();
    if width == 0 || height == 0 { String::new() } else { terminal.backend().to_string() }
}

fn snapshots(name: &str, make: impl Fn((u16, u16)) -> Rig) {
    for size in SIZES {
        insta::assert_snapshot!(format!("{name}-{}x{}", size.0, size.1), screen(&make(size)));
    }
}

#[test]
fn at_the_start() {
    snapshots("start", Rig::new);
}

#[test]
fn while_it_answers() {
    snapshots("answering", |size| {
        let mut rig = Rig::ready(size);
        rig.answer("What is a fox?", "A small wild animal with a bushy tail.");
        rig.send("Write a story about a fox and a river.");
        let job = rig.started();
        for n in 1..60 {
            rig.token(job, n, if n % 9 == 0 { "river.\n\n" } else { "the fox " });
        }
        rig.text("and then?");
        rig
    });
}

#[test]
fn on_the_sliders() {
    snapshots("sliders", |size| {
        let mut rig = Rig::ready(size);
        rig.answer("hi", "Hello there.");
        rig.key(KeyCode::F(2));
        rig.key(KeyCode::Down);
        rig.text("1.2");
        rig
    });
}

#[test]
fn when_the_engine_died() {
    snapshots("dead", |size| {
        let mut rig = Rig::ready(size);
        rig.send("hi");
        let job = rig.started();
        rig.token(job, 1, "Half an ans");
        let how = "ended by signal 6 (abort)".to_owned();
        rig.event(Event::Engine(EngineNews::Died { how, last_words: vec!["GGML_ASSERT(n <= n_batch) failed".into()] }));
        rig
    });
}

#[test]
fn when_the_context_is_full() {
    let full = |size| {
        let mut rig = Rig::ready(size);
        rig.answer("What is a fox?", "A small wild animal with a bushy tail.");
        rig.answer("And a river?", "Water that flows to the sea.");
        rig.send("And a bridge?");
        refuse(&mut rig, 1700, 8192, Some(1 << 30));
        rig
    };
    snapshots("full", full);
    snapshots("cut", |size| {
        let mut rig = full(size);
        rig.key(KeyCode::Char('1'));
        rig.save();
        rig
    });
    snapshots("beyond", |size| {
        let mut rig = full(size);
        rig.key(KeyCode::Char('3'));
        rig
    });
}

#[test]
fn the_list_and_what_is_found() {
    use crate::app::shelf_tests::{hit, items};
    use crate::chat::{StoreEvent, Summary};
    let listed = |size| {
        let mut rig = Rig::ready(size);
        let hostile = Summary { title: "a\u{1b}[2Jb".into(), ..items().remove(2) };
        rig.event(crate::app::Event::Store(StoreEvent::Listed([items(), vec![hostile]].concat())));
        rig.control('o');
        rig
    };
    snapshots("list", |size| {
        let mut rig = listed(size);
        rig.text("A");
        rig.key(KeyCode::Down);
        rig
    });
    snapshots("search", |size| {
        let mut rig = listed(size);
        rig.text("/bre");
        rig.control('f');
        rig.text("fox");
        let number = rig.searched().0;
        let hits = vec![
            hit(1, "A fox and a river", 1, "Tell me of a fox and a river, and of all that lives there", "fox"),
            hit(4, "Old ships", 2, "… \u{202e}the fox figurehead …", "fox"),
            hit(1, "A fox and a river", 2, "The fox swam", "fox"),
        ];
        rig.event(crate::app::Event::Store(StoreEvent::Found { number, hits, all: false }));
        rig.key(KeyCode::Down);
        rig
    });
}

#[test]
fn the_map_of_the_cache() {
    use crate::chat::Role;
    use crate::engine::protocol::{CacheMap, Held, Holder, Request};
    let held = |seq, holder, tokens, shared, own, age, pinned, text: &str| Held {
        seq,
        holder,
        tokens,
        shared,
        own,
        age,
        pinned,
        text: text.into(),
    };
    snapshots("cache", |size| {
        let mut rig = Rig::ready(size);
        rig.text("/cache");
        rig.key(KeyCode::Enter);
        assert!(rig.done.iter().any(|e| matches!(e, crate::app::Effect::Engine(Request::Map))));
        let lines = vec![
            held(0, Holder::Main, 812, 0, 812, Some(0), false, "Write about a fox"),
            held(1001, Holder::Memory, 598, 278, 320, Some(2), true, "and the sea\u{1b}[31m"),
            held(1000, Holder::File, 158, 0, 158, None, false, "Why is the sky blue?"),
        ];
        rig.engine(crate::engine::protocol::EngineEvent::Map(CacheMap {
            n_ctx: 8192,
            used: 812,
            parts: vec![(Role::System, 26), (Role::User, 34), (Role::Assistant, 752)],
            held: lines,
            memory: 13 << 20,
            files: 3 << 20,
        }));
        rig.key(KeyCode::Down);
        rig
    });
    let mut rig = Rig::ready((100, 30));
    rig.text("/cache");
    rig.key(KeyCode::Enter);
    let held = [1000, 1001, 1002].map(|seq| held(seq, Holder::Memory, 9, 0, 9, Some(1), false, ""));
    let map = CacheMap { n_ctx: 8192, used: 0, parts: vec![], held: held.to_vec(), memory: 9, files: 0 };
    rig.engine(crate::engine::protocol::EngineEvent::Map(map));
    rig.text("dd");
    let of = |effect: &crate::app::Effect| match effect {
        crate::app::Effect::Engine(Request::Drop { seq }) => Some(*seq),
        _ => None,
    };
    let dropped: Vec<u32> = rig.done.iter().filter_map(of).collect();
    assert_eq!(dropped, [1000, 1001], "the second key means the next line, before the engine has answered");
}

/// Two tries of an answer, one with a question behind it, and a deleted one.
fn branched(size: (u16, u16)) -> Rig {
    let mut rig = Rig::ready(size);
    rig.answer("What is a fox?", "A small wild animal with a bushy tail, red or grey, that lives near rivers.");
    rig.again("A clever wild animal with a bushy tail. It comes at night.");
    rig.answer("And a \u{1b}[31mriver?", "Water that flows to the sea.");
    rig.again("Nothing of use.");
    rig.select("Nothing");
    rig.key(KeyCode::Char('d'));
    rig.event(Event::Timer);
    rig.wait(10.0);
    rig
}

#[test]
fn the_tree_and_two_tries_side_by_side() {
    snapshots("tree", |size| {
        let mut rig = branched(size);
        rig.select("A clever");
        rig.event(Event::Key(KeyEvent::new(KeyCode::Char('g'), KeyModifiers::ALT)));
        rig.key(KeyCode::Char('x'));
        rig
    });
    snapshots("compare", |size| {
        let mut rig = branched(size);
        rig.select("A clever");
        rig.key(KeyCode::Char('v'));
        rig
    });
    snapshots("tries", |size| {
        let mut rig = branched(size);
        rig.select("A clever");
        rig
    });
    // Any size can be drawn.
    for (width, height) in [(20, 5), (21, 6), (33, 9), (400, 120)] {
        let mut rig = branched((width, height));
        rig.select("A clever");
        rig.key(KeyCode::Char('v'));
        screen(&rig);
        rig.key(KeyCode::Down);
        rig.alt('g');
        screen(&rig);
        rig.event(Event::Resize(20, 5));
        screen(&rig);
    }
}

#[test]
fn a_repetition_is_seen_until_it_ends() {
    use crate::engine::protocol::EngineEvent;
    let mut rig = Rig::ready((160, 45));
    rig.send("Count.");
    let job = rig.started();
    rig.token(job, 1, "one");
    for (rounds, seen) in [(3, true), (0, false)] {
        rig.engine(EngineEvent::Repeats { job, rounds, period: 4 });
        assert_eq!(screen(&rig).contains("repeats 3 × 4"), seen);
    }
}

#[test]
fn help_and_palette() {
    snapshots("help", |size| {
        let mut rig = Rig::ready(size);
        rig.key(KeyCode::F(1));
        rig
    });
    snapshots("palette", |size| {
        let mut rig = Rig::ready(size);
        rig.control('p');
        rig.text("conv");
        rig
    });
}

#[test]
fn a_tiny_screen_says_what_it_needs() {
    let mut rig = Rig::ready((19, 4));
    assert!(screen(&rig).contains("20×5"));
    for (width, height) in [(0, 0), (1, 1), (20, 5), (400, 120)] {
        rig.event(Event::Resize(width, height));
        screen(&rig);
    }
}

#[test]
fn what_was_stopped_is_marked() {
    let mut rig = Rig::ready((100, 30));
    rig.send("hi");
    let job = rig.started();
    rig.token(job, 1, "Half");
    rig.finish(job, Finish::Cancelled);
    assert!(screen(&rig).contains("(stopped)"));
}

fn any_event() -> impl Strategy<Value = Event> {
    let codes = prop_oneof![
        any::<char>().prop_map(KeyCode::Char),
        "[a-zA-Z0-9/ ?.-]".prop_map(|s| KeyCode::Char(s.chars().next().unwrap())),
        prop::sample::select(vec![
            KeyCode::Enter,
            KeyCode::Esc,
            KeyCode::Tab,
            KeyCode::BackTab,
            KeyCode::Backspace,
            KeyCode::Delete,
            KeyCode::Left,
            KeyCode::Right,
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::PageUp,
            KeyCode::PageDown,
        ]),
        (1u8..9).prop_map(KeyCode::F),
        prop::sample::select(vec!['g', 'z', 'y']).prop_map(KeyCode::Char),
    ];
    let modifiers = prop::sample::select(vec![
        KeyModifiers::NONE,
        KeyModifiers::NONE,
        KeyModifiers::CONTROL,
        KeyModifiers::ALT,
        KeyModifiers::SHIFT,
    ]);
    prop_oneof![
        8 => (codes, modifiers).prop_map(|(code, m)| Event::Key(KeyEvent::new(code, m))),
        1 => "[a-z\n日👩‍👧\u{1b}\u{202e}]{0,60}".prop_map(Event::Paste),
        2 => (0u16..400, 0u16..120).prop_map(|(w, h)| Event::Resize(w, h)),
        1 => Just(Event::Timer),
        1 => (0u16..400, 0u16..120).prop_map(|(column, row)| Event::Mouse(MouseEvent { kind: MouseEventKind::Down(MouseButton::Left), column, row, modifiers: KeyModifiers::NONE })),
        1 => Just(Event::Engine(EngineNews::Died { how: "ended".into(), last_words: vec![] })),
        1 => Just(Event::Engine(EngineNews::Event(EngineEvent::Loaded(Box::new(info()))))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn whatever_happens_it_goes_on_and_can_be_drawn(events in proptest::collection::vec((any_event(), 0u8..8), 1..60)) {
        let mut rig = Rig::ready((100, 30));
        for (event, engine) in events {
            rig.event(event);
            rig.save();
            if let Some(job) = rig.asked().map(|a| a.0) {
                match engine {
                    0 => drop(rig.started()),
                    1 => rig.token(job, 1, "wörd \u{1b}[31m"),
                    2 => rig.token(job, 2, "\n"),
                    3 => rig.finish(job, Finish::Stop),
                    4 => rig.finish(job, Finish::ContextFull),
                    5 => refuse(&mut rig, 200, 512, Some(1 << 30)),
                    _ => rig.wait(0.4),
                }
            }
            rig.done.truncate(400);
            let (width, height) = rig.app.size;
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| super::draw(&rig.app, frame)).unwrap();
            let shown: String = terminal.backend().buffer().content().iter().map(ratatui::buffer::Cell::symbol).collect();
            prop_assert!(!shown.chars().any(char::is_control), "a control character is on the screen");
        }
    }
}
