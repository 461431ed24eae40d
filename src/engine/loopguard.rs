//! Notices an answer that repeats itself.

use super::sequences::Token;

/// The longest period that is looked for, in tokens.
const LONGEST: usize = 200;
/// Rounds of its period after which an answer repeats itself.
const ROUNDS: usize = 3;
/// A repetition of fewer tokens is seen but no loop yet, however often they come: "no, no, no" is a way to speak.
const LEAST: usize = 24;
/// A period without a letter is a rule, an indentation, the border of a table: much more of it is one.
const LEAST_WITHOUT_LETTERS: usize = 200;

/// The tokens of an answer, and for each period how long they have followed it.
#[derive(Debug)]
pub struct LoopGuard {
    tokens: Vec<Token>,
    /// For each token whether it has a letter.
    letters: Vec<bool>,
    /// At `p − 1`: how many tokens in a row are the same as those p before.
    runs: [usize; LONGEST],
}

/// The end of an answer that has come before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Tokens of a round.
    pub period: usize,
    /// Whole rounds, the first included.
    pub rounds: usize,
    /// It is too long to be a way to speak: the answer loops.
    pub loops: bool,
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self { tokens: Vec::new(), letters: Vec::new(), runs: [0; LONGEST] }
    }
}

impl LoopGuard {
    /// Takes the next token. From the third round on, what repeats itself there: a loop before anything else, then
    /// the shortest period.
    pub fn push(&mut self, token: Token, has_letter: bool) -> Option<Repetition> {
        self.tokens.push(token);
        self.letters.push(has_letter);
        let n = self.tokens.len();
        for (i, run) in self.runs.iter_mut().enumerate() {
            let same = n > i + 1 && self.tokens[n - 2 - i] == token;
            *run = if same { *run + 1 } else { 0 };
        }
        let repeated = (1..=LONGEST).filter_map(|period| {
            let length = self.runs[period - 1] + period;
            let enough = length >= ROUNDS * period
                && (length >= LEAST_WITHOUT_LETTERS || self.letters[n - period..].iter().any(|l| *l));
            enough.then_some(Repetition { period, rounds: length / period, loops: length >= LEAST })
        });
        repeated.min_by_key(|r| (!r.loops, r.period))
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// At which token it is noticed.
    fn noticed(text: &[Token], has_letter: impl Fn(Token) -> bool) -> Option<usize> {
        let mut guard = LoopGuard::default();
        text.iter().position(|t| guard.push(*t, has_letter(*t)).is_some_and(|r| r.loops)).map(|at| at + 1)
    }

    /// At which token a repetition is seen, loop or not.
    fn seen(text: &[Token]) -> Option<usize> {
        let mut guard = LoopGuard::default();
        text.iter().position(|t| guard.push(*t, true).is_some()).map(|at| at + 1)
    }

    proptest! {
        #[test]
        fn three_rounds_of_any_period_are_noticed(before in proptest::collection::vec(1000i32..9000, 0..80), period in 1usize..=LONGEST) {
            let round: Vec<Token> = (0..).take(period).collect();
            let text: Vec<Token> = before.iter().chain(round.iter().cycle().take(6 * period + LEAST)).copied().collect();
            let at = noticed(&text, |_| true).unwrap() - before.len();
            prop_assert!(at <= (3 * period).max(LEAST), "{at} tokens of a period of {period}");
            prop_assert_eq!(seen(&text), Some(before.len() + 3 * period));
        }

        #[test]
        fn what_does_not_repeat_is_left_alone(seed: u64, n in 1usize..800) {
            let mut state = seed;
            let text: Vec<Token> = (0..n).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as Token
            }).collect();
            prop_assert_eq!(noticed(&text, |_| true), None);
        }
    }

    #[test]
    fn rows_that_differ_rules_and_short_echoes_are_no_loops() {
        // A table: the same borders, other words.
        let rows: Vec<Token> = (0..40).flat_map(|row| [1, 2, 100 + row, 2, 200 + row, 2, 3]).collect();
        assert_eq!(noticed(&rows, |t| t >= 100), None);
        // A list that counts, and its indentation.
        let list: Vec<Token> = (0..60).flat_map(|n| [7, 7, 7, 7, 50 + n, 8]).collect();
        assert_eq!(noticed(&list, |t| t >= 50), None);
        assert_eq!(noticed(&[5; 150], |_| false), None, "a long rule");
        assert_eq!(noticed(&[5; 12], |_| true), None, "no, no, no");
        assert!(noticed(&[5; 400], |_| false).is_some(), "a rule without an end");
    }
}
