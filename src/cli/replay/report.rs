//! What a replay tells, for people and for programs.

use serde::Serialize;

use super::compare::Difference;
use crate::chat::MessageId;
use crate::text::{fit, sanitise_line};

/// Columns of a continuation.
const COLUMNS: usize = 60;

/// What came of an answer.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The answer.
    pub id: MessageId,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The model that made it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tokens of the old answer.
    pub tokens: usize,
    /// Whether the file says what made it.
    pub recorded: bool,
    /// What is to be known about the comparison, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What came of an answer.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// It is the same.
    Same {
        /// Tokens that were compared.
        compared: usize,
        /// The largest difference of log-probabilities, where there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        logprob_difference: Option<f32>,
    },
    /// It is another one.
    Differs {
        /// From this token on, counted from 1.
        token: usize,
        /// The token that was there; none at its end.
        was: Option<String>,
        /// The token that is there now.
        now: Option<String>,
        /// What came from there on.
        was_on: String,
        /// What comes now.
        now_on: String,
        /// How the old one ended.
        finish: &'static str,
        /// Why that may be.
        why: String,
    },
    /// It could not be made again.
    Cannot {
        /// Why.
        why: String,
    },
}

impl Outcome {
    /// An answer that differs, `begun` tokens of which were there before.
    pub fn differs(begun: usize, difference: Difference, finish: &'static str, why: String) -> Self {
        let Difference { at, was, now, was_on, now_on } = difference;
        Self::Differs { token: begun + at + 1, was, now, was_on, now_on, finish, why }
    }
}

impl Row {
    /// For people: a line, and more where it differs.
    pub fn text(&self) -> String {
        let mut more = Vec::new();
        let first = match &self.outcome {
            Outcome::Same { compared, logprob_difference } => {
                let tokens = match compared {
                    n if *n < self.tokens => format!("same in {n} of {} tokens", self.tokens),
                    n => format!("same, {}", counted(*n)),
                };
                let by = logprob_difference.map(|by| format!("; log-probabilities differ by up to {by:.4}"));
                tokens + &by.unwrap_or_default()
            }
            Outcome::Differs { token, was, now, was_on, now_on, finish, why } => {
                let old = was.as_deref().map_or_else(|| format!("its end ({finish})"), quoted);
                let new = now.as_deref().map_or_else(|| "its end".to_owned(), quoted);
                more.extend(
                    [("was", was_on), ("now", now_on)]
                        .map(|(name, on)| format!("{name}: {}", fit(&quoted(on), COLUMNS))),
                );
                more.push(format!("{why}."));
                format!("differs at token {token} of {}: was {old}, is now {new}", self.tokens)
            }
            Outcome::Cannot { why } => format!("cannot be replayed: {why}"),
        };
        more.extend(self.notes.iter().map(|note| format!("{note}.")));
        let more = more.iter().map(|line| format!("      {}\n", sanitise_line(line)));
        format!("{:>4}  {}\n", self.id, sanitise_line(&first)) + &more.collect::<String>()
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn counted(tokens: usize) -> String {
    if tokens == 1 { "1 token".to_owned() } else { format!("{tokens} tokens") }
}

/// How many answers came out how.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// The same.
    pub same: usize,
    /// Others.
    pub differ: usize,
    /// Not made again.
    pub cannot: usize,
}

impl Sums {
    /// Of rows.
    pub fn of(rows: &[Row]) -> Self {
        let mut sums = Self::default();
        for row in rows {
            *match row.outcome {
                Outcome::Same { .. } => &mut sums.same,
                Outcome::Differs { .. } => &mut sums.differ,
                Outcome::Cannot { .. } => &mut sums.cannot,
            } += 1;
        }
        sums
    }

    /// Whether answers were made again, and all of them as they were.
    pub fn all_same(&self) -> bool {
        self.differ == 0 && self.same > 0
    }

    /// For people.
    pub fn text(&self) -> String {
        let all = self.same + self.differ + self.cannot;
        let mut parts = vec![format!("{} the same", self.same)];
        parts.extend((self.differ > 0).then(|| format!("{} different", self.differ)));
        parts.extend((self.cannot > 0).then(|| format!("{} cannot be replayed", self.cannot)));
        format!("{all} answer{}: {}\n", if all == 1 { "" } else { "s" }, parts.join(", "))
    }
}

/// All of it as one object.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The conversation's file.
    pub file: String,
    /// How many came out how.
    #[serde(flatten)]
    pub sums: Sums,
    /// Every answer.
    pub answers: Vec<Row>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outcome: Outcome) -> Row {
        Row { id: 4, outcome, model: None, tokens: 24, recorded: true, notes: Vec::new() }
    }

    #[test]
    fn rows_are_read_by_people() {
        let same = row(Outcome::Same { compared: 24, logprob_difference: Some(0.02) });
        assert_eq!(same.text(), "   4  same, 24 tokens; log-probabilities differ by up to 0.0200\n");
        let part = Row {
            notes: vec!["Its settings were moved".into()],
            ..row(Outcome::Same { compared: 7, logprob_difference: None })
        };
        assert_eq!(part.text(), "   4  same in 7 of 24 tokens\n      Its settings were moved.\n");
        let difference = Difference {
            at: 6,
            was: Some(" the".into()),
            now: None,
            was_on: " the\u{1b}[2J river".into(),
            now_on: String::new(),
        };
        let differs = row(Outcome::differs(2, difference, "complete", "Another model".into()));
        let text = differs.text();
        assert!(text.starts_with("   4  differs at token 9 of 24: was \" the\", is now its end\n"), "{text}");
        assert!(text.ends_with("      Another model.\n") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn only_what_was_compared_is_a_success() {
        let cannot = || row(Outcome::Cannot { why: String::new() });
        assert!(!Sums::of(&[cannot()]).all_same());
        let sums = Sums::of(&[cannot(), row(Outcome::Same { compared: 1, logprob_difference: None })]);
        assert!(sums.all_same());
        assert_eq!(sums.text(), "2 answers: 1 the same, 1 cannot be replayed\n");
    }
}
