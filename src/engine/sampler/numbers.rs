//! Numbers over a whole vocabulary, written as plain loops that the compiler makes vector code of: they run for
//! every token, beside a decode call of a few milliseconds.

/// e^x for x ≤ 0 with a relative error below 2e-7, less than 1e-37 below −87: 2^n · p(r) with x = n·ln 2 + r, |r| ≤ ln 2 / 2, and the
/// Taylor polynomial of degree 7 for p.
fn exp(x: f32) -> f32 {
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = x.max(-87.5);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * r + c;
    }
    // n is −126 … 0, so the exponent's bits are never negative.
    f32::from_bits(((n as i32 + 127) as u32) << 23) * p
}

/// The largest value; −∞ where there is none.
pub fn max(values: &[f32]) -> f32 {
    values.iter().fold(f32::NEG_INFINITY, |most, v| if *v > most { *v } else { most })
}

/// Whether one is not a number.
pub fn has_nan(values: &[f32]) -> bool {
    values.iter().map(|v| u32::from(v.is_nan())).sum::<u32>() > 0
}

/// Σ e^(v − max).
pub fn sum_exp(values: &[f32], max: f32) -> f64 {
    let [sum] = sums(values, |v| [exp(v - max)]);
    sum
}

/// ln Σ e^v and the entropy of the distribution in nats, in one pass: H = ln Z − Σ p · (v − max), Z = Σ e^(v − max).
pub fn spread(values: &[f32]) -> (f64, f64) {
    let max = max(values);
    let [z, moment] = sums(values, |v| {
        // What is as good as impossible adds nothing, and −∞ · 0 must not either.
        let x = (v - max).max(-87.5);
        let e = exp(x);
        [e, e * x]
    });
    (f64::from(max) + z.ln(), z.ln() - moment / z)
}

/// Summed in sixteen lanes of at most sixteen values each, then exactly enough: 262,144 small numbers add up, and
/// the compiler makes vector code of the lanes.
fn sums<const N: usize>(values: &[f32], terms: impl Fn(f32) -> [f32; N]) -> [f64; N] {
    const LANES: usize = 16;
    let mut sums = [0.0; N];
    for block in values.chunks(LANES * LANES) {
        let mut lanes = [[0.0f32; LANES]; N];
        let (rows, rest) = block.as_chunks::<LANES>();
        for row in rows {
            for (at, v) in row.iter().enumerate() {
                for (lane, term) in lanes.iter_mut().zip(terms(*v)) {
                    lane[at] += term;
                }
            }
        }
        for v in rest {
            for (lane, term) in lanes.iter_mut().zip(terms(*v)) {
                lane[0] += term;
            }
        }
        for (sum, lane) in sums.iter_mut().zip(lanes) {
            *sum += lane.iter().map(|l| f64::from(*l)).sum::<f64>();
        }
    }
    sums
}

/// ln Σ e^v.
pub fn log_sum_exp(values: &[f32]) -> f64 {
    let max = max(values);
    f64::from(max) + sum_exp(values, max).ln()
}

/// How many are larger than this one.
pub fn count_above(values: &[f32], value: f32) -> u32 {
    values.iter().map(|v| u32::from(*v > value)).sum()
}

/// The indices of the k largest finite values, largest first; of equal ones the smaller index first.
pub fn top(values: &[f32], k: usize) -> Vec<usize> {
    /// Values looked at together: most blocks hold none of the largest and are passed over by their maximum.
    const BLOCK: usize = 64;
    let k = k.min(values.len());
    let before = |a: &usize, b: &usize| values[*b].total_cmp(&values[*a]).then(a.cmp(b));
    let mut found: Vec<usize> = Vec::with_capacity(2 * k + BLOCK);
    let mut least = f32::NEG_INFINITY;
    for (nth, block) in values.chunks(BLOCK).enumerate() {
        if k == 0 || max(block) <= least {
            continue;
        }
        let at = nth * BLOCK;
        found.extend(block.iter().enumerate().filter(|(_, v)| **v > least).map(|(i, _)| at + i));
        // Cut down only now and then: what is too much is bounded, and cutting is what costs.
        if found.len() >= 2 * k {
            found.select_nth_unstable_by(k - 1, before);
            found.truncate(k);
            least = found.iter().map(|i| values[*i]).fold(f32::INFINITY, f32::min);
        }
    }
    found.sort_unstable_by(before);
    found.truncate(k);
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exp_is_exact_enough_everywhere() {
        for i in 0..870_000u32 {
            let x = -(i as f32) / 1e4;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= exact * 2e-7, "{x}: {} {exact}", exp(x));
        }
        assert!(exp(f32::NEG_INFINITY) < 1e-37 && exp(-1000.0) < 1e-37);
    }

    proptest! {
        #[test]
        fn entropy_is_its_definition(values in proptest::collection::vec(prop_oneof![-30.0f32..30.0, Just(f32::NEG_INFINITY)], 1..900)) {
            prop_assume!(max(&values) > f32::NEG_INFINITY);
            let z: f64 = values.iter().map(|v| f64::from(*v).exp()).sum();
            let p = values.iter().map(|v| f64::from(*v).exp() / z).filter(|p| *p > 0.0);
            let plain: f64 = p.map(|p| -p * p.ln()).sum();
            let (total, entropy) = spread(&values);
            prop_assert!((entropy - plain).abs() < 1e-5, "{entropy} {plain}");
            prop_assert!((total - log_sum_exp(&values)).abs() < 1e-5, "{total}");
        }

        #[test]
        fn top_is_a_sort(values in proptest::collection::vec(prop_oneof![(-50i8..50).prop_map(f32::from), Just(f32::NEG_INFINITY)], 0..700), k in 0usize..800) {
            let mut all: Vec<usize> = (0..values.len()).filter(|i| values[*i] > f32::NEG_INFINITY).collect();
            all.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
            all.truncate(k);
            prop_assert_eq!(top(&values, k), all);
        }
    }
}
