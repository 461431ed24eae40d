//! Whether several rows are faster in one decode call or in one call each: on a CPU two rows together can cost more
//! than two calls of one. Measured on this model and machine, while it works.

use std::time::Duration;

/// Rounds that are measured of each way before one is chosen.
const ROUNDS: usize = 4;
/// Rounds after which it is measured again: a longer context, or a neighbour, changes it.
const AGAIN: u32 = 256;

/// How long rounds of a number of rows took, each way.
#[derive(Debug, Default)]
pub struct Pace {
    rows: usize,
    together: Vec<Duration>,
    apart: Vec<Duration>,
    rounds: u32,
}

impl Pace {
    /// Whether so many rows go into one call now.
    pub fn is_together(&mut self, rows: usize) -> bool {
        if rows != self.rows || self.rounds >= AGAIN {
            *self = Self { rows, ..Self::default() };
        }
        if self.is_measuring() {
            // In turn, so that a slow moment hits both.
            return self.together.len() <= self.apart.len();
        }
        median(&self.together) <= median(&self.apart)
    }

    fn is_measuring(&self) -> bool {
        self.rows > 1 && (self.together.len() < ROUNDS || self.apart.len() < ROUNDS)
    }

    /// A round took so long.
    pub fn took(&mut self, together: bool, time: Duration) {
        self.rounds += 1;
        if self.is_measuring() {
            if together { &mut self.together } else { &mut self.apart }.push(time);
        }
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_taken_and_measured_again() {
        let mut pace = Pace::default();
        let cost = |rows: usize, together: bool| Duration::from_millis(if together { 10 } else { 3 * rows as u64 });
        let mut round = |rows| {
            let together = pace.is_together(rows);
            pace.took(together, cost(rows, together));
            together
        };
        for rows in [2, 4] {
            let measured: Vec<bool> = (0..2 * ROUNDS).map(|_| round(rows)).collect();
            assert_eq!(measured.iter().filter(|t| **t).count(), ROUNDS);
            assert!((0..100).all(|_| round(rows) == (rows == 4)), "{rows}");
        }
        assert!(round(1));
        let many: Vec<bool> = (0..300).map(|_| round(3)).collect();
        assert!(many[280..].iter().all(|t| !*t) && many[8..256].iter().all(|t| !*t));
        assert!(many[256..264].contains(&true));
    }
}
