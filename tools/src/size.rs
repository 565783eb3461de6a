//! Sizes and durations as people write them: `64`, `4k`, `1MiB`, `10s`.

use std::time::Duration;

/// Parses a number of bytes. `k`, `M`, `G` (also with `i`, `B`, `iB`) are powers of 1024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit.trim_end_matches('B').trim_end_matches('i') {
        "" if !unit.starts_with('i') => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => {
            return Err(format!(
                "'{text}': the unit '{unit}' is not one of k, M, G (powers of 1024)"
            ));
        }
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("'{text}' does not begin with a whole number"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("'{text}' is more bytes than 64 bits can count"))
}

/// Parses a size of one message: at most 2^32 - 1 bytes (RFC 5040 section 5.1).
pub fn message_bytes(text: &str) -> Result<u32, String> {
    u32::try_from(bytes(text)?)
        .map_err(|_| format!("'{text}': a message has at most {} bytes", u32::MAX))
}

/// Parses seconds: `10`, `0.5`, `10s`, `250ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds: f64 = number
        .parse()
        .map_err(|_| format!("'{text}' is not a duration (10s, 250ms)"))?;
    Duration::try_from_secs_f64(seconds * scale)
        .map_err(|_| format!("'{text}': a duration must be positive and finite"))
}

/// A number of bytes as people read it.
pub fn show(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift {
            let whole = bytes as f64 / (1u64 << shift) as f64;
            let digits = if bytes.is_multiple_of(1 << shift) {
                0
            } else {
                1
            };
            return format!("{whole:.digits$} {unit}");
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        assert_eq!(bytes("64"), Ok(64));
        assert_eq!(bytes("4k"), Ok(4096));
        assert_eq!(bytes("1MiB"), Ok(1 << 20));
        assert_eq!(bytes("2GB"), Ok(2 << 30));
    }

    #[test]
    fn nonsense_is_refused_with_the_text_in_the_message() {
        for text in [
            "",
            "x",
            "1q",
            "1i",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            assert!(bytes(text).is_err_and(|e| e.contains(text)), "{text}");
        }
        assert!(message_bytes("4G").is_err());
        assert!(duration("-1").is_err());
    }

    #[test]
    fn durations_are_seconds_unless_they_say_otherwise() {
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
    }
}
