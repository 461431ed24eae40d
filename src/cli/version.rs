//! What this program was built for.

/// The version, and which CPU instructions it uses.
pub fn long() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), instructions())
}

fn instructions() -> String {
    let used = crate::engine::instructions();
    let gpu =
        [("CUDA", cfg!(feature = "cuda")), ("Vulkan", cfg!(feature = "vulkan")), ("Metal", cfg!(feature = "metal"))];
    let gpu: String = gpu.iter().filter(|(_, on)| *on).map(|(name, _)| format!(", {name}")).collect();
    if used.is_empty() {
        return format!("baseline CPU instructions: several times slower than a native build, see README{gpu}");
    }
    format!("native CPU instructions: {used}{gpu}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_checkout_builds_with_native_instructions() {
        // .cargo/config.toml sees to it; every machine that llama.cpp is fast on has one of these.
        assert!(super::long().contains("native CPU instructions"), "{}", super::long());
    }
}
