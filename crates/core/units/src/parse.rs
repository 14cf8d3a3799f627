//! Exact parsing of quantities.

use crate::human::grouped;

/// Picoseconds in one second.
pub(super) const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// The reason why a text is not a valid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; expected {expected}")]
pub struct UnitError {
    /// Byte offset of the error in the text.
    pub offset: usize,
    /// The problem, quoting the text.
    pub problem: String,
    /// The expected input.
    pub expected: String,
}

/// A unit's name and size in base units (bytes, bytes per second, picoseconds):
/// `factor / divisor`. Only bit rates have a divisor (8).
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) factor: u64,
    pub(super) divisor: u64,
    /// Whether it is used for printing; aliases and bit rates are only parsed.
    pub(super) printed: bool,
}

const fn unit(name: &'static str, factor: u64) -> Unit {
    Unit { name, factor, divisor: 1, printed: true }
}

const fn alias(name: &'static str, factor: u64) -> Unit {
    Unit { name, factor, divisor: 1, printed: false }
}

const fn bits(name: &'static str, factor: u64) -> Unit {
    Unit { name, factor, divisor: 8, printed: false }
}

/// A kind of quantity: its units and the terms for its error messages.
pub(super) struct Quantity {
    name: &'static str,
    base: &'static str,
    plural: &'static str,
    example: &'static str,
    pub(super) units: &'static [Unit],
}

pub(super) const BYTES: Quantity = Quantity {
    name: "size",
    base: "byte",
    plural: "bytes",
    example: "a size as `512 KiB` or `4 TB`",
    units: &[
        unit("B", 1),
        unit("kB", 1_000),
        unit("MB", 1_000_000),
        unit("GB", 1_000_000_000),
        unit("TB", 1_000_000_000_000),
        unit("PB", 1_000_000_000_000_000),
        unit("KiB", 1 << 10),
        unit("MiB", 1 << 20),
        unit("GiB", 1 << 30),
        unit("TiB", 1 << 40),
        unit("PiB", 1 << 50),
    ],
};

pub(super) const RATE: Quantity = Quantity {
    name: "rate",
    base: "byte a second",
    plural: "bytes a second",
    example: "a rate as `18.75 GB/s`",
    units: &[
        unit("B/s", 1),
        unit("kB/s", 1_000),
        unit("MB/s", 1_000_000),
        unit("GB/s", 1_000_000_000),
        unit("TB/s", 1_000_000_000_000),
        unit("PB/s", 1_000_000_000_000_000),
        unit("KiB/s", 1 << 10),
        unit("MiB/s", 1 << 20),
        unit("GiB/s", 1 << 30),
        unit("TiB/s", 1 << 40),
        unit("PiB/s", 1 << 50),
        bits("kbit/s", 1_000),
        bits("Mbit/s", 1_000_000),
        bits("Gbit/s", 1_000_000_000),
        bits("Tbit/s", 1_000_000_000_000),
    ],
};

pub(super) const TIME: Quantity = Quantity {
    name: "time",
    base: "picosecond",
    plural: "picoseconds",
    example: "a time as `100 ns` or `1.5 us`",
    units: &[
        unit("ps", 1),
        unit("ns", 1_000),
        unit("us", 1_000_000),
        // The micro sign and the Greek letter mu look the same.
        alias("\u{b5}s", 1_000_000),
        alias("\u{3bc}s", 1_000_000),
        unit("ms", 1_000_000_000),
        unit("s", PS_PER_SECOND),
    ],
};

fn error(offset: usize, problem: impl Into<String>, expected: impl Into<String>) -> UnitError {
    UnitError { offset, problem: problem.into(), expected: expected.into() }
}

impl Quantity {
    /// Parses `<digits>[.<digits>][ ]<unit>`, with optional blanks around it.
    pub(super) fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let start = text.len() - text.trim_start().len();
        let body = text.trim();
        if body.is_empty() {
            return Err(error(0, format!("empty {}", self.name), self.example));
        }
        if body.starts_with('-') || body.starts_with('\u{2212}') {
            return Err(error(
                start,
                format!("negative {} `{body}`", self.name),
                format!("{}, zero or more", self.example),
            ));
        }
        let number_len =
            body.len() - body.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (number, rest) = body.split_at(number_len);
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(error(
                start,
                format!("`{body}` does not start with a number"),
                self.example,
            ));
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (fraction.is_empty() && number.contains('.')) {
            return Err(error(
                start,
                format!("`{number}` is not a decimal number"),
                "digits, with at most one decimal point between digits, as `18.75`",
            ));
        }
        let unit_name = rest.trim_start();
        let unit_offset = start + body.len() - unit_name.len();
        if unit_name.is_empty() {
            return Err(error(
                start + number.len(),
                format!("`{body}` has no unit"),
                format!("{} (one of {})", self.example, self.unit_names()),
            ));
        }
        let Some(unit) = self.units.iter().find(|u| u.name == unit_name) else {
            return Err(self.unknown_unit(unit_offset, unit_name, rest));
        };
        self.exact(start, number, whole, fraction, unit)
    }

    /// `whole.fraction × unit`, if it is a whole number of base units within 64 bits.
    fn exact(
        &self,
        offset: usize,
        number: &str,
        whole: &str,
        fraction: &str,
        unit: &Unit,
    ) -> Result<u64, UnitError> {
        let too_large = || {
            error(
                offset,
                format!("{} `{number} {}` is too large", self.name, unit.name),
                format!("at most {} {}", u64::MAX, self.plural),
            )
        };
        let too_fine = || {
            error(
                offset,
                format!("`{number} {}` is not a whole number of {}", unit.name, self.plural),
                format!("a multiple of 1 {}", self.base),
            )
        };
        let fraction = fraction.trim_end_matches('0');
        // Each decimal of a fraction needs a factor 10 of the unit, and no unit has more than
        // 2^50 = 51 decimals' worth; longer fractions cannot come out whole.
        let digits = whole.trim_start_matches('0').len() + fraction.len();
        if whole.trim_start_matches('0').len() > 20 {
            return Err(too_large());
        }
        if digits > 37 {
            return Err(too_fine());
        }
        let mut mantissa: u128 = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            mantissa = mantissa * 10 + u128::from(digit - b'0');
        }
        // mantissa × factor / (divisor × 10^decimals), cancelled before multiplying so that it
        // cannot overflow where the result is in range.
        let decimals = u32::try_from(fraction.len()).unwrap_or(u32::MAX);
        let denominator =
            10u128.checked_pow(decimals).and_then(|d| d.checked_mul(u128::from(unit.divisor)));
        let Some(denominator) = denominator else {
            return Err(too_fine());
        };
        let factor = u128::from(unit.factor);
        let common = gcd(factor, denominator);
        let (factor, denominator) = (factor / common, denominator / common);
        if !mantissa.is_multiple_of(denominator) {
            return Err(too_fine());
        }
        (mantissa / denominator)
            .checked_mul(factor)
            .and_then(|value| u64::try_from(value).ok())
            .ok_or_else(too_large)
    }

    fn unit_names(&self) -> String {
        let names: Vec<&str> = self.units.iter().filter(|u| u.printed).map(|u| u.name).collect();
        names.join(", ")
    }

    /// The error for an unknown unit, with the units that may be meant.
    fn unknown_unit(&self, offset: usize, name: &str, rest: &str) -> UnitError {
        let plain = |s: &str| -> String {
            let lower = s.to_lowercase().replace("bps", "b/s").replace("bits", "bit");
            lower.replace("ib", "b").replace("bit", "b")
        };
        let wanted = plain(name);
        let near: Vec<String> = self
            .units
            .iter()
            .filter(|u| plain(u.name) == wanted || plain(u.name) == format!("{wanted}/s"))
            .map(|u| format!("`{}` ({})", u.name, self.meaning(u)))
            .collect();
        let expected = if near.is_empty() {
            format!("one of {}", self.unit_names())
        } else {
            near.join(" or ")
        };
        if rest.starts_with([',', '_', '\'', 'e', 'E'])
            && rest.chars().nth(1).is_some_and(|c| c.is_ascii_digit() || c == '-' || c == '+')
        {
            return error(
                offset,
                format!("`{name}` after the number"),
                format!("plain digits and a unit: {}", self.example),
            );
        }
        error(offset, format!("unknown unit `{name}` of a {}", self.name), expected)
    }

    /// The unit in full, as `1,000,000 bytes a second`.
    fn meaning(&self, unit: &Unit) -> String {
        let base = if unit.divisor == 8 { "bits a second" } else { self.plural };
        format!("{} {base}", grouped(unit.factor))
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
