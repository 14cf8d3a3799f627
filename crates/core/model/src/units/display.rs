//! Units to text: the shortest exact form.

use super::parse::{BYTES, Quantity, RATE, TIME};
use super::{Bytes, Rate, Time};
use std::fmt;

/// `value` in the unit that needs the fewest digits, without rounding.
fn shortest(quantity: &Quantity, value: u64) -> String {
    let mut best: Option<(usize, usize, String)> = None;
    for unit in quantity.units.iter().filter(|u| u.printed) {
        if value < unit.factor && unit.factor != 1 {
            continue;
        }
        let whole = (value / unit.factor).to_string();
        // A binary fraction ends after at most 50 decimals, a decimal one after 15.
        let mut rest = u128::from(value % unit.factor);
        let factor = u128::from(unit.factor);
        let mut fraction = String::new();
        while rest != 0 {
            rest *= 10;
            fraction.push(char::from(b'0' + u8::try_from(rest / factor).unwrap_or(0)));
            rest %= factor;
        }
        let digits = whole.len() + fraction.len();
        let text = if fraction.is_empty() {
            format!("{whole} {}", unit.name)
        } else {
            format!("{whole}.{fraction} {}", unit.name)
        };
        let score = (digits, fraction.len());
        if best.as_ref().is_none_or(|(d, f, _)| score < (*d, *f)) {
            best = Some((score.0, score.1, text));
        }
    }
    best.map(|(_, _, text)| text).unwrap_or_default()
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&shortest(&BYTES, self.0))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&shortest(&RATE, self.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&shortest(&TIME, self.0))
    }
}
