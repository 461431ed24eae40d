//! Why an answer may have become another one: the first of the known causes that applies.

use crate::chat::{Made, Origin};
use crate::model::human;

/// How an answer is made now.
#[derive(Clone, Debug)]
pub struct Now<'a> {
    /// The model's name.
    pub model: &'a str,
    /// What it comes from.
    pub origin: &'a Origin,
    /// Tokens of its prompt,
    pub prompt_tokens: u32,
    /// and how many of them were in the cache.
    pub reused_tokens: u32,
}

/// Why it may differ from how it was made, one sentence without a full stop.
pub fn why(made: &Made, now: &Now<'_>) -> String {
    let then = made.origin.as_deref();
    let causes = [
        other_model(made, then, now),
        other_prompt(made, then, now),
        then.and_then(|then| other_versions(then, now.origin)),
        then.and_then(|then| otherwise_computed(then, now.origin)),
        then.and_then(|then| other_batches(then, made, now)),
        (!made.earlier.is_empty()).then(|| {
            "Its settings were moved while it was written, and at which token is not known exactly".to_owned()
        }),
    ];
    causes.into_iter().flatten().next().unwrap_or_else(|| {
        if then.is_some() {
            "All that is recorded is the same: its text was changed in the file, or this build computes otherwise"
        } else {
            "What made it is not recorded: it is older than such records, was broken off, or came from elsewhere"
        }
        .to_owned()
    })
}

fn other_model(made: &Made, then: Option<&Origin>, now: &Now<'_>) -> Option<String> {
    let Some(then) = then.filter(|then| !then.model_sha256.is_empty()) else {
        return (made.model != now.model)
            .then(|| format!("Another model: {} made it, this is {}", made.model, now.model));
    };
    let file = |o: &Origin| (o.model_sha256.clone(), o.model_bytes);
    let named = |name: &str, o: &Origin| {
        let hash: String = o.model_sha256.chars().take(8).collect();
        format!("{name} ({hash}, {})", human(o.model_bytes))
    };
    (file(then) != file(now.origin)).then(|| {
        format!("Another model file: {} made it, this is {}", named(&made.model, then), named(now.model, now.origin))
    })
}

fn other_prompt(made: &Made, then: Option<&Origin>, now: &Now<'_>) -> Option<String> {
    let tokens = made.usage.prompt_tokens;
    let known = then.is_some_and(|then| !then.prompt_sha256.is_empty());
    let same = match then.filter(|_| known) {
        Some(then) => then.prompt_sha256 == now.origin.prompt_sha256,
        None => tokens == 0 || tokens == now.prompt_tokens,
    };
    let how =
        if tokens == now.prompt_tokens { "as many".to_owned() } else { format!("{tokens}, now {}", now.prompt_tokens) };
    (!same).then(|| {
        format!(
            "The tokens of its prompt are others ({how}): the template or the tokeniser changed, or what comes before \
             it was edited, cut or summarised, the system prompt included"
        )
    })
}

fn other_versions(then: &Origin, now: &Origin) -> Option<String> {
    let parts = [
        changed("llmchat", &then.llmchat, &now.llmchat),
        changed("llama.cpp", &then.llama, &now.llama),
        changed("CPU instructions", &then.cpu, &now.cpu),
    ];
    told(&parts).map(|parts| format!("Another build made it: {parts}"))
}

fn otherwise_computed(then: &Origin, now: &Origin) -> Option<String> {
    let parts = [
        changed("device", &then.device, &now.device),
        changed("GPU layers", &then.gpu_layers, &now.gpu_layers),
        changed("threads", &then.threads, &now.threads),
        changed("context", &then.n_ctx, &now.n_ctx),
        changed("batch", &then.n_batch, &now.n_batch),
        changed("micro-batch", &then.n_ubatch, &now.n_ubatch),
        changed("K/V", &then.kv, &now.kv),
        changed("flash attention", &then.flash_attn.name(), &now.flash_attn.name()),
        changed("whole windows", &then.swa_full, &now.swa_full),
        changed("RoPE scaling", &then.rope.scaling.name(), &now.rope.scaling.name()),
        changed("RoPE base", &then.rope.freq_base, &now.rope.freq_base),
        changed("RoPE scale", &then.rope.freq_scale, &now.rope.freq_scale),
    ];
    told(&parts).map(|parts| format!("It was computed otherwise, and sums in another order round otherwise: {parts}"))
}

fn other_batches(then: &Origin, made: &Made, now: &Now<'_>) -> Option<String> {
    let (reused, again) = (made.usage.reused_tokens, now.reused_tokens);
    if reused != again {
        return Some(format!(
            "It reused {reused} tokens of the cache and now {again}: what is read in other batches has other last bits"
        ));
    }
    let split = |batches: &[u32]| batches.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
    (then.batches != now.origin.batches).then(|| {
        format!(
            "Its prompt was read in batches of {} and now of {}: other batches give other last bits",
            split(&then.batches),
            split(&now.origin.batches)
        )
    })
}

fn changed<T: PartialEq + ToString>(name: &str, then: &T, now: &T) -> Option<String> {
    let shown = |value: &T| Some(value.to_string()).filter(|v| !v.is_empty()).unwrap_or_else(|| "none".to_owned());
    (then != now).then(|| format!("{name} {}, now {}", shown(then), shown(now)))
}

fn told(parts: &[Option<String>]) -> Option<String> {
    let parts: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Finish, KvType, KvTypes, Sampling, Timings, Usage};

    fn origin() -> Origin {
        Origin {
            model_sha256: "aa11bb22cc33".into(),
            model_bytes: 1 << 20,
            prompt_sha256: "p".into(),
            batches: vec![30],
            llmchat: "0.1.0".into(),
            llama: "b1".into(),
            threads: 2,
            ..Origin::default()
        }
    }

    fn made(origin: Option<Origin>) -> Made {
        Made {
            model: "fox".into(),
            sampling: Sampling::default(),
            seed: 1,
            finish: Finish::Stop,
            usage: Usage { prompt_tokens: 40, reused_tokens: 10, completion_tokens: 5 },
            timings: Timings::default(),
            score: None,
            earlier: Vec::new(),
            looped: false,
            origin: origin.map(Box::new),
        }
    }

    fn said(made: &Made, origin: &Origin) -> String {
        why(made, &Now { model: "fox", origin, prompt_tokens: 40, reused_tokens: 10 })
    }

    /// Each cause is added to those after it, and the first one is told.
    #[test]
    fn the_first_cause_that_applies_is_told() {
        let mut made = made(Some(origin()));
        let mut now = origin();
        assert!(said(&made, &now).starts_with("All that is recorded is the same"));
        made.earlier = vec![(3, Sampling::default())];
        assert!(said(&made, &now).starts_with("Its settings were moved"));
        now.batches = vec![29, 1];
        assert!(said(&made, &now).contains("batches of 30 and now of 29+1"));
        made.usage.reused_tokens = 0;
        assert!(said(&made, &now).contains("reused 0 tokens of the cache and now 10"));
        now.threads = 1;
        now.kv = KvTypes::both(KvType::Q8_0);
        assert!(said(&made, &now).contains("threads 2, now 1; K/V f16, now q8_0"), "{}", said(&made, &now));
        now.llama = "b2".into();
        assert_eq!(said(&made, &now), "Another build made it: llama.cpp b1, now b2");
        now.prompt_sha256 = "q".into();
        assert!(said(&made, &now).starts_with("The tokens of its prompt are others (as many)"));
        now.model_bytes = 2 << 20;
        let told = said(&made, &now);
        assert!(told.contains("fox (aa11bb22, 1.0 MiB) made it, this is fox (aa11bb22, 2.0 MiB)"), "{told}");
    }

    #[test]
    fn what_an_older_file_says_is_used() {
        let mut made = made(None);
        assert!(said(&made, &origin()).starts_with("What made it is not recorded"));
        made.usage.prompt_tokens = 39;
        assert!(said(&made, &origin()).contains("others (39, now 40)"));
        made.model = "bear".into();
        assert_eq!(said(&made, &origin()), "Another model: bear made it, this is fox");
    }
}
