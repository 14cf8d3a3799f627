//! Numbers as people read them: few digits, the right prefix.

/// `1234567` as `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A number with three significant digits and thousands separators: `2.04`, `61.2`, `1,198`.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_string();
    }
    let magnitude = value.abs();
    if magnitude >= 99.95 {
        let whole = thousands(magnitude.round() as u64);
        return if value < 0.0 {
            format!("-{whole}")
        } else {
            whole
        };
    }
    if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.09995 || magnitude == 0.0 {
        format!("{value:.2}")
    } else if magnitude >= 0.0001 {
        format!("{value:.4}")
    } else {
        format!("{value:.2e}")
    }
}

/// Bytes with a binary prefix: `64 MiB`, `1.50 GiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.2} {}", UNITS[unit])
    }
}

/// A span of time in seconds, with the prefix that leaves one to three digits before the point.
pub fn seconds(s: f64) -> String {
    if !s.is_finite() {
        return "-".to_string();
    }
    let magnitude = s.abs();
    if magnitude == 0.0 {
        "0 s".to_string()
    } else if magnitude < 1e-6 {
        format!("{} ns", significant(s * 1e9))
    } else if magnitude < 1e-3 {
        format!("{} us", significant(s * 1e6))
    } else if magnitude < 1.0 {
        format!("{} ms", significant(s * 1e3))
    } else if magnitude < 120.0 {
        format!("{} s", significant(s))
    } else {
        let whole = s.round() as u64;
        format!("{} min {:02} s", thousands(whole / 60), whole % 60)
    }
}

/// A large count with a decimal prefix: `3.1 M`, `812 k`.
pub fn count(n: f64) -> String {
    if !n.is_finite() {
        return "-".to_string();
    }
    if n >= 999.5e6 {
        format!("{} G", significant(n / 1e9))
    } else if n >= 999.5e3 {
        format!("{} M", significant(n / 1e6))
    } else if n >= 9_999.5 {
        format!("{} k", significant(n / 1e3))
    } else {
        significant(n)
    }
}

/// A share of one as a percentage: `93%`, `0.4%`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "-".to_string();
    }
    let p = share * 100.0;
    if p == 0.0 || p.abs() >= 9.95 {
        format!("{p:.0}%")
    } else {
        format!("{p:.1}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_significant_digits() {
        assert_eq!(significant(2.0449), "2.04");
        assert_eq!(significant(61.24), "61.2");
        assert_eq!(significant(1198.4), "1,198");
        assert_eq!(significant(-1198.4), "-1,198");
        assert_eq!(significant(99.96), "100");
        assert_eq!(significant(0.0), "0.00");
        assert_eq!(significant(0.0123), "0.0123");
        assert_eq!(significant(f64::NAN), "-");
    }

    #[test]
    fn prefixes() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(1234567), "1,234,567");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(bytes(u64::MAX), "16 EiB");
        assert_eq!(seconds(1.5e-9), "1.50 ns");
        assert_eq!(seconds(0.0125), "12.5 ms");
        assert_eq!(seconds(125.4), "2 min 05 s");
        assert_eq!(count(3_140_000.0), "3.14 M");
        assert_eq!(count(812_000.0), "812 k");
        assert_eq!(percent(0.934), "93%");
        assert_eq!(percent(0.004), "0.4%");
    }
}
