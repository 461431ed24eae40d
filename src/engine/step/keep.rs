//! Taking states out of the cache before a prompt needs its room, and bringing them back.

use std::time::Instant;

use llama_cpp_2::context::LlamaContext;

use super::Session;
use crate::engine::native;
use crate::engine::sequences::{Cache, MAIN, SeqId, Token};
use crate::engine::states::{Bytes, Key, Piece};

/// Tokens of a piece behind which a turn ends, at the least: smaller ones would cost more than they save. The system
/// prompt is a piece whatever its length, because every new conversation begins with it.
const LEAST: usize = 64;

impl Session<'_> {
    /// Two sequences that are free for moving states.
    fn spare(&self) -> (SeqId, SeqId) {
        let last = self.ledger.shape().branches;
        (last + 1, last + 2)
    }

    /// Whether the cache gives its state only as a whole.
    pub(super) fn is_whole(&self) -> bool {
        let shape = self.ledger.shape();
        shape.whole || shape.window.is_some()
    }

    /// Keeps what the next prompt takes from the cache.
    pub(super) fn keep_what_goes(&mut self, prompt: &[Token]) {
        for seq in self.ledger.sequences() {
            let stays = prompt.strip_prefix(self.ledger.tokens()).is_some_and(|p| p.starts_with(self.ledger.tail(seq)));
            if !stays {
                self.keep(seq);
            }
        }
    }

    /// Keeps what a sequence holds, as far as it is not kept already.
    pub(super) fn keep(&mut self, seq: SeqId) {
        if self.states.is_off() || self.native.is_none() {
            return;
        }
        let tokens = self.ledger.all_tokens(seq);
        let (path, kept) = self.states.find(&tokens);
        if kept == tokens.len() {
            return;
        }
        if self.is_whole() {
            if let Some(state) = native::state(&self.context, seq) {
                self.states.insert(Piece { parent: None, from: 0, tokens, whole: true }, state);
            }
            return;
        }
        let (mut parent, mut from) = self.states.trunk(&path, kept);
        let scattered = self.ledger.scattered(seq).unwrap_or(tokens.len());
        let system = self.system();
        let borders = self.parts.iter().scan(0, |at, (_, n)| {
            *at += *n as usize;
            Some(*at)
        });
        let mut ends: Vec<usize> = borders.chain([scattered, tokens.len()]).collect();
        ends.sort_unstable();
        for end in ends {
            let must = end == tokens.len() || end == scattered || end == system;
            if end <= from || end > tokens.len() || !(must || end >= from + LEAST) {
                continue;
            }
            let state =
                if end > scattered { self.copy_out_sorted(seq, from, end) } else { self.copy_out(seq, from, end) };
            let Some(state) = state else { return };
            let piece = Piece { parent, from, tokens: tokens[from..end].to_vec(), whole: false };
            parent = Some(self.states.insert(piece, state));
            from = end;
        }
    }

    /// The state of some tokens of a sequence.
    fn copy_out(&mut self, seq: SeqId, from: usize, to: usize) -> Option<Vec<u8>> {
        let (spare, _) = self.spare();
        let [start, end] = [from, to].map(|p| u32::try_from(p).ok());
        let copied = start.zip(end).is_some_and(|(start, end)| {
            let [seq, spare] = [seq, spare].map(SeqId::cast_signed);
            self.context.copy_kv_cache_seq(seq, spare, Some(start), Some(end)).is_ok()
        });
        let state = copied.then(|| native::state(&self.context, spare)).flatten();
        self.context.remove_from(spare, 0);
        state
    }

    /// The same of tokens whose cells lie among others: in the order of their positions.
    fn copy_out_sorted(&mut self, seq: SeqId, from: usize, to: usize) -> Option<Vec<u8>> {
        if !self.ledger.has_room(to - from) {
            return None;
        }
        let (_, row) = self.spare();
        let all = (from..to).all(|at| {
            let state = self.copy_out(seq, at, at + 1);
            state.is_some_and(|state| self.copy_in(&state, row, at, at + 1))
        });
        let state = all.then(|| native::state(&self.context, row)).flatten();
        self.context.remove_from(row, 0);
        state
    }

    /// Puts a state of tokens `from..to` behind a sequence. False if it does not fit there; the cache is then as
    /// it was.
    fn copy_in(&mut self, state: &[u8], seq: SeqId, from: usize, to: usize) -> bool {
        let (spare, _) = self.spare();
        let right = native::set_state(&mut self.context, spare, state) && holds(&self.context, spare, from, to);
        if right {
            self.context.copy(spare, seq);
        }
        self.context.remove_from(spare, 0);
        right
    }

    /// Brings back what is kept of a prompt, if that is more than the cache holds. Gives how many tokens were.
    pub(super) fn bring_back(&mut self, prompt: &[Token]) -> usize {
        let began = Instant::now();
        let (mut path, end) = self.states.find(&prompt[..prompt.len().saturating_sub(1)]);
        let here = self.ledger.held(&self.context, prompt);
        if end <= here {
            // What the cache holds anyway is used as far as it is all of a piece.
            path.retain(|key| self.states.get(*key).is_some_and(|(piece, _)| piece.end() <= end));
        }
        self.states.touch(&path);
        if let Some(keeper) = self.keeper.as_ref().filter(|_| !path.is_empty()) {
            keeper.touch(path.clone());
        }
        if end <= here || self.native.is_none() {
            return 0;
        }
        let mut brought = 0;
        for key in path {
            let Some((piece, state)) = self.states.get(key) else { break };
            if piece.end() <= here {
                continue;
            }
            if brought == 0 && !self.make_way(prompt, &piece) {
                break;
            }
            if !self.put(key, &piece, state) {
                break;
            }
            brought = piece.end();
        }
        let brought = brought.min(end).saturating_sub(here);
        tracing::info!(tokens = brought, ms = began.elapsed().as_secs_f64() * 1000.0, "states brought back");
        brought
    }

    /// Makes the main sequence end where a piece begins.
    fn make_way(&mut self, prompt: &[Token], piece: &Piece) -> bool {
        if piece.from == 0 {
            self.ledger.clear(&mut self.context);
            return true;
        }
        self.ledger.reuse(&mut self.context, &prompt[..=piece.from], |_| None).kept == piece.from
    }

    /// Puts a piece behind the main sequence. What cannot be used is forgotten.
    fn put(&mut self, key: Key, piece: &Piece, state: Option<Bytes>) -> bool {
        if !self.ledger.has_room(piece.tokens.len()) {
            return false;
        }
        let state = state.or_else(|| {
            let state = Bytes::new(self.keeper.as_ref()?.read(piece)?);
            self.states.was_read(key, state.clone());
            Some(state)
        });
        let done = state.is_some_and(|state| {
            if piece.whole {
                native::set_state(&mut self.context, MAIN, &state)
            } else {
                self.copy_in(&state, MAIN, piece.from, piece.end())
            }
        });
        if done {
            self.ledger.extend(&piece.tokens);
        }
        if done && self.ledger.agrees(&self.context) {
            return true;
        }
        tracing::warn!("a kept state cannot be used and is forgotten");
        let filed = self.states.forget(key);
        self.remove_files(filed);
        self.ledger.clear(&mut self.context);
        false
    }

    /// Removes the files of pieces that are forgotten.
    pub(super) fn remove_files(&self, keys: Vec<Key>) {
        if let Some(keeper) = &self.keeper {
            keeper.remove(keys);
        }
    }

    /// Puts the cells of a beam that the main sequence took over behind each other, as a cold run has them: the order
    /// of the cells is the order in which attention sums them up.
    pub(super) fn tidy(&mut self) {
        let (Some(from), Some(_)) = (self.ledger.scattered(MAIN), &self.native) else { return };
        let end = self.ledger.len();
        let states: Vec<_> = (from..end).map_while(|at| self.copy_out(MAIN, at, at + 1)).collect();
        if states.len() < end - from || !self.context.remove_from(MAIN, from) {
            return;
        }
        let put = states.iter().zip(from..).all(|(state, at)| self.copy_in(state, MAIN, at, at + 1));
        if put && self.ledger.agrees(&self.context) {
            self.ledger.is_tidy();
        } else {
            self.ledger.clear(&mut self.context);
        }
    }

    /// Whether there is something to keep for which there was no time.
    pub fn wants_rest(&self) -> bool {
        self.unkept && !self.states.is_off() && self.job.is_none()
    }

    /// Keeps what the cache holds, in files too: called when there is nothing else to do.
    pub fn rest(&mut self) {
        self.unkept = false;
        for seq in self.ledger.sequences() {
            self.keep(seq);
        }
        if let Some(keeper) = &self.keeper {
            for (key, piece, state) in self.states.unfiled() {
                // A file that is not there after all is found out when it is read.
                self.states.was_filed(key);
                keeper.write(piece, state);
            }
        }
    }
}

/// Whether a sequence holds exactly these positions; with windows older ones may be gone.
fn holds(context: &LlamaContext<'_>, seq: SeqId, from: usize, to: usize) -> bool {
    let at = |position: i32| usize::try_from(position).ok();
    at(context.pos_min(seq)) == Some(from) && at(context.pos_max(seq)).map(|p| p + 1) == Some(to)
}
