//! The KV ledger: which tokens the cache holds. The only code that copies, removes or clears cells.
//!
//! Sequence 0 is the main one. Beams branch off it: each is a sequence that shares the cells of the main one and
//! has its own behind them. Branches that are left after a search are its answers; the next prompt goes on from the
//! one that it begins with.
//!
//! Rules, kept after every step, stop and error (tested by `tests` below):
//! * tokens in the ledger = cells in the cache: `pos_max + 1 == len`, for the main sequence and every branch;
//! * a prefix is reused only where the cells that its continuation looks at are all there: with sliding
//!   windows `pos_min ≤ max(0, p − window)`;
//! * what cannot be trusted is cleared and computed again, and the reason is told.

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

/// The tokens of the resident sequences.
#[derive(Debug)]
pub struct Ledger {
    tokens: Vec<Token>,
    branches: Vec<Branch>,
    /// Cells that a windowed layer looks back; `None` if every layer keeps the whole context.
    window: Option<usize>,
    /// How many branches there may be.
    most: SeqId,
}

/// A sequence that goes on from the whole main one.
#[derive(Debug)]
struct Branch {
    seq: SeqId,
    tail: Vec<Token>,
}

/// What a prompt finds in the cache.
#[derive(Debug, PartialEq, Eq)]
pub struct Reuse {
    /// The prompt's tokens. Where the cache holds the same text in other tokens, those.
    pub tokens: Vec<Token>,
    /// How many of them are in the cache.
    pub kept: usize,
    /// Why less was kept than the texts share, if so.
    pub why: Option<String>,
}

impl Ledger {
    /// An empty ledger for a cache of that window and so many sequences beside the main one.
    pub fn new(window: Option<usize>, branches: SeqId) -> Self {
        Self { tokens: Vec::new(), branches: Vec::new(), window, most: branches }
    }

    /// Tokens of the main sequence.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens of the main sequence.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// How many more branches there may be.
    pub fn free_branches(&self) -> usize {
        (self.most as usize).saturating_sub(self.branches.len())
    }

    /// Forgets everything.
    pub fn clear(&mut self, cache: &mut impl Cache) {
        cache.clear();
        self.tokens.clear();
        self.branches.clear();
    }

    /// Notes tokens that a decode call has put into the main sequence. There are no branches then.
    pub fn extend(&mut self, tokens: &[Token]) {
        debug_assert!(self.branches.is_empty());
        self.tokens.extend_from_slice(tokens);
    }

    /// A new branch that is what another sequence is now; none if there are too many.
    pub fn branch(&mut self, cache: &mut impl Cache, from: SeqId) -> Option<SeqId> {
        let seq = (1..=self.most).find(|seq| self.branches.iter().all(|b| b.seq != *seq))?;
        let tail = self.tail(from).to_vec();
        cache.copy(from, seq);
        self.branches.push(Branch { seq, tail });
        Some(seq)
    }

    /// The tokens that a sequence has beyond the main one.
    pub fn tail(&self, seq: SeqId) -> &[Token] {
        self.branches.iter().find(|b| b.seq == seq).map_or(&[], |b| &b.tail)
    }

    /// Notes a token that a decode call has put into a branch.
    pub fn push(&mut self, seq: SeqId, token: Token) {
        if let Some(branch) = self.branches.iter_mut().find(|b| b.seq == seq) {
            branch.tail.push(token);
        }
    }

    /// Removes a branch.
    pub fn free(&mut self, cache: &mut impl Cache, seq: SeqId) {
        if let Some(at) = self.branches.iter().position(|b| b.seq == seq) {
            self.branches.remove(at);
            cache.remove_from(seq, 0);
        }
    }

    /// Makes the main sequence what a branch is, and removes every branch.
    pub fn adopt(&mut self, cache: &mut impl Cache, seq: SeqId) {
        let tail = self.tail(seq).to_vec();
        if !tail.is_empty() {
            cache.remove_from(MAIN, 0);
            cache.copy(seq, MAIN);
            self.tokens.extend(tail);
        }
        self.free_all(cache);
    }

    /// Removes every branch.
    pub fn free_all(&mut self, cache: &mut impl Cache) {
        for branch in std::mem::take(&mut self.branches) {
            cache.remove_from(branch.seq, 0);
        }
    }

    /// Keeps the longest prefix of `prompt` that the cache holds and removes the rest, so that decoding may go
    /// on at `kept`. At least one token of the prompt is left to decode. `bytes` gives a token's text, `None`
    /// for one that has none of its own, such as a control token.
    pub fn reuse(
        &mut self,
        cache: &mut impl Cache,
        prompt: &[Token],
        bytes: impl Fn(Token) -> Option<Vec<u8>>,
    ) -> Reuse {
        let (mut kept, mut from) = common(&self.tokens, prompt, &bytes);
        let mut best = None;
        for branch in &self.branches {
            let whole = [self.tokens.as_slice(), &branch.tail].concat();
            let found = common(&whole, prompt, &bytes);
            if found.1 > from {
                (kept, from) = found;
                best = Some(branch.seq);
            }
        }
        match best {
            Some(seq) => self.adopt(cache, seq),
            None => self.free_all(cache),
        }
        let mut tokens = self.tokens[..kept].to_vec();
        tokens.extend_from_slice(&prompt[from..]);
        match self.cut(cache, kept) {
            Ok(()) => Reuse { tokens, kept, why: None },
            Err(why) => Reuse { tokens, kept: 0, why: Some(why.to_owned()) },
        }
    }

    /// Makes the cache hold what the ledger says, after a decode call that failed or was stopped.
    pub fn repair(&mut self, cache: &mut impl Cache) {
        for branch in &self.branches {
            cache.remove_from(branch.seq, self.tokens.len() + branch.tail.len());
        }
        if self.branches.is_empty() || !self.agrees(cache) {
            let len = self.len();
            // The reason needs no telling here: the next prompt finds less and is told its own.
            let _ = self.cut(cache, len);
        }
    }

    /// Whether cache and ledger agree.
    pub fn agrees(&self, cache: &impl Cache) -> bool {
        let branches = self.branches.iter().map(|b| (b.seq, self.len() + b.tail.len()));
        let mut all = branches.chain([(MAIN, self.len())]);
        all.all(|(seq, len)| usize::try_from(cache.pos_max(seq) + 1).is_ok_and(|n| n == len))
    }

    /// Shortens the main sequence; branches, which go on from its end, are gone then.
    fn cut(&mut self, cache: &mut impl Cache, len: usize) -> Result<(), &'static str> {
        self.free_all(cache);
        if len == 0 {
            self.clear(cache);
            return Ok(());
        }
        let removed = cache.remove_from(MAIN, len);
        self.tokens.truncate(len);
        let reason = if !removed {
            "this model's cache cannot be cut back, so it was read again"
        } else if self.window_is_gone(cache) {
            "the sliding window before the change is gone, so it was read again"
        } else if !self.agrees(cache) {
            "the cache was not what it should be, so it was read again"
        } else {
            return Ok(());
        };
        self.clear(cache);
        Err(reason)
    }

    fn window_is_gone(&self, cache: &impl Cache) -> bool {
        self.window.is_some_and(|window| {
            let oldest = self.len().saturating_sub(window);
            usize::try_from(cache.pos_min(MAIN)).map_or(true, |held| held > oldest)
        })
    }
}

/// The longest common prefix of `old` and `new`, as lengths in each, ending before the last token of `new`.
/// Ordinary tokens are compared by their bytes, so that an answer just generated is found again although its
/// text tokenises differently; the prefix ends where both have a token's end.
fn common(old: &[Token], new: &[Token], bytes: &impl Fn(Token) -> Option<Vec<u8>>) -> (usize, usize) {
    let (mut i, mut j) = (0, 0);
    let mut best = (0, 0);
    // What one side has spelled beyond the other since the last common end.
    let (mut ahead_old, mut ahead_new): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
    while j < new.len() {
        if ahead_old.is_empty() && ahead_new.is_empty() {
            best = (i, j);
            if i < old.len() && old[i] == new[j] {
                i += 1;
                j += 1;
                continue;
            }
        }
        // The side that is behind takes its next token.
        if ahead_old.len() <= ahead_new.len() {
            let Some(piece) = old.get(i).and_then(|t| bytes(*t)) else { break };
            ahead_old.extend(piece);
            i += 1;
        } else {
            let Some(piece) = bytes(new[j]) else { break };
            ahead_new.extend(piece);
            j += 1;
        }
        let n = ahead_old.len().min(ahead_new.len());
        if ahead_old[..n] != ahead_new[..n] {
            break;
        }
        ahead_old.drain(..n);
        ahead_new.drain(..n);
    }
    best
}

#[cfg(test)]
mod tests;
