//! IOR's numbers: `64`, `8m`, `1g`; prefixes are binary.

/// The syntax accepted by [`parse`], for error messages.
pub(super) const SYNTAX: &str =
    "a whole number, with k, m, g, t or p for powers of 1024 (as 47008, 256k, 16m)";

/// Parses a number with an optional unit prefix; `None` if it is invalid or exceeds 63 bits.
pub(super) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    let (digits, shift) = match text.char_indices().last()? {
        (_, c) if c.is_ascii_digit() => (text, 0),
        (i, c) => {
            let shift = match c.to_ascii_lowercase() {
                'k' => 10,
                'm' => 20,
                'g' => 30,
                't' => 40,
                'p' => 50,
                _ => return None,
            };
            (text[..i].trim_end(), shift)
        }
    };
    let number: i64 = digits.parse().ok()?;
    number.checked_mul(1_i64 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn prefixes_are_binary() {
        assert_eq!(parse("47008"), Some(47_008));
        assert_eq!(parse("1k"), Some(1024));
        assert_eq!(parse("9920000m"), Some(9_920_000 << 20));
        assert_eq!(parse(" 2 G "), Some(2 << 30));
        assert_eq!(parse("1T"), Some(1 << 40));
        assert_eq!(parse("-3"), Some(-3));
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for text in
            ["", "k", "1.5m", "4MiB", "0x10", "m4", "8388608t", "99999999999999999999", "4é"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
