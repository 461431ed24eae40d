//! The command line. Sliders' flags come from the KNOBS table, so that they are written in one place.

use std::sync::OnceLock;

use clap::builder::Str;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::version;
use crate::chat::{Bias, FlashAttention, KNOBS, Kind, Knob, Mode, Preset, Sampling};
use crate::config::{SETTINGS, Settings};
use crate::engine::protocol::Glance;

/// Flags of llama.cpp with one dash and several letters, which clap does not know, and what they are here.
const FAMILIAR: [(&str, &str); 13] = [
    ("-sys", "--system-prompt"),
    ("-ngl", "--gpu-layers"),
    ("-st", "--single-turn"),
    ("-no-cnv", "--raw"),
    ("-tb", "--threads"),
    ("-ctx", "--ctx-size"),
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-fa", FLASH),
    ("-cram", "--cache-ram"),
    ("--temperature", "--temp"),
    ("--n-predict", "--predict"),
];

/// llama.cpp's flag that once stood alone.
const FLASH: &str = "--flash-attn";

/// Settings that have a flag: flag, short flag, setting, what stands behind it.
const FLAGS: [(&str, Option<char>, &str, &str, &str); 15] = [
    ("model", Some('m'), "model", "FILE|NAME", "The model: a GGUF file, or a name from 'llmchat models'"),
    ("ctx-size", Some('c'), "ctx_size", "N", "Tokens that the model sees at once; 0 takes its trained length"),
    ("threads", Some('t'), "threads", "N", "Compute threads; 0 measures what is fastest"),
    ("batch-size", Some('b'), "batch_size", "N", "Most tokens read in one step"),
    ("ubatch-size", None, "ubatch_size", "N", "Most tokens computed at once"),
    ("gpu-layers", None, "gpu_layers", "N|all", "Layers on the GPU (-ngl); 0 computes on the CPU"),
    ("rope-scaling", None, "rope_scaling", "none|linear|yarn", "How positions are mapped into the trained length"),
    ("rope-freq-base", None, "rope_freq_base", "N", "Base frequency of the rotary embeddings"),
    ("rope-freq-scale", None, "rope_freq_scale", "N", "Their frequency scale: 0.5 makes room for twice as much"),
    ("system-prompt", None, "system_prompt", "TEXT", "What the model is told before the first question (-sys)"),
    ("cache-type-k", None, "cache_type_k", "TYPE", "Type of K in the cache (-ctk): f16, bf16, q8_0, q5_1 or q4_0"),
    ("cache-type-v", None, "cache_type_v", "TYPE", "Type of V in the cache (-ctv)"),
    ("cache-ram", None, "cache_ram", "MIB", "Memory for what conversations left in the cache (-cram); 0 keeps nothing"),
    ("cache-disk", None, "cache_disk", "MIB", "Files for the same, which outlast the program; 0 writes none"),
    ("flash-attn", None, "flash_attn", "on|off|auto", "Attention tile by tile (-fa); without a value: on"),
];

/// Sampling settings that are no sliders: flag, what stands behind it, help.
const SAMPLING: [(&str, &str, &str); 6] = [
    ("samplers", "STAGES", "The stages of the chain in their order, such as 'penalties;top_k;temperature'"),
    (
        "logit-bias",
        "TEXT=VALUE",
        "Makes tokens more or less probable, -100 forbids: 'cat=-5, dog=2', or the flag again",
    ),
    ("grammar", "GBNF", "A grammar that the answer must follow"),
    ("grammar-file", "FILE", "The same from a file"),
    ("json-schema", "SCHEMA", "A JSON schema that the answer must follow"),
    ("json-schema-file", "FILE", "The same from a file"),
];

/// Arguments with llama.cpp's flags put as ours are.
pub fn familiar(arguments: Vec<String>) -> Vec<String> {
    let replace = |argument: String| {
        let (name, value) = argument.split_once('=').map_or((argument.as_str(), None), |(n, v)| (n, Some(v)));
        match (FAMILIAR.iter().find(|(theirs, _)| *theirs == name), value) {
            (Some((_, ours)), None) => (*ours).to_owned(),
            (Some((_, ours)), Some(value)) => format!("{ours}={value}"),
            (None, _) => argument,
        }
    };
    let mut literal = false;
    let mut arguments = arguments.into_iter().peekable();
    let mut familiar = Vec::new();
    while let Some(argument) = arguments.next() {
        literal |= argument == "--";
        let argument = if literal { argument } else { replace(argument) };
        let alone =
            !literal && argument == FLASH && arguments.peek().is_none_or(|next| FlashAttention::parse(next).is_err());
        familiar.push(if alone { format!("{FLASH}=on") } else { argument });
    }
    familiar
}

/// The whole command line.
pub fn command() -> Command {
    static VERSION: OnceLock<String> = OnceLock::new();
    let version: &'static str = VERSION.get_or_init(version::long);
    let root = Command::new("llmchat")
        .version(version)
        .about("A terminal chat for local GGUF models in which inference can be seen and steered")
        .after_help(
            "Examples:\n  llmchat                          chat with the model used last\n  \
             llmchat -m qwen --temp 0.2       chat with a model by the beginning of its name\n  \
             llmchat --continue               go on with the last conversation\n  \
             git diff | llmchat ask 'Write a commit message for this'\n\n\
             Settings: ~/.config/llmchat/config.toml (LLMCHAT_CONFIG); see config.example.toml.\n\
             Conversations and models: ~/.local/share/llmchat (LLMCHAT_DATA_DIR).",
        )
        .args_conflicts_with_subcommands(true)
        .arg(Arg::new("positional").value_name("MODEL").help("The model, as with -m"))
        .arg(switch("continue", "Go on with the conversation that changed last"))
        .arg(Arg::new("resume").long("resume").value_name("ID").help("Go on with this conversation"));
    chatting(root)
        .subcommand(ask())
        .subcommand(
            chatting(Command::new("probe"))
                .about("Show the distribution of the next token after a text, stage by stage")
                .after_help(
                    "Examples:\n  llmchat probe 'The capital of France is'\n  \
                     llmchat probe --temp 1.5 --top-k 0 --top-p 0.9 --json 'Once upon a' | jq .cuts",
                )
                .arg(Arg::new("words").value_name("TEXT").num_args(0..).help("The text; - reads it from stdin"))
                .arg(
                    Arg::new("candidates")
                        .long("candidates")
                        .value_name("N")
                        .value_parser(value_parser!(u32).range(2..=1000))
                        .help(format!("How many candidates are shown [default: {}]", Glance::CANDIDATES)),
                )
                .arg(switch("chat", "Put the text into the chat template: what would the answer begin with?"))
                .arg(switch("json", "Print one JSON object")),
        )
        .subcommand(
            settings(Command::new("bench"))
                .about("Measure prefill and decode rates through the chat's own engine")
                .after_help("Examples:\n  llmchat bench\n  llmchat bench -p 512 -n 128 -d 4096 -r 5 -t 2 --json")
                .arg(count("prompt-tokens", 'p', "512", "Tokens to read (prefill); 0 leaves the test out"))
                .arg(count("generate", 'n', "128", "Tokens to write (decode); 0 leaves the test out"))
                .arg(count("depth", 'd', "0", "Tokens that are in the cache before"))
                .arg(
                    Arg::new("beams")
                        .long("beams")
                        .value_name("N")
                        .value_parser(value_parser!(u32).range(0..=16))
                        .help("Measure rounds of a beam search of so many beams too"),
                )
                .arg(count("runs", 'r', "5", "Runs of each test").value_parser(value_parser!(u32).range(1..=1000)))
                .arg(switch("json", "Print a JSON array")),
        )
        .subcommand(kv_compare())
        .subcommand(plan())
        .subcommand(super::replay::command())
        .subcommand(super::conversations::command())
        .subcommand(
            Command::new("models")
                .about("List the models that are found")
                .after_help("Example:\n  llmchat models")
                .arg(switch("json", "Print a JSON array")),
        )
        .subcommand(
            Command::new("template")
                .about("Render chat templates")
                .after_help("Example:\n  echo '{\"template\":\"{{ messages[0].content }}\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}' | llmchat template --lines")
                .arg(switch("lines", "One JSON request a line in, one JSON answer a line out").required(true)),
        )
        .subcommand(Command::new("engine").hide(true).about("The engine that the chat starts: JSON lines in and out"))
        .subcommand(Command::new("version").hide(true).about("Print the version"))
}

fn ask() -> Command {
    chatting(Command::new("ask"))
                .about("Ask one question; the answer goes to stdout and nothing else does")
                .after_help(
                    "Examples:\n  llmchat ask 'What is a KV cache?'\n  cat notes.txt | llmchat ask 'Summarise this' --temp 0\n  \
                     llmchat ask --json -n 64 'Hello' | jq .timings\n  \
                     llmchat ask --in last 'And then?'\n  \
                     llmchat ask --preset code --logprobs 2 'Reverse a list in Python'\n  \
                     llmchat ask --beams 4 --n-best 4 --json 'Translate to French: good morning'\n  \
                     llmchat ask --grammar 'root ::= \"yes\" | \"no\"' 'Is water wet?'\n  \
                     llmchat ask --json-schema-file person.json --logit-bias 'John=-100' 'Invent a person'",
                )
                .arg(Arg::new("words").value_name("PROMPT").num_args(0..).help("The question; - reads it from stdin"))
                .arg(switch("json", "Print one JSON object with text, usage and timings"))
                .arg(switch("save", "Keep it as a conversation"))
                .arg(
                    Arg::new("in")
                        .long("in")
                        .value_name("ID")
                        .conflicts_with("raw")
                        .help("Go on with a conversation: its id, words of its title, or 'last'; it keeps question and answer"),
                )
                .arg(switch("stats", "Print the figures to stderr").alias("verbose"))
                .arg(
                    Arg::new("logprobs")
                        .long("logprobs")
                        .value_name("N")
                        .value_parser(value_parser!(u32).range(0..=20))
                        .help("Print one JSON line a token: its text, log-probability, rank and N others (0 to 20; with beams at most 2)"),
                )
                .arg(switch("raw", "Continue the text as it stands, without the chat template (-no-cnv)"))
                .arg(switch("single-turn", "Accepted for llama.cpp's sake: one turn is what ask does").hide(true))
}

fn kv_compare() -> Command {
    settings(Command::new("kv-compare"))
        .about("Compare the types of the KV cache on a text: perplexity, speed, bytes")
        .after_help(
            "Examples:\n  llmchat kv-compare README.md\n  \
                     llmchat kv-compare book.txt -c 2048 --types f16,q8_0,q8_0/f16 --json",
        )
        .arg(Arg::new("file").value_name("FILE").required(true).help("The text"))
        .arg(
            Arg::new("types")
                .long("types")
                .value_name("LIST")
                .help("The types, K/V where they differ [default: f16,bf16,q8_0,q5_1,q4_0]"),
        )
        .arg(count("runs", 'r', "3", "Runs of each speed").value_parser(value_parser!(u32).range(1..=1000)))
        .arg(switch("json", "Print one JSON object"))
}

fn plan() -> Command {
    settings(Command::new("plan"))
        .about("Tell what a model and its chats take of the memory, without loading it")
        .after_help(
            "Examples:\n  llmchat plan\n  llmchat plan -m qwen -c 32768 --memory 16GiB --json\n  \
                     llmchat plan --shape 32,32,128 --weights 14G --memory 40G -c 4096 --chats 12",
        )
        .arg(
            Arg::new("shape")
                .long("shape")
                .value_name("LAYERS,KV-HEADS,HEAD-SIZE")
                .conflicts_with("model")
                .help("A model that is not there, by the shape of its KV cache; needs --weights"),
        )
        .arg(Arg::new("weights").long("weights").value_name("BYTES").help("Its weights: 14G, 13GiB"))
        .arg(
            Arg::new("memory")
                .long("memory")
                .value_name("BYTES")
                .help("The memory: 40G is 40 × 10⁹ bytes, 40GiB 40 × 2³⁰ [default: what is free here]"),
        )
        .arg(
            Arg::new("bandwidth")
                .long("bandwidth")
                .value_name("BYTES/S")
                .help("Bytes that are read a second [default: measured here]"),
        )
        .arg(
            Arg::new("chats")
                .long("chats")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=1_000_000))
                .help("Chats at once, each with a context of its own [default: 1]"),
        )
        .arg(
            Arg::new("used")
                .long("used")
                .value_name("SHARE")
                .help("How much of its context a chat uses on average, for the paged row [default: 25%]"),
        )
        .arg(switch("json", "Print one JSON object"))
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn count(name: &'static str, short: char, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .short(short)
        .value_name("N")
        .default_value(default)
        .value_parser(value_parser!(u32).range(0..=1_000_000))
        .help(help)
}

/// Flags of everything that loads a model.
pub fn settings(mut command: Command) -> Command {
    for (flag, short, _, value, help) in FLAGS {
        if flag != "system-prompt" {
            let arg = Arg::new(flag).long(flag).value_name(value).help(help).allow_hyphen_values(true);
            command = command.arg(short.map_or(arg.clone(), |s| arg.short(s)));
        }
    }
    command = command.arg(switch("beyond-trained", "Make a context longer than the model was trained on"));
    command.arg(switch("swa-full", "Keep the whole context of sliding-window layers")).arg(
        Arg::new("set")
            .long("set")
            .value_name("NAME=VALUE")
            .action(ArgAction::Append)
            .help("Set anything that the config file can set"),
    )
}

/// Flags of everything that chats.
fn chatting(command: Command) -> Command {
    let mut command = settings(command)
        .arg(Arg::new("system-prompt").long("system-prompt").value_name("TEXT").help(FLAGS[8].4))
        .arg(Arg::new("prompt").short('p').long("prompt").value_name("TEXT").help("The first question"))
        .arg(Arg::new("file").short('f').long("file").value_name("FILE").help("Read the first question from a file"));
    command = command.arg(
        Arg::new("preset")
            .long("preset")
            .value_name("NAME")
            .help("Settings that belong together: code, facts, chat, creative, translate, summarise, or your own")
            .help_heading("Sampling"),
    );
    for (flag, value, help) in SAMPLING {
        let arg = Arg::new(flag).long(flag).value_name(value).help(help).help_heading("Sampling");
        command = command.arg(arg.allow_hyphen_values(true).action(ArgAction::Append));
    }
    for spec in &KNOBS {
        let short = match spec.flag {
            "seed" => Some('s'),
            "predict" => Some('n'),
            _ => None,
        };
        let range = match spec.kind {
            Kind::Choice(names) => names.join("|"),
            _ => format!("{} to {}", spec.min, spec.max),
        };
        let beams = if spec.modes.contains(&Mode::Beam) { "" } else { " Beam search does not use it." };
        let help = format!("{}{beams} [{range}]", spec.help);
        let arg = Arg::new(spec.name)
            .long(spec.flag)
            .aliases(spec.aliases.iter().map(|a| Str::from(*a)))
            .alias(spec.name)
            .value_name("VALUE")
            .help(help)
            .help_heading("Sampling")
            .allow_hyphen_values(true);
        command = command.arg(short.map_or(arg.clone(), |s| arg.short(s)));
    }
    command
}

/// Puts the flags over the settings.
///
/// # Errors
/// Says which flag is wrong and what it may be.
pub fn apply(matches: &ArgMatches, settings: &mut Settings, presets: &[Preset]) -> Result<(), String> {
    let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
    for (flag, _, setting, _, _) in FLAGS {
        if let Some(value) = text(flag) {
            settings.set(setting, &value).map_err(|e| format!("--{flag}: {e}"))?;
        }
    }
    if let Some(model) = text("positional") {
        settings.set("model", &model)?;
    }
    if matches.get_flag("swa-full") {
        settings.swa_full = true;
    }
    if matches.get_flag("beyond-trained") {
        settings.beyond_trained = true;
    }
    // Before the sliders' own flags, which say more.
    if let Some(name) = text("preset") {
        let preset = presets.iter().find(|p| p.name.eq_ignore_ascii_case(&name)).ok_or_else(|| {
            let names: Vec<&str> = presets.iter().map(|p| p.name.as_str()).collect();
            format!("--preset: there is no '{name}'; there are {}", names.join(", "))
        })?;
        settings.sampling = preset.applied(&settings.sampling)?;
    }
    for spec in &KNOBS {
        if let Some(value) = text(spec.name) {
            // llama.cpp's −1 is "no end".
            let value = if spec.flag == "predict" && value.trim() == "-1" { spec.max.to_string() } else { value };
            spec.parse(&mut settings.sampling, &value).map_err(|e| format!("--{}: {e}", spec.flag))?;
        }
    }
    chain(matches, &mut settings.sampling)?;
    // Whoever asks for beams wants a beam search.
    if text("beams").is_some() && text("mode").is_none() {
        settings.sampling.mode = Mode::Beam;
    }
    for assignment in matches.get_many::<String>("set").into_iter().flatten() {
        let (name, value) =
            assignment.split_once('=').ok_or_else(|| format!("--set {assignment}: write NAME=VALUE"))?;
        let long = format!("sampling.{name}");
        let knob = Knob::named(name).map(|knob| format!("sampling.{}", knob.spec().name));
        let name = knob.or(SETTINGS.iter().any(|s| s.name == long).then_some(long)).unwrap_or(name.to_owned());
        settings.set(&name, value).map_err(|e| format!("--set: {e}"))?;
    }
    let sampling = &settings.sampling;
    match text("n_best") {
        Some(_) if sampling.mode != Mode::Beam => Err("--n-best needs a beam search: --beams N".to_owned()),
        Some(n) if sampling.n_best > sampling.beams => {
            Err(format!("--n-best is {n}, and of {} beams no more than {0} answers are kept", sampling.beams))
        }
        _ => Ok(()),
    }
}

/// The sampling settings that are no sliders.
fn chain(matches: &ArgMatches, sampling: &mut Sampling) -> Result<(), String> {
    let mut rules = None;
    let given = |name: &str| matches.try_get_many::<String>(name).ok().flatten().into_iter().flatten();
    for (flag, ..) in SAMPLING {
        for value in given(flag) {
            let wrong = |why: String| format!("--{flag}: {why}");
            let text = if flag.ends_with("-file") {
                std::fs::read_to_string(value).map_err(|e| wrong(format!("{value} cannot be read: {e}")))?
            } else {
                value.clone()
            };
            match flag {
                "samplers" => sampling.order = Sampling::parse_order(&text).map_err(wrong)?,
                "logit-bias" => sampling.bias.extend(Bias::parse_list(&text).map_err(wrong)?),
                _ => {
                    if let Some(other) = rules.replace(flag) {
                        return Err(wrong(format!("--{other} is there too; an answer can follow one")));
                    }
                    if flag.starts_with("json") && !text.trim_start().starts_with('{') {
                        return Err(wrong("a JSON schema is an object and begins with {".to_owned()));
                    }
                    if text.trim().is_empty() {
                        return Err(wrong("it is empty".to_owned()));
                    }
                    sampling.grammar = text;
                }
            }
        }
    }
    Ok(())
}

/// The question of the arguments: `-p`, `-f`, or words.
///
/// # Errors
/// If the file cannot be read.
pub fn prompt(matches: &ArgMatches) -> Result<Option<String>, String> {
    let mut parts = Vec::new();
    let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten();
    parts.extend(text("prompt").cloned());
    if let Ok(Some(words)) = matches.try_get_many::<String>("words") {
        let words: Vec<&str> = words.map(String::as_str).collect();
        if !words.is_empty() {
            parts.push(words.join(" "));
        }
    }
    if let Some(path) = text("file") {
        let bytes = std::fs::read(path).map_err(|e| format!("{path} cannot be read: {e}"))?;
        parts.push(String::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8 text"))?);
    }
    Ok((!parts.is_empty()).then(|| parts.join("\n\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> (ArgMatches, Settings) {
        let arguments = familiar(line.iter().map(|a| (*a).to_owned()).collect());
        let matches = command().try_get_matches_from(arguments).unwrap();
        let mut settings = Settings::default();
        let sub = matches.subcommand().map_or(&matches, |(_, sub)| sub).clone();
        apply(&sub, &mut settings, &Preset::built_in()).unwrap();
        (sub, settings)
    }

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn names_of_the_field_are_understood() {
        let (matches, s) = parsed(&[
            "llmchat",
            "ask",
            "-sys",
            "be brief",
            "-ngl",
            "all",
            "--temp",
            "0",
            "--top-k",
            "5",
            "-s",
            "-1",
            "-n",
            "64",
            "-c",
            "0",
            "-t",
            "2",
            "--repeat-penalty",
            "1.1",
            "two",
            "words",
        ]);
        assert_eq!(s.system_prompt, "be brief");
        assert_eq!((s.gpu_layers, s.ctx_size, s.threads), (-1, Some(0), 2));
        assert_eq!((s.sampling.temperature, s.sampling.top_k, s.sampling.max_tokens), (0.0, 5, 64));
        assert_eq!(s.sampling.seed.0, None);
        assert_eq!(prompt(&matches).unwrap().as_deref(), Some("two words"));
    }

    #[test]
    fn types_of_the_cache_have_familiar_flags() {
        let (matches, s) = parsed(&["llmchat", "ask", "-ctk", "q8_0", "-ctv=q4_0", "-fa", "what is this"]);
        assert_eq!((s.kv.to_string().as_str(), s.flash_attn), ("q8_0/q4_0", FlashAttention::On));
        assert_eq!(
            prompt(&matches).unwrap().as_deref(),
            Some("what is this"),
            "a flag that stands alone takes no word"
        );
        assert_eq!(parsed(&["llmchat", "ask", "-fa", "off", "x"]).1.flash_attn, FlashAttention::Off);
        let arguments = familiar(["llmchat", "ask", "-ctk", "q3_k", "x"].map(str::to_owned).into());
        let matches = command().try_get_matches_from(arguments).unwrap();
        let error = apply(matches.subcommand().unwrap().1, &mut Settings::default(), &[]).unwrap_err();
        assert!(error.starts_with("--cache-type-k: cache_type_k: 'q3_k' is no type"), "{error}");
    }

    #[test]
    fn a_model_can_stand_alone() {
        assert_eq!(parsed(&["llmchat", "smollm"]).1.model, "smollm");
        assert_eq!(parsed(&["llmchat", "--set", "top_p=0.5", "--set", "ui.panel=off"]).1.sampling.top_p, 0.5);
    }

    #[test]
    fn wrong_values_are_named() {
        let matches = command().try_get_matches_from(["llmchat", "ask", "--top-p", "2", "x"]).unwrap();
        let error = apply(matches.subcommand().unwrap().1, &mut Settings::default(), &[]).unwrap_err();
        assert_eq!(error, "--top-p: top_p is 2; it must be from 0 to 1");
    }
}
