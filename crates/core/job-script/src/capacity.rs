//! Capacities: `100GiB`, `3TB`, `2nodes`.

use serde::{Deserialize, Serialize};

use super::error::{ValueError, closest_match, quote};
use forebay_units::Bytes;

/// The storage that a directive requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// Bytes, to be rounded up to granules of the pool.
    Bytes(Bytes),
    /// Whole storage nodes.
    Nodes(u32),
}

/// Units of a size: a single letter and the `iB` forms are powers of 1024, the `B` forms are
/// powers of 1000.
const UNITS: [(&str, u64); 15] = [
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("P", 1 << 50),
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
];
const NODE_UNITS: [&str; 3] = ["N", "node", "nodes"];

impl Capacity {
    /// Parses a capacity: digits and a unit, nothing else.
    pub fn parse(text: &str) -> Result<Capacity, String> {
        parse_capacity(text).map_err(|(_, problem, remedy)| format!("{problem}; {remedy}"))
    }
}

/// Parses a size with a unit.
pub(super) fn parse_bytes(text: &str) -> Result<Bytes, ValueError> {
    match parse_capacity(text)? {
        Capacity::Bytes(bytes) => Ok(bytes),
        Capacity::Nodes(_) => Err((
            0,
            format!("{} counts nodes where a size is wanted", quote(text)),
            "write a size such as `10GiB`".to_owned(),
        )),
    }
}

pub(super) fn parse_capacity(text: &str) -> Result<Capacity, ValueError> {
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    // Digits are one byte each, so the count is also the byte offset.
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err((
            0,
            format!("{} does not begin with a number", quote(text)),
            "write a whole number and a unit, such as `100GiB`".to_owned(),
        ));
    }
    let count: u64 = number.parse().map_err(|_| too_large(text))?;
    if unit.starts_with(['.', ',']) {
        return Err((
            digits,
            format!("{} is not a whole number", quote(text)),
            whole_number_hint(text),
        ));
    }
    let known = || {
        "write one of K KiB M MiB G GiB T TiB P PiB (powers of 1024), KB MB GB TB PB (powers of \
         1000), N node nodes (whole nodes)"
            .to_owned()
    };
    if unit.is_empty() {
        return Err((digits, format!("{} has no unit", quote(text)), known()));
    }
    if count == 0 {
        return Err((
            0,
            format!("{} asks for nothing", quote(text)),
            "ask for at least 1".to_owned(),
        ));
    }
    if NODE_UNITS.contains(&unit) {
        return u32::try_from(count).map(Capacity::Nodes).map_err(|_| too_large(text));
    }
    let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let names: Vec<&str> = UNITS.iter().map(|(name, _)| *name).chain(NODE_UNITS).collect();
        let remedy = match closest_match(unit, &names) {
            Some(near) if unit.len() > 1 || near.eq_ignore_ascii_case(unit) => {
                format!("did you mean `{number}{near}`? Otherwise {}", known())
            }
            _ => known(),
        };
        return Err((digits, format!("unknown unit {}", quote(unit)), remedy));
    };
    count
        .checked_mul(*factor)
        .map(|bytes| Capacity::Bytes(Bytes(bytes)))
        .ok_or_else(|| too_large(text))
}

fn too_large(text: &str) -> ValueError {
    (
        0,
        format!("{} is larger than any pool", quote(text)),
        format!("ask for at most {} PiB", u64::MAX >> 50),
    )
}

/// Suggests `3500GB` for `3.5TB` and `512MiB` for `0.5GiB`: the largest unit in which the size is a
/// whole number, if the fraction is short enough to be exact.
fn whole_number_hint(text: &str) -> String {
    exact_whole_number(text).map_or_else(
        || "use a smaller unit, such as `3500GB` for 3.5 TB".to_owned(),
        |exact| format!("write `{exact}`"),
    )
}

fn exact_whole_number(text: &str) -> Option<String> {
    let (whole, rest) = text.split_once('.')?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let unit = rest.get(digits.len()..)?;
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let scale = 10u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let scaled = format!("{whole}{digits}").parse::<u64>().ok()?;
    let bytes = u128::from(scaled) * u128::from(*factor);
    if bytes == 0 || bytes % scale != 0 {
        return None;
    }
    let bytes = bytes / scale;
    // A smaller unit of the same kind: `K` or `KiB` for powers of 1024, `KB` for those of 1000.
    let is_same_kind = |name: &str| name.get(1..) == unit.get(1..);
    let mut smaller =
        UNITS.iter().rev().filter(|(name, other)| is_same_kind(name) && other < factor);
    let (name, size) = smaller.find(|(_, size)| bytes % u128::from(*size) == 0)?;
    Some(format!("{}{name}", bytes / u128::from(*size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_units_are_binary_or_decimal_as_written() {
        assert_eq!(Capacity::parse("1K"), Ok(Capacity::Bytes(Bytes(1024))));
        assert_eq!(Capacity::parse("1KB"), Ok(Capacity::Bytes(Bytes(1000))));
        assert_eq!(Capacity::parse("100TiB"), Ok(Capacity::Bytes(Bytes(100 << 40))));
        assert_eq!(Capacity::parse("100TB"), Ok(Capacity::Bytes(Bytes(100_000_000_000_000))));
        assert_eq!(Capacity::parse("2PiB"), Ok(Capacity::Bytes(Bytes(2 << 50))));
        assert_eq!(Capacity::parse("3N"), Ok(Capacity::Nodes(3)));
        assert_eq!(Capacity::parse("1node"), Ok(Capacity::Nodes(1)));
        assert_eq!(Capacity::parse("12nodes"), Ok(Capacity::Nodes(12)));
    }

    #[test]
    fn invalid_capacities_are_refused_with_a_remedy() {
        for (text, words) in [
            ("3.5TB", "write `3500GB`"),
            ("0.5GiB", "write `512MiB`"),
            ("1.25T", "write `1280G`"),
            ("0.1GiB", "use a smaller unit"),
            ("3.5TiB", "write `3584GiB`"),
            ("100", "has no unit"),
            ("100gib", "did you mean `100GiB`"),
            ("10Gi", "did you mean `10GiB`"),
            ("10GB ", "unknown unit"),
            ("10XB", "unknown unit"),
            ("0GB", "asks for nothing"),
            ("-5GB", "does not begin with a number"),
            ("", "does not begin with a number"),
            ("99999999PiB", "larger than any pool"),
            ("99999999999999999999GB", "larger than any pool"),
            ("5000000000N", "larger than any pool"),
            ("١GB", "does not begin with a number"),
        ] {
            let error = Capacity::parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
