//! Two answers, token by token.

use crate::chat::TokenRecord;

/// Tokens behind the first different one that are shown.
const SHOWN: usize = 8;
/// A log-probability is kept in ten-thousandths.
const ROUNDED: f32 = 1.5e-4;

/// The text of an answer and what is known of its tokens; nothing of those in files that are older than such records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Its text.
    pub text: Vec<u8>,
    /// Its tokens.
    pub tokens: Vec<TokenRecord>,
}

/// Where two answers part.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Tokens before it.
    pub at: usize,
    /// The token that was there; none where the answer ended.
    pub was: Option<String>,
    /// The token that is there now.
    pub now: Option<String>,
    /// What came from there on, a few words.
    pub was_on: String,
    /// What comes now.
    pub now_on: String,
}

impl Answer {
    /// The first so many tokens of it.
    pub fn shorten(&mut self, tokens: usize) {
        if tokens < self.tokens.len() {
            self.tokens.truncate(tokens);
            let bytes: usize = self.tokens.iter().map(|t| t.bytes as usize).sum();
            self.text.truncate(bytes);
        }
    }

    /// The text of each token. What no token accounts for is one more.
    fn pieces(&self) -> Vec<&[u8]> {
        let mut at = 0;
        let mut pieces = Vec::with_capacity(self.tokens.len() + 1);
        for token in &self.tokens {
            let end = (at + token.bytes as usize).min(self.text.len());
            pieces.push(&self.text[at..end]);
            at = end;
        }
        pieces.extend(Some(&self.text[at..]).filter(|rest| !rest.is_empty()));
        pieces
    }

    /// The same text divided where another answer divides it, as far as that goes.
    fn divided_as(&self, other: &Self) -> Self {
        let mut at = 0;
        let same = |t: &&TokenRecord| {
            let end = at + t.bytes as usize;
            let same = self.text.get(at..end) == other.text.get(at..end);
            at = end;
            same && end <= self.text.len()
        };
        Self { text: self.text.clone(), tokens: other.tokens.iter().take_while(same).cloned().collect() }
    }
}

/// Where an answer parts from the one that was there; nowhere where both are the same. With `open_end` the old one was
/// ended from outside: what the new one has behind it does not count.
pub fn difference(was: &Answer, now: &Answer, open_end: bool) -> Option<Difference> {
    let divided;
    let was = if was.tokens.is_empty() && !now.tokens.is_empty() {
        divided = was.divided_as(now);
        &divided
    } else {
        was
    };
    let (old, new) = (was.pieces(), now.pieces());
    let at = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let is_over = at == old.len() && (open_end || at == new.len());
    if is_over {
        return None;
    }
    let text = |pieces: &[&[u8]]| String::from_utf8_lossy(&pieces.concat()).into_owned();
    let one = |pieces: &[&[u8]]| pieces.get(at).map(|piece| text(&[piece]));
    let on = |pieces: &[&[u8]]| text(&pieces[at..pieces.len().min(at + SHOWN)]);
    Some(Difference { at, was: one(&old), now: one(&new), was_on: on(&old), now_on: on(&new) })
}

/// The largest difference of log-probabilities over the first so many tokens, where it is more than rounding.
pub fn apart(was: &[TokenRecord], now: &[TokenRecord], tokens: usize) -> Option<f32> {
    let both = was.iter().zip(now).take(tokens);
    let largest = both.map(|(a, b)| (a.logprob - b.logprob).abs()).fold(0.0, f32::max);
    (largest > ROUNDED).then_some(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(pieces: &[&str]) -> Answer {
        let record = |p: &&str| TokenRecord {
            bytes: u32::try_from(p.len()).unwrap(),
            logprob: -0.5,
            rank: 1,
            others: Vec::new(),
        };
        Answer { text: pieces.concat().into_bytes(), tokens: pieces.iter().map(record).collect() }
    }

    fn parted(was: &[&str], now: &[&str]) -> Option<(usize, Option<String>, Option<String>)> {
        difference(&answer(was), &answer(now), false).map(|d| (d.at, d.was, d.now))
    }

    #[test]
    fn the_first_other_token_is_found() {
        let words = |was: &str, now: &str| (Some(was.to_owned()), Some(now.to_owned()));
        assert_eq!(parted(&["a", " b"], &["a", " b"]), None);
        assert_eq!(
            parted(&["a", " b", " c"], &["a", " x", " c"]).map(|d| (d.0, (d.1, d.2))),
            Some((1, words(" b", " x")))
        );
        // The same text in other tokens is another answer.
        assert_eq!(parted(&["a", "bc"], &["a", "b", "c"]).map(|d| d.0), Some(1));
        assert_eq!(parted(&["a"], &["a", "b"]), Some((1, None, Some("b".into()))));
        assert_eq!(parted(&["a", "b"], &["a"]), Some((1, Some("b".into()), None)));
        // A word that was changed in the file, for one of another length.
        let edited = Answer { text: b"a long word".to_vec(), ..answer(&["a", " b", " word"]) };
        assert_eq!(difference(&edited, &answer(&["a", " b", " word"]), false).map(|d| d.at), Some(1));
        let on = difference(&answer(&["a", " b", " c"]), &answer(&["a", " x"]), false).unwrap();
        assert_eq!((on.was_on.as_str(), on.now_on.as_str()), (" b c", " x"));
    }

    #[test]
    fn without_records_the_new_answer_says_where_tokens_begin() {
        let old = |text: &str| Answer { text: text.into(), tokens: Vec::new() };
        let now = answer(&["a", " b", " c"]);
        assert_eq!(difference(&old("a b c"), &now, false), None);
        let d = difference(&old("a b d"), &now, false).unwrap();
        assert_eq!((d.at, d.was.as_deref(), d.now.as_deref()), (2, Some(" d"), Some(" c")));
        assert_eq!(difference(&old("a b"), &now, false).map(|d| d.at), Some(2));
        assert_eq!(difference(&old("a b"), &now, true), None);
    }

    #[test]
    fn what_was_ended_from_outside_is_compared_as_far_as_it_goes() {
        assert_eq!(difference(&answer(&["a"]), &answer(&["a", "b"]), true), None);
        assert!(difference(&answer(&["a", "b"]), &answer(&["a"]), true).is_some());
        let mut short = answer(&["a", "bc", "d"]);
        short.shorten(2);
        assert_eq!(short, answer(&["a", "bc"]));
    }

    #[test]
    fn other_numbers_behind_the_same_words_are_told() {
        let (one, mut other) = (answer(&["a", "b"]), answer(&["a", "b"]));
        other.tokens[1].logprob = -0.50009;
        assert_eq!(apart(&one.tokens, &other.tokens, 2), None);
        other.tokens[1].logprob = -0.6;
        assert!(apart(&one.tokens, &other.tokens, 2).is_some_and(|d| (d - 0.1).abs() < 1e-6));
        assert_eq!(apart(&one.tokens, &other.tokens, 1), None);
    }
}
