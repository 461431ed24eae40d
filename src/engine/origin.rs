//! What an answer came from, as far as the engine knows it: files, versions, tokens.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::sequences::Token;
use crate::chat::hex;

/// sha256 of the first bytes of a file, in hexadecimal digits.
///
/// # Errors
/// If they cannot be read.
pub fn head_hash(path: &Path, bytes: u64) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut input = File::open(path)?.take(bytes);
    let mut block = vec![0; 1 << 16];
    loop {
        match input.read(&mut block)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&block[..n]),
        }
    }
}

/// sha256 of tokens, each as a little-endian i32, in hexadecimal digits.
pub fn tokens_hash(tokens: &[Token]) -> String {
    let mut hash = Sha256::new();
    tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
    hex(&hash.finalize())
}

/// The CPU instructions that this build may use, beyond those that every processor has. llama.cpp is built with the
/// same: one compiler flag decides for both.
pub fn instructions() -> String {
    let known = [
        ("AVX-512", cfg!(target_feature = "avx512f")),
        ("AVX2", cfg!(target_feature = "avx2")),
        ("FMA", cfg!(target_feature = "fma")),
        ("NEON dot product", cfg!(target_feature = "dotprod")),
        ("NEON int8", cfg!(target_feature = "i8mm")),
    ];
    known.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_bytes() {
        // Of the bytes 1, 0, 0, 0, 254, 255, 255, 255.
        let expected = hex(&Sha256::digest([1, 0, 0, 0, 254, 255, 255, 255]));
        assert_eq!(tokens_hash(&[1, -2]), expected);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1, 0, 0, 0, 254, 255, 255, 255, 9, 9]).unwrap();
        assert_eq!(head_hash(file.path(), 8).unwrap(), expected);
    }
}
