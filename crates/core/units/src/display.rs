//! The shortest exact text of a quantity.

use crate::parse::Quantity;

/// Maximum whole part of a printed number, unless there is no larger unit.
const MOST_WHOLE: u64 = 9_999;

/// Maximum number of decimals.
const MOST_DECIMALS: usize = 9;

/// `value`, unrounded, in the unit that needs the fewest digits; of those, the unit with a whole
/// part up to 999, then the one with the fewest decimals.
pub(super) fn shortest(quantity: &Quantity, value: u64) -> String {
    let mut best: Option<((bool, usize, bool, usize), String)> = None;
    for unit in quantity.units.iter().filter(|u| u.printed) {
        if value < unit.factor && unit.factor != 1 {
            continue;
        }
        let whole = value / unit.factor;
        // A binary fraction ends after at most 50 decimals, a decimal one after 15.
        let mut rest = u128::from(value % unit.factor);
        let factor = u128::from(unit.factor);
        let mut fraction = String::new();
        while rest != 0 {
            rest *= 10;
            fraction.push(char::from(b'0' + u8::try_from(rest / factor).unwrap_or(0)));
            rest %= factor;
        }
        if fraction.len() > MOST_DECIMALS {
            continue;
        }
        let digits = whole.to_string().len() + fraction.len();
        let score = (whole > MOST_WHOLE, digits, whole > 999, fraction.len());
        if best.as_ref().is_none_or(|(known, _)| score < *known) {
            let point = if fraction.is_empty() { "" } else { "." };
            best = Some((score, format!("{whole}{point}{fraction} {}", unit.name)));
        }
    }
    debug_assert!(best.is_some(), "the base unit always fits");
    best.map(|(_, text)| text).unwrap_or_default()
}
