//! States of the KV cache outside of it: what a prompt leaves is kept in memory and, when there is time for it, in
//! files, and is brought back instead of being computed again.
//!
//! Left in the cache itself it would slow every step down, because attention walks over cells that it masks
//! (docs/kv-cache.md has the figure); and cells that lie elsewhere than in a cold run are summed up in another order.
//!
//! The states are a tree of prefixes: a piece holds K and V of some tokens behind those of its parents, so that what
//! conversations begin with is kept once. Where a cache cannot be divided (sliding windows, a recurrent state) a piece
//! is the whole state at its end.

mod file;
mod keeper;

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::sequences::{Token, common};
pub use file::{LLAMA, identity};
pub use keeper::Keeper;

/// A state as llama.cpp writes it.
pub type Bytes = Arc<Vec<u8>>;

/// The name of a piece: the hash of all that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

/// What a piece is, without its state.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it goes on from.
    pub parent: Option<Key>,
    /// Position of its first token.
    pub from: usize,
    /// Its tokens.
    pub tokens: Vec<Token>,
    /// It is the state of a cache that cannot be divided.
    pub whole: bool,
}

impl Piece {
    /// Its name.
    pub fn key(&self) -> Key {
        let mut hash = Sha256::new();
        hash.update(self.parent.map_or([0; 32], |key| key.0));
        hash.update([u8::from(self.whole)]);
        for token in &self.tokens {
            hash.update(token.to_le_bytes());
        }
        Key(hash.finalize().into())
    }

    /// The position behind its last token.
    pub fn end(&self) -> usize {
        self.from + self.tokens.len()
    }
}

/// A piece of the tree.
#[derive(Debug)]
struct Node {
    piece: Arc<Piece>,
    /// Its state, where it is in memory.
    state: Option<Bytes>,
    /// Bytes of its state.
    bytes: u64,
    /// It is in a file.
    filed: bool,
    used: u64,
    pinned: bool,
    id: u32,
}

/// A line of the tree from its root to an end.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// A number for it, for as long as it is there.
    pub id: u32,
    /// Its tokens.
    pub tokens: Vec<Token>,
    /// How many of them no other line has.
    pub own: usize,
    /// Prompts since it was used; `None` if that was in an earlier run.
    pub age: Option<u64>,
    /// It goes last.
    pub pinned: bool,
    /// Some of it is in files only.
    pub filed: bool,
}

/// The states that are kept.
#[derive(Debug, Default)]
pub struct States {
    nodes: HashMap<Key, Node>,
    children: HashMap<Option<Key>, Vec<Key>>,
    /// Prompts so far.
    prompts: u64,
    ids: u32,
    /// Bytes that may be in memory.
    limit: u64,
}

/// Ids of kept lines begin here: smaller ones are sequences of the cache.
pub const FIRST_ID: u32 = 1000;

impl States {
    /// None yet, of which so many bytes may be in memory.
    pub fn new(limit: u64) -> Self {
        Self { ids: FIRST_ID, limit, prompts: 1, ..Self::default() }
    }

    /// Whether anything is kept at all.
    pub fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// The pieces of the longest kept prefix of a text, and its length; of the last piece it may be a part.
    pub fn find(&self, tokens: &[Token]) -> (Vec<Key>, usize) {
        let mut best = (None, 0);
        // Without recursion: a text may have as many pieces as tokens.
        let mut open = vec![(None, 0)];
        while let Some((parent, at)) = open.pop() {
            for key in self.children.get(&parent).into_iter().flatten() {
                let piece = &self.nodes[key].piece;
                let same = common(&piece.tokens, &tokens[at..]);
                let all = same == piece.tokens.len();
                if same == 0 || (piece.whole && !all) {
                    continue;
                }
                if at + same > best.1 {
                    best = (Some(*key), at + same);
                }
                if all && !piece.whole {
                    open.push((Some(*key), at + same));
                }
            }
        }
        (self.path(best.0), best.1)
    }

    /// What a text goes on from that has `n` tokens of a path: its last piece that is the text's to the end, and where
    /// that ends.
    pub fn trunk(&self, path: &[Key], n: usize) -> (Option<Key>, usize) {
        let mut ends = path.iter().map(|key| (Some(*key), self.nodes[key].piece.end()));
        ends.rfind(|(_, end)| *end <= n).unwrap_or((None, 0))
    }

    /// From the root to a piece.
    fn path(&self, end: Option<Key>) -> Vec<Key> {
        let mut path: Vec<Key> = std::iter::successors(end, |key| self.nodes.get(key)?.piece.parent).collect();
        path.reverse();
        path
    }

    /// Keeps a state. What was used longest ago goes out of memory for it.
    pub fn insert(&mut self, piece: Piece, state: Vec<u8>) -> Key {
        let bytes = state.len() as u64;
        let key = self.add(piece, bytes, Some(Arc::new(state)));
        self.trim();
        key
    }

    /// Notes a state that is in a file. False if what it goes on from is not there.
    pub fn insert_filed(&mut self, piece: Piece, bytes: u64) -> bool {
        let from = piece.parent.map_or(Some(0), |parent| self.nodes.get(&parent).map(|n| n.piece.end()));
        let fits = from == Some(piece.from) && !(piece.whole && piece.parent.is_some());
        if fits {
            self.add(piece, bytes, None);
        }
        fits
    }

    fn add(&mut self, piece: Piece, bytes: u64, state: Option<Bytes>) -> Key {
        let key = piece.key();
        let (id, filed, used) = (self.ids, state.is_none(), if state.is_none() { 0 } else { self.prompts });
        if let Some(node) = self.nodes.get_mut(&key) {
            node.state = node.state.take().or(state);
            return key;
        }
        self.ids += 1;
        self.children.entry(piece.parent).or_default().push(key);
        self.nodes.insert(key, Node { piece: Arc::new(piece), state, bytes, filed, used, pinned: false, id });
        key
    }

    /// What a piece is and its state, where that is in memory; otherwise it is in a file.
    pub fn get(&self, key: Key) -> Option<(Arc<Piece>, Option<Bytes>)> {
        self.nodes.get(&key).map(|node| (node.piece.clone(), node.state.clone()))
    }

    /// A state was read from its file, and may stay in memory.
    pub fn was_read(&mut self, key: Key, state: Bytes) {
        if let Some(node) = self.nodes.get_mut(&key) {
            node.state = Some(state);
        }
        self.trim();
    }

    /// A prompt begins that uses these pieces.
    pub fn touch(&mut self, path: &[Key]) {
        self.prompts += 1;
        for key in path {
            if let Some(node) = self.nodes.get_mut(key) {
                node.used = self.prompts;
            }
        }
    }

    /// The states that are in no file yet; what others go on from comes first.
    pub fn unfiled(&self) -> Vec<(Key, Arc<Piece>, Bytes)> {
        let unfiled = self.nodes.iter().filter(|(_, n)| !n.filed);
        let mut out: Vec<_> = unfiled.filter_map(|(key, n)| Some((*key, n.piece.clone(), n.state.clone()?))).collect();
        out.sort_by_key(|(key, piece, _)| (piece.from, *key));
        out
    }

    /// A state is in its file, or is being written there.
    pub fn was_filed(&mut self, key: Key) {
        if let Some(node) = self.nodes.get_mut(&key) {
            node.filed = true;
        }
    }

    /// Forgets a piece and all that goes on from it. Gives those that are in files.
    pub fn forget(&mut self, key: Key) -> Vec<Key> {
        let mut filed = Vec::new();
        let mut open = vec![key];
        while let Some(key) = open.pop() {
            open.extend(self.children.remove(&Some(key)).unwrap_or_default());
            let Some(node) = self.nodes.remove(&key) else { continue };
            filed.extend(node.filed.then_some(key));
            if let Some(siblings) = self.children.get_mut(&node.piece.parent) {
                siblings.retain(|k| *k != key);
            }
        }
        filed
    }

    /// Forgets everything that is in memory; what is in files is no longer known either, and stays.
    pub fn clear(&mut self) {
        *self = Self { limit: self.limit, prompts: self.prompts, ids: self.ids, ..Self::default() };
    }

    /// Bytes in memory, and bytes in files.
    pub fn bytes(&self) -> (u64, u64) {
        let memory = self.nodes.values().filter(|n| n.state.is_some()).map(|n| n.bytes).sum();
        (memory, self.nodes.values().filter(|n| n.filed).map(|n| n.bytes).sum())
    }

    fn trim(&mut self) {
        while self.bytes().0 > self.limit {
            let in_memory = self.nodes.iter().filter(|(_, n)| n.state.is_some());
            // A piece is used whenever one that goes on from it is: the last of a line goes first.
            let oldest = in_memory.min_by_key(|(_, n)| (n.pinned, n.used, std::cmp::Reverse(n.piece.from)));
            let Some(key) = oldest.map(|(key, _)| *key) else { return };
            match self.nodes.get_mut(&key) {
                Some(node) if node.filed => node.state = None,
                _ => drop(self.forget(key)),
            }
        }
    }

    /// The lines that are kept, by their last use.
    pub fn lines(&self) -> Vec<Kept> {
        let mut uses: HashMap<Key, usize> = HashMap::new();
        let is_end = |key: &Key| self.children.get(&Some(*key)).is_none_or(Vec::is_empty);
        let ends: Vec<Key> = self.nodes.keys().copied().filter(is_end).collect();
        for key in ends.iter().flat_map(|end| self.path(Some(*end))) {
            *uses.entry(key).or_default() += 1;
        }
        let mut lines: Vec<Kept> = ends
            .into_iter()
            .map(|end| {
                let path = self.path(Some(end));
                let nodes = || path.iter().map(|key| (key, &self.nodes[key]));
                let last = &self.nodes[&end];
                Kept {
                    id: last.id,
                    tokens: nodes().flat_map(|(_, n)| n.piece.tokens.iter().copied()).collect(),
                    own: nodes().filter(|(key, _)| uses[key] == 1).map(|(_, n)| n.piece.tokens.len()).sum(),
                    age: (last.used > 0).then(|| self.prompts.saturating_sub(last.used)),
                    pinned: last.pinned,
                    filed: nodes().any(|(_, n)| n.state.is_none()),
                }
            })
            .collect();
        lines.sort_by_key(|line| (line.age.is_none(), line.age, line.id));
        lines
    }

    /// The last piece of a line.
    fn end_of(&self, id: u32) -> Option<Key> {
        self.nodes.iter().find(|(_, n)| n.id == id).map(|(key, _)| *key)
    }

    /// Gives up what only that line has. Gives the pieces of it that are in files; none if there is no such line.
    pub fn give_up(&mut self, id: u32) -> Option<Vec<Key>> {
        let mut at = Some(self.end_of(id)?);
        let mut filed = Vec::new();
        while let Some(key) = at.filter(|key| self.children.get(&Some(*key)).is_none_or(Vec::is_empty)) {
            at = self.nodes.get(&key).and_then(|n| n.piece.parent);
            filed.extend(self.forget(key));
        }
        Some(filed)
    }

    /// The line that a text is all of.
    pub fn line_of(&self, tokens: &[Token]) -> Option<u32> {
        let (path, n) = self.find(tokens);
        let mut end = *path.last().filter(|_| n == tokens.len())?;
        // What goes on from there is kept with it.
        while let Some(next) = self.children.get(&Some(end)).and_then(|c| c.first()) {
            end = *next;
        }
        self.nodes.get(&end).map(|n| n.id)
    }

    /// Keeps a line until nothing else can go, or no longer. False if there is no such line.
    pub fn pin(&mut self, id: u32) -> bool {
        let Some(end) = self.end_of(id) else { return false };
        let pinned = !self.nodes[&end].pinned;
        for key in self.path(Some(end)) {
            if let Some(node) = self.nodes.get_mut(&key) {
                node.pinned = pinned;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
