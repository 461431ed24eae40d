//! GGUF files without loading them.
