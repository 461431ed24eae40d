//! The KV ledger: which tokens the cache holds. The only code that removes or clears cells.
//!
//! Rules, kept after every step, stop and error (tested by `tests` below):
//! * tokens in the ledger = cells in the cache: `pos_max + 1 == len`;
//! * a prefix is reused only where the cells that its continuation looks at are all there: with sliding
//!   windows `pos_min ≤ max(0, p − window)`;
//! * what cannot be trusted is cleared and computed again, and the reason is told.

/// A token id of the vocabulary.
pub type Token = i32;

/// What the ledger needs of a KV cache; llama.cpp's, or a fake one in tests. Sequence 0 is meant.
pub trait Cache {
    /// Removes the cells from that position on; false if the cache cannot do it.
    fn remove_from(&mut self, position: usize) -> bool;
    /// Removes every cell.
    fn clear(&mut self);
    /// Smallest position held, −1 if none.
    fn pos_min(&self) -> i32;
    /// Largest position held, −1 if none.
    fn pos_max(&self) -> i32;
}

/// The tokens of the resident sequence.
#[derive(Debug, Default)]
pub struct Ledger {
    tokens: Vec<Token>,
    /// Cells that a windowed layer looks back; `None` if every layer keeps the whole context.
    window: Option<usize>,
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
    /// An empty ledger for a cache of that window.
    pub fn new(window: Option<usize>) -> Self {
        Self { tokens: Vec::new(), window }
    }

    /// Tokens held.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens held.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Forgets everything.
    pub fn clear(&mut self, cache: &mut impl Cache) {
        cache.clear();
        self.tokens.clear();
    }

    /// Notes tokens that a decode call has put into the cache.
    pub fn extend(&mut self, tokens: &[Token]) {
        self.tokens.extend_from_slice(tokens);
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
        let (kept, from) = common(&self.tokens, prompt, bytes);
        let mut tokens = self.tokens[..kept].to_vec();
        tokens.extend_from_slice(&prompt[from..]);
        match self.cut(cache, kept) {
            Ok(()) => Reuse { tokens, kept, why: None },
            Err(why) => Reuse { tokens, kept: 0, why: Some(why.to_owned()) },
        }
    }

    /// Makes the cache hold what the ledger says, after a decode call that failed or was stopped.
    pub fn repair(&mut self, cache: &mut impl Cache) {
        let len = self.len();
        // The reason needs no telling here: the next prompt finds less and is told its own.
        let _ = self.cut(cache, len);
    }

    /// Whether cache and ledger agree.
    pub fn agrees(&self, cache: &impl Cache) -> bool {
        usize::try_from(cache.pos_max() + 1).is_ok_and(|n| n == self.len())
    }

    fn cut(&mut self, cache: &mut impl Cache, len: usize) -> Result<(), &'static str> {
        if len == 0 {
            self.clear(cache);
            return Ok(());
        }
        let removed = cache.remove_from(len);
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
            usize::try_from(cache.pos_min()).map_or(true, |held| held > oldest)
        })
    }
}

/// The longest common prefix of `old` and `new`, as lengths in each, ending before the last token of `new`.
/// Ordinary tokens are compared by their bytes, so that an answer just generated is found again although its
/// text tokenises differently; the prefix ends where both have a token's end.
fn common(old: &[Token], new: &[Token], bytes: impl Fn(Token) -> Option<Vec<u8>>) -> (usize, usize) {
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
