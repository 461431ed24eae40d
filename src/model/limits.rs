//! What a model or a device cannot store or compute, by name, before llama.cpp is asked: it answers some of these
//! with a null pointer and some by ending the process.

use super::shape::KvShape;
use crate::chat::{FlashAttention, KvType, KvTypes};

/// What computes attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The processor: its flash attention combines all types.
    Cpu,
    /// Apple's GPUs.
    Metal,
    /// Any GPU with Vulkan.
    Vulkan,
    /// Another one, of which no limits are known; CUDA converts what it has no kernel for.
    Other,
}

impl Backend {
    /// The one with llama.cpp's name of it.
    pub fn named(name: &str) -> Self {
        match name.to_lowercase().as_str() {
            "cpu" => Self::Cpu,
            "metal" | "mtl" => Self::Metal,
            "vulkan" => Self::Vulkan,
            _ => Self::Other,
        }
    }
}

/// Whether a context of these types can be made (llama.cpp's `llama_init_from_model`, and the `supports_op` of its
/// devices for flash attention).
///
/// # Errors
/// What cannot be, and what would work.
pub fn limits(
    shape: &KvShape,
    architecture: &str,
    kv: KvTypes,
    flash: FlashAttention,
    backend: Backend,
) -> Result<(), (String, String)> {
    let refuse = |what: String, next: &str| Err((what, next.to_owned()));
    let KvTypes { k, v } = kv;
    for (side, kind, size) in [("K", k, shape.head.k), ("V", v, shape.head.v)] {
        let (block, _) = kind.block();
        if size % block != 0 {
            return refuse(
                format!(
                    "{} stores {block} values together, and a head of this model has {size} in {side}",
                    kind.name()
                ),
                "Take f16 or bf16 for it (cache_type_k, cache_type_v)",
            );
        }
    }
    if shape.latent && k != v {
        return refuse(
            format!("This model's K and V are one vector and cannot be {} and {}", k.name(), v.name()),
            "Take the same type for both (cache_type_k, cache_type_v)",
        );
    }
    if v.is_quantised() && flash == FlashAttention::Off {
        return refuse(
            format!("A V cache of {} needs flash attention, and that is off", v.name()),
            "Take flash_attn auto or on (-fa), or f16 or bf16 for V (-ctv)",
        );
    }
    if architecture == "grok" && (v.is_quantised() || flash == FlashAttention::On) {
        return refuse(
            "llama.cpp has no flash attention for Grok models, and a quantised V cache needs it".to_owned(),
            "Take flash_attn auto or off (-fa), and f16 or bf16 for V (-ctv)",
        );
    }
    // Without flash attention any two types go together, and auto then does without.
    let needs_flash = v.is_quantised() || flash == FlashAttention::On;
    let apart = match backend {
        Backend::Metal => k != v,
        Backend::Vulkan => (k == KvType::Bf16) != (v == KvType::Bf16),
        Backend::Cpu | Backend::Other => false,
    };
    if needs_flash && apart {
        return refuse(
            format!("Flash attention of this GPU cannot combine {} for K with {} for V", k.name(), v.name()),
            "Take the same type for both (-ctk, -ctv), or compute on the CPU (-ngl 0)",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: u64, k: KvType, v: KvType, flash: FlashAttention, backend: Backend) -> Result<(), (String, String)> {
        limits(&KvShape::uniform(2, 2, head), "llama", KvTypes { k, v }, flash, backend)
    }

    #[test]
    fn what_works_is_not_refused() {
        for k in KvType::ALL {
            for v in KvType::ALL {
                assert_eq!(check(64, k, v, FlashAttention::Auto, Backend::Cpu), Ok(()));
                assert_eq!(check(64, k, v, FlashAttention::On, Backend::Other), Ok(()));
            }
            assert_eq!(check(64, k, KvType::F16, FlashAttention::Off, Backend::Cpu), Ok(()));
            assert_eq!(check(64, k, k, FlashAttention::On, Backend::Metal), Ok(()));
        }
        assert_eq!(check(80, KvType::F16, KvType::Bf16, FlashAttention::Auto, Backend::Cpu), Ok(()));
        assert_eq!(check(64, KvType::Bf16, KvType::F16, FlashAttention::Auto, Backend::Metal), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_named_with_what_works() {
        use FlashAttention::{Auto, Off, On};
        for (head, k, v, flash, backend, word, way) in [
            (80, KvType::Q8_0, KvType::F16, Auto, Backend::Cpu, "80 in K", "f16"),
            (72, KvType::F16, KvType::Q4_0, On, Backend::Cpu, "72 in V", "f16"),
            (80, KvType::Q8_0, KvType::F16, Off, Backend::Cpu, "32 values", "bf16"),
            (64, KvType::F16, KvType::Q5_1, Off, Backend::Cpu, "q5_1 needs flash attention", "-fa"),
            (64, KvType::Q8_0, KvType::Q4_0, Auto, Backend::Metal, "q8_0 for K with q4_0 for V", "same type"),
            (64, KvType::F16, KvType::Bf16, On, Backend::Vulkan, "f16 for K with bf16 for V", "-ngl 0"),
        ] {
            let (what, next) = check(head, k, v, flash, backend).unwrap_err();
            assert!(what.contains(word) && next.contains(way), "{what}. {next}");
        }
        let latent = KvShape { latent: true, ..KvShape::uniform(2, 1, 576) };
        let mixed = KvTypes { k: KvType::F16, v: KvType::Q8_0 };
        assert!(limits(&latent, "deepseek2", mixed, Auto, Backend::Cpu).unwrap_err().0.contains("one vector"));
        let kv = KvTypes::both(KvType::Q8_0);
        assert!(limits(&KvShape::uniform(2, 2, 64), "grok", kv, Auto, Backend::Cpu).unwrap_err().0.contains("Grok"));
    }
}
