use proptest::prelude::*;

use super::*;

/// A cache that behaves like llama.cpp's: with a window it forgets old cells while decoding, and removing
/// cells still answers yes.
#[derive(Default)]
struct Fake {
    cells: std::collections::BTreeMap<usize, Token>,
    window: Option<usize>,
    recurrent: bool,
}

impl Fake {
    fn decode(&mut self, from: usize, tokens: &[Token]) {
        for (i, token) in tokens.iter().enumerate() {
            self.cells.insert(from + i, *token);
            if let Some(window) = self.window {
                let oldest = (from + i).saturating_sub(window + 3);
                self.cells.retain(|p, _| *p >= oldest);
            }
        }
    }
}

impl Cache for Fake {
    fn remove_from(&mut self, position: usize) -> bool {
        if self.recurrent && self.cells.keys().any(|p| *p >= position) {
            return false;
        }
        self.cells.retain(|p, _| *p < position);
        true
    }
    fn clear(&mut self) {
        self.cells.clear();
    }
    fn pos_min(&self) -> i32 {
        self.cells.keys().next().map_or(-1, |p| i32::try_from(*p).unwrap())
    }
    fn pos_max(&self) -> i32 {
        self.cells.keys().next_back().map_or(-1, |p| i32::try_from(*p).unwrap())
    }
}

/// A vocabulary in which texts have several tokenisations: 1 = a, 2 = b, 3 = ab, 4 = ba, 5 = aab; 0 is control.
fn bytes(token: Token) -> Option<Vec<u8>> {
    [None, Some("a"), Some("b"), Some("ab"), Some("ba"), Some("aab")][usize::try_from(token).unwrap()]
        .map(|s| s.as_bytes().to_vec())
}

fn spell(tokens: &[Token]) -> Vec<u8> {
    tokens.iter().flat_map(|t| bytes(*t).unwrap_or_else(|| b"<0>".to_vec())).collect()
}

fn run(ledger: &mut Ledger, cache: &mut Fake, prompt: &[Token], decode: usize) -> Reuse {
    let reuse = ledger.reuse(cache, prompt, bytes);
    let end = (reuse.kept + decode).min(reuse.tokens.len());
    cache.decode(reuse.kept, &reuse.tokens[reuse.kept..end]);
    ledger.extend(&reuse.tokens[reuse.kept..end]);
    reuse
}

proptest! {
    #[test]
    fn the_ledger_is_the_cache_and_nothing_wrong_is_reused(
        prompts in proptest::collection::vec((proptest::collection::vec(0i32..6, 1..40), 0usize..60), 1..12),
        window in proptest::option::of(4usize..10), recurrent in any::<bool>(),
    ) {
        let mut cache = Fake { window, recurrent, ..Fake::default() };
        let mut ledger = Ledger::new(window);
        for (prompt, decode) in prompts {
            let reuse = run(&mut ledger, &mut cache, &prompt, decode);
            // The text is the prompt's, at least one token is decoded, and it is the prompt's last.
            prop_assert_eq!(spell(&reuse.tokens), spell(&prompt));
            prop_assert!(reuse.kept < reuse.tokens.len());
            prop_assert_eq!(reuse.tokens.last(), prompt.last());
            prop_assert!(ledger.agrees(&cache));
            for (p, token) in &cache.cells {
                prop_assert_eq!(ledger.tokens()[*p], *token);
            }
            // Every cell that the next token looks at is there.
            let oldest = window.map_or(0, |w| reuse.kept.saturating_sub(w));
            if decode == 0 && reuse.kept > 0 {
                prop_assert!((oldest..reuse.kept).all(|p| cache.cells.contains_key(&p)));
            }
        }
    }

    #[test]
    fn what_was_decoded_is_kept(base in proptest::collection::vec(0i32..6, 1..40), more in proptest::collection::vec(0i32..6, 1..10)) {
        let mut cache = Fake::default();
        let mut ledger = Ledger::new(None);
        run(&mut ledger, &mut cache, &base, usize::MAX / 2);
        let longer: Vec<Token> = base.iter().chain(&more).copied().collect();
        let reuse = run(&mut ledger, &mut cache, &longer, usize::MAX / 2);
        prop_assert!(reuse.kept >= base.len());
    }
}

#[test]
fn the_same_text_in_other_tokens_is_found() {
    let mut cache = Fake::default();
    let mut ledger = Ledger::new(None);
    run(&mut ledger, &mut cache, &[0, 1, 2, 1, 2, 0], 6);
    // a b a b told again as ab ab: all of it is there, up to the last token of the prompt.
    let reuse = run(&mut ledger, &mut cache, &[0, 3, 3, 0, 1], 9);
    assert_eq!((reuse.kept, reuse.tokens), (6, vec![0, 1, 2, 1, 2, 0, 1]));
}

#[test]
fn control_tokens_match_only_themselves() {
    let mut cache = Fake::default();
    let mut ledger = Ledger::new(None);
    run(&mut ledger, &mut cache, &[1, 0, 1], 3);
    let reuse = run(&mut ledger, &mut cache, &[1, 1, 1], 3);
    assert_eq!(reuse.kept, 1);
}

#[test]
fn a_lost_window_is_read_again_and_said() {
    let mut cache = Fake { window: Some(4), ..Fake::default() };
    let mut ledger = Ledger::new(Some(4));
    let long: Vec<Token> = (0..30).map(|i| 1 + i % 5).collect();
    run(&mut ledger, &mut cache, &long, 30);
    let reuse = ledger.reuse(&mut cache, &long[..10], |_| None);
    assert_eq!(reuse.kept, 0);
    assert!(reuse.why.unwrap().contains("sliding window"));
    assert!(ledger.len() == 0 && cache.cells.is_empty());
}

#[test]
fn repair_after_a_half_decoded_batch() {
    let mut cache = Fake::default();
    let mut ledger = Ledger::new(None);
    run(&mut ledger, &mut cache, &[1, 2, 3], 3);
    cache.decode(3, &[4, 5]);
    assert!(!ledger.agrees(&cache));
    ledger.repair(&mut cache);
    assert!(ledger.agrees(&cache));
    assert_eq!(ledger.len(), 3);
}
