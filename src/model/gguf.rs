//! A reader of GGUF headers (ggml's `docs/gguf.md`, versions 2 and 3) that holds on to little and believes
//! nothing: every length is checked against the file before it is used.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};

/// A metadata text longer than this is not read; the largest chat templates have a tenth of it.
const LONGEST_TEXT: u64 = 4 << 20;
/// Arrays of up to so many numbers are kept (one value a layer); vocabularies are passed over.
const LONGEST_ARRAY: u64 = 4096;

/// More metadata or tensors than this is nonsense; the largest models have some ten thousands.
const MOST_ENTRIES: u64 = 1 << 20;

/// Why a file is no model that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelError {
    /// There is no such file.
    Missing(PathBuf),
    /// It is a folder.
    Folder(PathBuf),
    /// It cannot be read.
    Unreadable(PathBuf, String),
    /// It is not a GGUF; the text says what it looks like.
    NotGguf(PathBuf, String),
    /// Its end is missing: so many bytes.
    CutOff(PathBuf, u64),
    /// Its header makes no sense.
    Damaged(PathBuf, String),
    /// No model has that name; those have similar ones.
    Unknown(String, Vec<String>),
    /// Several models have it.
    Ambiguous(String, Vec<String>),
}

impl ModelError {
    /// What is wrong, one sentence without a full stop.
    pub fn what(&self) -> String {
        match self {
            Self::Missing(path) => format!("There is no file {}", path.display()),
            Self::Folder(path) => format!("{} is a folder, not a model file", path.display()),
            Self::Unreadable(path, why) => format!("{} cannot be read: {why}", path.display()),
            Self::NotGguf(path, what) => format!("{} is not a GGUF model: {what}", path.display()),
            Self::CutOff(path, missing) => {
                format!("{} is cut off: {} are missing at its end", path.display(), super::human(*missing))
            }
            Self::Damaged(path, why) => format!("{} is damaged: {why}", path.display()),
            Self::Unknown(name, near) if near.is_empty() => format!("No model is called '{name}'"),
            Self::Unknown(name, near) => format!("No model is called '{name}'; there are {}", near.join(", ")),
            Self::Ambiguous(name, names) => format!("'{name}' may mean {}", names.join(" or ")),
        }
    }

    /// What the user can do, a sentence.
    pub fn next(&self) -> &'static str {
        match self {
            Self::Missing(_) | Self::Unknown(..) => {
                "See what is there with 'llmchat models', or fetch the default model with 'make model'"
            }
            Self::Folder(_) => "Name the .gguf file in it",
            Self::Unreadable(..) => "Check the file's rights",
            Self::NotGguf(..) => "Choose a file that ends in .gguf",
            Self::CutOff(..) | Self::Damaged(..) => "Fetch it again",
            Self::Ambiguous(..) => "Write more of the name",
        }
    }
}

impl std::fmt::Display for ModelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}. {}", self.what(), self.next())
    }
}

impl std::error::Error for ModelError {}

/// A metadata value that is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number or a truth value.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(String),
    /// A short array of whole numbers.
    Ints(Vec<i64>),
}

/// The tensors of a file, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    /// Bytes of all of them.
    pub bytes: u64,
    /// Of them, experts: a token uses only some.
    pub experts: u64,
    /// The embedding: ggml's type, and bytes.
    pub embedding: Option<(u32, u64)>,
    /// Whether the output has a matrix of its own; otherwise the embedding serves there too.
    pub output: bool,
    /// Tokens of the vocabulary: rows of the embedding.
    pub vocabulary: u64,
    /// Bytes of the other matrices whose rows are a multiple of eight, by ggml's type.
    pub matrices: BTreeMap<u32, u64>,
}

impl Tensors {
    /// Adds those of another part of the model.
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.experts = self.experts.saturating_add(other.experts);
        self.embedding = self.embedding.or(other.embedding);
        self.output |= other.output;
        self.vocabulary = self.vocabulary.max(other.vocabulary);
        for (kind, bytes) in other.matrices {
            let sum = self.matrices.entry(kind).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
}

/// The header of a GGUF file.
#[derive(Clone, Debug, Default)]
pub struct Gguf {
    /// The file's size in bytes.
    pub bytes: u64,
    /// Of them, those before the weights.
    pub header_bytes: u64,
    /// What its tensors are.
    pub tensors: Tensors,
    /// Metadata by key, without long arrays.
    pub metadata: HashMap<String, Value>,
}

impl Gguf {
    /// Reads the header and checks that the file is as long as its tensors need. Of a model in several files the
    /// first one is named, and the others' tensors are added.
    ///
    /// # Errors
    /// If the file, or another part, is not a whole GGUF model.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let mut first = Self::read_one(path)?;
        for part in other_parts(path, first.number("split.count").unwrap_or(1)) {
            first.tensors.add(Self::read_one(&part)?.tensors);
        }
        Ok(first)
    }

    fn read_one(path: &Path) -> Result<Self, ModelError> {
        let unreadable = |e: &std::io::Error| match e.kind() {
            ErrorKind::NotFound => ModelError::Missing(path.to_owned()),
            _ => ModelError::Unreadable(path.to_owned(), e.to_string()),
        };
        let facts = std::fs::metadata(path).map_err(|e| unreadable(&e))?;
        if facts.is_dir() {
            return Err(ModelError::Folder(path.to_owned()));
        }
        if !facts.is_file() {
            return Err(ModelError::NotGguf(path.to_owned(), "it is no regular file".to_owned()));
        }
        let file = File::open(path).map_err(|e| unreadable(&e))?;
        let mut reader = Reader { input: BufReader::with_capacity(1 << 16, file), at: 0, bytes: facts.len() };
        reader.magic().map_err(|what| ModelError::NotGguf(path.to_owned(), what))?;
        match reader.header() {
            Ok((metadata, tensors, needed)) if needed <= facts.len() => {
                let header_bytes = facts.len().saturating_sub(tensors.bytes);
                Ok(Self { bytes: facts.len(), header_bytes, tensors, metadata })
            }
            Ok((.., needed)) => Err(ModelError::CutOff(path.to_owned(), needed - facts.len())),
            Err(Fault::End(missing)) => Err(ModelError::CutOff(path.to_owned(), missing)),
            Err(Fault::Nonsense(why)) => Err(ModelError::Damaged(path.to_owned(), why)),
        }
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.metadata.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number that is not negative.
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.metadata.get(key)? {
            Value::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// One number a layer: an array as it is, a single number for each of `layers`.
    pub fn per_layer(&self, key: &str, layers: usize) -> Option<Vec<u64>> {
        match self.metadata.get(key)? {
            Value::Int(n) => Some(vec![u64::try_from(*n).ok()?; layers]),
            Value::Ints(list) if list.len() >= layers => {
                list[..layers].iter().map(|n| u64::try_from(*n).ok()).collect()
            }
            _ => None,
        }
    }

    /// The architecture's name.
    pub fn architecture(&self) -> &str {
        self.text("general.architecture").unwrap_or("unknown")
    }

    /// A key of the architecture's own.
    pub fn own(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture())
    }

    /// Tokens that the model was trained on at once.
    pub fn n_ctx_train(&self) -> Option<u64> {
        self.number(&self.own("context_length"))
    }
}

/// The files beside the first one of a model in so many parts, as `gguf-split` names them.
fn other_parts(path: &Path, parts: u64) -> Vec<PathBuf> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((head, tail)) = name.split_once("-00001-of-") else { return Vec::new() };
    (2..=parts.min(99_999)).map(|part| path.with_file_name(format!("{head}-{part:05}-of-{tail}"))).collect()
}

enum Fault {
    /// The file ends early; at least so many bytes are missing.
    End(u64),
    Nonsense(String),
}

struct Reader<R> {
    input: BufReader<R>,
    at: u64,
    bytes: u64,
}

impl<R: Read + Seek> Reader<R> {
    fn magic(&mut self) -> Result<(), String> {
        let mut head = [0; 4];
        if self.bytes < 24 || self.input.read_exact(&mut head).is_err() {
            return Err(if self.bytes == 0 { "it is empty" } else { "it is too small" }.to_owned());
        }
        self.at = 4;
        match &head {
            b"GGUF" => Ok(()),
            b"FUGG" => Err("it was made for big-endian machines".to_owned()),
            b"lmgg" | b"fmgg" | b"tjgg" => {
                Err("it is in a format before GGUF; convert it or fetch a newer file".to_owned())
            }
            b"PK\x03\x04" => Err("it looks like a zip archive".to_owned()),
            b"<!DO" | b"<htm" | b"<!do" | b"<HTM" => {
                Err("it looks like a web page, perhaps instead of a download".to_owned())
            }
            b"vers" => Err("it looks like a Git LFS pointer; fetch the file itself".to_owned()),
            [_, _, _, 0] if self.bytes > 1 << 16 => {
                Err("it looks like safetensors weights; a GGUF conversion is needed".to_owned())
            }
            _ => Err("its first bytes are not those of one".to_owned()),
        }
    }

    /// Metadata, tensors, and how many bytes the file must have.
    fn header(&mut self) -> Result<(HashMap<String, Value>, Tensors, u64), Fault> {
        let version = self.u32()?;
        if !(2..=3).contains(&version) {
            return Err(Fault::Nonsense(format!("its version is {version}, and 2 and 3 are known")));
        }
        let (tensors, pairs) = (self.u64()?, self.u64()?);
        if pairs > MOST_ENTRIES || tensors > MOST_ENTRIES {
            return Err(Fault::Nonsense("it claims more entries than any model has".to_owned()));
        }
        let mut metadata = HashMap::new();
        for _ in 0..pairs {
            let key = self.text()?.unwrap_or_default();
            let kind = self.u32()?;
            if let Some(value) = self.value(kind, 0)? {
                metadata.insert(key, value);
            }
        }
        let mut end = 0u64;
        let mut sums = Tensors::default();
        for _ in 0..tensors {
            let name = self.text()?.unwrap_or_default();
            let dimensions = self.u32()?;
            if dimensions > 8 {
                return Err(Fault::Nonsense(format!("a tensor has {dimensions} dimensions")));
            }
            let mut sizes = [1; 8];
            for size in sizes.iter_mut().take(dimensions as usize) {
                *size = self.u64()?;
            }
            let elements = sizes.iter().fold(1, |product: u64, n| product.saturating_mul(*n));
            let kind = self.u32()?;
            let offset = self.u64()?;
            let bytes = tensor_bytes(kind, elements);
            end = end.max(offset.saturating_add(bytes));
            sums.output |= name == "output.weight";
            if name == "token_embd.weight" {
                sums.vocabulary = sizes[1];
                sums.embedding = Some((kind, bytes));
                continue;
            }
            if name.contains("_exps.") {
                sums.experts = sums.experts.saturating_add(bytes);
            }
            if dimensions > 1 && sizes[1] % 8 == 0 {
                let sum = sums.matrices.entry(kind).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
        let alignment = match metadata.get("general.alignment") {
            Some(Value::Int(n)) if *n > 0 => n.unsigned_abs(),
            _ => 32,
        };
        let data = if tensors == 0 { self.at } else { self.at.div_ceil(alignment).saturating_mul(alignment) };
        sums.bytes = if tensors == 0 { 0 } else { self.bytes.saturating_sub(data) };
        Ok((metadata, sums, data.saturating_add(end)))
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<Option<Value>, Fault> {
        Ok(Some(match kind {
            0 | 7 => Value::Int(i64::from(self.array::<1>()?[0])),
            1 => Value::Int(i64::from(i8::from_le_bytes(self.array()?))),
            2 => Value::Int(i64::from(u16::from_le_bytes(self.array()?))),
            3 => Value::Int(i64::from(i16::from_le_bytes(self.array()?))),
            4 => Value::Int(i64::from(self.u32()?)),
            5 => Value::Int(i64::from(i32::from_le_bytes(self.array()?))),
            6 => Value::Float(f64::from(f32::from_le_bytes(self.array()?))),
            8 => return Ok(self.text()?.map(Value::Text)),
            9 => return self.list(depth),
            10 => Value::Int(i64::try_from(self.u64()?).unwrap_or(i64::MAX)),
            11 => Value::Int(i64::from_le_bytes(self.array()?)),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            other => return Err(Fault::Nonsense(format!("a metadata value has the unknown type {other}"))),
        }))
    }

    fn list(&mut self, depth: u32) -> Result<Option<Value>, Fault> {
        let (kind, n) = (self.u32()?, self.u64()?);
        let width = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            8 | 9 => 0,
            other => return Err(Fault::Nonsense(format!("an array holds the unknown type {other}"))),
        };
        if depth > 3 || n > self.bytes {
            return Err(Fault::Nonsense("an array is larger than the file".to_owned()));
        }
        if width > 0 && (n > LONGEST_ARRAY || matches!(kind, 6 | 12)) {
            self.skip(n.saturating_mul(width))?;
            return Ok(None);
        }
        let mut ints = Vec::new();
        for _ in 0..n {
            if kind == 8 {
                let length = self.u64()?;
                self.skip(length)?;
            } else if let Some(Value::Int(int)) = self.value(kind, depth + 1)? {
                ints.push(int);
            }
        }
        Ok((width > 0).then_some(Value::Ints(ints)))
    }

    fn text(&mut self) -> Result<Option<String>, Fault> {
        let length = self.u64()?;
        if length > LONGEST_TEXT {
            self.skip(length)?;
            return Ok(None);
        }
        self.room(length)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.fill(&mut bytes)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn room(&self, n: u64) -> Result<(), Fault> {
        let end = self.at.saturating_add(n);
        if end > self.bytes { Err(Fault::End(end - self.bytes)) } else { Ok(()) }
    }

    fn skip(&mut self, n: u64) -> Result<(), Fault> {
        self.room(n)?;
        let step = i64::try_from(n).map_err(|_| Fault::End(n))?;
        self.input.seek_relative(step).map_err(|e| Fault::Nonsense(e.to_string()))?;
        self.at += n;
        Ok(())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        self.room(bytes.len() as u64)?;
        self.input.read_exact(bytes).map_err(|e| Fault::Nonsense(e.to_string()))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

/// Bytes of a tensor by ggml's block sizes (`ggml-common.h`); 0 for types that are not known here, so that a
/// newer type is never called cut off.
fn tensor_bytes(kind: u32, elements: u64) -> u64 {
    let (block, bytes) = match kind {
        0 | 26 => (1, 4),
        1 | 25 | 30 => (1, 2),
        24 => (1, 1),
        27 | 28 => (1, 8),
        2 | 20 => (32, 18),
        3 => (32, 20),
        6 => (32, 22),
        7 => (32, 24),
        8 => (32, 34),
        10 => (256, 84),
        11 | 21 => (256, 110),
        12 => (256, 144),
        13 => (256, 176),
        14 => (256, 210),
        16 | 35 => (256, 66),
        17 => (256, 74),
        18 => (256, 98),
        19 => (256, 50),
        22 => (256, 82),
        23 => (256, 136),
        29 => (256, 56),
        34 => (256, 54),
        39 => (32, 17),
        _ => return 0,
    };
    (elements / block).saturating_mul(bytes)
}

#[cfg(test)]
mod tests;
