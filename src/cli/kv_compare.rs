//! `llmchat kv-compare`: what the types of the KV cache cost and save on a text, side by side.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::Stop;
use super::bench::median;
use super::out::print;
use super::running::{Ask, Failure, Running};
use crate::chat::{Finish, KvTypes, Mode, Sampling};
use crate::engine::protocol::{ContextParams, Prompt};
use crate::model::human;

/// Tokens of the shortest text: of fewer no figure means anything.
const LEAST: usize = 16;
/// Tokens of the decode test.
const DECODED: u32 = 32;

/// What to compare.
#[derive(Debug)]
pub struct Options {
    /// The engine's program and arguments.
    pub engine: Vec<String>,
    /// The model.
    pub model: PathBuf,
    /// The context; its types are those that are compared.
    pub params: ContextParams,
    /// The types.
    pub types: Vec<KvTypes>,
    /// The text.
    pub text: String,
    /// Runs of each speed.
    pub runs: u32,
    /// One JSON object instead of the table.
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    /// Tokens of the text that were used.
    tokens: usize,
    /// Tokens of the whole text.
    text_tokens: usize,
    n_ctx: u32,
    threads: u32,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    types: String,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    Measured(Measured),
    Refused { error: String },
}

#[derive(Debug, Serialize)]
struct Measured {
    bytes_per_token: u64,
    perplexity: f64,
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
}

/// Compares the types and prints what came out.
///
/// # Errors
/// If the text is too short, or no type can be used.
pub fn run(options: &Options) -> Result<(), Stop> {
    let mut report = Report { model: String::new(), tokens: 0, text_tokens: 0, n_ctx: 0, threads: 0, rows: Vec::new() };
    for types in &options.types {
        let params = ContextParams { kv: *types, ..options.params.clone() };
        let outcome = match Running::start(&options.engine, &options.model, &params) {
            Ok(mut running) => {
                // The same for every type.
                if report.rows.is_empty() {
                    running.info.notes.iter().for_each(|note| eprintln!("note: {note}"));
                }
                Outcome::Measured(measure(&mut running, options, &mut report)?)
            }
            Err(Failure::Problem(problem)) => Outcome::Refused { error: problem.to_string() },
            Err(Failure::Interrupted) => return Err(Stop::Interrupted),
        };
        report.rows.push(Row { types: types.to_string(), outcome });
    }
    let refused = |row: &Row| matches!(&row.outcome, Outcome::Refused { .. });
    if let Some(Row { outcome: Outcome::Refused { error }, .. }) = report.rows.first()
        && report.rows.iter().all(refused)
    {
        return Err(Stop::Failed(error.clone()));
    }
    if options.json {
        return print(&format!("{}\n", serde_json::to_string(&report).unwrap_or_default()));
    }
    print(&table(&report))
}

fn measure(running: &mut Running, options: &Options, report: &mut Report) -> Result<Measured, Stop> {
    let pieces = running.split(&options.text)?;
    if pieces.len() < LEAST {
        return Err(Stop::Usage(format!("the text is too short: {} tokens, and {LEAST} are the least", pieces.len())));
    }
    let info = running.info.clone();
    // The answer of the decode test and a first token of the vocabulary's own stand beside the text.
    let room = (info.n_ctx as usize).saturating_sub(DECODED as usize + 2);
    let used = pieces.len().min(room);
    let text: String = pieces.iter().take(used).map(String::as_str).collect();
    let scored = running.score(Prompt::Raw(text.clone()))?;
    let logprobs: Vec<f64> = scored.iter().filter_map(|(_, r)| r.as_ref()).map(|r| f64::from(r.logprob)).collect();
    (report.model, report.n_ctx, report.tokens, report.text_tokens) =
        (info.name.clone(), info.n_ctx, scored.len(), pieces.len());
    let sampling = Sampling { mode: Mode::Greedy, max_tokens: DECODED + 1, ..Sampling::default() };
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        running.clear_cache();
        let ask = Ask { prompt: Prompt::Raw(text.clone()), sampling: &sampling, ignore_eog: true, records: None };
        let done = running.generate(ask, |_| {})?;
        if done.finish == Finish::Cancelled {
            return Err(Stop::Interrupted);
        }
        prefill.push(f64::from(done.usage.fresh_tokens()) * 1000.0 / done.timings.prefill_ms);
        decode.push(done.timings.tokens_per_second);
    }
    report.threads = running.info.threads;
    Ok(Measured {
        bytes_per_token: info.kv_bytes_per_token,
        perplexity: perplexity(&logprobs),
        prefill_tokens_per_second: median(&prefill),
        decode_tokens_per_second: median(&decode),
    })
}

/// Perplexity: exp of the mean negative log-probability of the tokens (Jurafsky and Martin, Speech and Language
/// Processing, chapter 3). llama.cpp's perplexity tool computes the same over windows of which it scores the second
/// half; here each token but the first one is scored, with everything before it.
fn perplexity(logprobs: &[f64]) -> f64 {
    (-logprobs.iter().sum::<f64>() / logprobs.len().max(1) as f64).exp()
}

fn table(report: &Report) -> String {
    let mut out = format!("{} · {} threads · {} tokens", report.model, report.threads, report.tokens);
    if report.text_tokens > report.tokens {
        let _ = write!(out, " of {}, as many as the context of {} holds (-c)", report.text_tokens, report.n_ctx);
    }
    let _ = writeln!(
        out,
        "\n{:<10} {:>10} {:>11} {:>10} {:>14} {:>13}",
        "K/V", "a token", "perplexity", "÷ first", "prefill tok/s", "decode tok/s"
    );
    let first = report.rows.iter().find_map(|row| match &row.outcome {
        Outcome::Measured(measured) => Some(measured.perplexity),
        Outcome::Refused { .. } => None,
    });
    for row in &report.rows {
        match &row.outcome {
            Outcome::Measured(m) => {
                let _ = writeln!(
                    out,
                    "{:<10} {:>10} {:>11.4} {:>10.4} {:>14.1} {:>13.1}",
                    row.types,
                    human(m.bytes_per_token),
                    m.perplexity,
                    m.perplexity / first.unwrap_or(m.perplexity),
                    m.prefill_tokens_per_second,
                    m.decode_tokens_per_second
                );
            }
            Outcome::Refused { error } => {
                let _ = writeln!(out, "{:<10} {error}", row.types);
            }
        }
    }
    out
}

/// The types of a list such as `f16,q8_0,q8_0/f16`.
///
/// # Errors
/// Names the types that there are.
pub fn types(text: &str) -> Result<Vec<KvTypes>, String> {
    text.split(',').map(KvTypes::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perplexity_is_the_mean_number_of_choices() {
        assert!((perplexity(&[0.25f64.ln(); 7]) - 4.0).abs() < 1e-12);
        assert!((perplexity(&[0.5f64.ln(), 0.125f64.ln()]) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn lists_of_types_are_read() {
        let named = |text: &str| types(text).map(|t| t.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(named("f16, q8_0/f16,q4_0"), Ok(vec!["f16".into(), "q8_0/f16".into(), "q4_0".into()]));
        assert!(named("f16,").unwrap_err().contains("q5_1"));
    }
}
