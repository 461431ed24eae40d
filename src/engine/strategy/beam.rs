//! Beam search: which beams live on and which answers have ended. Plain data; the step loop owns the cache.
//!
//! The rules are those that the Transformers library documents and does: each round takes the 2·B best
//! continuations of the B living beams; of them the first B that do not end live on, and those that end among the
//! first B are answers. A score is the sum of the answer's log-probabilities, its end token's included, divided by
//! its length, end token included, to the power of α.

use crate::chat::{EarlyStopping, TokenRecord};
use crate::engine::sequences::Token;

/// Other tokens that a mark keeps.
const OTHERS: usize = TokenRecord::OTHERS as usize;

/// A token of a beam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// The token.
    pub token: Token,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// Its place in its row, 1 for the most probable.
    pub rank: u32,
    /// The most probable others.
    pub others: [Option<(Token, f32)>; OTHERS],
}

/// A living beam.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beam {
    /// Its tokens.
    pub marks: Vec<Mark>,
    /// The sum of their log-probabilities.
    pub sum: f64,
}

/// An answer that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended<T> {
    /// Its tokens without the end token.
    pub marks: Vec<Mark>,
    /// Its score.
    pub score: f64,
    /// Whether the model ended it; otherwise it was cut.
    pub whole: bool,
    /// What the caller keeps with it.
    pub kept: T,
}

/// The settings of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// B.
    pub width: usize,
    /// α.
    pub alpha: f64,
    /// When it ends.
    pub stopping: EarlyStopping,
    /// The longest answer, end token included.
    pub longest: usize,
}

/// A search under way.
#[derive(Debug)]
pub struct Search<T> {
    /// Its settings.
    pub rules: Rules,
    /// The living beams, best first. In the beginning one without tokens.
    pub live: Vec<Beam>,
    /// The best answers that ended, at most B, best first.
    pub ended: Vec<Ended<T>>,
    /// How often another beam took the lead.
    pub overtakes: u32,
}

/// A continuation: of which beam, with which token, at which place of its row, and the sum then.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    parent: usize,
    place: usize,
    token: Token,
    sum: f64,
}

/// What a round decided.
#[derive(Debug, PartialEq, Eq)]
pub struct Round {
    /// For each beam that lives on the one that it goes on from.
    pub parents: Vec<usize>,
    /// The beams, as they were, that became answers, best place first.
    pub ended: Vec<usize>,
    /// Whether the search is over.
    pub done: bool,
}

impl<T> Search<T> {
    /// A search that begins behind the prompt.
    pub fn new(rules: Rules) -> Self {
        Self { rules, live: vec![Beam::default()], ended: Vec::new(), overtakes: 0 }
    }

    /// How many continuations of each row a round has to see.
    pub fn row_size(&self) -> usize {
        2 * self.rules.width.max(1)
    }

    /// Takes the best continuations of each living beam, best first, with their log-probabilities.
    /// `keep` is asked what to keep for a beam that becomes an answer, before the beams change; `drop` gets it back
    /// for an answer that is not among the best any more.
    pub fn absorb(
        &mut self,
        rows: &[Vec<(Token, f64)>],
        is_end: impl Fn(Token) -> bool,
        mut keep: impl FnMut(usize) -> T,
        mut drop: impl FnMut(T),
    ) -> Round {
        let width = self.rules.width.max(1);
        let mut steps: Vec<Step> = Vec::new();
        for (parent, (beam, row)) in self.live.iter().zip(rows).enumerate() {
            let step = |(place, (token, log)): (usize, &(Token, f64))| Step {
                parent,
                place,
                token: *token,
                sum: beam.sum + log,
            };
            steps.extend(row.iter().enumerate().map(step));
        }
        steps.sort_by(|a, b| b.sum.total_cmp(&a.sum).then(a.parent.cmp(&b.parent)).then(a.place.cmp(&b.place)));
        steps.truncate(2 * width);
        let length = self.live.first().map_or(0, |b| b.marks.len()) + 1;
        let mut ended = Vec::new();
        for step in steps.iter().take(width).filter(|s| is_end(s.token)) {
            let score = self.score(step.sum, length);
            if self.is_among_best(score) {
                let marks = self.live[step.parent].marks.clone();
                self.insert(Ended { marks, score, whole: true, kept: keep(step.parent) }, &mut drop);
                ended.push(step.parent);
            }
        }
        let next: Vec<Step> = steps.into_iter().filter(|s| !is_end(s.token)).take(width).collect();
        let beams: Vec<Beam> = next.iter().map(|s| self.grow(s, &rows[s.parent])).collect();
        if next.first().is_some_and(|s| s.parent != 0) && self.live.len() > 1 {
            self.overtakes += 1;
        }
        self.live = beams;
        Round { parents: next.iter().map(|s| s.parent).collect(), ended, done: self.is_done() }
    }

    fn grow(&self, step: &Step, row: &[(Token, f64)]) -> Beam {
        let mut others = row.iter().filter(|(token, _)| *token != step.token).map(|(t, log)| (*t, *log as f32));
        let mut marks = self.live[step.parent].marks.clone();
        marks.push(Mark {
            token: step.token,
            logprob: row[step.place].1 as f32,
            rank: u32::try_from(step.place + 1).unwrap_or(u32::MAX),
            others: std::array::from_fn(|_| others.next()),
        });
        Beam { marks, sum: step.sum }
    }

    /// The score of a sum over so many tokens.
    pub fn score(&self, sum: f64, length: usize) -> f64 {
        sum / (length.max(1) as f64).powf(self.rules.alpha)
    }

    /// The score of a living beam as it stands.
    pub fn score_of(&self, beam: &Beam) -> f64 {
        self.score(beam.sum, beam.marks.len())
    }

    fn is_among_best(&self, score: f64) -> bool {
        self.ended.len() < self.rules.width.max(1) || self.ended.last().is_some_and(|worst| score > worst.score)
    }

    fn insert(&mut self, answer: Ended<T>, drop: &mut impl FnMut(T)) {
        let at = self.ended.partition_point(|e| e.score >= answer.score);
        self.ended.insert(at, answer);
        while self.ended.len() > self.rules.width.max(1) {
            if let Some(worst) = self.ended.pop() {
                drop(worst.kept);
            }
        }
    }

    fn is_done(&self) -> bool {
        let Some(best) = self.live.first() else { return true };
        if best.marks.len() >= self.rules.longest {
            return true;
        }
        self.is_decided()
    }

    /// Whether what has ended is better, by the rule of the search, than anything that lives.
    fn is_decided(&self) -> bool {
        let Some(best) = self.live.first() else { return !self.ended.is_empty() };
        let length = best.marks.len();
        // With one beam it is a greedy answer, which ends with its first end token.
        if self.rules.width <= 1 {
            return !self.ended.is_empty();
        }
        let worst = self.ended.last().map(|e| e.score).filter(|_| self.ended.len() >= self.rules.width);
        let Some(worst) = worst else { return false };
        match self.rules.stopping {
            EarlyStopping::First => true,
            // A sum only falls. With α above 0 a longer answer divides it by more, so the longest has the best hope.
            EarlyStopping::Never if self.rules.alpha > 0.0 => self.score(best.sum, self.rules.longest) <= worst,
            EarlyStopping::Best | EarlyStopping::Never => self.score(best.sum, length) <= worst,
        }
    }

    /// Ends the search. Unless it is decided the living beams become answers that were cut; the best of all are left,
    /// best first.
    pub fn end(&mut self, mut keep: impl FnMut(usize) -> T, mut drop: impl FnMut(T)) {
        let decided = self.is_decided();
        let live = std::mem::take(&mut self.live);
        for (i, beam) in live.into_iter().enumerate().filter(|_| !decided) {
            let score = self.score(beam.sum, beam.marks.len());
            if !beam.marks.is_empty() && self.is_among_best(score) {
                self.insert(Ended { marks: beam.marks, score, whole: false, kept: keep(i) }, &mut drop);
            }
        }
    }

    /// How many first tokens all beams and answers have in common.
    pub fn agreed(&self) -> usize {
        let mut all = self.live.iter().map(|b| &b.marks).chain(self.ended.iter().map(|e| &e.marks));
        let Some(first) = all.next() else { return 0 };
        all.fold(first.len(), |n, marks| {
            first.iter().zip(marks).take(n).take_while(|(a, b)| a.token == b.token).count()
        })
    }
}

#[cfg(test)]
mod tests;
