use proptest::prelude::*;

use super::*;

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A small model file: texts, numbers, a vocabulary, one f32 tensor of eight numbers.
fn model() -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend(1u64.to_le_bytes());
    out.extend(4u64.to_le_bytes());
    text(&mut out, "general.architecture");
    out.extend(8u32.to_le_bytes());
    text(&mut out, "llama");
    text(&mut out, "llama.context_length");
    out.extend(4u32.to_le_bytes());
    out.extend(8192u32.to_le_bytes());
    text(&mut out, "llama.attention.head_count_kv");
    out.extend(9u32.to_le_bytes());
    out.extend(4u32.to_le_bytes());
    out.extend(2u64.to_le_bytes());
    out.extend([3u32.to_le_bytes(), 4u32.to_le_bytes()].concat());
    text(&mut out, "tokenizer.ggml.tokens");
    out.extend(9u32.to_le_bytes());
    out.extend(8u32.to_le_bytes());
    out.extend(3u64.to_le_bytes());
    for token in ["a", "bc", ""] {
        text(&mut out, token);
    }
    text(&mut out, "weight");
    out.extend(1u32.to_le_bytes());
    out.extend(8u64.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.resize(out.len().div_ceil(32) * 32, 0);
    out.resize(out.len() + 32, 1);
    out
}

fn read(bytes: &[u8]) -> Result<Gguf, ModelError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    Gguf::read(&path)
}

#[test]
fn a_whole_file_tells_what_it_is() {
    let gguf = read(&model()).unwrap();
    assert_eq!(gguf.architecture(), "llama");
    assert_eq!(gguf.n_ctx_train(), Some(8192));
    assert_eq!(gguf.per_layer("llama.attention.head_count_kv", 2), Some(vec![3, 4]));
    assert_eq!(gguf.per_layer("llama.context_length", 2), Some(vec![8192, 8192]));
    assert!(!gguf.metadata.contains_key("tokenizer.ggml.tokens"));
}

#[test]
fn tensors_of_all_parts_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = model();
    let at = first.windows(20).position(|w| w == b"llama.context_length").unwrap();
    // The same file says that it is one of two.
    first.splice(at - 8..at + 20, [&11u64.to_le_bytes()[..], b"split.count"].concat());
    let at = first.windows(4).position(|w| w == 8192u32.to_le_bytes()).unwrap();
    first[at..at + 4].copy_from_slice(&2u32.to_le_bytes());
    first.resize(first.len() + 32, 1);
    let part = |n: u32| folder.path().join(format!("m-0000{n}-of-00002.gguf"));
    std::fs::write(part(1), &first).unwrap();
    assert_eq!(Gguf::read(&part(1)).unwrap_err(), ModelError::Missing(part(2)));
    std::fs::write(part(2), model()).unwrap();
    let one = Gguf::read(&part(2)).unwrap().tensors.bytes;
    assert!(Gguf::read(&part(1)).unwrap().tensors.bytes > one, "the second one's {one} are added");
}

#[test]
fn every_cut_is_noticed() {
    let whole = model();
    for end in 24..whole.len() {
        assert!(matches!(read(&whole[..end]), Err(ModelError::CutOff(..))), "cut at {end}");
    }
    let Err(ModelError::CutOff(_, missing)) = read(&whole[..whole.len() - 7]) else { panic!() };
    assert_eq!(missing, 7);
}

#[test]
fn other_files_are_named() {
    for (bytes, word) in [
        (&b""[..], "empty"),
        (b"GGUF", "too small"),
        (b"PK\x03\x04..........................", "zip"),
        (b"<!DOCTYPE html><html><body>not found", "web page"),
        (b"version https://git-lfs.github.com/spec/v1", "LFS"),
        (b"lmgg............................", "before GGUF"),
        (b"something else that is long enough", "first bytes"),
    ] {
        let error = read(bytes).unwrap_err();
        assert!(error.what().contains(word), "{}", error.what());
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Gguf::read(folder.path()), Err(ModelError::Folder(_))));
    assert!(matches!(Gguf::read(&folder.path().join("no.gguf")), Err(ModelError::Missing(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_mutation_panics_or_takes_memory(changes in proptest::collection::vec((0usize..400, any::<u8>()), 1..6),
                                          huge in proptest::option::of(0usize..300)) {
        let mut bytes = model();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Some(at) = huge {
            let end = (at + 8).min(bytes.len());
            bytes[at.min(end)..end].fill(0xEF);
        }
        let _ = read(&bytes);
    }
}
