//! How long a prompt is, turn by turn, and the refusal of one that does not fit.

use super::Session;
use crate::chat::Role;
use crate::engine::origin::tokens_hash;
use crate::engine::protocol::{EngineEvent, JobId, Problem, Prompt, Size, Turn};
use crate::engine::tokens::Encoded;
use crate::model::{free_memory, human};

/// Why a job is not begun.
pub(super) struct Refusal {
    problem: Problem,
    size: Option<Size>,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { problem, size: None }
    }
}

impl Refusal {
    /// The event that tells it.
    pub(super) fn told(self, job: JobId) -> EngineEvent {
        EngineEvent::Failed { job, problem: self.problem, size: self.size }
    }
}

impl Session<'_> {
    pub(super) fn measure(&self, job: JobId, prompt: &Prompt) {
        (self.sink)(match self.encode(prompt) {
            Ok((encoded, _)) => EngineEvent::Measured {
                job,
                size: self.size(prompt, &encoded),
                prompt_sha256: tokens_hash(&encoded.tokens),
            },
            Err(problem) => EngineEvent::Failed { job, problem, size: None },
        });
    }

    /// A prompt that leaves no room for an answer.
    pub(super) fn too_long(&self, prompt: &Prompt, encoded: &Encoded) -> Refusal {
        let size = self.size(prompt, encoded);
        let whose = if matches!(prompt, Prompt::Chat { .. }) { "conversation" } else { "text" };
        let what =
            format!("The {whose} has {} tokens and the context holds {}, the answer included", size.tokens, size.n_ctx);
        // A quarter of it for the answer.
        let enough = (size.tokens + size.tokens / 3).next_multiple_of(256);
        let bytes = self.info.kv_bytes_per_token * u64::from(enough);
        let bytes = if bytes > 0 { format!(", {} of KV cache", human(bytes)) } else { String::new() };
        let next = if enough > self.info.n_ctx_train {
            format!("Shorten it: the model was trained on {} tokens at once", self.info.n_ctx_train)
        } else {
            format!("Shorten it, or take a larger context (-c {enough}{bytes})")
        };
        Refusal { problem: Problem::new(what, next), size: Some(size) }
    }

    fn size(&self, prompt: &Prompt, encoded: &Encoded) -> Size {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Size {
            tokens: number(encoded.tokens.len()),
            n_ctx: self.context.n_ctx(),
            turns: match prompt {
                Prompt::Chat { system, turns } => {
                    let counts = of_turns(turns, encoded);
                    let rest = turns.iter().skip(1).position(|t| t.role == Role::User).map(|at| at + 1);
                    let rest = rest.and_then(|at| {
                        let rest = Prompt::Chat { system: system.clone(), turns: turns[at..].to_vec() };
                        Some((at, number(self.encode(&rest).ok()?.0.tokens.len())))
                    });
                    corrected(counts, number(encoded.tokens.len()), rest)
                }
                Prompt::Raw(_) | Prompt::Tokens(_) => Vec::new(),
            },
            free_bytes: free_memory(),
        }
    }
}

/// Tokens of each turn. Where the template divides the text in another way than the turns do, they are
/// estimated by their bytes.
fn of_turns(turns: &[Turn], encoded: &Encoded) -> Vec<u32> {
    // Behind the last turn comes what the template writes before an answer.
    let parts = encoded.parts.split_last().map_or(&[][..], |(_, parts)| parts);
    let parts: Vec<(Role, u32)> = parts.iter().copied().filter(|(role, _)| *role != Role::System).collect();
    let speaks = |turn: &&Turn| !turn.text.trim().is_empty();
    let said = turns.iter().filter(speaks).map(|t| t.role);
    if said.eq(parts.iter().map(|(role, _)| *role)) {
        let mut counts = parts.iter().map(|(_, n)| *n);
        return turns.iter().map(|t| if speaks(&t) { counts.next().unwrap_or(0) } else { 0 }).collect();
    }
    let bytes: usize = turns.iter().map(|t| t.text.len()).sum();
    let tokens = encoded.tokens.len();
    turns.iter().map(|t| u32::try_from(t.text.len() * tokens / bytes.max(1)).unwrap_or(u32::MAX)).collect()
}

/// What the template writes before the first turn counts as the system's, although some of it goes and comes
/// with a turn. How much is told by the tokens without the first so many turns.
fn corrected(mut counts: Vec<u32>, tokens: u32, rest: Option<(usize, u32)>) -> Vec<u32> {
    if let (Some((turns, rest)), Some(first)) = (rest, counts.first().copied()) {
        let others: u32 = counts[1..turns].iter().sum();
        counts[0] = tokens.saturating_sub(rest).saturating_sub(others).max(first);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::protocol::Cells;

    fn turns(texts: &[(Role, &str)]) -> Vec<Turn> {
        texts.iter().map(|(role, text)| Turn { role: *role, text: (*text).to_owned() }).collect()
    }

    fn encoded(parts: &[(Role, u32)]) -> Encoded {
        let tokens = parts.iter().map(|(_, n)| *n as usize).sum();
        Encoded { tokens: vec![0; tokens], cells: Cells::default(), parts: parts.to_vec() }
    }

    #[test]
    fn each_turn_has_the_tokens_of_its_part() {
        use Role::{Assistant, System, User};
        let turns = turns(&[(User, "hi"), (Assistant, " "), (User, "you?"), (Assistant, "Hello")]);
        let parts = [(System, 9), (User, 3), (User, 4), (Assistant, 5), (Assistant, 2)];
        assert_eq!(of_turns(&turns, &encoded(&parts)), [3, 0, 4, 5]);
    }

    #[test]
    fn the_first_turn_has_what_goes_with_it() {
        // 5 tokens of 30 before the first turn are its own; without two turns 61 are left of 82.
        assert_eq!(corrected(vec![7, 9, 15, 13, 8], 82, Some((2, 61))), [12, 9, 15, 13, 8]);
        assert_eq!(corrected(vec![7], 20, None), [7]);
    }

    #[test]
    fn where_the_parts_are_others_the_turns_share_the_tokens_by_their_bytes() {
        use Role::{Assistant, User};
        let turns = turns(&[(User, "aaaa"), (Assistant, "bb"), (User, "cc")]);
        assert_eq!(of_turns(&turns, &encoded(&[(User, 30), (Assistant, 10)])), [20, 10, 10]);
    }
}
