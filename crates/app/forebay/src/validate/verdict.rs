//! The rows of the validation table.

use super::cases::{Case, Check, Measure, Role, Run};
use super::published::Published;
use crate::figures::ior::best;
use forebay_machine::results::IorPoint;
use serde::Serialize;

/// One step of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Nodes, processes per node, or bytes per transfer.
    pub x: f64,
    /// The same as text of the case.
    pub label: String,
    /// The compared value: GB/s or operations per second.
    pub value: f64,
    /// The value of the alternative, in the same unit.
    #[serde(rename = "beside")]
    pub alternative: Option<f64>,
    /// Limiting resource.
    pub limit: String,
}

/// Another possible meaning of a measurement, as simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// Its description.
    pub compared: String,
    /// The simulated value, if there is one.
    pub simulated: Option<f64>,
    /// 100 × (simulated − measured) / measured.
    pub error_percent: Option<f64>,
}

/// A published measurement and the simulated value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The simulated case.
    pub case: String,
    /// The measurement's id.
    pub row: String,
    /// Machine file.
    pub machine: String,
    /// The measured quantity.
    pub what: String,
    /// The published value, if it is a number.
    pub measured: Option<f64>,
    /// The simulated value, if it is a number.
    pub simulated: Option<f64>,
    /// Unit of both.
    pub unit: String,
    /// Description of the compared quantity.
    pub compared: String,
    /// Another possible meaning of the measurement.
    #[serde(rename = "beside")]
    pub alternative: Option<Alternative>,
    /// 100 × (simulated − measured) / measured.
    pub error_percent: Option<f64>,
    /// `validation` or `calibration`.
    pub role: String,
    /// Description of the tolerance.
    pub tolerance: String,
    /// Whether it was met.
    pub met: bool,
    /// The verdict as text.
    pub verdict: String,
    /// The swept quantity.
    pub axis: String,
    /// The run or sweep.
    pub steps: Vec<Step>,
    /// IOR's options as simulated.
    pub ior: String,
    /// The differences from the real run.
    pub scaling: String,
    /// The source of the published value.
    pub source: String,
}

/// The value of one point; `None` if the point has no such phase.
fn value(measure: Measure, point: &IorPoint) -> Option<f64> {
    let phase = best(point, measure.access())?;
    Some(match measure {
        Measure::WriteRatePerNode => phase.gbps / f64::from(point.nodes),
        Measure::AcknowledgedWriteRatePerNode => phase.acknowledged_node_gbps.mean,
        Measure::WriteIops | Measure::ReadIops => phase.iops,
        Measure::WriteRate
        | Measure::ReadRate
        | Measure::WriteSaturation
        | Measure::ReadSaturation
        | Measure::Limit => phase.gbps,
    })
}

fn step(case: &Case, check: &Check, run: &Run, point: &IorPoint) -> Option<Step> {
    let measure = check.measure;
    let x = match case.axis() {
        "nodes" => f64::from(run.nodes),
        "transfer" => {
            let phase = best(point, measure.access())?;
            phase.bytes as f64 / phase.operations.max(1) as f64
        }
        _ => f64::from(run.ppn),
    };
    let limit = best(point, measure.access())?.limit.resource.clone();
    Some(Step {
        x,
        label: run.label.clone(),
        value: value(measure, point)?,
        alternative: check.alternative.and_then(|measure| value(measure, point)),
        limit,
    })
}

/// The smallest x with a value of at least 97% of the maximum.
fn saturation(steps: &[Step]) -> Option<f64> {
    let most = steps.iter().map(|s| s.value).fold(0.0, f64::max);
    steps.iter().find(|s| s.value >= 0.97 * most).map(|s| s.x)
}

/// The value furthest from the measured one.
fn worst(values: impl Iterator<Item = f64>, measured: f64) -> Option<f64> {
    let off = |v: f64| (v / measured).ln().abs();
    values.max_by(|a, b| off(*a).total_cmp(&off(*b)))
}

/// The outcome of a comparison.
struct Outcome {
    /// The simulated value, if it is a number.
    simulated: Option<f64>,
    met: bool,
    /// Description of the tolerance.
    accepted: String,
    verdict: String,
}

/// Checks that the expected limit occurs at some step.
fn compare_limits(check: &Check, steps: &[Step]) -> Outcome {
    let expect = check.expect.as_deref().unwrap_or_default();
    let found = steps.iter().filter(|step| step.limit == expect);
    let at: Vec<&str> = found.map(|step| step.label.as_str()).collect();
    let verdict = if at.is_empty() {
        let seen = steps.iter().map(|step| format!("{} at {}", step.limit, step.label));
        format!("not seen: {}", seen.collect::<Vec<_>>().join(", "))
    } else {
        format!("{expect} at {}", at.join(", "))
    };
    Outcome {
        simulated: None,
        met: !at.is_empty(),
        accepted: format!("{expect} is the limit"),
        verdict,
    }
}

/// Checks that the sweep saturates at the measured point, within a factor.
fn compare_saturation(steps: &[Step], measured: Option<f64>, factor: f64) -> Outcome {
    let simulated = saturation(steps);
    let apart = match (simulated, measured) {
        (Some(s), Some(m)) => (s / m).max(m / s),
        _ => f64::INFINITY,
    };
    let met = apart <= factor;
    Outcome {
        simulated,
        met,
        accepted: format!("within a factor of {factor}"),
        verdict: words(met),
    }
}

/// Checks that all values are within a percentage of the measured one.
fn compare_values(steps: &[Step], measured: Option<f64>, percent: f64) -> Outcome {
    let values = steps.iter().map(|step| step.value);
    let simulated = measured.and_then(|m| worst(values, m));
    let error = error_percent(measured, simulated).unwrap_or(f64::INFINITY);
    let met = error.abs() <= percent;
    Outcome { simulated, met, accepted: format!("within {percent}%"), verdict: words(met) }
}

/// Compares the points of a case with one measurement.
pub fn compare(
    case: &Case,
    check: &Check,
    published: &Published,
    points: &[(Run, IorPoint)],
) -> Row {
    let steps: Vec<Step> =
        points.iter().filter_map(|(run, point)| step(case, check, run, point)).collect();
    let measured = published.number();
    let tolerance = check.tolerance.unwrap_or(0.0);
    let mut outcome = match check.measure {
        Measure::Limit => compare_limits(check, &steps),
        Measure::WriteSaturation | Measure::ReadSaturation => {
            compare_saturation(&steps, measured, tolerance)
        }
        Measure::WriteRate
        | Measure::ReadRate
        | Measure::WriteRatePerNode
        | Measure::AcknowledgedWriteRatePerNode
        | Measure::WriteIops
        | Measure::ReadIops => compare_values(&steps, measured, tolerance),
    };
    if check.role == Role::Calibration {
        outcome.verdict.push_str(", fitted");
    }
    let alternative = check.alternative.map(|measure| {
        let values = steps.iter().filter_map(|step| step.alternative);
        let simulated = measured.and_then(|m| worst(values, m));
        Alternative {
            compared: measure.words().to_string(),
            simulated,
            error_percent: error_percent(measured, simulated),
        }
    });
    Row {
        case: case.id.clone(),
        row: check.row.clone(),
        machine: case.machine.clone(),
        what: published.what.clone(),
        measured,
        simulated: outcome.simulated,
        unit: published.unit.clone(),
        compared: check.measure.words().to_string(),
        alternative,
        error_percent: error_percent(measured, outcome.simulated),
        role: check.role.name().to_string(),
        tolerance: outcome.accepted,
        met: outcome.met,
        verdict: outcome.verdict,
        axis: case.axis().to_string(),
        steps,
        ior: case.ior.clone(),
        scaling: case.scaling.clone(),
        source: published.source.clone(),
    }
}

fn words(met: bool) -> String {
    if met { "met" } else { "MISSED" }.to_string()
}

fn error_percent(measured: Option<f64>, simulated: Option<f64>) -> Option<f64> {
    let (measured, simulated) = (measured?, simulated?);
    Some(100.0 * (simulated - measured) / measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(values: &[(f64, f64)]) -> Vec<Step> {
        values
            .iter()
            .map(|(x, v)| Step {
                x: *x,
                label: x.to_string(),
                value: *v,
                alternative: None,
                limit: String::new(),
            })
            .collect()
    }

    #[test]
    fn saturation_is_the_first_step_near_the_best() {
        let curve = steps(&[(1.0, 1.0), (2.0, 2.0), (4.0, 3.9), (8.0, 4.0), (16.0, 3.0)]);
        assert_eq!(saturation(&curve), Some(4.0));
        assert_eq!(saturation(&[]), None);
    }

    #[test]
    fn sweep_is_judged_by_its_worst_value() {
        let curve = steps(&[(1.0, 1190.0), (2.0, 1000.0), (4.0, 1210.0)]);
        assert_eq!(worst(curve.iter().map(|s| s.value), 1200.0), Some(1000.0));
        assert_eq!(error_percent(Some(1200.0), Some(900.0)), Some(-25.0));
    }
}
