use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::chat::{KNOBS, Mode, Seed};

/// A vocabulary of numbers: token 7 is "7"; 13 is a colon.
pub struct Numbers(u32);

impl Words for Numbers {
    fn size(&self) -> u32 {
        self.0
    }
    fn text(&self, token: Token) -> Vec<u8> {
        if token == 13 { b":".to_vec() } else { token.to_string().into_bytes() }
    }
    fn named(&self, text: &str) -> Vec<Token> {
        text.parse().ok().filter(|t| u32::try_from(*t).is_ok_and(|t| t < self.0)).into_iter().collect()
    }
    fn grammar(&self, _: &str) -> Result<Grammar, Problem> {
        Err(Problem::new("no grammar here", "none"))
    }
}

/// Settings that change nothing.
fn plain() -> Sampling {
    Sampling { top_k: 0, top_p: 1.0, min_p: 0.0, temperature: 1.0, seed: Seed(Some(1)), ..Sampling::default() }
}

fn sampler(sampling: Sampling, n: u32) -> Sampler {
    Sampler::new(sampling, &Numbers(n), 7).unwrap()
}

fn choose(sampling: Sampling, logits: &[f32], history: &[Token]) -> Result<Token, Problem> {
    let words = Numbers(logits.len() as u32);
    Sampler::new(sampling, &words, 7)?.choose(logits, history, &words)
}

/// The chain in the plainest way there is: every token has a logit and may be dropped, and nothing is sorted but
/// where a definition says so.
mod plainly {
    use super::*;

    pub type Left = Vec<(Token, f64)>;

    pub fn probabilities(left: &Left) -> Vec<f64> {
        let max = left.iter().map(|c| c.1).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = left.iter().map(|c| (c.1 - max).exp()).sum();
        left.iter().map(|c| (c.1 - max).exp() / sum).collect()
    }

    fn by_probability(left: &Left) -> Vec<(Token, f64, f64)> {
        let mut all: Vec<(Token, f64, f64)> =
            left.iter().zip(probabilities(left)).map(|(c, p)| (c.0, c.1, p)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all
    }

    #[allow(clippy::too_many_lines)] // One arm a stage.
    pub fn stage(stage: Stage, s: &Sampling, history: &[Token], luck: f64, left: Left) -> Left {
        let max = left.iter().map(|c| c.1).fold(f64::NEG_INFINITY, f64::max);
        match stage {
            Stage::Penalties => {
                let window = &history[history.len().saturating_sub(s.repeat_last_n as usize)..];
                let change = |(t, l): (Token, f64)| {
                    let n = window.iter().filter(|w| **w == t).count();
                    if n == 0 {
                        return (t, l);
                    }
                    let r = f64::from(s.repeat_penalty);
                    let l = if l > 0.0 { l / r } else { l * r };
                    (t, l - n as f64 * f64::from(s.frequency_penalty) - f64::from(s.presence_penalty))
                };
                left.into_iter().map(change).collect()
            }
            Stage::Dry => {
                let n = usize::try_from(s.dry_penalty_last_n).unwrap_or(usize::MAX);
                let window = &history[history.len().saturating_sub(n)..];
                let change = |(t, l): (Token, f64)| {
                    // The longest end of the text that stood before an earlier t, without a colon in it.
                    let longest = (1..window.len())
                        .filter(|i| window[*i] == t)
                        .map(|i| {
                            let same = |k: &usize| window[i - k] == window[window.len() - k] && window[i - k] != 13;
                            (1..=i).take_while(same).count()
                        })
                        .max()
                        .unwrap_or(0);
                    let allowed = s.dry_allowed_length as usize;
                    if longest < allowed {
                        return (t, l);
                    }
                    let power = f64::from(s.dry_base).powi(i32::try_from(longest - allowed).unwrap());
                    (t, l - f64::from(s.dry_multiplier) * power)
                };
                left.into_iter().map(change).collect()
            }
            Stage::TopNSigma => {
                let mean = left.iter().map(|c| c.1).sum::<f64>() / left.len() as f64;
                let sigma = (left.iter().map(|c| (c.1 - mean).powi(2)).sum::<f64>() / left.len() as f64).sqrt();
                left.into_iter().filter(|c| c.1 >= max - f64::from(s.top_n_sigma) * sigma).collect()
            }
            Stage::TopK => by_probability(&left).into_iter().take(s.top_k as usize).map(|c| (c.0, c.1)).collect(),
            Stage::TypicalP => {
                let all = by_probability(&left);
                let entropy: f64 = all.iter().map(|c| if c.2 > 0.0 { -c.2 * c.2.ln() } else { 0.0 }).sum();
                let mut typical = all;
                typical.sort_by(|a, b| (-a.2.ln() - entropy).abs().total_cmp(&(-b.2.ln() - entropy).abs()));
                let mut sum = 0.0;
                let mut kept = Left::new();
                for c in typical {
                    kept.push((c.0, c.1));
                    sum += c.2;
                    if sum > f64::from(s.typical_p) {
                        break;
                    }
                }
                kept
            }
            Stage::TopP => {
                let mut sum = 0.0;
                let mut kept = Left::new();
                for c in by_probability(&left) {
                    kept.push((c.0, c.1));
                    sum += c.2;
                    if sum >= f64::from(s.top_p) {
                        break;
                    }
                }
                kept
            }
            Stage::MinP => {
                let all = by_probability(&left);
                let most = all[0].2;
                all.into_iter().filter(|c| c.2 >= most * f64::from(s.min_p)).map(|c| (c.0, c.1)).collect()
            }
            Stage::Xtc => {
                if luck >= f64::from(s.xtc_probability) {
                    return left;
                }
                let all = by_probability(&left);
                let above = all.iter().filter(|c| c.2 >= f64::from(s.xtc_threshold)).count();
                all.into_iter().skip(above.saturating_sub(1)).map(|c| (c.0, c.1)).collect()
            }
            Stage::Temperature => {
                let mut t = f64::from(s.temperature);
                if s.dynatemp_range > 0.0 {
                    if left.len() < 2 {
                        return left;
                    }
                    let p = probabilities(&left);
                    let entropy: f64 = p.iter().map(|p| if *p > 0.0 { -p * p.ln() } else { 0.0 }).sum();
                    let share = (entropy / (p.len() as f64).ln()).powf(f64::from(s.dynatemp_exponent));
                    let low = (t - f64::from(s.dynatemp_range)).max(0.0);
                    t = low + (t + f64::from(s.dynatemp_range) - low) * share;
                }
                if t < 0.001 {
                    return by_probability(&left).into_iter().take(1).map(|c| (c.0, c.1)).collect();
                }
                left.into_iter().map(|(token, l)| (token, l / t)).collect()
            }
        }
    }
}

fn stage_settings() -> impl Strategy<Value = Sampling> {
    let order = Just(Stage::ALL.to_vec()).prop_shuffle();
    let values = proptest::collection::vec((0.0f64..1.0, 0u8..3), KNOBS.len());
    (order, values).prop_map(|(order, values)| {
        let mut s = plain();
        for (spec, (at, kind)) in KNOBS.iter().zip(values) {
            // A third of them stay at what changes nothing.
            let value = spec.min + at * (spec.max - spec.min).min(60.0);
            if kind > 0 && !matches!(spec.name, "mode" | "mirostat" | "seed") {
                spec.set(&mut s, if matches!(spec.kind, crate::chat::Kind::Real(_)) { value } else { value.round() })
                    .unwrap();
            }
        }
        s.temperature = s.temperature.max(0.01);
        s.order = order;
        s
    })
}

/// Where two probabilities at a cut are this close, a rounding decides, and either side is right.
const NEAR: f64 = 1e-4;

fn compare(s: &Sampling, logits: &[f32], history: &[Token]) -> Result<(), TestCaseError> {
    let words = Numbers(logits.len() as u32);
    let sampler = Sampler::new(s.clone(), &words, 7).unwrap();
    let luck = uniform(7, 0, 1);
    let mut left: plainly::Left = (0..).zip(logits).map(|(t, l)| (t, f64::from(*l))).collect();
    let mut pool = Pool::default();
    pool.fill(logits);
    for stage in s.order.iter().copied().filter(|g| stages::is_active(*g, s)) {
        let before = left.clone();
        left = plainly::stage(stage, s, history, luck, left);
        sampler.stage(stage, &mut pool, history, &words);
        let mut plain_ids: Vec<Token> = left.iter().filter(|c| c.1 > f64::NEG_INFINITY).map(|c| c.0).collect();
        plain_ids.sort_unstable();
        let mut ids: Vec<Token> = pool.list().iter().map(|c| c.id).collect();
        ids.sort_unstable();
        if ids != plain_ids {
            // A rounding at the edge: what differs has a neighbour at nearly the same place. Then this case says no more.
            let (all, plain): (HashSet<Token>, HashSet<Token>) =
                (ids.iter().copied().collect(), plain_ids.iter().copied().collect());
            let differ: Vec<Token> = all.symmetric_difference(&plain).copied().collect();
            prop_assert!(differ.len() <= 2, "{stage:?} keeps {} and should keep {}", ids.len(), plain_ids.len());
            let edge = plainly::probabilities(&before);
            let close = |t: &Token| {
                let at = before.iter().position(|c| c.0 == *t).unwrap();
                edge.iter().enumerate().any(|(i, p)| i != at && (p - edge[at]).abs() < NEAR)
            };
            prop_assert!(differ.iter().all(close), "{stage:?}: {differ:?}");
            return Ok(());
        }
        let probabilities = pool.probabilities();
        let plain = plainly::probabilities(&left);
        let plain: std::collections::HashMap<Token, f64> = left.iter().map(|c| c.0).zip(plain).collect();
        for (candidate, p) in pool.list().iter().zip(probabilities) {
            let q = plain[&candidate.id];
            prop_assert!((p - q).abs() < 1e-5, "{stage:?}: token {} has {p} and should have {q}", candidate.id);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_stage_is_what_its_definition_says(
        s in stage_settings(),
        logits in proptest::collection::vec(-15.0f32..15.0, 2..400),
        history in proptest::collection::vec(0i32..20, 0..60),
    ) {
        let n = i32::try_from(logits.len()).unwrap();
        let history: Vec<Token> = history.into_iter().map(|t| t % n).collect();
        compare(&s, &logits, &history)?;
    }

    #[test]
    fn no_setting_that_can_be_typed_leaves_nothing_or_aborts(
        s in stage_settings(),
        logits in proptest::collection::vec(prop_oneof![-15.0f32..15.0, Just(f32::NEG_INFINITY)], 1..60),
        mode in 0usize..3, mirostat: bool,
    ) {
        let mirostat = if mirostat { Mirostat::Two } else { Mirostat::Off };
        let s = Sampling { mode: Mode::ALL[mode], mirostat, ..s };
        let chosen = choose(s, &logits, &[0, 0, 0]);
        let possible = logits.iter().any(|l| *l > f32::NEG_INFINITY);
        prop_assert_eq!(chosen.is_ok(), possible);
        if let Ok(token) = chosen {
            prop_assert!(logits[token as usize] > f32::NEG_INFINITY);
        }
    }
}

#[test]
fn the_stages_hold_on_vocabularies_as_large_as_real_ones() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for n in [49_152u32, 262_144] {
        // As a model's: a few large ones over a broad heap.
        let logits: Vec<f32> = (0..n)
            .map(|i| {
                let u = uniform(n, i, 5).max(1e-9);
                (-(-u.ln()).ln() * 2.2) as f32
            })
            .collect();
        let history: Vec<Token> = (0..40).map(|i| Token::try_from((i * 7919) % 300).unwrap()).collect();
        for _ in 0..4 {
            let s = stage_settings().new_tree(&mut runner).unwrap().current();
            compare(&s, &logits, &history).unwrap();
        }
    }
}

/// χ² of draws against probabilities; below the bound a right sampler is in all but one of 10⁶ cases (Wilson and
/// Hilferty's cube root).
fn follows(counts: &[u32], probabilities: &[f64]) -> bool {
    let n = f64::from(counts.iter().sum::<u32>());
    // What is expected less than five times is looked at together.
    let (mut chi, mut cells, mut rare) = (0.0, 0u32, (0.0, 0.0));
    for (count, p) in counts.iter().zip(probabilities) {
        if p * n < 5.0 {
            rare = (rare.0 + f64::from(*count), rare.1 + p * n);
        } else {
            chi += (f64::from(*count) - p * n).powi(2) / (p * n);
            cells += 1;
        }
    }
    if rare.1 > 0.0 {
        chi += (rare.0 - rare.1).powi(2) / rare.1.max(1e-9);
        cells += 1;
    }
    let k = f64::from(cells.saturating_sub(1).max(1));
    chi < k * (1.0 - 2.0 / (9.0 * k) + 4.75 * (2.0 / (9.0 * k)).sqrt()).powi(3)
}

#[test]
fn draws_follow_the_distribution_and_a_wrong_one_is_found_out() {
    let logits: Vec<f32> = (0..300u16).map(|i| f32::from(i % 37) / 5.0 - f32::from(i % 7)).collect();
    let words = Numbers(300);
    for s in [
        plain(),
        Sampling { temperature: 1.7, top_k: 30, ..plain() },
        Sampling { temperature: 0.5, top_p: 0.9, ..plain() },
        Sampling { min_p: 0.02, typical_p: 0.95, ..plain() },
        Sampling { top_n_sigma: 1.5, dynatemp_range: 0.5, ..plain() },
    ] {
        let mut sampler = sampler(s.clone(), 300);
        let mut counts = vec![0; 300];
        for _ in 0..20_000 {
            let token = sampler.choose(&logits, &[], &words).unwrap();
            sampler.accept(token).unwrap();
            counts[token as usize] += 1;
        }
        let expected = |s: &Sampling| {
            let mut left: plainly::Left = (0..).zip(&logits).map(|(t, l)| (t, f64::from(*l))).collect();
            for stage in s.order.iter().filter(|g| stages::is_active(**g, s)) {
                left = plainly::stage(*stage, s, &[], 0.0, left);
            }
            let mut all = vec![0.0; 300];
            for (c, p) in left.iter().zip(plainly::probabilities(&left)) {
                all[c.0 as usize] = p;
            }
            all
        };
        assert!(follows(&counts, &expected(&s)), "{s:?}");
        let wrong = Sampling { temperature: s.temperature * 1.5, ..s.clone() };
        assert!(!follows(&counts, &expected(&wrong)), "a wrong temperature is not noticed: {s:?}");
    }
}

#[test]
fn mirostat_holds_the_surprise() {
    let logits: Vec<f32> = (0..5000u16).map(|i| -(f32::from(i) + 1.0).ln() * 1.2).collect();
    let words = Numbers(5000);
    for tau in [2.0f32, 4.0, 6.0] {
        let mut sampler = sampler(Sampling { mirostat: Mirostat::Two, mirostat_tau: tau, ..plain() }, 5000);
        let surprise: f64 = (0..2000)
            .map(|_| {
                let token = sampler.choose(&logits, &[], &words).unwrap();
                sampler.accept(token).unwrap();
                f64::from(-record(&logits, token, &words, 2).logprob) / std::f64::consts::LN_2
            })
            .sum::<f64>()
            / 2000.0;
        assert!((surprise - f64::from(tau)).abs() < 0.3, "{tau}: {surprise}");
    }
}

#[test]
fn greedy_and_temperature_zero_take_the_first_largest() {
    let logits = [0.0, 3.0, 3.0, 1.0];
    for s in [Sampling { mode: Mode::Greedy, ..plain() }, Sampling { temperature: 0.0, ..plain() }] {
        assert_eq!(choose(s, &logits, &[]).unwrap(), 1);
    }
}

#[test]
fn a_penalty_and_a_bias_count_under_greedy_too() {
    let greedy = || Sampling { mode: Mode::Greedy, ..plain() };
    assert_eq!(choose(Sampling { repeat_penalty: 2.0, ..greedy() }, &[0.0, 3.0, 2.0], &[1]).unwrap(), 2);
    let bias = |text: &str, add| vec![Bias { text: text.into(), add }];
    assert_eq!(choose(Sampling { bias: bias("0", 5.0), ..greedy() }, &[0.0, 3.0, 2.0], &[]).unwrap(), 0);
    assert_eq!(choose(Sampling { bias: bias("#1", -100.0), ..greedy() }, &[0.0, 3.0, 2.0], &[]).unwrap(), 2);
}

#[test]
fn what_cannot_be_is_a_sentence() {
    let all = |n: u32| (0..n).map(|t| Bias { text: t.to_string(), add: -100.0 }).collect();
    for mode in [Mode::Greedy, Mode::Sample] {
        let s = Sampling { mode, bias: all(3), ..plain() };
        assert!(choose(s, &[0.0, 1.0, 2.0], &[]).unwrap_err().what.contains("leave no token"));
        for broken in [&[0.0, f32::NAN][..], &[f32::NEG_INFINITY; 4], &[f32::INFINITY, 0.0], &[]] {
            let s = Sampling { mode, ..plain() };
            assert!(choose(s, broken, &[]).unwrap_err().what.contains("NaN"));
        }
    }
    let unknown = Sampling { bias: vec![Bias { text: "word".into(), add: 1.0 }], ..plain() };
    assert!(choose(unknown, &[0.0], &[]).unwrap_err().what.contains("'word'"));
}

#[test]
fn the_same_seed_draws_the_same_and_a_slider_does_not_disturb_it() {
    let logits: Vec<f32> = (0..1000u16).map(|i| f32::from(i % 97) / 20.0).collect();
    let words = Numbers(1000);
    let draw = |seed, moved: bool| {
        let mut sampler = Sampler::new(plain(), &words, seed).unwrap();
        let mut tokens = Vec::new();
        for n in 0..50 {
            if moved && n == 10 {
                sampler.change(Sampling { temperature: 0.1, ..plain() }, &words, &[]).unwrap();
            }
            if moved && n == 20 {
                sampler.change(plain(), &words, &[]).unwrap();
            }
            let token = sampler.choose(&logits, &[], &words).unwrap();
            sampler.accept(token).unwrap();
            tokens.push(token);
        }
        tokens
    };
    assert_eq!(draw(5, false), draw(5, false));
    assert_ne!(draw(5, false), draw(6, false));
    let (still, moved) = (draw(5, false), draw(5, true));
    assert_eq!((&still[..10], &still[20..]), (&moved[..10], &moved[20..]));
    assert_ne!(still, moved);
}

#[test]
fn the_microscope_shows_what_the_chain_does() {
    let logits: Vec<f32> = (0..100u8).map(|i| -f32::from(i) / 3.0).collect();
    let s = Sampling {
        top_k: 10,
        top_p: 0.8,
        temperature: 0.5,
        order: vec![Stage::TopK, Stage::TopP, Stage::Temperature],
        ..plain()
    };
    let words = Numbers(100);
    let glance = sampler(s, 100).look(&logits, &[], &words, 12).unwrap();
    let kept: Vec<(Cutter, u32)> = glance.cuts.iter().map(|c| (c.stage, c.kept)).collect();
    let by = Cutter::Stage;
    assert_eq!(kept, [(by(Stage::TopK), 10), (by(Stage::TopP), 5), (by(Stage::Temperature), 5)]);
    assert_eq!(glance.candidates.len(), 12);
    let cut = |i: usize| glance.candidates[i].cut;
    assert_eq!(
        (cut(4), cut(5), cut(9), cut(10)),
        (None, Some(by(Stage::TopP)), Some(by(Stage::TopP)), Some(by(Stage::TopK)))
    );
    let after: f32 = glance.candidates.iter().map(|c| c.after).sum();
    assert!((after - 1.0).abs() < 1e-5);
    let first = 1.0 - (-1.0f64 / 3.0).exp();
    assert!((f64::from(glance.candidates[0].before) - first).abs() < 1e-5);
    // What is chosen is shown, however improbable the model finds it, and each mode is shown as it chooses.
    let unlikely = Sampling { bias: vec![Bias { text: "90".into(), add: 100.0 }], top_k: 1, ..plain() };
    let glance = sampler(unlikely, 100).look(&logits, &[], &words, 12).unwrap();
    assert_eq!((glance.candidates.len(), glance.candidates[0].token, glance.candidates[0].after), (12, 90, 1.0));
    assert_eq!(glance.cuts[0], Cut { stage: Cutter::Bias, kept: 100, does: Some(1.0) });
    let greedy = sampler(Sampling { mode: Mode::Greedy, ..plain() }, 100).look(&logits, &[], &words, 3).unwrap();
    assert_eq!((greedy.cuts[0].stage, greedy.candidates[0].after), (Cutter::Greedy, 1.0));
    let beam = Sampling { mode: Mode::Beam, top_k: 1, temperature: 0.0, ..plain() };
    let beam = sampler(beam, 100).look(&logits, &[], &words, 3).unwrap();
    assert!(beam.cuts.is_empty() && beam.candidates.iter().all(|c| (c.before - c.after).abs() < 1e-6));
    let miro = Sampling { mirostat: Mirostat::Two, mirostat_tau: 0.5, ..plain() };
    let miro = sampler(miro, 100).look(&logits, &[], &words, 3).unwrap();
    assert_eq!(miro.cuts.last().unwrap().stage, Cutter::Mirostat);
    let even = sampler(plain(), 64).look(&[1.0; 64], &[], &Numbers(64), 1).unwrap();
    assert!((even.entropy - 6.0).abs() < 1e-4);
}

#[test]
fn a_record_is_of_the_model_itself() {
    let logits = [1.0, 3.0, 2.0, 0.0];
    let total = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
    let record = record(&logits, 2, &Numbers(4), 2);
    assert_eq!((record.rank, record.bytes), (2, 1));
    assert!((f64::from(record.logprob) - (2.0 - total)).abs() < 1e-5);
    let others: Vec<&str> = record.others.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(others, ["1", "0"]);
}
