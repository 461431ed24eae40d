//! THE table of settings: what the file, the environment, the example and the messages know.

use std::fmt::Write;

use super::Settings;
use crate::chat::{KNOBS, Kind, Knob};

/// A row of the table.
#[derive(Debug)]
pub struct Setting {
    /// Its name: `key`, or `section.key`.
    pub name: &'static str,
    /// Variables of llama.cpp that mean the same; ours is `LLMCHAT_` and the name in capitals.
    pub llama: &'static str,
    /// How the value is written in TOML.
    pub kind: Written,
    /// Why one would change it.
    pub help: &'static str,
}

/// How a value is written in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// In quotes.
    Text,
    /// As a number, true or false.
    Bare,
    /// A number, or a word in quotes.
    NumberOrWord,
    /// A list of texts.
    List,
}

/// Every setting but the sampling ones, which [`KNOBS`] lists.
#[rustfmt::skip]
pub static SETTINGS: [Setting; 26] = [
    Setting { name: "model", llama: "LLAMA_ARG_MODEL", kind: Written::Text,
        help: "File or name of the model; empty starts the one used last, or the default model." },
    Setting { name: "ctx_size", llama: "LLAMA_ARG_CTX_SIZE", kind: Written::NumberOrWord,
        help: "Tokens that the model sees at once; \"auto\" is 8192 or the trained length if that is less, 0 the trained length. More costs memory." },
    Setting { name: "batch_size", llama: "LLAMA_ARG_BATCH", kind: Written::Bare,
        help: "Most tokens read in one step; less saves memory, more can be faster on a GPU." },
    Setting { name: "ubatch_size", llama: "LLAMA_ARG_UBATCH", kind: Written::Bare,
        help: "Most tokens of a step that are computed at once; 0 is all of them. 1 makes a token's figures independent of its neighbours, slowly." },
    Setting { name: "threads", llama: "LLAMA_ARG_THREADS", kind: Written::Bare,
        help: "Compute threads; 0 measures what is fastest and adapts when the machine gets busy." },
    Setting { name: "gpu_layers", llama: "LLAMA_ARG_N_GPU_LAYERS", kind: Written::NumberOrWord,
        help: "Layers on the GPU: \"all\" or a number; 0 computes on the CPU." },
    Setting { name: "swa_full", llama: "LLAMA_ARG_SWA_FULL", kind: Written::Bare,
        help: "Keep the whole context of sliding-window layers: any earlier point can be gone on from, for more memory." },
    Setting { name: "cache_ram", llama: "LLAMA_ARG_CACHE_RAM", kind: Written::NumberOrWord,
        help: "MiB of memory for what conversations and branches left in the cache, so that going back to one reads nothing again; \"auto\" is an eighth of the free memory, at most 8192; 0 keeps nothing, in files neither." },
    Setting { name: "cache_disk", llama: "", kind: Written::Bare,
        help: "MiB of files for the same, so that it is there after a restart; what was used longest ago goes first; 0 writes none. The files hold the conversations' words." },
    Setting { name: "overflow", llama: "", kind: Written::Text,
        help: "When a new conversation no longer fits: ask, drop the oldest turns, summarise them, or take a larger context (larger)." },
    Setting { name: "beyond_trained", llama: "", kind: Written::Bare,
        help: "Make a context longer than the model was trained on; answers there are often nonsense without RoPE scaling." },
    Setting { name: "rope_scaling", llama: "LLAMA_ARG_ROPE_SCALING_TYPE", kind: Written::Text,
        help: "How positions are mapped into the trained length: model, none, linear or yarn." },
    Setting { name: "rope_freq_base", llama: "LLAMA_ARG_ROPE_FREQ_BASE", kind: Written::Bare,
        help: "Base frequency of the rotary embeddings; 0 is the model's." },
    Setting { name: "rope_freq_scale", llama: "LLAMA_ARG_ROPE_FREQ_SCALE", kind: Written::Bare,
        help: "Their frequency scale: 0.5 makes room for twice the trained length; 0 is the model's." },
    Setting { name: "cache_type_k", llama: "LLAMA_ARG_CACHE_TYPE_K", kind: Written::Text,
        help: "How keys of the KV cache are stored: f16, bf16, q8_0, q5_1 or q4_0. Less memory, less exact, slower on a CPU." },
    Setting { name: "cache_type_v", llama: "LLAMA_ARG_CACHE_TYPE_V", kind: Written::Text,
        help: "The same for values; a quantised one needs flash attention." },
    Setting { name: "flash_attn", llama: "LLAMA_ARG_FLASH_ATTN", kind: Written::Text,
        help: "Attention tile by tile, which takes less memory: auto (where model and device can), on or off." },
    Setting { name: "system_prompt", llama: "", kind: Written::Text,
        help: "What a new conversation tells the model before the first question." },
    Setting { name: "ui.sidebar", llama: "", kind: Written::Bare,
        help: "Show the list of conversations at the left." },
    Setting { name: "ui.panel", llama: "", kind: Written::Bare,
        help: "Show figures, cache and sliders at the right." },
    Setting { name: "ui.mouse", llama: "", kind: Written::Bare,
        help: "Scroll with the wheel and click; the terminal's own selection then needs Shift." },
    Setting { name: "engine.command", llama: "", kind: Written::List,
        help: "Program and arguments of the engine; empty is this program. [\"ssh\", \"box\", \"llmchat\", \"engine\"] computes elsewhere." },
    Setting { name: "log.level", llama: "", kind: Written::Text,
        help: "How much the log file says: off, error, warn, info or debug." },
    Setting { name: "sampling.samplers", llama: "", kind: Written::Text,
        help: "The stages of the chain in their order; a stage that is not named is left out." },
    Setting { name: "sampling.logit_bias", llama: "", kind: Written::Text,
        help: "Tokens that are more or less probable, such as \"cat=-5, dog=2\"; -100 forbids." },
    Setting { name: "sampling.grammar", llama: "", kind: Written::Text,
        help: "A grammar (GBNF) or JSON schema that answers must follow." },
];

/// How a setting or knob is written in the file; none if there is none of that name.
pub(super) fn written(name: &str) -> Option<Written> {
    match name.strip_prefix("sampling.").and_then(Knob::named) {
        Some(knob) if matches!(knob.spec().kind, Kind::Choice(_)) => Some(Written::Text),
        Some(_) => Some(Written::Bare),
        None => SETTINGS.iter().find(|s| s.name == name).map(|s| s.kind),
    }
}

/// The example file: every setting with its default, and why.
pub fn example() -> String {
    let defaults = Settings::default();
    let mut out = String::from(
        "# Settings of llmchat with their defaults. Copy what you change to the config file\n\
         # ('llmchat --help' names it). The environment comes before the file: LLMCHAT_CTX_SIZE=4096,\n\
         # LLMCHAT_UI_MOUSE=true; flags come before both.\n",
    );
    let mut section = "";
    let mut write = |name: &str, help: &str| {
        let (head, key) = name.split_once('.').unwrap_or(("", name));
        if head != section {
            let _ = write!(out, "\n[{head}]\n");
            section = match head {
                "ui" => "ui",
                "engine" => "engine",
                "log" => "log",
                _ => "sampling",
            };
        }
        let value = defaults.get(name).unwrap_or_default();
        let value = match written(name) {
            Some(Written::Text) => format!("\"{value}\""),
            Some(Written::NumberOrWord) if value.parse::<i64>().is_err() => format!("\"{value}\""),
            Some(Written::List) => "[]".to_owned(),
            _ => value,
        };
        let _ = write!(out, "\n# {help}\n# {key} = {value}\n");
    };
    for setting in &SETTINGS {
        write(setting.name, setting.help);
    }
    for spec in &KNOBS {
        write(&format!("sampling.{}", spec.name), spec.help);
    }
    out
}
