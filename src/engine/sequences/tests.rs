use proptest::prelude::*;

use super::*;

/// A cache that behaves like llama.cpp's: sequences share cells, with a window it forgets old ones while decoding,
/// and removing cells still answers yes.
#[derive(Default)]
struct Fake {
    /// Token and the cell's number.
    cells: std::collections::BTreeMap<(SeqId, usize), (Token, usize)>,
    made: usize,
    window: Option<usize>,
    recurrent: bool,
}

impl Fake {
    fn decode(&mut self, seq: SeqId, from: usize, tokens: &[Token]) {
        for (i, token) in tokens.iter().enumerate() {
            self.made += 1;
            self.cells.insert((seq, from + i), (*token, self.made));
            if let Some(window) = self.window {
                let oldest = (from + i).saturating_sub(window + 3);
                self.cells.retain(|(s, p), _| *s != seq || *p >= oldest);
            }
        }
    }

    fn used(&self) -> usize {
        self.cells.values().map(|(_, cell)| cell).collect::<std::collections::BTreeSet<_>>().len()
    }

    fn held(&self, seq: SeqId) -> impl DoubleEndedIterator<Item = usize> {
        self.cells.range((seq, 0)..(seq + 1, 0)).map(|((_, p), _)| *p)
    }
}

impl Cache for Fake {
    fn remove_from(&mut self, seq: SeqId, position: usize) -> bool {
        if self.recurrent && position > 0 && self.held(seq).any(|p| p >= position) {
            return false;
        }
        self.cells.retain(|(s, p), _| *s != seq || *p < position);
        true
    }
    fn copy(&mut self, from: SeqId, to: SeqId) {
        assert_eq!(self.pos_max(to), -1, "a sequence is copied over another");
        let copied: Vec<_> = self.cells.range((from, 0)..(from + 1, 0)).map(|((_, p), t)| ((to, *p), *t)).collect();
        self.cells.extend(copied);
    }
    fn clear(&mut self) {
        self.cells.clear();
    }
    fn pos_min(&self, seq: SeqId) -> i32 {
        self.held(seq).next().map_or(-1, |p| i32::try_from(p).unwrap())
    }
    fn pos_max(&self, seq: SeqId) -> i32 {
        self.held(seq).next_back().map_or(-1, |p| i32::try_from(p).unwrap())
    }
}

/// A vocabulary in which texts have several tokenisations: 1 = a, 2 = b, 3 = ab, 4 = ba, 5 = aab; 0 is control.
fn bytes(token: Token) -> Option<Vec<u8>> {
    [None, Some("a"), Some("b"), Some("ab"), Some("ba"), Some("aab")][usize::try_from(token).unwrap()]
        .map(|s| s.as_bytes().to_vec())
}

fn shape(window: Option<usize>, branches: SeqId) -> Shape {
    Shape { cells: 200, window, branches, whole: false }
}

/// Ledger and cache hold the same tokens in the same cells.
fn same(ledger: &Ledger, cache: &Fake) -> Result<(), TestCaseError> {
    prop_assert!(ledger.agrees(cache));
    for ((seq, p), (token, _)) in &cache.cells {
        prop_assert_eq!(ledger.all_tokens(*seq)[*p], *token);
    }
    if cache.window.is_none() {
        prop_assert_eq!(ledger.used(), cache.used());
    }
    prop_assert!(ledger.used() <= ledger.shape.cells);
    Ok(())
}

fn run(ledger: &mut Ledger, cache: &mut Fake, prompt: &[Token], decode: usize) -> Reuse {
    let reuse = ledger.reuse(cache, prompt, bytes);
    let end = (reuse.kept + decode).min(prompt.len());
    assert!(ledger.has_room(end - reuse.kept));
    cache.decode(MAIN, reuse.kept, &prompt[reuse.kept..end]);
    ledger.extend(&prompt[reuse.kept..end]);
    reuse
}

proptest! {
    #[test]
    fn the_ledger_is_the_cache_and_nothing_wrong_is_reused(
        prompts in proptest::collection::vec((proptest::collection::vec(0i32..6, 1..40), 0usize..60), 1..12),
        window in proptest::option::of(4usize..10), recurrent in any::<bool>(),
    ) {
        let mut cache = Fake { window, recurrent, ..Fake::default() };
        let mut ledger = Ledger::new(shape(window, 8));
        for (prompt, decode) in prompts {
            let reuse = run(&mut ledger, &mut cache, &prompt, decode);
            // What is held is the prompt's, and at least its last token is decoded.
            prop_assert!(prompt.starts_with(ledger.tokens()));
            prop_assert!(reuse.kept < prompt.len());
            same(&ledger, &cache)?;
            // Every cell that the next token looks at is there.
            let oldest = window.map_or(0, |w| reuse.kept.saturating_sub(w));
            if decode == 0 && reuse.kept > 0 {
                prop_assert!((oldest..reuse.kept).all(|p| cache.cells.contains_key(&(MAIN, p))));
            }
        }
    }

    #[test]
    fn branches_are_the_cache_whatever_happens_to_them(
        base in proptest::collection::vec(0i32..6, 1..20),
        steps in proptest::collection::vec((0u8..5, any::<proptest::sample::Index>(), 0i32..6), 1..60),
        window in proptest::option::of(4usize..10),
        next in proptest::collection::vec(0i32..6, 1..20),
    ) {
        let mut cache = Fake { window, ..Fake::default() };
        let mut ledger = Ledger::new(shape(window, 4));
        run(&mut ledger, &mut cache, &base, usize::MAX / 2);
        let mut live: Vec<SeqId> = Vec::new();
        for (what, which, token) in steps {
            let seq = if live.is_empty() { MAIN } else { live[which.index(live.len())] };
            match what {
                0 => {
                    let new = ledger.branch(&mut cache, seq);
                    prop_assert!(new.is_some() || live.len() == 4);
                    live.extend(new);
                }
                1 | 2 if seq != MAIN => {
                    cache.decode(seq, ledger.len() + ledger.tail(seq).len(), &[token]);
                    ledger.push(seq, token);
                }
                3 if seq != MAIN => {
                    ledger.free(&mut cache, seq);
                    live.retain(|s| *s != seq);
                }
                // A batch of which a part was decoded when it was stopped.
                4 if seq != MAIN => {
                    cache.decode(seq, ledger.len() + ledger.tail(seq).len(), &[token, token]);
                    ledger.repair(&mut cache);
                }
                _ => {}
            }
            same(&ledger, &cache)?;
        }
        // The next prompt goes on from the branch that it begins with, and nothing else is left.
        let whole: Vec<Token> = live.first().map_or(&[][..], |s| ledger.tail(*s)).to_vec();
        let longest = live.iter().map(|s| ledger.tail(*s).len()).max().unwrap_or(0);
        let prompt = [ledger.tokens(), &whole, &next].concat();
        let before = ledger.len() + whole.len();
        let reuse = ledger.reuse(&mut cache, &prompt, bytes);
        if window.is_none() && longest > 0 {
            prop_assert!(reuse.kept >= before.min(prompt.len() - 1));
        }
        prop_assert!(ledger.agrees(&cache));
        prop_assert!(cache.cells.keys().all(|(seq, _)| *seq == MAIN));
    }

    #[test]
    fn what_was_decoded_is_kept(base in proptest::collection::vec(0i32..6, 1..40), more in proptest::collection::vec(0i32..6, 1..10)) {
        let mut cache = Fake::default();
        let mut ledger = Ledger::new(shape(None, 8));
        run(&mut ledger, &mut cache, &base, usize::MAX / 2);
        let longer: Vec<Token> = base.iter().chain(&more).copied().collect();
        let reuse = run(&mut ledger, &mut cache, &longer, usize::MAX / 2);
        prop_assert!(reuse.kept >= base.len());
    }
}

#[test]
fn the_same_text_in_other_tokens_is_read_again_and_said() {
    let mut cache = Fake::default();
    let mut ledger = Ledger::new(shape(None, 8));
    run(&mut ledger, &mut cache, &[0, 1, 2, 1, 2, 0], 6);
    // a b a b told again as ab ab: a cold run would read it so.
    let reuse = run(&mut ledger, &mut cache, &[0, 3, 3, 0, 1], 9);
    assert_eq!(reuse, Reuse { kept: 1, because: Some(Because::OtherTokens) });
    let reuse = run(&mut ledger, &mut cache, &[0, 3, 2, 0, 1], 9);
    assert_eq!(reuse, Reuse { kept: 2, because: Some(Because::Changed) });
    let reuse = run(&mut ledger, &mut cache, &[0, 3, 2, 0, 1, 1, 1], 9);
    assert_eq!(reuse, Reuse { kept: 5, because: None }, "only new words");
}

#[test]
fn control_tokens_match_only_themselves() {
    let mut cache = Fake::default();
    let mut ledger = Ledger::new(shape(None, 8));
    run(&mut ledger, &mut cache, &[1, 0, 1], 3);
    let reuse = run(&mut ledger, &mut cache, &[1, 1, 1], 3);
    assert_eq!(reuse.kept, 1);
}

#[test]
fn a_lost_window_is_read_again_and_said() {
    let mut cache = Fake { window: Some(4), ..Fake::default() };
    let mut ledger = Ledger::new(shape(Some(4), 8));
    let long: Vec<Token> = (0..30).map(|i| 1 + i % 5).collect();
    run(&mut ledger, &mut cache, &long, 30);
    let reuse = ledger.reuse(&mut cache, &long[..10], |_| None);
    assert_eq!(reuse.kept, 0);
    assert_eq!(reuse.because, Some(Because::WindowGone));
    assert_eq!(ledger.len(), 0);
}

#[test]
fn repair_after_a_half_decoded_batch() {
    let mut cache = Fake::default();
    let mut ledger = Ledger::new(shape(None, 8));
    run(&mut ledger, &mut cache, &[1, 2, 3], 3);
    cache.decode(MAIN, 3, &[4, 5]);
    assert!(!ledger.agrees(&cache));
    ledger.repair(&mut cache);
    assert!(ledger.agrees(&cache));
    assert_eq!(ledger.len(), 3);
}

#[test]
fn a_state_that_cannot_be_cut_is_read_again() {
    let mut cache = Fake { recurrent: true, ..Fake::default() };
    let mut ledger = Ledger::new(shape(None, 4));
    run(&mut ledger, &mut cache, &[1, 2, 3, 4], 9);
    let edited = run(&mut ledger, &mut cache, &[1, 2, 5], 9);
    assert!(edited == Reuse { kept: 0, because: Some(Because::Whole) });
    assert_eq!(run(&mut ledger, &mut cache, &[1, 2, 5, 4], 9).kept, 3, "what goes on from all of it needs no cut");
}

#[test]
fn where_cells_lie_among_others_is_known_until_they_are_put_in_order() {
    let mut cache = Fake::default();
    let mut ledger = Ledger::new(shape(None, 4));
    run(&mut ledger, &mut cache, &[1, 2, 3], 9);
    assert_eq!(ledger.scattered(MAIN), None);
    let beam = ledger.branch(&mut cache, MAIN).unwrap();
    cache.decode(beam, 3, &[4, 5]);
    ledger.push(beam, 4);
    ledger.push(beam, 5);
    assert_eq!(ledger.scattered(beam), Some(3));
    run(&mut ledger, &mut cache, &[1, 2, 3, 4, 5, 1], 9);
    assert_eq!(ledger.scattered(MAIN), Some(3));
    run(&mut ledger, &mut cache, &[1, 2, 3, 1], 9);
    assert_eq!(ledger.scattered(MAIN), None, "they are gone");
}

/// What the ledger does in one step of a search with 16 beams of 500 tokens, in microseconds; to be held against a decode
/// step. Run by hand: `cargo test --release --lib ledger_step -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_ledger_step_is_cheap() {
    struct Empty;
    impl Cache for Empty {
        fn remove_from(&mut self, _: SeqId, _: usize) -> bool {
            true
        }
        fn copy(&mut self, _: SeqId, _: SeqId) {}
        fn clear(&mut self) {}
        fn pos_min(&self, _: SeqId) -> i32 {
            0
        }
        fn pos_max(&self, _: SeqId) -> i32 {
            0
        }
    }
    let shape = Shape { cells: 32_768, window: None, branches: 32, whole: false };
    let mut ledger = Ledger::new(shape);
    ledger.extend(&[1; 100]);
    let mut seqs: Vec<SeqId> = (0..16).map(|_| ledger.branch(&mut Empty, MAIN).unwrap()).collect();
    for _ in 0..500 {
        for seq in &seqs {
            ledger.push(*seq, 2);
        }
    }
    let steps = 400;
    let mut step = |reorders: bool| {
        let began = std::time::Instant::now();
        for n in 0..steps {
            assert!(ledger.has_room(16));
            for seq in &seqs {
                ledger.push(*seq, 3);
            }
            if reorders {
                // A beam dies and another one goes on in two ways.
                ledger.free(&mut Empty, seqs[n % 16]);
                seqs[n % 16] = ledger.branch(&mut Empty, seqs[(n + 7) % 16]).unwrap();
            }
            std::hint::black_box(ledger.used());
        }
        began.elapsed().as_secs_f64() * 1e6 / steps as f64
    };
    println!("a step of 16 sequences: {:.1} µs; with one of them replaced: {:.1} µs", step(false), step(true));
}
