use proptest::prelude::*;

use super::*;

/// Keeps a text in pieces of a length, as the step loop does.
fn keep(states: &mut States, text: &[Token], piece: usize) {
    let (path, kept) = states.find(text);
    if kept == text.len() {
        return;
    }
    let (mut parent, mut from) = states.trunk(&path, kept);
    while from < text.len() {
        let tokens = text[from..text.len().min(from + piece)].to_vec();
        let end = from + tokens.len();
        let state = tokens.iter().map(|t| *t as u8).collect();
        parent = Some(states.insert(Piece { parent, from, tokens, whole: false }, state));
        from = end;
    }
    states.touch(&[]);
}

/// The bytes that the pieces of a text hold, in its order.
fn read(states: &States, path: &[Key]) -> Vec<u8> {
    let bytes = |key: &Key| match states.get(*key) {
        Some((_, Some(state))) => state.to_vec(),
        other => panic!("{other:?}"),
    };
    path.iter().flat_map(bytes).collect()
}

proptest! {
    #[test]
    fn the_longest_prefix_that_was_kept_is_found(
        texts in proptest::collection::vec((proptest::collection::vec(0i32..3, 1..30), 1usize..9), 1..12),
        wanted in proptest::collection::vec(0i32..3, 1..30),
    ) {
        let mut states = States::new(1 << 20);
        for (text, piece) in &texts {
            keep(&mut states, text, *piece);
            prop_assert_eq!(states.find(text).1, text.len());
        }
        let common = |text: &[Token]| text.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        let best = texts.iter().map(|(text, _)| common(text)).max().unwrap();
        let (path, n) = states.find(&wanted);
        prop_assert_eq!(n, best);
        let bytes = read(&states, &path);
        prop_assert!(bytes[..n].iter().zip(&wanted).all(|(a, b)| i32::from(*a) == *b));
    }

    #[test]
    fn memory_has_its_limit_and_what_is_left_is_whole(
        texts in proptest::collection::vec(proptest::collection::vec(0i32..3, 1..40), 1..20), limit in 0u64..120,
    ) {
        let mut states = States::new(limit);
        for text in &texts {
            keep(&mut states, text, 8);
            prop_assert!(states.bytes().0 <= limit);
            let (path, n) = states.find(text);
            states.touch(&path);
            prop_assert!(read(&states, &path).len() >= n);
        }
    }
}

#[test]
fn what_texts_begin_with_is_kept_once_and_what_was_used_longest_ago_goes() {
    let mut states = States::new(40);
    let (a, b, c) = ([[1; 10], [2; 10]].concat(), [[1; 10], [3; 10]].concat(), vec![4; 10]);
    keep(&mut states, &a, 10);
    keep(&mut states, &b, 10);
    assert_eq!(states.bytes().0, 30);
    let (path, _) = states.find(&a);
    states.touch(&path);
    keep(&mut states, &c, 10);
    keep(&mut states, &[5; 10], 10);
    assert_eq!(states.find(&a).1, 20, "used last");
    assert_eq!(states.find(&b).1, 10, "its own part went, the common one stays");
}

#[test]
fn what_is_in_a_file_leaves_memory_and_stays_known() {
    let mut states = States::new(20);
    keep(&mut states, &[1; 20], 10);
    let unfiled = states.unfiled();
    assert_eq!(unfiled.iter().map(|(_, piece, _)| piece.from).collect::<Vec<_>>(), [0, 10]);
    unfiled.iter().for_each(|(key, ..)| states.was_filed(*key));
    keep(&mut states, &[2; 20], 10);
    assert_eq!(states.bytes(), (20, 20));
    let (path, n) = states.find(&[1; 20]);
    assert_eq!(n, 20);
    assert!(path.iter().all(|key| matches!(states.get(*key), Some((_, None)))));
    states.touch(&path);
    states.was_read(path[0], vec![1; 10].into());
    assert!(matches!(states.get(path[0]), Some((_, Some(_)))));
    assert_eq!(states.forget(path[0]).len(), 2, "what goes on from it goes with it");
    assert_eq!(states.find(&[1; 20]).1, 0);
}

#[test]
fn a_whole_state_is_used_only_as_a_whole() {
    let mut states = States::new(100);
    states.insert(Piece { parent: None, from: 0, tokens: vec![1; 10], whole: true }, vec![0; 10]);
    assert_eq!(states.find(&[1; 9]).1, 0);
    assert_eq!(states.find(&[1; 12]).1, 10);
    let orphan = Piece { parent: Some(Key([1; 32])), from: 10, tokens: vec![1], whole: false };
    assert!(!states.insert_filed(orphan, 1));
}

#[test]
fn lines_are_listed_and_hands_decide_what_stays() {
    let mut states = States::new(40);
    let (a, b) = ([[1; 10], [2; 10]].concat(), [[1; 10], [3; 10]].concat());
    keep(&mut states, &a, 10);
    keep(&mut states, &b, 10);
    let (path, _) = states.find(&b);
    states.touch(&path);
    let lines = states.lines();
    assert_eq!(
        lines.iter().map(|l| (l.tokens.len(), l.own, l.age)).collect::<Vec<_>>(),
        [(20, 10, Some(0)), (20, 10, Some(3))]
    );
    assert_eq!(lines[0].tokens, b);
    assert!(states.pin(lines[1].id) && !states.pin(1));
    states.touch(&[]);
    keep(&mut states, &[4; 20], 10);
    assert_eq!((states.find(&a).1, states.find(&b).1), (20, 10), "what is pinned goes last");
    assert_eq!(states.give_up(lines[1].id), Some(Vec::new()));
    assert_eq!(states.give_up(lines[1].id), None);
    assert_eq!(states.find(&a).1, 0);
}
