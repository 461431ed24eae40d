//! Who holds which cells, and deciding by hand what stays.

use super::{Cache, Ledger, Line, MAIN, SeqId, Token};
use crate::engine::protocol::{CacheMap, Held, Holder};

/// Tokens whose text tells what a sequence is.
const TOLD: usize = 24;

impl Ledger {
    /// Who holds which cells. `text` spells tokens.
    pub fn map(&self, text: impl Fn(&[Token]) -> String) -> CacheMap {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let main = (MAIN, Holder::Main, 0, false);
        let branches = self.branches.iter().map(|b| (b.seq, Holder::Branch, 0, false));
        let parked = self.parked.iter().map(|p| (p.seq, Holder::Parked, self.prompts - p.used, p.pinned));
        let mut left: Vec<_> =
            [main].into_iter().chain(branches).chain(parked).map(|facts| (facts, self.line(facts.0))).collect();
        let mut lines: Vec<Line> = Vec::new();
        let mut held = Vec::new();
        while !left.is_empty() {
            // The next is the one that shares most with the one before; the main sequence is the first.
            let next = lines.last().map_or(0, |before| {
                let best = left
                    .iter()
                    .enumerate()
                    .max_by_key(|(_, ((seq, ..), line))| (common(before, line), MAIN.wrapping_sub(*seq)));
                best.map_or(0, |(n, _)| n)
            });
            let ((seq, holder, age, pinned), line) = left.remove(next);
            let shared = lines.iter().map(|before| common(before, &line)).max().unwrap_or(0);
            // Branches hold the main sequence's cells without being counted as owners of them.
            let counted = if holder == Holder::Branch { &line.cells[self.len()..] } else { &line.cells[..] };
            held.push(Held {
                seq,
                holder,
                tokens: number(line.tokens.len()),
                shared: number(shared),
                own: number(self.cells.alone(counted)),
                age,
                pinned,
                text: text(&line.tokens[shared..line.tokens.len().min(shared + TOLD)]),
            });
            lines.push(line);
        }
        held.retain(|h| h.tokens > 0);
        CacheMap { n_ctx: number(self.shape.cells), used: number(self.used()), held }
    }

    /// Gives a sequence up: a parked one, or the main one when nothing runs in it. False if there is none of that id.
    pub fn give_up(&mut self, cache: &mut impl Cache, seq: SeqId) -> bool {
        if seq == MAIN && self.branches.is_empty() {
            self.cut(cache, 0);
            return true;
        }
        let there = self.parked.iter().any(|p| p.seq == seq);
        self.drop_one(cache, seq);
        there
    }

    /// Keeps a sequence until nothing else can go, or no longer. What is kept of the main one is what it holds now.
    /// False if it cannot be kept.
    pub fn pin(&mut self, cache: &mut impl Cache, seq: SeqId) -> bool {
        let mut seq = seq;
        if seq == MAIN {
            let line = self.main.clone();
            if line.tokens.is_empty() {
                return false;
            }
            self.park(cache, MAIN, line, MAIN);
            let same = self.parked.iter().find(|p| p.line.tokens.starts_with(&self.main.tokens));
            let Some(parked) = same else { return false };
            seq = parked.seq;
        }
        let parked = self.parked.iter_mut().find(|p| p.seq == seq);
        parked.map(|p| p.pinned = !p.pinned).is_some()
    }
}

/// How many first cells two sequences have in common.
fn common(one: &Line, other: &Line) -> usize {
    one.cells.iter().zip(&other.cells).take_while(|(a, b)| a == b).count()
}
