//! The memory that is free.

use std::fs;

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
    let cached = fs::read_to_string(stat).map_or(0, |text| file_pages(&text));
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

/// Bytes of files that are cached, which are given up when memory is needed: weights of a model that was used before
/// are among them.
fn file_pages(stat: &str) -> u64 {
    let lines = stat.lines().filter_map(|l| l.split_once(' '));
    let pages = lines.filter(|(name, _)| matches!(*name, "inactive_file" | "active_file"));
    pages.filter_map(|(_, n)| n.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_files_are_free() {
        assert_eq!(file_pages("anon 7\nfile 9\nactive_file 2\ninactive_file 3\nshmem 1\n"), 5);
    }

    #[test]
    fn meminfo_is_read() {
        assert_eq!(meminfo("MemTotal: 10 kB\nMemAvailable:   2 kB\n"), Some(2048));
        assert_eq!(meminfo("nothing"), None);
        #[cfg(target_os = "linux")]
        assert!(free_memory().unwrap() > 1 << 20);
    }
}
