//! Units to text for people: rounded to three digits.

/// A number of bytes with a binary unit and three digits: `1.50 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.995 {
        2
    } else {
        usize::from(value < 99.95)
    };
    format!("{value:.digits$} {}", UNITS.get(unit).unwrap_or(&""))
}

/// A time in the unit that suits it: `12 ms`, `3.4 s`, `2 min 05 s`, `1 h 02 min`.
pub fn time(seconds: f64) -> String {
    if seconds < 0.9995 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    if whole < 3600 {
        return format!("{} min {:02} s", whole / 60, whole % 60);
    }
    format!("{} h {:02} min", whole / 3600, whole % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_read_well() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.50 KiB");
        assert_eq!(size(20 << 20), "20.0 MiB");
        assert_eq!(size(1023 << 20), "1.00 GiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
        assert_eq!(time(0.0123), "12 ms");
        assert_eq!(time(3.44), "3.4 s");
        assert_eq!(time(125.0), "2 min 05 s");
        assert_eq!(time(3720.0), "1 h 02 min");
    }
}
