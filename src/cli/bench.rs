//! `llmchat bench`: prefill and decode rates through our own engine and step loop.
//!
//! The prompt is a fixed scatter of tokens and the answer goes past end tokens, so that every run does the
//! same work. The first run of each test is not counted: it brings the weights into memory.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::Stop;
use super::out::print;
use super::running::{Ask, Failure, Running};
use crate::chat::{Finish, Mode, Sampling};
use crate::engine::protocol::{ContextParams, Prompt};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The engine's program and arguments.
    pub engine: Vec<String>,
    /// The model.
    pub model: PathBuf,
    /// The context; its size is set to what the tests need.
    pub params: ContextParams,
    /// Tokens of the prefill test; 0 leaves it out.
    pub prompt: u32,
    /// Tokens of the decode test; 0 leaves it out.
    pub generate: u32,
    /// Tokens that are in the cache before a test begins.
    pub depth: u32,
    /// Counted runs of each test.
    pub runs: u32,
    /// Beams of a beam search to measure; 0 leaves the test out.
    pub beams: u32,
    /// One JSON array instead of a table.
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    test: String,
    tokens_per_second: Rates,
    runs: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Rates {
    median: f64,
    min: f64,
    max: f64,
}

/// Runs the tests and prints their rates.
///
/// # Errors
/// If the engine or the model fails.
pub fn run(options: &Options) -> Result<(), Stop> {
    if options.prompt == 0 && options.generate == 0 {
        return Err(Stop::Usage("There is nothing to measure with -p 0 and -n 0".to_owned()));
    }
    let mut params = options.params.clone();
    params.n_ctx = Some(options.depth + options.prompt.max(options.generate + 1) + 64);
    let mut running = Running::start(&options.engine, &options.model, &params)?;
    let mut reports = Vec::new();
    if options.prompt > 0 {
        reports.push(measure(&mut running, options, Test::Prefill)?);
    }
    if options.generate > 0 {
        reports.push(measure(&mut running, options, Test::Decode)?);
    }
    if options.generate > 0 && options.beams > 0 {
        reports.push(measure(&mut running, options, Test::Beams)?);
    }
    if options.json {
        return print(&format!("{}\n", serde_json::to_string(&reports).unwrap_or_default()));
    }
    let info = &running.info;
    let mut out = format!("{} · {} · {} threads\n", info.name, info.device, info.threads);
    let _ = writeln!(out, "{:<16} {:>10} {:>10} {:>10}  tokens/s", "test", "median", "min", "max");
    for report in &reports {
        let rates = &report.tokens_per_second;
        let _ = writeln!(out, "{:<16} {:>10.2} {:>10.2} {:>10.2}", report.test, rates.median, rates.min, rates.max);
    }
    print(&out)
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Test {
    Prefill,
    Decode,
    /// Rounds of a beam search, each one token longer.
    Beams,
}

fn measure(running: &mut Running, options: &Options, test: Test) -> Result<Report, Failure> {
    let vocabulary = running.info.n_vocab;
    let beams = test == Test::Beams;
    let prefill = test == Test::Prefill;
    let greedy = |max_tokens| Sampling { max_tokens, beams: options.beams.max(1), ..Sampling::default() };
    let job = |running: &mut Running, tokens: u32, answer: u32, beams: bool| {
        let prompt = Prompt::Tokens((0..tokens).map(|i| token(i, vocabulary)).collect());
        let sampling = Sampling { mode: if beams { Mode::Beam } else { Mode::Greedy }, ..greedy(answer) };
        let done = running.generate(Ask { prompt, sampling: &sampling, ignore_eog: true, records: None }, |_| {})?;
        if done.finish == Finish::Cancelled { Err(Failure::Interrupted) } else { Ok(done) }
    };
    let mut runs = Vec::new();
    for run in 0..=options.runs {
        running.clear_cache();
        let rate = if prefill {
            if options.depth > 0 {
                job(running, options.depth, 1, false)?;
            }
            let done = job(running, options.depth + options.prompt, 1, false)?;
            f64::from(done.usage.fresh_tokens()) * 1000.0 / done.timings.prefill_ms
        } else {
            // The first token comes out of the prefill: one more is asked for than is counted.
            let done = job(running, options.depth.max(1), options.generate + 1, beams)?;
            done.timings.tokens_per_second
        };
        if run > 0 {
            runs.push(rate);
        }
    }
    let depth = if options.depth > 0 { format!(" @ d{}", options.depth) } else { String::new() };
    let test = match test {
        Test::Prefill => format!("pp{}{depth}", options.prompt),
        Test::Decode => format!("tg{}{depth}", options.generate),
        Test::Beams => format!("beam{}x{}{depth}", options.beams, options.generate),
    };
    Ok(Report { test, tokens_per_second: rates(&runs), runs })
}

/// The median of some measurements.
pub fn median(runs: &[f64]) -> f64 {
    rates(runs).median
}

fn rates(runs: &[f64]) -> Rates {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
    let (low, high) = (at(sorted.len().saturating_sub(1) / 2), at(sorted.len() / 2));
    Rates { median: f64::midpoint(low, high), min: at(0), max: at(sorted.len().saturating_sub(1)) }
}

/// An ordinary token: past the special ones at the vocabulary's ends, scattered by a multiplicative hash
/// (Knuth, The Art of Computer Programming 3, 6.4), so that no run is easier than another.
fn token(i: u32, vocabulary: u32) -> i32 {
    let edge = (vocabulary / 8).min(1000);
    let range = u64::from(vocabulary.saturating_sub(2 * edge).max(1));
    let scattered = u64::from(i).wrapping_mul(2_654_435_761) % range;
    i32::try_from(u64::from(edge) + scattered).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_of_the_vocabulary() {
        for vocabulary in [1, 10, 300, 49_152, 262_144] {
            assert!((0..5000).all(|i| (0..i64::from(vocabulary)).contains(&i64::from(token(i, vocabulary)))));
        }
    }

    #[test]
    fn rates_are_median_and_ends() {
        let r = rates(&[3.0, 1.0, 2.0]);
        assert_eq!((r.median, r.min, r.max), (2.0, 1.0, 3.0));
        assert_eq!(rates(&[]).median, 0.0);
    }
}
