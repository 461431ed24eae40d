use std::path::Path;

use super::*;

fn file(text: &str) -> (Settings, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    let (settings, notices) = load(&path, &[]);
    let place = path.display().to_string();
    (settings, notices.into_iter().map(|n| n.replace(&place, "config")).collect())
}

#[test]
fn the_example_is_the_table_and_its_defaults() {
    let written =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config.example.toml")).unwrap_or_default();
    if written != example() && std::env::var_os("UPDATE_EXAMPLE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/config.example.toml"), example()).unwrap();
    }
    assert_eq!(written, example(), "run 'UPDATE_EXAMPLE=1 cargo test --release --lib config' and commit the file");
    let uncommented: String = example()
        .lines()
        .filter(|l| l.starts_with('[') || (l.starts_with("# ") && l.contains(" = ") && !l.contains("LLMCHAT")))
        .map(|l| format!("{}\n", l.trim_start_matches("# ")))
        .collect();
    assert_eq!(uncommented.matches(" = ").count(), SETTINGS.len() + KNOBS.len());
    assert_eq!(file(&uncommented), (Settings::default(), vec![]));
}

#[test]
fn every_setting_can_be_written_and_read() {
    for setting in &SETTINGS {
        let mut settings = Settings::default();
        let text = settings.get(setting.name).unwrap();
        settings.set(setting.name, &text).unwrap();
        assert_eq!(settings, Settings::default(), "{}", setting.name);
    }
}

#[test]
fn faults_are_named_with_their_place_and_the_rest_counts() {
    let (settings, notices) =
        file("ctx_sise = 5\nthreads = \"many\"\n[sampling]\ntop_p = 3.0\ntemperature = 0.5\n[ui]\nmouse = [1]\n");
    assert_eq!(notices.len(), 4, "{notices:?}");
    assert!(notices[0].starts_with("config:1:1: there is no setting 'ctx_sise', did you mean 'ctx_size'?"));
    assert!(notices.iter().any(|n| n.starts_with("config:2:1: threads is 'many'")));
    assert!(notices.iter().any(|n| n.starts_with("config:4:1: sampling.top_p is 3")));
    assert!(notices.iter().any(|n| n.starts_with("config:7:1: ui.mouse has the wrong type")));
    assert_eq!(settings.sampling.temperature, 0.5);
    assert_eq!(Settings { sampling: Sampling::default(), ..settings }, Settings::default());
}

#[test]
fn a_value_of_another_type_is_named_with_its_line() {
    let (settings, notices) = file("\n# a comment\n\nmodel = 5\n\n[ui]\nmouse = \"yes\"\n[sampling]\ntop_k = \"7\"\n");
    assert_eq!(settings, Settings::default());
    let told = [
        "config:4:1: model is a text and needs quotes",
        "config:9:1: sampling.top_k is written without quotes",
        "config:7:1: ui.mouse is written without quotes",
    ];
    assert_eq!(notices.len(), told.len(), "{notices:?}");
    for start in told {
        assert!(notices.iter().any(|n| n.starts_with(start)), "{start}: {notices:?}");
    }
}

#[test]
fn broken_toml_starts_with_the_defaults() {
    let (settings, notices) = file("model = \"x\"\nthreads = = 2\n");
    assert_eq!(settings, Settings::default());
    assert!(notices[0].starts_with("config:2:"), "{notices:?}");
}

#[test]
fn layers_come_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, "threads = 1\nctx_size = 1000\nbatch_size = 64").unwrap();
    let env = [
        ("LLAMA_ARG_THREADS", "2"),
        ("LLMCHAT_CTX_SIZE", "2"),
        ("LLMCHAT_THREADS", "3"),
        ("LLMCHAT_SAMPLING_TOP_K", "-5"),
        ("LLMCHAT_TEMPERATURE", "0"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (settings, notices) = load(&path, &env);
    assert_eq!((settings.threads, settings.ctx_size, settings.batch_size), (3, Some(2), 64));
    assert!(notices.len() == 2 && notices[0].starts_with("LLMCHAT_SAMPLING_TOP_K"), "{notices:?}");
    assert!(
        notices[1].contains("no setting LLMCHAT_TEMPERATURE, did you mean LLMCHAT_SAMPLING_TEMPERATURE"),
        "{notices:?}"
    );
    assert_eq!(load(Path::new("/nowhere/at/all"), &[]), (Settings::default(), vec![]));
}

#[test]
fn rope_settings_are_finite_and_in_range() {
    let mut settings = Settings::default();
    for (name, text) in [
        ("rope_freq_base", "NaN"),
        ("rope_freq_base", "0.5"),
        ("rope_freq_scale", "inf"),
        ("rope_freq_scale", "-1"),
        ("rope_scaling", "ntk"),
        ("overflow", "shift"),
    ] {
        let why = settings.set(name, text).unwrap_err();
        assert!(why.starts_with(&format!("{name} is '{text}'; it must be ")), "{why}");
    }
    assert_eq!(settings, Settings::default());
    settings.set("rope_freq_base", "500000").unwrap();
    settings.set("rope_freq_scale", "0.25").unwrap();
    settings.set("rope_scaling", "yarn").unwrap();
    assert_eq!(settings.rope, Rope { scaling: RopeScaling::Yarn, freq_base: 500_000.0, freq_scale: 0.25 });
}

#[test]
fn types_of_the_cache_come_from_familiar_variables() {
    let env = [("LLAMA_ARG_CACHE_TYPE_K", "Q8_0"), ("LLAMA_ARG_FLASH_ATTN", "1"), ("LLAMA_ARG_CACHE_TYPE_V", "q3_k")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (settings, notices) = load(Path::new("/nowhere/at/all"), &env);
    assert_eq!((settings.kv, settings.flash_attn), (KvTypes { k: KvType::Q8_0, v: KvType::F16 }, FlashAttention::On));
    assert!(notices.len() == 1 && notices[0].contains("q3_k") && notices[0].contains("q4_0"), "{notices:?}");
}

#[test]
fn commands_are_split_into_words() {
    assert_eq!(words("ssh box 'my llmchat' engine"), ["ssh", "box", "my llmchat", "engine"]);
    assert_eq!(words("  "), [""; 0]);
}
