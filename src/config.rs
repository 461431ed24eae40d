//! Settings in layers: defaults < file < environment < arguments. One table says what there is.

mod file;
mod table;

pub use file::load;
pub use table::{SETTINGS, Setting, example};

use crate::chat::{Bias, FlashAttention, KNOBS, Kind, Knob, KvType, KvTypes, Overflow, Rope, RopeScaling, Sampling};

/// Every setting with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// File or name of the model; empty for the last one used.
    pub model: String,
    /// Cells of the context; `None` for 8,192 or the trained length, whichever is less.
    pub ctx_size: Option<u32>,
    /// Most tokens in one decode call.
    pub batch_size: u32,
    /// Most tokens computed at once; 0 is all of a step.
    pub ubatch_size: u32,
    /// Compute threads; 0 to choose by measuring.
    pub threads: u32,
    /// Layers on the GPU; −1 for all.
    pub gpu_layers: i32,
    /// Keep the whole context of sliding-window layers.
    pub swa_full: bool,
    /// MiB of memory for states of the KV cache that are not in it; `None` to choose.
    pub cache_ram: Option<u32>,
    /// MiB of files for them.
    pub cache_disk: u32,
    /// Make a context longer than the model was trained on.
    pub beyond_trained: bool,
    /// How positions are told to the model.
    pub rope: Rope,
    /// What happens when a new conversation does not fit into the context.
    pub overflow: Overflow,
    /// How K and V of the cache are stored.
    pub kv: KvTypes,
    /// Whether attention is computed tile by tile.
    pub flash_attn: FlashAttention,
    /// System prompt of a new conversation.
    pub system_prompt: String,
    /// Sampling of a new conversation.
    pub sampling: Sampling,
    /// Show the list of conversations.
    pub sidebar: bool,
    /// Show the panel.
    pub panel: bool,
    /// Take the mouse.
    pub mouse: bool,
    /// The engine's program and arguments; empty for this program.
    pub engine_command: Vec<String>,
    /// How much the log says.
    pub log_level: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: String::new(),
            ctx_size: None,
            batch_size: 512,
            ubatch_size: 0,
            threads: 0,
            gpu_layers: -1,
            swa_full: true,
            cache_ram: None,
            cache_disk: 4096,
            beyond_trained: false,
            rope: Rope::default(),
            overflow: Overflow::default(),
            kv: KvTypes::default(),
            flash_attn: FlashAttention::default(),
            system_prompt: String::new(),
            sampling: Sampling::default(),
            sidebar: true,
            panel: true,
            mouse: false,
            engine_command: Vec::new(),
            log_level: "info".to_owned(),
        }
    }
}

impl Settings {
    /// Sets one setting, named as in the table, from text.
    ///
    /// # Errors
    /// Says what was given and what is allowed; the old value stays.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        if let Some(knob) = name.strip_prefix("sampling.").and_then(Knob::named) {
            return knob.spec().parse(&mut self.sampling, text).map_err(|e| format!("sampling.{e}"));
        }
        let text = text.trim();
        match name {
            "model" => text.clone_into(&mut self.model),
            "ctx_size" if text == "auto" => self.ctx_size = None,
            "ctx_size" => self.ctx_size = Some(whole(name, text, 0, 16 << 20)?),
            "batch_size" => self.batch_size = whole(name, text, 64, 8192)?,
            "ubatch_size" => self.ubatch_size = whole(name, text, 0, 8192)?,
            "threads" => self.threads = whole(name, text, 0, 512)?,
            "gpu_layers" if matches!(text, "all" | "auto" | "-1") => self.gpu_layers = -1,
            "gpu_layers" => {
                let number = whole(name, text, 0, 100_000);
                self.gpu_layers = number.map_err(|e| e + ", or all")?;
            }
            "swa_full" => self.swa_full = truth(name, text)?,
            "cache_ram" if text == "auto" => self.cache_ram = None,
            "cache_ram" => {
                let number = whole(name, text, 0, 16 << 20);
                self.cache_ram = Some(number.map_err(|e| e + ", or auto")?);
            }
            "cache_disk" => self.cache_disk = whole(name, text, 0, 16 << 20)?,
            "beyond_trained" => self.beyond_trained = truth(name, text)?,
            "rope_scaling" => {
                self.rope.scaling = RopeScaling::named(text).ok_or_else(|| {
                    let names = RopeScaling::ALL.map(|(_, name)| name).join(", ");
                    format!("{name} is '{text}'; it must be one of {names}")
                })?;
            }
            "rope_freq_base" => self.rope.freq_base = zero_or(name, text, Rope::BASES)?,
            "rope_freq_scale" => self.rope.freq_scale = zero_or(name, text, Rope::SCALES)?,
            "overflow" => self.overflow = Overflow::named(text)?,
            "cache_type_k" => self.kv.k = KvType::parse(text).map_err(|e| format!("cache_type_k: {e}"))?,
            "cache_type_v" => self.kv.v = KvType::parse(text).map_err(|e| format!("cache_type_v: {e}"))?,
            "flash_attn" => {
                self.flash_attn = FlashAttention::parse(text).map_err(|e| format!("flash_attn: {e}"))?;
            }
            "system_prompt" => text.clone_into(&mut self.system_prompt),
            "ui.sidebar" => self.sidebar = truth(name, text)?,
            "ui.panel" => self.panel = truth(name, text)?,
            "ui.mouse" => self.mouse = truth(name, text)?,
            "engine.command" => self.engine_command = words(text),
            "sampling.samplers" => self.sampling.order = Sampling::parse_order(text)?,
            "sampling.logit_bias" => self.sampling.bias = Bias::parse_list(text)?,
            "sampling.grammar" => text.clone_into(&mut self.sampling.grammar),
            "log.level" if ["off", "error", "warn", "info", "debug"].contains(&text) => {
                text.clone_into(&mut self.log_level);
            }
            "log.level" => return Err(format!("log.level is '{text}'; it must be off, error, warn, info or debug")),
            _ => return Err(format!("there is no setting '{name}'{}", nearest(name))),
        }
        Ok(())
    }

    /// The value of a setting as text, as [`Settings::set`] takes it.
    pub fn get(&self, name: &str) -> Option<String> {
        if let Some(knob) = name.strip_prefix("sampling.").and_then(Knob::named) {
            let value = self.sampling.get(knob);
            let choice = matches!(knob.spec().kind, Kind::Choice(_));
            return Some(if choice { knob.spec().format(&self.sampling) } else { value.to_string() });
        }
        Some(match name {
            "model" => self.model.clone(),
            "ctx_size" => self.ctx_size.map_or_else(|| "auto".to_owned(), |n| n.to_string()),
            "batch_size" => self.batch_size.to_string(),
            "ubatch_size" => self.ubatch_size.to_string(),
            "threads" => self.threads.to_string(),
            "gpu_layers" if self.gpu_layers < 0 => "all".to_owned(),
            "gpu_layers" => self.gpu_layers.to_string(),
            "swa_full" => self.swa_full.to_string(),
            "cache_ram" => self.cache_ram.map_or_else(|| "auto".to_owned(), |n| n.to_string()),
            "cache_disk" => self.cache_disk.to_string(),
            "beyond_trained" => self.beyond_trained.to_string(),
            "rope_scaling" => self.rope.scaling.name().to_owned(),
            "rope_freq_base" => self.rope.freq_base.to_string(),
            "rope_freq_scale" => self.rope.freq_scale.to_string(),
            "overflow" => self.overflow.name().to_owned(),
            "cache_type_k" => self.kv.k.name().to_owned(),
            "cache_type_v" => self.kv.v.name().to_owned(),
            "flash_attn" => self.flash_attn.name().to_owned(),
            "system_prompt" => self.system_prompt.clone(),
            "ui.sidebar" => self.sidebar.to_string(),
            "ui.panel" => self.panel.to_string(),
            "ui.mouse" => self.mouse.to_string(),
            "engine.command" => self.engine_command.join(" "),
            "log.level" => self.log_level.clone(),
            "sampling.samplers" => self.sampling.order_text(),
            "sampling.logit_bias" => self.sampling.bias_text(),
            "sampling.grammar" => self.sampling.grammar.clone(),
            _ => return None,
        })
    }
}

fn whole<T: TryFrom<i64>>(name: &str, text: &str, min: i64, max: i64) -> Result<T, String> {
    let number = text.parse::<i64>().ok().filter(|n| (min..=max).contains(n));
    number
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| format!("{name} is '{text}'; it must be a whole number from {min} to {max}"))
}

fn zero_or(name: &str, text: &str, (min, max): (f32, f32)) -> Result<f32, String> {
    let number = text.parse::<f32>().ok().filter(|n| *n == 0.0 || (n.is_finite() && (min..=max).contains(n)));
    number.ok_or_else(|| format!("{name} is '{text}'; it must be a number from {min} to {max}, or 0 for the model's"))
}

fn truth(name: &str, text: &str) -> Result<bool, String> {
    match text.to_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(format!("{name} is '{text}'; it must be true or false")),
    }
}

/// The words of a command line; a part in single or double quotes is one word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// ", did you mean …?" for the name in the table that is closest, if one is close.
fn nearest(name: &str) -> String {
    let knobs = KNOBS.iter().map(|s| format!("sampling.{}", s.name));
    let names = SETTINGS.iter().map(|s| s.name.to_owned()).chain(knobs);
    let best = names.map(|n| (distance(&n, name), n)).min();
    best.filter(|(d, n)| *d <= n.len() / 3 + 1).map(|(_, n)| format!(", did you mean '{n}'?")).unwrap_or_default()
}

/// Levenshtein's edit distance, by rows.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
