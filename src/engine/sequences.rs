//! The KV ledger: which tokens the cache holds. The only code that copies, removes or clears cells.
//!
//! Sequence 0 is the main one: what is being read and written. Beams branch off it: each is a sequence that shares
//! the cells of the main one and has its own behind them. What a new prompt leaves is kept outside of the cache
//! (`engine::states`).
//!
//! Rules, kept after every step, stop and error (tested by `tests` below):
//! * tokens in the ledger = cells in the cache: `pos_max + 1 == len`, for every sequence;
//! * a cell that several sequences share counts once, and is free when the last of them goes;
//! * a prefix is reused only where the cells that its continuation looks at are all there: with sliding
//!   windows `pos_min ≤ max(0, p − window)`;
//! * what cannot be trusted is cleared and computed again, and the reason is told.

mod cells;

use super::protocol::Because;
use cells::{Cell, Cells};

/// A token id of the vocabulary.
pub type Token = i32;

/// A sequence of the cache.
pub type SeqId = u32;

/// The main sequence.
pub const MAIN: SeqId = 0;

/// What the ledger needs of a KV cache; llama.cpp's, or a fake one in tests.
pub trait Cache {
    /// Removes the cells of a sequence from that position on; false if the cache cannot do it.
    fn remove_from(&mut self, seq: SeqId, position: usize) -> bool;
    /// Makes a sequence that has no cells share all of another one's.
    fn copy(&mut self, from: SeqId, to: SeqId);
    /// Removes every cell.
    fn clear(&mut self);
    /// Smallest position that a sequence holds, −1 if none.
    fn pos_min(&self, seq: SeqId) -> i32;
    /// Largest position that a sequence holds, −1 if none.
    fn pos_max(&self, seq: SeqId) -> i32;
}

/// What a cache can do.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many cells it has.
    pub cells: usize,
    /// Cells that a windowed layer looks back; `None` if every layer keeps the whole context.
    pub window: Option<usize>,
    /// Sequences that branch off the main one at once.
    pub branches: SeqId,
    /// Its state is one piece, which cannot be cut back.
    pub whole: bool,
}

/// Tokens and their cells.
#[derive(Clone, Debug, Default)]
struct Line {
    tokens: Vec<Token>,
    cells: Vec<Cell>,
}

/// A sequence that goes on from the whole main one.
#[derive(Debug)]
struct Branch {
    seq: SeqId,
    tail: Line,
}

/// The tokens of the sequences.
#[derive(Debug)]
pub struct Ledger {
    shape: Shape,
    cells: Cells,
    main: Line,
    branches: Vec<Branch>,
    /// The main sequence has cells of a branch from that position on, which lie among those of others.
    scattered: Option<usize>,
}

/// What a prompt finds in the cache.
#[derive(Debug, PartialEq, Eq)]
pub struct Reuse {
    /// How many of its tokens are in the cache.
    pub kept: usize,
    /// Why no more of what is there was reused, if there is more.
    pub because: Option<Because>,
}

/// A sequence that begins as a prompt does.
#[derive(Clone, Copy)]
struct Found {
    seq: SeqId,
    /// Tokens that are the same.
    kept: usize,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(shape: Shape) -> Self {
        Self { shape, cells: Cells::default(), main: Line::default(), branches: Vec::new(), scattered: None }
    }

    /// Tokens of the main sequence.
    pub fn len(&self) -> usize {
        self.main.tokens.len()
    }

    /// The tokens of the main sequence.
    pub fn tokens(&self) -> &[Token] {
        &self.main.tokens
    }

    /// Cells that any sequence holds.
    pub fn used(&self) -> usize {
        self.cells.used()
    }

    /// How many more branches there may be.
    pub fn free_branches(&self) -> usize {
        (self.shape.branches as usize).saturating_sub(self.branches.len())
    }

    /// Forgets everything.
    pub fn clear(&mut self, cache: &mut impl Cache) {
        cache.clear();
        *self = Self::new(self.shape);
    }

    /// Whether there is room for that many tokens more.
    pub fn has_room(&self, rows: usize) -> bool {
        self.cells.used() + rows <= self.shape.cells
    }

    /// Notes tokens that a decode call has put into the main sequence. There are no branches then.
    pub fn extend(&mut self, tokens: &[Token]) {
        debug_assert!(self.branches.is_empty());
        for token in tokens {
            let cell = self.cells.take();
            self.main.tokens.push(*token);
            self.main.cells.push(cell);
        }
    }

    /// Takes the last token out of the main sequence, to be decoded again. None if there is none, or it cannot be taken;
    /// all is as it was then.
    pub fn take_last(&mut self, cache: &mut impl Cache) -> Option<Token> {
        let last = *self.main.tokens.last()?;
        let without = Found { seq: MAIN, kept: self.len() - 1 };
        if self.fault(cache, &without).is_some() {
            return None;
        }
        self.cut(cache, without.kept).is_none().then_some(last)
    }

    /// A new branch that is what another sequence is now; none if there are too many.
    pub fn branch(&mut self, cache: &mut impl Cache, from: SeqId) -> Option<SeqId> {
        let seq = (1..=self.shape.branches).find(|seq| self.branches.iter().all(|b| b.seq != *seq))?;
        let tail = self.branches.iter().find(|b| b.seq == from).map(|b| b.tail.clone()).unwrap_or_default();
        self.cells.share(&tail.cells);
        cache.copy(from, seq);
        self.branches.push(Branch { seq, tail });
        Some(seq)
    }

    /// The tokens that a sequence has beyond the main one.
    pub fn tail(&self, seq: SeqId) -> &[Token] {
        self.branches.iter().find(|b| b.seq == seq).map_or(&[], |b| &b.tail.tokens)
    }

    /// Notes a token that a decode call has put into a branch.
    pub fn push(&mut self, seq: SeqId, token: Token) {
        if let Some(branch) = self.branches.iter_mut().find(|b| b.seq == seq) {
            branch.tail.tokens.push(token);
            branch.tail.cells.push(self.cells.take());
        }
    }

    /// Removes a branch.
    pub fn free(&mut self, cache: &mut impl Cache, seq: SeqId) {
        if let Some(at) = self.branches.iter().position(|b| b.seq == seq) {
            let branch = self.branches.remove(at);
            self.cells.release(&branch.tail.cells);
            cache.remove_from(seq, 0);
        }
    }

    /// Makes the main sequence what a branch is, and removes every branch.
    pub fn adopt(&mut self, cache: &mut impl Cache, seq: SeqId) {
        if let Some(branch) = self.branches.iter().find(|b| b.seq == seq).filter(|b| !b.tail.tokens.is_empty()) {
            cache.remove_from(MAIN, 0);
            cache.copy(seq, MAIN);
            self.cells.share(&branch.tail.cells);
            self.scattered = self.scattered.or(Some(self.main.tokens.len()));
            self.main.tokens.extend(&branch.tail.tokens);
            self.main.cells.extend(&branch.tail.cells);
        }
        self.free_all(cache);
    }

    /// Removes every branch.
    pub fn free_all(&mut self, cache: &mut impl Cache) {
        for branch in std::mem::take(&mut self.branches) {
            self.cells.release(&branch.tail.cells);
            cache.remove_from(branch.seq, 0);
        }
    }

    /// How much of a prompt a sequence holds that can be gone on from there; at least its last token is left to decode.
    pub fn held(&self, cache: &impl Cache, prompt: &[Token]) -> usize {
        self.find(prompt).iter().find(|f| self.fault(cache, f).is_none()).map_or(0, |f| f.kept)
    }

    /// Makes the main sequence the longest prefix of `prompt` that any sequence holds, so that decoding may go on at
    /// `kept`; what the others hold is gone. At least one token of the prompt is left to decode. `bytes` gives a
    /// token's text, `None` for one that has none of its own, such as a control token: it tells why two texts part.
    pub fn reuse(
        &mut self,
        cache: &mut impl Cache,
        prompt: &[Token],
        bytes: impl Fn(Token) -> Option<Vec<u8>>,
    ) -> Reuse {
        let mut because = None;
        for found in self.find(prompt).into_iter().filter(|f| f.kept > 0) {
            let fault = match self.fault(cache, &found) {
                None => {
                    let parts = parting(&self.all_tokens(found.seq)[found.kept..], &prompt[found.kept..], &bytes);
                    because = because.or(parts);
                    self.adopt(cache, found.seq);
                    self.cut(cache, found.kept)
                }
                fault => fault,
            };
            if fault.is_none() {
                return Reuse { kept: found.kept, because };
            }
            because = fault;
        }
        self.cut(cache, 0);
        Reuse { kept: 0, because }
    }

    /// Makes the cache hold what the ledger says, after a decode call that failed or was stopped.
    pub fn repair(&mut self, cache: &mut impl Cache) {
        for branch in &self.branches {
            cache.remove_from(branch.seq, self.len() + branch.tail.tokens.len());
        }
        if self.branches.is_empty() || !self.agrees(cache) {
            let len = self.len();
            // The reason needs no telling here: the next prompt finds less and is told its own.
            let _ = self.cut(cache, len);
        }
    }

    /// Whether cache and ledger agree.
    pub fn agrees(&self, cache: &impl Cache) -> bool {
        let branches = self.branches.iter().map(|b| (b.seq, self.len() + b.tail.tokens.len()));
        let mut all = branches.chain([(MAIN, self.len())]);
        all.all(|(seq, len)| usize::try_from(cache.pos_max(seq) + 1).is_ok_and(|n| n == len))
    }

    /// The sequences by how much of the prompt they hold; the main one first among equals.
    fn find(&self, prompt: &[Token]) -> Vec<Found> {
        let prompt = &prompt[..prompt.len().saturating_sub(1)];
        let main = common(self.tokens(), prompt);
        let mut found = vec![Found { seq: MAIN, kept: main }];
        for branch in &self.branches {
            let beyond = if main == self.len() { common(&branch.tail.tokens, &prompt[main..]) } else { 0 };
            found.push(Found { seq: branch.seq, kept: main + beyond });
        }
        found.sort_by_key(|f| std::cmp::Reverse(f.kept));
        found
    }

    /// Why a sequence cannot be gone on with there, if so.
    fn fault(&self, cache: &impl Cache, found: &Found) -> Option<Because> {
        if self.shape.whole && self.len() + self.tail(found.seq).len() != found.kept {
            return Some(Because::Whole);
        }
        let window = self.shape.window?;
        let oldest = found.kept.saturating_sub(window);
        let gone = usize::try_from(cache.pos_min(found.seq)).map_or(true, |held| held > oldest);
        gone.then_some(Because::WindowGone)
    }

    /// Shortens the main sequence; branches, which go on from its end, are gone then. Says why it cannot be, if so;
    /// it is empty then.
    fn cut(&mut self, cache: &mut impl Cache, len: usize) -> Option<Because> {
        self.free_all(cache);
        let removed = cache.remove_from(MAIN, len);
        self.cells.release(&self.main.cells[len..]);
        self.main.tokens.truncate(len);
        self.main.cells.truncate(len);
        self.scattered = self.scattered.filter(|at| *at < len);
        if !removed {
            self.shape.whole = true;
            self.drop_main(cache);
            return Some(Because::Whole);
        }
        if !self.agrees(cache) {
            self.clear(cache);
            return Some(Because::Untrusted);
        }
        let fault = self.fault(cache, &Found { seq: MAIN, kept: len }).filter(|_| len > 0);
        if fault.is_some() {
            self.drop_main(cache);
        }
        fault
    }

    fn drop_main(&mut self, cache: &mut impl Cache) {
        cache.remove_from(MAIN, 0);
        self.cells.release(&self.main.cells);
        self.main = Line::default();
        self.scattered = None;
    }

    /// From where on a sequence's cells lie among those of branches, gone or not.
    pub fn scattered(&self, seq: SeqId) -> Option<usize> {
        let branch = (seq != MAIN).then_some(self.len());
        self.scattered.or(branch)
    }

    /// The main sequence's cells have been put behind each other.
    pub fn is_tidy(&mut self) {
        self.scattered = None;
    }

    /// What a cache can do, as far as is known by now.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The sequences that hold anything: the main one and its branches.
    pub fn sequences(&self) -> Vec<SeqId> {
        [MAIN].into_iter().chain(self.branches.iter().map(|b| b.seq)).collect()
    }

    /// Cells that would be free without a sequence.
    pub fn own(&self, seq: SeqId) -> usize {
        // Branches hold the main sequence's cells without being counted as owners of them.
        let branch = self.branches.iter().find(|b| b.seq == seq);
        self.cells.alone(branch.map_or(&self.main.cells, |b| &b.tail.cells))
    }

    /// All tokens of a sequence.
    pub fn all_tokens(&self, seq: SeqId) -> Vec<Token> {
        [self.tokens(), self.tail(seq)].concat()
    }
}

/// How many first tokens two texts have in common.
pub fn common(one: &[Token], other: &[Token]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Why two texts part where their tokens do: both spell the same for as long as can be seen, or not. Nothing where
/// one of them ends.
fn parting(held: &[Token], prompt: &[Token], bytes: &impl Fn(Token) -> Option<Vec<u8>>) -> Option<Because> {
    /// Tokens that are looked at.
    const FAR: usize = 8;
    if held.is_empty() || prompt.len() < 2 {
        return None;
    }
    let spell = |tokens: &[Token]| tokens.iter().take(FAR).map_while(|t| bytes(*t)).flatten().collect::<Vec<u8>>();
    let (ours, theirs) = (spell(held), spell(prompt));
    let n = ours.len().min(theirs.len());
    Some(if n > 0 && ours[..n] == theirs[..n] { Because::OtherTokens } else { Because::Changed })
}

#[cfg(test)]
mod tests;
