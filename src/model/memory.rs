//! Whether a context fits into the memory that is free, before it is made.

use std::fs;

use super::shape::{KvShape, human};

/// Cells that a smaller context is offered in steps of.
const STEP: u64 = 256;

/// Bytes of memory that this process may still take: the machine's, or less where a cgroup limits it.
/// `None` where that cannot be told.
pub fn free_memory() -> Option<u64> {
    let machine = meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let cgroup =
        cgroup_free("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat")
            .or_else(|| {
                cgroup_free(
                    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                    "/sys/fs/cgroup/memory/memory.stat",
                )
            });
    Some(cgroup.map_or(machine, |limit| machine.min(limit)))
}

fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

fn cgroup_free(limit: &str, used: &str, stat: &str) -> Option<u64> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number(limit)?, number(used)?);
    // Cached file pages are given up when memory is needed.
    let cached = fs::read_to_string(stat).ok().and_then(|s| {
        let line = s.lines().find(|l| l.starts_with("inactive_file "))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
}

/// Whether a context fits: its KV cache and the compute buffer beside it.
///
/// # Errors
/// Says how much is needed, how much is free, and the largest context that fits.
pub fn check(
    shape: &KvShape,
    n_ctx: u64,
    n_ubatch: u64,
    n_vocab: u64,
    swa_full: bool,
    free: u64,
) -> Result<(), String> {
    // ≈: the logits of a micro-batch are the largest of the compute buffers.
    let compute = n_ubatch.saturating_mul(n_vocab).saturating_mul(4) + (64 << 20);
    let needed = |n_ctx: u64| shape.bytes(n_ctx, n_ubatch, swa_full).saturating_add(compute);
    if needed(n_ctx) <= free {
        return Ok(());
    }
    let fits = free.saturating_sub(compute) / shape.bytes_per_token(swa_full).max(1) / STEP * STEP;
    let fits = if needed(fits) <= free { fits } else { fits.saturating_sub(STEP) };
    let offer = if fits >= STEP { format!("; one of {fits} tokens fits") } else { String::new() };
    Err(format!("a context of {n_ctx} tokens needs {} and {} are free{offer}", human(needed(n_ctx)), human(free)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_what_does() {
        let shape = KvShape { full: 11_520, windowed: 0, window: None };
        let free = 1 << 30;
        assert_eq!(check(&shape, 8192, 512, 49_152, true, free), Ok(()));
        let error = check(&shape, 1 << 20, 512, 49_152, true, free).unwrap_err();
        let offered: u64 = error.split("one of ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(check(&shape, offered, 512, 49_152, true, free), Ok(()));
        assert!(check(&shape, offered + 2 * STEP, 512, 49_152, true, free).is_err());
        assert!(!check(&shape, 8192, 512, 49_152, true, 1000).unwrap_err().contains("one of"));
    }

    #[test]
    fn meminfo_is_read() {
        assert_eq!(meminfo("MemTotal: 10 kB\nMemAvailable:   2 kB\n"), Some(2048));
        assert_eq!(meminfo("nothing"), None);
        #[cfg(target_os = "linux")]
        assert!(free_memory().unwrap() > 1 << 20);
    }
}
