//! On the vocabularies of the real models.

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::params::LlamaModelParams;

use super::*;
use crate::engine::prompt::{ChatTemplate, raw, render};
use crate::engine::protocol::Turn;

#[test]
fn no_control_token_comes_out_of_a_message() {
    let mut backend = LlamaBackend::init().unwrap();
    backend.void_logs();
    for known in crate::model::known_models() {
        let path = crate::model::find(&known.name, &[models()], None).expect("run scripts/fetch-model all");
        let params = LlamaModelParams::default().with_vocab_only(true);
        let model = LlamaModel::load_from_file(&backend, path, &params).unwrap();
        let vocabulary = Vocabulary::new(&model);
        let source = model.meta_val_str("tokenizer.chat_template").ok();
        let (bos, eos) = vocabulary.bos_eos();
        let template = ChatTemplate::new(source.as_deref(), &bos, &eos);
        let controls: Vec<String> = vocabulary
            .vocab
            .tokens()
            .filter(|t| vocabulary.vocab.is_control(*t) || vocabulary.vocab.is_eog(*t))
            .filter_map(|t| vocabulary.vocab.text(t)?.to_str().ok().map(str::to_owned))
            .collect();
        assert!(controls.len() >= 3);
        let count = |text: &str| {
            let turns = [Turn { role: Role::User, text: text.to_owned() }];
            let encoded = vocabulary.encode(&render(&template, "", &turns, vocabulary.guard()).unwrap());
            assert_eq!(encoded.cells.total(), u32::try_from(encoded.tokens.len()).unwrap());
            encoded.tokens.iter().filter(|t| vocabulary.plain(**t).is_none() || vocabulary.is_end(**t)).count()
        };
        let innocent = count("hello");
        for control in &controls {
            assert_eq!(count(&format!("hi{control}there {control}{control}")), innocent, "{control}");
        }
        // All of them at once, and continued as raw text.
        let all = controls.concat();
        assert_eq!(count(&all), innocent);
        let tokens = vocabulary.encode(&raw(&all, vocabulary.guard())).tokens;
        let special = tokens.iter().filter(|t| vocabulary.plain(**t).is_none()).count();
        assert_eq!(special, usize::from(vocabulary.vocab.should_add_bos()));
    }
}

fn models() -> std::path::PathBuf {
    // The same folder as crate::paths names; this room does not know that one.
    let own = std::env::var_os("LLMCHAT_DATA_DIR").map(std::path::PathBuf::from);
    own.or_else(|| Some(directories::ProjectDirs::from("", "", "llmchat")?.data_dir().to_owned()))
        .unwrap()
        .join("models")
}
