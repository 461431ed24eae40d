//! How many bytes of memory this machine reads a second, measured: decode reads every weight once a token.

use std::hint::black_box;
use std::time::Instant;

use crate::engine::cores;

/// Largest buffer: far beyond every cache.
const LARGEST: u64 = 512 << 20;
/// Passes over it, of which the median counts.
const PASSES: usize = 7;

/// Bytes a second that all cores together read of a buffer of at most so many bytes, the median of some passes.
pub fn measure(most: u64) -> u64 {
    let words = usize::try_from(most.min(LARGEST) / 8).unwrap_or(0).max(1 << 16);
    // Not zeros: the system maps untouched ones to one page.
    let buffer: Vec<u64> = (0..words as u64).collect();
    let share = words.div_ceil(cores().max(1) as usize);
    let mut rates: Vec<f64> = (0..PASSES)
        .map(|_| {
            let began = Instant::now();
            std::thread::scope(|scope| {
                for part in buffer.chunks(share) {
                    scope.spawn(move || black_box(sum(part)));
                }
            });
            (words * 8) as f64 / began.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[PASSES / 2] as u64
}

/// Adds the words in several columns, so that the sum is not what takes the time.
fn sum(words: &[u64]) -> u64 {
    let mut columns = [0u64; 16];
    for row in words.chunks_exact(16) {
        for (column, word) in columns.iter_mut().zip(row) {
            *column = column.wrapping_add(*word);
        }
    }
    columns.iter().fold(0, |sum, n| sum.wrapping_add(*n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_comes_out_that_a_machine_can_have() {
        let rate = measure(16 << 20);
        assert!((10_000_000..50_000_000_000_000).contains(&rate), "{rate}");
        assert_eq!(sum(&(0..32).collect::<Vec<u64>>()), 496);
    }
}
