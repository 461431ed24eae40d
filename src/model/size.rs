//! Numbers of bytes, as people write and read them: GB are 10⁹, GiB are 2³⁰ (IEC 80000-13).

/// A number of bytes for people.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 || size >= 100.0 { format!("{size:.0} {}", UNITS[unit]) } else { format!("{size:.1} {}", UNITS[unit]) }
}

/// A number of bytes from text: `40G` and `40GB` are 40 × 10⁹, `40GiB` are 40 × 2³⁰, a number alone is bytes; `/s`
/// behind it is allowed.
///
/// # Errors
/// Says how one is written.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no number of bytes; write 40G or 40GB (10⁹), 40GiB (2³⁰), or the bytes");
    let lower = text.trim().to_lowercase();
    let lower = lower.strip_suffix("/s").unwrap_or(&lower);
    let end = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(end);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim();
    let (letter, rest) = unit.split_at(unit.chars().next().map_or(0, char::len_utf8));
    let power = match letter {
        "" | "b" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(wrong()),
    };
    let base: f64 = match rest {
        "" => 1000.0,
        "b" if power > 0 => 1000.0,
        "i" | "ib" if power > 0 => 1024.0,
        _ => return Err(wrong()),
    };
    let bytes = number * base.powi(power);
    if bytes < 1.0 || bytes >= 2f64.powi(60) { Err(wrong()) } else { Ok(bytes as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_readable() {
        assert_eq!([human(7), human(1536), human(98_362_432)], ["7 B", "1.5 KiB", "93.8 MiB"]);
    }

    #[test]
    fn gb_are_tens_and_gib_are_twos() {
        for (text, bytes) in [
            ("40G", 40_000_000_000),
            ("40 GB", 40_000_000_000),
            ("40gib", 40 << 30),
            ("1.5Ki", 1536),
            ("43GB/s", 43_000_000_000),
            ("4096", 4096),
            ("12b", 12),
            ("2T", 2_000_000_000_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-4G", "4X", "4GX", "0", "1e9", "4iB", "99999999T", "4 4"] {
            assert!(parse_bytes(text).unwrap_err().contains("40GiB"), "{text}");
        }
    }
}
