//! Values of `--sweep`: lists, doublings and steps.

use forebay_units::Bytes;
use std::str::FromStr;

/// Maximum number of combinations.
pub(super) const MAX_POINTS: usize = 10_000;
/// Options without meaning in a sweep.
const NOT_SWEPT: [&str; 8] =
    ["out", "no-out", "json", "quiet", "sweep", "links", "ior-output", "threads"];

/// A swept option or parameter, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    pub(super) key: String,
    pub(super) values: Vec<String>,
}

impl FromStr for Sweep {
    type Err = String;

    /// Parses `KEY=VALUES`; values are a list, `a..b` (doublings) or `a..b+step`.
    fn from_str(text: &str) -> Result<Sweep, String> {
        let Some((key, values)) = text.split_once('=') else {
            return Err(format!(
                "{text:?} has no values; write KEY=VALUES, as nodes=64..1024 or \
                 burst_buffer.threads=8,16,32"
            ));
        };
        let key = key.trim().trim_start_matches("--").to_string();
        if NOT_SWEPT.contains(&key.as_str()) {
            return Err(format!("{key} does not change a result and cannot be swept"));
        }
        let mut list = Vec::new();
        // A pattern's own parameters contain commas: halo:x=2,y=2,z=2.
        let parts: Vec<&str> = if values.contains(';') {
            values.split(';').collect()
        } else {
            values.split(',').collect()
        };
        for part in parts.into_iter().map(str::trim) {
            match part.split_once("..") {
                Some((from, to)) => list.extend(range(from, to)?),
                None if part.is_empty() => return Err(format!("{text:?} has an empty value")),
                None => list.push(part.to_string()),
            }
        }
        Ok(Sweep { key, values: list })
    }
}

/// A number and the unit that follows it.
fn quantity(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (value, unit) = text.split_at(end);
    match value.parse::<f64>() {
        Ok(value) => Ok((value, unit)),
        Err(_) => Err(format!(
            "{text:?} is not a number; ranges are as 64..1024 (doublings), 4KiB..1MiB or \
             0.1..0.9+0.1 (steps)"
        )),
    }
}

/// The values of a range: doublings, or steps if `to` has some, as `0.9+0.1`.
fn range(from: &str, to: &str) -> Result<Vec<String>, String> {
    let (to, step) = match to.split_once('+') {
        Some((to, step)) => (to, Some(step)),
        None => (to, None),
    };
    let (first, unit) = quantity(from)?;
    let (last, last_unit) = quantity(to)?;
    if unit.trim() != last_unit.trim() {
        let (Ok(first), Ok(last), None) = (from.parse::<Bytes>(), to.parse::<Bytes>(), step) else {
            return Err(format!("{from}..{to}: both ends need the same unit, or to be sizes"));
        };
        let values = range(&first.0.to_string(), &last.0.to_string())?;
        let size = |bytes: String| Bytes(bytes.parse().unwrap_or(last.0)).to_string();
        return Ok(values.into_iter().map(size).collect());
    }
    if first > last {
        return Err(format!("the range {from}..{to} runs backwards; write {to}..{from}"));
    }
    let mut values = Vec::new();
    match step {
        Some(step) => {
            let (step, step_unit) = quantity(step)?;
            if step <= 0.0 || (!step_unit.is_empty() && step_unit.trim() != unit.trim()) {
                return Err(format!(
                    "{from}..{to}+{step}: the step must be above 0, in the same unit"
                ));
            }
            // Rounding of the sums must not drop the last value.
            let count = ((last - first) / step + 1e-9) as usize + 1;
            if count > MAX_POINTS {
                return Err(format!("the range has {count} values, more than {MAX_POINTS}"));
            }
            values.extend((0..count).map(|i| first + step * i as f64));
        }
        None if first <= 0.0 => {
            return Err(format!("{from}..{to}: doublings begin above 0; add a step, as +0.1"));
        }
        None => {
            let mut value = first;
            while value < last {
                values.push(value);
                value *= 2.0;
            }
            values.push(last);
        }
    }
    // Without the noise of binary fractions: 0.1 + 2 * 0.1 is 0.3.
    let text = |v: f64| format!("{}{unit}", (v * 1e9).round() / 1e9);
    Ok(values.into_iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        text.parse::<Sweep>().unwrap().values
    }

    #[test]
    fn values_are_lists_doublings_and_steps() {
        assert_eq!(values("nodes=64..1024"), ["64", "128", "256", "512", "1024"]);
        assert_eq!(values("nodes=3..10"), ["3", "6", "10"]);
        assert_eq!(values("burst_buffer.threads=8,16, 32"), ["8", "16", "32"]);
        assert_eq!(values("load=0.1..0.5+0.1"), ["0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(values("message=4KiB..16KiB"), ["4KiB", "8KiB", "16KiB"]);
        let sizes =
            ["256 B", "512 B", "1 KiB", "2 KiB", "3000 B"].map(|size| size.parse().unwrap());
        let range: Vec<Bytes> =
            values("size=256B..3kB").iter().map(|size| size.parse().unwrap()).collect();
        assert_eq!(range, sizes);
        assert_eq!(values("pattern=uniform,adversarial"), ["uniform", "adversarial"]);
        assert_eq!(values("pattern=uniform;halo:x=2,y=2,z=2"), ["uniform", "halo:x=2,y=2,z=2"]);
    }

    #[test]
    fn invalid_sweeps_are_refused_with_the_reason() {
        for (text, word) in [
            ("nodes", "KEY=VALUES"),
            ("nodes=8..1", "1..8"),
            ("nodes=1,,2", "empty"),
            ("message=4KiB..2GB/s", "same unit"),
            ("message=4KiB..1MiB+4KiB", "same unit"),
            ("load=0..1", "add a step"),
            ("load=0..1+0", "above 0"),
            ("load=0..1+0.0000001", "has 10000001 values, more than"),
            ("nodes=a..b", "not a number"),
            ("json=a,b", "cannot be swept"),
        ] {
            let error = text.parse::<Sweep>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
