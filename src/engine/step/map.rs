//! Showing the cache, and deciding by hand what stays in it.

use super::Session;
use crate::engine::protocol::EngineEvent;
use crate::engine::sequences::{MAIN, SeqId};

impl Session<'_> {
    /// Tells who holds which cells.
    pub(super) fn tell_map(&self) {
        let map = self.ledger.map(|tokens| {
            let bytes: Vec<u8> = tokens.iter().flat_map(|t| self.vocabulary.bytes(*t)).collect();
            String::from_utf8_lossy(&bytes).trim().to_owned()
        });
        (self.sink)(EngineEvent::Map(map));
    }

    /// Gives a sequence up; not the one that an answer is being written in.
    pub(super) fn drop_sequence(&mut self, seq: SeqId) {
        if seq != MAIN {
            self.ledger.give_up(&mut self.context, seq);
        } else if self.job.is_none() && self.ledger.give_up(&mut self.context, MAIN) {
            self.has_logits = false;
        }
        self.tell_map();
    }

    /// Keeps a sequence, or no longer.
    pub(super) fn pin(&mut self, seq: SeqId) {
        self.ledger.pin(&mut self.context, seq);
        self.tell_map();
    }
}
