//! IOR's number formats.

pub(super) const KIB: f64 = 1024.0;
pub(super) const MIB: f64 = 1_048_576.0;
pub(super) const MB: f64 = 1e6;

/// A quotient; 0 if `amount` is 0.
pub(super) fn ratio(amount: f64, seconds: f64) -> f64 {
    if amount == 0.0 { 0.0 } else { amount / seconds }
}

/// A number in ten columns: six decimals below 1, two below 3600, else none.
pub(super) fn number(value: f64) -> String {
    let precision = match value {
        v if v < 0.0 => return format!("{:<10}", "   -"),
        v if v < 1.0 => 6,
        v if v < 3600.0 => 2,
        _ => 0,
    };
    format!("{value:<10.precision$}")
}

/// A number of bytes, from 1 MiB on in binary units, with two decimals unless it is whole.
pub(super) fn binary_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB")];
    match units.iter().find(|(shift, _)| bytes >> shift > 0) {
        None => format!("{bytes} bytes"),
        Some((shift, unit)) if bytes.is_multiple_of(1 << shift) => {
            format!("{} {unit}", bytes >> shift)
        }
        Some((shift, unit)) => format!("{:.2} {unit}", bytes as f64 / (1_u64 << shift) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_ten_columns() {
        assert_eq!(number(0.0123), "0.012300  ");
        assert_eq!(number(1.0), "1.00      ");
        assert_eq!(number(3599.994), "3599.99   ");
        assert_eq!(number(1_234_567.8), "1234568   ");
        assert_eq!(number(-1.0), "   -      ");
    }

    #[test]
    fn sizes_from_1_mib_have_binary_units() {
        assert_eq!(binary_size(47_008), "47008 bytes");
        assert_eq!(binary_size(1 << 20), "1 MiB");
        assert_eq!(binary_size(3 << 19), "1.50 MiB");
        assert_eq!(binary_size(9_920_000 << 20), "9.46 TiB");
        assert_eq!(binary_size(64 << 30), "64 GiB");
    }
}
