//! Numbers as people read and write them.

use std::time::Duration;

use jiff::tz::TimeZone;

use crate::base::time::Timestamp;

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// A number of bytes: `512 B`, `1.5 KiB`, `23 GiB`; three digits at most, in powers of 1024.
#[must_use]
pub fn bytes(count: u64) -> String {
    // In tenths of the unit, so that no floating point rounds 1023.99 KiB up to 1024 KiB.
    let mut tenths = u128::from(count) * 10;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).unwrap_or(&"B");
    if unit == 0 || tenths >= 100 {
        format!("{} {name}", tenths / 10)
    } else {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    }
}

/// A count with its digits in groups of three: `1,234,567`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 file`, `2 files`.
#[must_use]
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A duration: `0.42 s`, `12.3 s`, `2 min 5 s`, `3 h 20 min`.
#[must_use]
pub fn duration(time: Duration) -> String {
    let secs = time.as_secs();
    match secs {
        0..10 => format!("{secs}.{:02} s", time.subsec_millis() / 10),
        10..60 => format!("{secs}.{} s", time.subsec_millis() / 100),
        60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        _ => format!("{} h {} min", secs / 3600, secs % 3600 / 60),
    }
}

/// The local date and time, to the second: `2026-11-30 23:15:02 +0100`. A time that no calendar has is shown as seconds since 1970.
#[must_use]
pub fn local_time(time: Timestamp) -> String {
    match jiff::Timestamp::from_second(time.secs) {
        Ok(stamp) => stamp.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %z").to_string(),
        Err(_) => format!("@{}", time.secs),
    }
}

/// The time in UTC as RFC 3339 has it, with all nanoseconds that are there: `2026-11-30T22:15:02.5Z`.
#[must_use]
pub fn rfc3339(time: Timestamp) -> String {
    match i32::try_from(time.nanos).map(|nanos| jiff::Timestamp::new(time.secs, nanos)) {
        Ok(Ok(stamp)) => stamp.to_string(),
        _ => format!("@{}.{:09}", time.secs, time.nanos),
    }
}

/// The number of bytes that somebody wrote: `4096`, `500M`, `10G`, `1.5 GiB`; suffixes are powers of 1024.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, suffix) = text.split_at(digits);
    let suffix = suffix.trim().to_ascii_lowercase();
    let power = match suffix.strip_suffix("ib").or_else(|| suffix.strip_suffix('b')).unwrap_or(&suffix) {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let scale = 1024_u64.pow(power);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let fraction_digits = u32::try_from(fraction.len()).ok().filter(|digits| (1..=9).contains(digits))?;
    let fraction =
        u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale) / 10_u128.pow(fraction_digits);
    whole.checked_add(u64::try_from(fraction).ok()?)
}

/// The share that somebody wrote, in millionths: `5%`, `0.5 %`; more than nothing, and at most all.
#[must_use]
pub fn parse_share(text: &str) -> Option<u32> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| (1..=4).contains(digits))?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let whole = whole.parse::<u32>().ok()?.checked_mul(10_000)?;
    let share = whole.checked_add(fraction.parse::<u32>().ok()? * 10_u32.pow(4 - digits))?;
    (1..=1_000_000).contains(&share).then_some(share)
}

/// The time that somebody wrote: `90` or `90s`, `15m`, `8h`, `2d`.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let seconds = match unit.to_ascii_lowercase().as_str() {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return None,
    };
    let number = number.trim().parse::<u64>().ok()?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_as_they_are_written() {
        for (text, share) in [("5%", 50_000), ("0.5 %", 5_000), ("100%", 1_000_000), ("0.0001%", 1)] {
            assert_eq!(parse_share(text), Some(share), "{text}");
        }
        for text in ["", "%", "5", "0%", "100.1%", "-5%", "+5%", "5.%", ".5%", "0.00001%", "99999999999%"] {
            assert_eq!(parse_share(text), None, "{text}");
        }
    }

    #[test]
    fn times_as_they_are_written() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("15m", 900), (" 8 H", 28_800), ("2d", 172_800)] {
            assert_eq!(parse_time(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "1y", "-1s", "1.5h", "1m30s", "99999999999999999999d"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn bytes_have_three_digits_at_most() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 * 1024, "10 KiB"),
            (1024 * 1024 - 1, "1023 KiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "16383 PiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "file", "files"), "1 file");
    }

    #[test]
    fn durations() {
        assert_eq!(duration(Duration::from_millis(420)), "0.42 s");
        assert_eq!(duration(Duration::from_millis(12_345)), "12.3 s");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 5 s");
        assert_eq!(duration(Duration::from_secs(12_000)), "3 h 20 min");
    }

    #[test]
    fn times_beyond_the_calendar_do_not_fail() {
        let far = Timestamp { secs: i64::MAX, nanos: 1 };
        assert_eq!(local_time(far), format!("@{}", i64::MAX));
        assert_eq!(rfc3339(far), format!("@{}.000000001", i64::MAX));
        assert_eq!(rfc3339(Timestamp { secs: -1, nanos: 500_000_000 }), "1969-12-31T23:59:59.5Z");
    }

    #[test]
    fn sizes_that_people_write() {
        for (text, size) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("500M", Some(500 << 20)),
            ("10 GiB", Some(10 << 30)),
            ("1.5k", Some(1536)),
            ("1.", None),
            ("", None),
            ("G", None),
            ("-1", None),
            ("1e3", None),
            ("99999999P", None),
        ] {
            assert_eq!(parse_bytes(text), size, "{text}");
        }
    }
}
