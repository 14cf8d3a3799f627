//! Quantities for people: three significant digits and the prefix that suits the value.
//!
//! These forms are rounded. The `Display` of [`crate::Bytes`], [`crate::Rate`] and
//! [`crate::Time`] is exact.

/// Shown for a value that is not a finite number.
const NOT_A_NUMBER: &str = "-";

/// Thousands separated by commas: `12345` is `12,345`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three significant digits with thousands separators: `0.0123`, `2.04`, `61.2`, `1,198`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return NOT_A_NUMBER.to_owned();
    }
    let magnitude = value.abs();
    if magnitude >= 99.95 {
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}{}", grouped(magnitude.round() as u64))
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.09995 || magnitude == 0.0 {
        format!("{value:.2}")
    } else if magnitude >= 0.0001 {
        format!("{value:.4}")
    } else {
        format!("{value:.2e}")
    }
}

/// Bytes with a binary prefix: `512 B`, `1.50 GiB`, `64.0 MiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 999.5
        && let Some(larger) = units.next()
    {
        value /= 1024.0;
        unit = Some(larger);
    }
    format!("{} {}", number(value), unit.unwrap_or(&""))
}

/// Bytes per second with a binary prefix: `1.50 GiB/s`.
pub fn rate(bytes_per_second: f64) -> String {
    if !bytes_per_second.is_finite() {
        return NOT_A_NUMBER.to_owned();
    }
    format!("{}/s", bytes(bytes_per_second as u64))
}

/// A duration given in seconds: `1.50 us`, `12.5 ms`, `3.44 s`, `2 min 05 s`, `1 h 02 min`.
pub fn seconds(s: f64) -> String {
    if !s.is_finite() {
        return NOT_A_NUMBER.to_owned();
    }
    let magnitude = s.abs();
    if magnitude == 0.0 {
        "0 s".to_owned()
    } else if magnitude < 0.9995e-6 {
        format!("{} ns", number(s * 1e9))
    } else if magnitude < 0.9995e-3 {
        format!("{} us", number(s * 1e6))
    } else if magnitude < 0.9995 {
        format!("{} ms", number(s * 1e3))
    } else if magnitude < 59.95 {
        format!("{} s", number(s))
    } else {
        let whole = s.round() as u64;
        match whole / 3600 {
            0 => format!("{} min {:02} s", whole / 60, whole % 60),
            hours => format!("{} h {:02} min", grouped(hours), whole % 3600 / 60),
        }
    }
}

/// A large count with a decimal prefix: `812 k`, `3.14 M`.
pub fn count(n: f64) -> String {
    if !n.is_finite() {
        NOT_A_NUMBER.to_owned()
    } else if n >= 999.5e6 {
        format!("{} G", number(n / 1e9))
    } else if n >= 999.5e3 {
        format!("{} M", number(n / 1e6))
    } else if n >= 9_999.5 {
        format!("{} k", number(n / 1e3))
    } else {
        number(n)
    }
}

/// A share of one as a percentage: `93%`, `0.4%`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return NOT_A_NUMBER.to_owned();
    }
    let p = share * 100.0;
    if p == 0.0 || p.abs() >= 9.95 { format!("{p:.0}%") } else { format!("{p:.1}%") }
}

/// A count with its noun: `1 file`, `2 files`.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_keeps_three_significant_digits() {
        assert_eq!(number(2.0449), "2.04");
        assert_eq!(number(61.24), "61.2");
        assert_eq!(number(1198.4), "1,198");
        assert_eq!(number(-1198.4), "-1,198");
        assert_eq!(number(99.96), "100");
        assert_eq!(number(0.0), "0.00");
        assert_eq!(number(0.0123), "0.0123");
        assert_eq!(number(f64::NAN), "-");
    }

    #[test]
    fn quantity_gets_the_prefix_that_suits_it() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(bytes(1023 << 20), "1.00 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(rate(1.5 * 1024.0), "1.50 KiB/s");
        assert_eq!(seconds(1.5e-9), "1.50 ns");
        assert_eq!(seconds(0.0125), "12.5 ms");
        assert_eq!(seconds(0.9997), "1.00 s");
        assert_eq!(seconds(3.44), "3.44 s");
        assert_eq!(seconds(59.97), "1 min 00 s");
        assert_eq!(seconds(125.4), "2 min 05 s");
        assert_eq!(seconds(3720.0), "1 h 02 min");
        assert_eq!(count(3_140_000.0), "3.14 M");
        assert_eq!(count(812_000.0), "812 k");
        assert_eq!(percent(0.934), "93%");
        assert_eq!(percent(0.004), "0.4%");
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(1200, "file"), "1,200 files");
    }
}
