//! Comparisons of MPI messages and traffic with measurements: `validation/messages.toml`, embedded.

use super::published::Published;
use super::status::{Basis, status};
use super::verdict::{Row, error_percent, words};
use forebay_console::Failure;
use forebay_machine::estimate::{Estimate, Quantity};
use forebay_machine_file::machine::Provenance;
use serde::Deserialize;

const TEXT: &str = include_str!("../../../../../validation/messages.toml");

/// A published measurement with which a quantity of a case is compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MessageCheck {
    /// Its id in `published.csv`.
    pub row: String,
    /// The quantity, as the command names it in its result document.
    pub quantity: String,
    /// Its description.
    pub compared: String,
    /// Keys of the machine file's parameters that decide the simulated value.
    pub decided_by: Vec<String>,
    /// Parts of the comparison, not of the machine file, that were chosen when the row was known.
    pub settled_in_view: Option<String>,
    /// Percent.
    pub tolerance: f64,
    /// The known reason of a row that misses.
    pub misses: Option<String>,
}

impl MessageCheck {
    /// The parts on which the standing of its row depends.
    pub fn basis(&self) -> Basis<'_> {
        Basis {
            row: &self.row,
            decided_by: &self.decided_by,
            settled_in_view: self.settled_in_view.as_deref(),
        }
    }
}

/// One simulated command.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MessageCase {
    /// Its name.
    pub id: String,
    /// The command, after `forebay sim`.
    pub command: String,
    /// The differences from the real run.
    pub scaling: String,
    /// Whether it is part of the quick set.
    #[serde(default)]
    pub quick: bool,
    /// The measurements.
    pub check: Vec<MessageCheck>,
}

impl MessageCase {
    /// The machine that the command names; empty if it names none.
    pub fn machine(&self) -> &str {
        let mut words = self.command.split_whitespace().skip_while(|w| *w != "--machine");
        words.nth(1).unwrap_or_default()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    case: Vec<MessageCase>,
}

/// All cases.
pub fn all() -> Result<Vec<MessageCase>, Failure> {
    toml::from_str::<Document>(TEXT)
        .map(|d| d.case)
        .map_err(|e| Failure::Failed(format!("validation/messages.toml: {e}")))
}

/// The factor from a quantity's unit to that of a measurement; `None` if they do not match.
pub fn factor(quantity: &str, published: &str) -> Option<f64> {
    match (quantity, published) {
        ("s", "us") => Some(1e6),
        (from, to) if from == to => Some(1.0),
        (_, _) => None,
    }
}

/// The row of a check, from the quantities of each seed; `provenance` is that of the machine file's
/// numbers.
///
/// # Errors
/// If the command has no such quantity in the unit of the measurement.
pub fn compare(
    case: &MessageCase,
    check: &MessageCheck,
    published: &Published,
    provenance: &[Provenance],
    samples: &[Vec<Quantity>],
) -> Result<Row, Failure> {
    let value = |sample: &Vec<Quantity>| {
        let (_, unit, value) = sample.iter().find(|(name, ..)| *name == check.quantity)?;
        Some((*value)? * factor(unit, &published.unit)?)
    };
    let values = samples.iter().map(value).collect::<Option<Vec<f64>>>();
    let Some(estimate) = values.and_then(|values| Estimate::of("", "", values)) else {
        return Err(Failure::Failed(format!(
            "validation/messages.toml: {}: no quantity {} in {}",
            check.row, check.quantity, published.unit
        )));
    };
    let measured = published.number();
    let error = error_percent(measured, Some(estimate.mean));
    let met = error.is_some_and(|e| e.abs() <= check.tolerance);
    let (status, status_reasons) = status(check.basis(), published, provenance);
    Ok(Row {
        case: case.id.clone(),
        row: check.row.clone(),
        machine: case.machine().to_string(),
        what: published.what.clone(),
        measured,
        simulated: Some(estimate.mean),
        interval: estimate.half_width,
        unit: published.unit.clone(),
        compared: check.compared.clone(),
        alternative: None,
        error_percent: error,
        band: None,
        status: status.name().to_string(),
        status_reasons,
        decided_by: check.decided_by.clone(),
        steady_gbps: None,
        limit: String::new(),
        tolerance: format!("within {}%", check.tolerance),
        met,
        verdict: words(met),
        misses: check.misses.clone().filter(|_| !met),
        warnings: Vec::new(),
        axis: String::new(),
        steps: Vec::new(),
        ior: String::new(),
        command: format!("forebay sim {}", case.command),
        scaling: case.scaling.clone(),
        source: published.source.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::published::{self, measurement};

    #[test]
    fn every_case_names_its_machine_and_has_its_measurements() {
        let table = published::all().unwrap();
        for case in all().unwrap() {
            assert!(!case.machine().is_empty() && !case.scaling.is_empty(), "{}", case.id);
            assert!(!case.check.is_empty(), "{}", case.id);
            for check in &case.check {
                let row = measurement(&check.row, &table).unwrap();
                assert!(row.number().is_some() && check.tolerance > 0.0, "{}", check.row);
            }
        }
    }

    #[test]
    fn units_are_converted_if_they_match() {
        assert_eq!(factor("s", "us"), Some(1e6));
        assert_eq!(factor("GB/s", "GB/s"), Some(1.0));
        assert_eq!(factor("s", "GB/s"), None);
    }
}
