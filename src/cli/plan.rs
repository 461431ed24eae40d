//! `llmchat plan`: what a model and its chats take of the memory, without loading it.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::Stop;
use super::bandwidth;
use super::context::Context;
use super::out::print;
use crate::chat::{KvType, KvTypes};
use crate::model::{Backend, Facts, Gguf, KvShape, Wish, free_memory, human, limits};
use crate::text::sanitise_line;

/// Tokens of a block of a paged cache (vLLM's default).
const BLOCK: u64 = 16;
/// KV heads that a model with one for each head is compared with.
const GROUPED: u64 = 8;

/// What to plan.
#[derive(Debug)]
pub struct Options {
    /// Layers, KV heads and head size of a model that is not there, and bytes of its weights.
    pub given: Option<([u64; 3], u64)>,
    /// Bytes of memory; those that are free here if none are given.
    pub memory: Option<u64>,
    /// Bytes that are read a second; measured here if none are given.
    pub bandwidth: Option<u64>,
    /// How many chats.
    pub chats: u64,
    /// Share of its context that a chat uses, 0 to 1.
    pub used: f64,
    /// One JSON object instead of the table.
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    weights_bytes: u64,
    repacked_bytes: u64,
    compute_bytes: u64,
    program_bytes: u64,
    /// Recurrent states of one chat.
    state_bytes: u64,
    n_ctx: u64,
    n_ctx_train: Option<u64>,
    n_ubatch: u64,
    flash_attn: &'static str,
    swa_full: bool,
    chats: u64,
    used: f64,
    memory: Source,
    bandwidth: Source,
    rows: Vec<Row>,
}

/// A number and where it is from.
#[derive(Debug, Serialize)]
struct Source {
    bytes: u64,
    from: &'static str,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    kv_type: String,
    kv_heads: u64,
    bytes_per_token: u64,
    /// Of one chat's cache.
    kv_bytes: u64,
    /// Of everything, with as many chats as were asked for.
    total_bytes: u64,
    fits: bool,
    /// Chats that fit.
    most_chats: u64,
    /// The largest context with which the chats fit; none if none does.
    longest_context: Option<u64>,
    /// Tokens a second of one chat, at most, with an empty and with a full cache.
    tokens_per_second: [f64; 2],
    /// Why there can be no such cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// A model as far as the plan needs it.
struct Model {
    name: String,
    architecture: String,
    facts: Facts,
    trained: Option<u64>,
}

/// Prints the plan.
pub fn run(settings: &Context, options: &Options) -> Result<(), Stop> {
    let params = settings.params();
    let model = if let Some(([layers, kv_heads, head], weights)) = options.given {
        let shape = KvShape::uniform(layers, kv_heads, head);
        Model {
            name: format!("{layers} layers × {kv_heads} KV heads × {head}"),
            architecture: String::new(),
            facts: Facts { weights, read: weights, shape, ..Facts::default() },
            trained: None,
        }
    } else {
        from_file(&settings.model().map_err(|problem| Stop::Failed(problem.to_string()))?)?
    };
    let wish = Wish { chats: options.chats, ..params.wish(model.trained) };
    let memory = match options.memory {
        Some(bytes) => Source { bytes, from: "given" },
        None => Source {
            bytes: free_memory().ok_or_else(|| {
                Stop::Failed("It cannot be told how much memory is free here. Give it: --memory 16GiB".to_owned())
            })?,
            from: "free here",
        },
    };
    let bandwidth = match options.bandwidth {
        Some(bytes) => Source { bytes, from: "given" },
        None => Source { bytes: bandwidth::measure(memory_for_measuring()), from: "measured here" },
    };
    let rows = rows(&model, &wish, options.used, memory.bytes, bandwidth.bytes);
    let taken = model.facts.memory(&wish);
    let report = Report {
        model: model.name,
        weights_bytes: taken.weights,
        repacked_bytes: taken.repacked,
        compute_bytes: taken.compute,
        program_bytes: taken.program,
        state_bytes: model.facts.shape.state,
        n_ctx: wish.n_ctx,
        n_ctx_train: model.trained,
        n_ubatch: wish.n_ubatch,
        flash_attn: wish.flash.name(),
        swa_full: wish.swa_full,
        chats: wish.chats,
        used: options.used,
        memory,
        bandwidth,
        rows,
    };
    if options.json {
        return print(&format!("{}\n", serde_json::to_string(&report).unwrap_or_default()));
    }
    print(&table(&report))
}

fn from_file(path: &Path) -> Result<Model, Stop> {
    let header = Gguf::read(path).map_err(|error| Stop::Failed(error.to_string()))?;
    let facts = Facts::of(&header).ok_or_else(|| {
        Stop::Failed(format!(
            "The header of {} does not tell the shape of its KV cache. Give it: --shape layers,kv-heads,head-size",
            path.display()
        ))
    })?;
    let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Model { name, architecture: header.architecture().to_owned(), facts, trained: header.n_ctx_train() })
}

/// Measuring must not push out what is in use.
fn memory_for_measuring() -> u64 {
    free_memory().unwrap_or(1 << 30) / 8
}

/// Each type as it is; then what would change: fewer KV heads, a cache in pages.
fn rows(model: &Model, wish: &Wish, used: f64, memory: u64, bandwidth: u64) -> Vec<Row> {
    let facts = &model.facts;
    let mut types = KvType::ALL.map(KvTypes::both).to_vec();
    if !types.contains(&wish.kv) {
        types.insert(0, wish.kv);
    }
    let row = |name: String, facts: &Facts, wish: &Wish| {
        let taken = facts.memory(wish);
        let one = facts.shape.bytes(wish.kv, wish.n_ctx, wish.n_ubatch, wish.swa_full);
        let seconds = |cache: u64| (facts.read.saturating_add(cache)) as f64 / bandwidth as f64;
        Row {
            name,
            kv_type: wish.kv.to_string(),
            kv_heads: facts.shape.kv_heads,
            bytes_per_token: facts.shape.bytes_per_token(wish.kv, wish.swa_full),
            kv_bytes: one,
            total_bytes: taken.total(),
            fits: taken.total() <= memory,
            most_chats: facts.chats(wish, memory),
            longest_context: facts.longest(wish, memory),
            tokens_per_second: [1.0 / seconds(0), 1.0 / seconds(one)],
            refused: limits(&facts.shape, &model.architecture, wish.kv, wish.flash, Backend::Cpu)
                .err()
                .map(|(what, _)| what),
        }
    };
    let mut rows: Vec<Row> = types.iter().map(|kv| row(kv.to_string(), facts, &Wish { kv: *kv, ..*wish })).collect();
    if facts.shape.kv_heads > GROUPED {
        let grouped = Facts { shape: facts.shape.with_kv_heads(GROUPED), ..facts.clone() };
        rows.push(row(format!("{} with {GROUPED} KV heads", wish.kv), &grouped, wish));
    }
    rows.push(paged(&row, facts, wish, used, memory));
    rows
}

/// A cache that gives a chat blocks as it grows, in place of a whole context at once (`PagedAttention`, arXiv
/// 2309.06180): a chat takes what it uses, up to the end of its last block. llama.cpp has none; it is a comparison.
fn paged(row: &impl Fn(String, &Facts, &Wish) -> Row, facts: &Facts, wish: &Wish, used: f64, memory: u64) -> Row {
    let tokens = ((wish.n_ctx as f64 * used).ceil() as u64).max(1).next_multiple_of(BLOCK).min(wish.n_ctx);
    let whole = row(format!("{} paged, {:.0} % used", wish.kv, 100.0 * used), facts, wish);
    // What windowed layers keep does not grow with the chat.
    let fixed = whole.kv_bytes.saturating_sub(whole.bytes_per_token.saturating_mul(wish.n_ctx));
    let one = whole.bytes_per_token.saturating_mul(tokens) + fixed;
    let rest = facts.memory(wish).without_cache();
    let total = rest.saturating_add(one.saturating_mul(wish.chats));
    Row {
        kv_bytes: one,
        total_bytes: total,
        fits: total <= memory,
        most_chats: memory.saturating_sub(rest) / one.max(1),
        ..whole
    }
}

fn table(report: &Report) -> String {
    let mut out = format!("{}: weights {}", sanitise_line(&report.model), human(report.weights_bytes));
    if report.repacked_bytes > 0 {
        let _ = write!(out, ", {} of them once more in this processor's order", human(report.repacked_bytes));
    }
    out.push('\n');
    let chats = if report.chats == 1 { "1 chat".to_owned() } else { format!("{} chats", report.chats) };
    let _ = writeln!(
        out,
        "{chats} with a context of {} tokens, batch {}, flash attention {}",
        report.n_ctx, report.n_ubatch, report.flash_attn
    );
    if let Some(trained) = report.n_ctx_train.filter(|trained| report.n_ctx > *trained) {
        let _ = writeln!(out, "That is longer than the {trained} tokens that the model was trained on");
    }
    if report.program_bytes > 0 {
        let _ = writeln!(
            out,
            "compute buffers ≈ {}, program and vocabulary ≈ {}",
            human(report.compute_bytes),
            human(report.program_bytes)
        );
    } else {
        out += "compute buffers are left out: a shape does not tell them\n";
    }
    let _ = writeln!(
        out,
        "memory {} = {:.1} GB ({}), bandwidth {:.1} GB/s ({})\n",
        human(report.memory.bytes),
        report.memory.bytes as f64 / 1e9,
        report.memory.from,
        report.bandwidth.bytes as f64 / 1e9,
        report.bandwidth.from
    );
    let _ = writeln!(
        out,
        "{:<26} {:>10} {:>10} {:>10} {:>5} {:>10} {:>9}  {:>15}",
        "KV cache", "a token", "a chat", "in all", "fits", "chats fit", "longest", "tokens/s ≤"
    );
    for row in &report.rows {
        if let Some(why) = &row.refused {
            let _ = writeln!(out, "{:<26} {why}", row.name);
            continue;
        }
        let [empty, full] = row.tokens_per_second;
        let speed = format!("{} … {}", rate(empty), rate(full));
        let longest = row.longest_context.map_or("–".to_owned(), |n| n.to_string());
        let _ = writeln!(
            out,
            "{:<26} {:>10} {:>10} {:>10} {:>5} {:>10} {:>9}  {:>15}",
            row.name,
            human(row.bytes_per_token),
            human(row.kv_bytes),
            human(row.total_bytes),
            if row.fits { "yes" } else { "no" },
            row.most_chats,
            longest,
            speed
        );
    }
    if let Some(trained) = report.n_ctx_train
        && report.rows.iter().any(|row| row.longest_context > Some(trained))
    {
        let _ = write!(
            out,
            "\nlongest: beyond the {trained} tokens that the model was trained on it takes --beyond-trained"
        );
    }
    if report.state_bytes > 0 {
        let _ = write!(out, "\na chat: {} of it are recurrent states, whatever its length", human(report.state_bytes));
    }
    if report.chats > 1 {
        out += "\nin all: weights and buffers once, a cache for each chat";
    }
    out += "\ntokens/s: bandwidth ÷ (weights + cache) that a token reads, with an empty … a full cache; computing takes longer\n";
    out
}

fn rate(tokens: f64) -> String {
    if tokens >= 100.0 { format!("{tokens:.0}") } else { format!("{tokens:.1}") }
}

/// The shape of `layers,kv-heads,head-size`.
///
/// # Errors
/// Says how it is written.
pub fn shape(text: &str) -> Result<[u64; 3], String> {
    let wrong = || format!("'{text}' is no shape; write layers,kv-heads,head-size, such as 32,8,128");
    let numbers: Vec<u64> = text
        .split(['x', '×', ','])
        .map(|n| n.trim().parse().ok().filter(|n| (1..=100_000).contains(n)))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    <[u64; 3]>::try_from(numbers).map_err(|_| wrong())
}

/// A share: `25%` or `0.25`.
///
/// # Errors
/// Says how it is written.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n.trim_end(), 100.0));
    let share = number.parse::<f64>().ok().map(|n| n / scale).filter(|n| *n > 0.0 && *n <= 1.0);
    share.ok_or_else(|| format!("'{text}' is no share; write 25% or 0.25"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::FlashAttention;

    fn wish() -> Wish {
        Wish {
            n_ctx: 4096,
            n_ubatch: 512,
            kv: KvTypes::default(),
            flash: FlashAttention::Auto,
            swa_full: true,
            chats: 1,
        }
    }

    #[test]
    fn forty_gigabytes_and_a_llama_2() {
        let facts = Facts {
            weights: 14_000_000_000,
            read: 14_000_000_000,
            shape: KvShape::uniform(32, 32, 128),
            ..Facts::default()
        };
        let model = Model { name: String::new(), architecture: String::new(), facts, trained: None };
        let rows = rows(&model, &wish(), 0.25, 40_000_000_000, 40_000_000_000);
        let chats: Vec<(&str, u64, u64)> =
            rows.iter().map(|r| (r.name.as_str(), r.kv_bytes >> 20, r.most_chats)).collect();
        assert_eq!(
            chats,
            [
                ("f16", 2048, 12),
                ("bf16", 2048, 12),
                ("q8_0", 1088, 22),
                ("q5_1", 768, 32),
                ("q4_0", 576, 43),
                ("f16 with 8 KV heads", 512, 48),
                ("f16 paged, 25 % used", 512, 48),
            ]
        );
        assert!((rows[0].tokens_per_second[0] - 40.0 / 14.0).abs() < 1e-9);
        assert!(rows[0].tokens_per_second[1] < rows[2].tokens_per_second[1]);
        let mixed = Wish { kv: KvTypes { k: KvType::Q8_0, v: KvType::F16 }, ..wish() };
        assert_eq!(super::rows(&model, &mixed, 1.0, 1, 1)[0].name, "q8_0/f16");
        let off = Wish { flash: FlashAttention::Off, ..wish() };
        let refused: Vec<bool> = super::rows(&model, &off, 1.0, 1, 1).iter().map(|r| r.refused.is_some()).collect();
        assert_eq!(refused, [false, false, true, true, true, false, false]);
    }

    #[test]
    fn what_is_written_wrongly_is_told() {
        assert_eq!(shape("32,8,128"), Ok([32, 8, 128]));
        assert_eq!(shape("32 x 8 x 128"), Ok([32, 8, 128]));
        for text in ["32,8", "32,8,128,1", "a,b,c", "0,8,128", ""] {
            assert!(shape(text).unwrap_err().contains("32,8,128"), "{text}");
        }
        assert_eq!((share("25%"), share("0.5"), share("100 %")), (Ok(0.25), Ok(0.5), Ok(1.0)));
        for text in ["0", "150%", "x", "-1", "NaN"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
