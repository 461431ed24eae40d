//! What is left of the vocabulary while the chain runs.

use super::numbers;
use crate::engine::sequences::Token;

/// Below this divisor logits become too large for an f32.
const LOW: f64 = 0.5;

/// A token that can be chosen, and its logit by now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: Token,
    /// Its logit, as the stages so far have left it. A low temperature makes large numbers of small differences, for
    /// which an f32 is too coarse.
    pub logit: f64,
}

/// The candidates: every token by its id until a stage cuts, after that a list, largest logit first.
#[derive(Debug, Default)]
pub struct Pool {
    all: Vec<f32>,
    list: Vec<Candidate>,
    is_list: bool,
}

impl Pool {
    /// Begins with every token.
    pub fn fill(&mut self, logits: &[f32]) {
        self.all.clear();
        self.all.extend_from_slice(logits);
        self.list.clear();
        self.is_list = false;
    }

    /// The logits by id while nothing is cut; forbidden tokens have −∞.
    pub fn all(&self) -> Option<&[f32]> {
        (!self.is_list).then_some(self.all.as_slice())
    }

    /// How many candidates are left.
    pub fn len(&self) -> usize {
        if self.is_list { self.list.len() } else { self.all.iter().filter(|l| **l > f32::NEG_INFINITY).count() }
    }

    /// The logit of a token, if it is still a candidate.
    pub fn logit(&self, id: Token) -> Option<f64> {
        if self.is_list {
            return self.list.iter().find(|c| c.id == id).map(|c| c.logit);
        }
        let logit = usize::try_from(id).ok().and_then(|i| self.all.get(i)).copied();
        logit.filter(|l| *l > f32::NEG_INFINITY).map(f64::from)
    }

    /// The largest logit.
    pub fn max(&self) -> f64 {
        if self.is_list {
            self.list.first().map_or(f64::NEG_INFINITY, |c| c.logit)
        } else {
            f64::from(numbers::max(&self.all))
        }
    }

    /// The tokens of the largest logits, largest first.
    pub fn best(&self, most: usize) -> Vec<Token> {
        if self.is_list {
            return self.list.iter().take(most).map(|c| c.id).collect();
        }
        super::best(&self.all, most).into_iter().map(|(token, _)| token).collect()
    }

    /// Changes the logits of some tokens, each at most once. Gives how many.
    pub fn adjust(&mut self, changes: impl IntoIterator<Item = (Token, f32)>, how: impl Fn(f64, f32) -> f64) -> usize {
        let mut n = 0;
        for (id, by) in changes {
            n += 1;
            if self.is_list {
                if let Some(candidate) = self.list.iter_mut().find(|c| c.id == id) {
                    candidate.logit = how(candidate.logit, by);
                }
            } else if let Some(logit) = usize::try_from(id).ok().and_then(|i| self.all.get_mut(i)) {
                *logit = how(f64::from(*logit), by) as f32;
            }
        }
        self.list.retain(|c| c.logit > f64::NEG_INFINITY);
        self.sort();
        n
    }

    /// Divides every logit.
    pub fn divide(&mut self, by: f64) {
        if by < LOW {
            self.list();
        }
        if self.is_list {
            self.list.iter_mut().for_each(|c| c.logit /= by);
        } else {
            self.all.iter_mut().for_each(|l| *l /= by as f32);
        }
    }

    /// Keeps the k largest.
    pub fn keep_top(&mut self, k: usize) {
        if self.is_list {
            self.list.truncate(k);
        } else {
            let candidate = |i: usize| Some(Candidate { id: Token::try_from(i).ok()?, logit: f64::from(self.all[i]) });
            self.list = numbers::top(&self.all, k).into_iter().filter_map(candidate).collect();
            self.is_list = true;
        }
    }

    /// Keeps those of at least this logit.
    pub fn keep_from(&mut self, logit: f64) {
        if !self.is_list {
            let kept = (0..).zip(&self.all).map(|(id, l)| Candidate { id, logit: f64::from(*l) });
            self.list = kept.filter(|c| c.logit >= logit && c.logit > f64::NEG_INFINITY).collect();
            self.is_list = true;
            self.sort();
        }
        self.list.retain(|c| c.logit >= logit);
    }

    /// The candidates as a list that a stage may cut, largest logit first.
    pub fn list(&mut self) -> &mut Vec<Candidate> {
        self.keep_from(f64::NEG_INFINITY);
        &mut self.list
    }

    /// Restores the order after a stage that cut by something else than the logit.
    pub fn sort(&mut self) {
        self.list.sort_unstable_by(|a, b| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id)));
    }

    /// The share of the candidates' probability that the logits of `max` have, as 1 / Σ e^(l − max).
    pub fn unit(&self) -> f64 {
        let max = self.max();
        let sum = if self.is_list {
            self.list.iter().map(|c| (c.logit - max).exp()).sum()
        } else {
            numbers::sum_exp(&self.all, max as f32)
        };
        1.0 / sum
    }

    /// The probabilities of the list's candidates, in its order.
    pub fn probabilities(&mut self) -> Vec<f64> {
        self.list();
        let (max, unit) = (self.max(), self.unit());
        self.list.iter().map(|c| (c.logit - max).exp() * unit).collect()
    }

    /// The token at which the sum of probabilities, most probable first (by id while nothing is cut), exceeds `u`.
    pub fn draw(&self, u: f64) -> Option<Token> {
        let (max, unit) = (self.max(), self.unit());
        let mut sum = 0.0;
        let mut last = None;
        let mut passes = |id: Token, logit: f64| {
            if logit > f64::NEG_INFINITY {
                sum += (logit - max).exp() * unit;
                last = Some(id);
            }
            sum > u
        };
        let found = if self.is_list {
            self.list.iter().find(|c| passes(c.id, c.logit)).map(|c| c.id)
        } else {
            (0..).zip(&self.all).find(|(id, logit)| passes(*id, f64::from(**logit))).map(|(id, _)| id)
        };
        // The sum of what is rounded may end just below u.
        found.or(last)
    }
}
