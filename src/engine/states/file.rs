//! A state in a file.
//!
//! ```text
//! "llmchat-kv"      10 bytes
//! format            u32, little-endian as all numbers: 1
//! identity          32 bytes: model, context settings, versions
//! parent            32 bytes: the key of the piece that it goes on from; zeros for none
//! from              u64: position of the first token
//! whole             u8: 1 for the state of a cache that cannot be divided
//! tokens            u32: how many; then each as i32
//! state             u64: how many bytes; then they
//! sum               32 bytes: sha256 of all before
//! ```
//!
//! The name is the key, the hash of parent and tokens. A file is used only if all of this is as it must be.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Key, Piece};
use crate::chat::hex;

/// What a state belongs to: it is of use to nothing else.
pub type Identity = [u8; 32];

const MAGIC: [u8; 10] = *b"llmchat-kv";
/// Raised when the layout above changes.
const FORMAT: u32 = 1;
/// Bytes before the tokens.
const HEAD: usize = MAGIC.len() + 4 + 32 + 32 + 8 + 1 + 4;
/// Bytes behind the tokens that are not the state.
const TAIL: usize = 8 + 32;
/// The version of llama.cpp's bindings: what a state looks like is theirs to decide.
pub const LLAMA: &str = "llama-cpp-2 0.1.160";

/// The identity of states that a model file computes under settings, told as a text of any form.
///
/// # Errors
/// If the file cannot be read.
pub fn identity(model: &Path, settings: &str) -> io::Result<Identity> {
    /// Hashing all of a large model would take longer than reading most prompts: its header with the vocabulary is
    /// in the first of these, weights in all.
    const BLOCK: u64 = 4 << 20;
    let mut file = File::open(model)?;
    let length = file.metadata()?.len();
    let mut hash = Sha256::new();
    hash.update(format!("{LLAMA}\n{length}\n{settings}\n"));
    for at in [0, length / 3, length / 3 * 2, length.saturating_sub(BLOCK)] {
        file.seek(SeekFrom::Start(at))?;
        io::copy(&mut Read::by_ref(&mut file).take(BLOCK), &mut Hashing(&mut hash))?;
    }
    Ok(hash.finalize().into())
}

struct Hashing<'a>(&'a mut Sha256);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file of a piece.
pub fn path(folder: &Path, key: Key) -> PathBuf {
    folder.join(hex(&key.0)).with_extension("kv")
}

/// Writes a state; a file is there with all of it or not at all.
///
/// # Errors
/// If the disk cannot take it.
pub fn write(folder: &Path, identity: &Identity, piece: &Piece, state: &[u8]) -> io::Result<()> {
    let number = |n: usize| u32::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let mut head = Vec::with_capacity(HEAD + piece.tokens.len() * 4 + 8);
    head.extend(MAGIC);
    head.extend(FORMAT.to_le_bytes());
    head.extend(identity);
    head.extend(piece.parent.map_or([0; 32], |key| key.0));
    head.extend((piece.from as u64).to_le_bytes());
    head.push(u8::from(piece.whole));
    head.extend(number(piece.tokens.len())?.to_le_bytes());
    piece.tokens.iter().for_each(|token| head.extend(token.to_le_bytes()));
    head.extend((state.len() as u64).to_le_bytes());
    let mut hash = Sha256::new();
    hash.update(&head);
    hash.update(state);
    // Readable by its owner only, as this library makes them: the tokens are the conversation's words.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&head)?;
    file.write_all(state)?;
    file.write_all(&hash.finalize())?;
    file.persist(path(folder, piece.key())).map_err(|e| e.error)?;
    Ok(())
}

/// What a file says that it holds, and how long its state is; nothing if it is not what its name says.
pub fn head(path: &Path, identity: &Identity) -> Option<(Piece, u64)> {
    // A pipe would be waited for until somebody writes into it.
    let length = path.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    let mut file = File::open(path).ok()?;
    let mut head = [0; HEAD];
    file.read_exact(&mut head).ok()?;
    let tokens = u64::from(u32::from_le_bytes(*head.last_chunk()?));
    // What the header promises is not believed before the file is that long.
    let rest = length.checked_sub((HEAD + TAIL) as u64)?.checked_sub(tokens.checked_mul(4)?)?;
    let mut more = vec![0; usize::try_from(tokens).ok()? * 4 + 8];
    file.read_exact(&mut more).ok()?;
    let (piece, bytes) = parse(&head, &more, identity)?;
    (bytes == rest && path.file_stem()?.to_str()? == hex(&piece.key().0)).then_some((piece, bytes))
}

fn parse(head: &[u8], more: &[u8], identity: &Identity) -> Option<(Piece, u64)> {
    let rest = head.strip_prefix(&MAGIC)?.strip_prefix(&FORMAT.to_le_bytes())?.strip_prefix(identity)?;
    let (parent, rest) = rest.split_first_chunk::<32>()?;
    let (from, rest) = rest.split_first_chunk::<8>()?;
    let whole = match rest.first()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let (tokens, bytes) = more.split_last_chunk::<8>()?;
    let tokens = tokens.as_chunks::<4>().0.iter().map(|t| i32::from_le_bytes(*t)).collect();
    let parent = Some(Key(*parent)).filter(|key| key.0 != [0; 32]);
    let from = usize::try_from(u64::from_le_bytes(*from)).ok()?;
    Some((Piece { parent, from, tokens, whole }, u64::from_le_bytes(*bytes)))
}

/// The state of a piece; nothing if the file is not there, or not to the last bit what was written.
pub fn read(folder: &Path, identity: &Identity, piece: &Piece) -> Option<Vec<u8>> {
    let path = path(folder, piece.key());
    let (found, bytes) = head(&path, identity)?;
    let mut all = std::fs::read(&path).ok()?;
    let state = HEAD + piece.tokens.len() * 4 + 8;
    let (before, sum) = all.split_last_chunk::<32>()?;
    let right = found == *piece
        && before.len() as u64 == state as u64 + bytes
        && Sha256::digest(before).as_slice() == sum.as_slice();
    right.then(|| {
        all.truncate(all.len() - 32);
        all.drain(..state);
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece() -> Piece {
        Piece { parent: None, from: 0, tokens: (0..50).collect(), whole: false }
    }

    /// A file with a state of 1,000 bytes: its folder, its path, the state.
    fn written() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let state: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        write(folder.path(), &[7; 32], &piece(), &state).unwrap();
        let path = path(folder.path(), piece().key());
        (folder, path, state)
    }

    #[test]
    fn the_version_is_that_of_the_bindings() {
        let version = LLAMA.rsplit(' ').next().unwrap();
        let manifest = include_str!("../../../Cargo.toml");
        assert!(manifest.lines().any(|l| l.starts_with("llama-cpp-2") && l.contains(&format!("\"={version}\""))));
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let (folder, path, state) = written();
        assert_eq!(head(&path, &[7; 32]), Some((piece(), 1000)));
        assert_eq!(read(folder.path(), &[7; 32], &piece()), Some(state));
        assert_eq!(head(&path, &[8; 32]), None, "of another model");
        assert_eq!(read(folder.path(), &[7; 32], &Piece { from: 3, ..piece() }), None);
        let moved = folder.path().join("0".repeat(64)).with_extension("kv");
        std::fs::copy(&path, &moved).unwrap();
        assert_eq!(head(&moved, &[7; 32]), None, "under another name");
    }

    /// Cut, lengthened, flipped, swapped, foreign, of a newer format: 300 ways to be wrong, and none is read.
    #[test]
    fn a_damaged_file_is_never_read() {
        let (folder, path, _) = written();
        let right = std::fs::read(&path).unwrap();
        for n in 0..300 {
            let mut wrong = right.clone();
            let at = n * right.len() / 300;
            match n % 6 {
                0 => wrong.truncate(at),
                1 => wrong.extend_from_slice(&right[..=at]),
                2 => wrong[at] ^= 1 << (n % 8),
                3 => wrong[at..].rotate_left(1),
                4 => {
                    wrong.splice(at..at, [0xff; 3]);
                }
                // Numbers that are far too large, and the format that comes after this one.
                _ => {
                    let field = [10, 78, 86, 87, HEAD + 200][n / 6 % 5];
                    wrong[field..field + 4].copy_from_slice(&[[0xff; 4], [2, 0, 0, 0]][n / 30 % 2]);
                }
            }
            if wrong == right {
                wrong[at] ^= 1;
            }
            std::fs::write(&path, &wrong).unwrap();
            assert_eq!(read(folder.path(), &[7; 32], &piece()), None, "mutation {n}");
        }
        std::fs::write(&path, &right).unwrap();
        assert!(read(folder.path(), &[7; 32], &piece()).is_some());
    }
}
