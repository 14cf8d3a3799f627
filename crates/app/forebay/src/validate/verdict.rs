//! The rows of the validation table.

use super::cases::{Case, Check, Measure, Metric, Run};
use super::published::Published;
use super::status::{Status, status};
use crate::figures::ior::best;
use forebay_machine::estimate::Estimate;
use forebay_machine::results::{IorPoint, Phase};
use forebay_machine::study::FileSystem;
use forebay_machine_file::machine::Provenance;
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
    /// Half the width of its 95% confidence interval, with several seeds.
    pub half_width: Option<f64>,
    /// The value of the alternative, in the same unit.
    #[serde(rename = "beside")]
    pub alternative: Option<f64>,
    /// The rate without opens, closes, ramp-up and tail, in GB/s.
    #[serde(rename = "steady_GBps")]
    pub steady_gbps: Option<f64>,
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
    /// Half the width of its 95% confidence interval, with several seeds.
    pub interval: Option<f64>,
    /// Unit of both.
    pub unit: String,
    /// Description of the compared quantity.
    pub compared: String,
    /// Another possible meaning of the measurement.
    #[serde(rename = "beside")]
    pub alternative: Option<Alternative>,
    /// 100 × (simulated − measured) / measured.
    pub error_percent: Option<f64>,
    /// 5th and 95th percentile of repeated measurements, of which `measured` is the median.
    pub band: Option<[f64; 2]>,
    /// `predicted`, `calibrated` or `settled in view`.
    pub status: String,
    /// The reasons, unless it is predicted.
    pub status_reasons: Vec<String>,
    /// Keys of the machine file's parameters that decide the simulated value.
    pub decided_by: Vec<String>,
    /// The rate without opens, closes, ramp-up and tail at the compared value, in GB/s.
    #[serde(rename = "steady_GBps")]
    pub steady_gbps: Option<f64>,
    /// Limiting resource at the compared value.
    pub limit: String,
    /// Description of the tolerance.
    pub tolerance: String,
    /// Whether it was met.
    pub met: bool,
    /// The verdict as text.
    pub verdict: String,
    /// The known reason if it was not met.
    pub misses: Option<String>,
    /// Parts of the simulated phases that decide the value and would not in the real run; none if
    /// the compared rate leaves them out.
    pub warnings: Vec<String>,
    /// The swept quantity.
    pub axis: String,
    /// The run or sweep.
    pub steps: Vec<Step>,
    /// IOR's options as simulated; empty for messages and traffic.
    pub ior: String,
    /// The command of `forebay sim` that simulates messages or traffic; empty for IOR.
    pub command: String,
    /// The differences from the real run.
    pub scaling: String,
    /// The source of the published value.
    pub source: String,
}

/// The value of one point, of which one of `part` nodes is simulated; `None` if the point has no such
/// phase.
fn value(measure: Measure, metric: Metric, part: u32, point: &IorPoint) -> Option<f64> {
    let phase = best(point, measure.access())?;
    let whole = f64::from(part);
    Some(match measure {
        Measure::WriteRatePerNode => rate(metric, phase)? / f64::from(point.nodes),
        Measure::AcknowledgedWriteRatePerNode => phase.acknowledged_node_gbps.mean,
        Measure::WriteIops | Measure::ReadIops => phase.iops * whole,
        Measure::WriteRate
        | Measure::ReadRate
        | Measure::WriteSaturation
        | Measure::ReadSaturation
        | Measure::WriteGain
        | Measure::ReadGain
        | Measure::Limit => rate(metric, phase)? * whole,
    })
}

/// The rate of a phase, in GB/s; `None` if it is too short to have a steady rate.
fn rate(metric: Metric, phase: &Phase) -> Option<f64> {
    match metric {
        Metric::IorBandwidth => Some(phase.gbps),
        Metric::SteadyRate => phase.middle_gbps,
        Metric::SlowestRank => Some(phase.slowest_rank_gbps),
    }
}

/// A step of a sweep, simulated with one seed or several, of which the value is the mean.
fn step(case: &Case, check: &Check, run: &Run, replicates: &[IorPoint]) -> Option<Step> {
    let measure = check.measure;
    let point = replicates.first()?;
    let values = |measure| {
        let values = replicates.iter().map(|p| value(measure, check.metric, case.part, p));
        Estimate::of("", "", values.collect::<Option<_>>()?)
    };
    let estimate = values(measure)?;
    let x = match case.axis() {
        "nodes" => f64::from(run.nodes),
        "stripes" => run.label.parse().ok()?,
        "file system" => match run.file_system {
            FileSystem::Parallel { .. } => 1.0,
            FileSystem::BurstBuffer => 2.0,
        },
        "transfer" => {
            let phase = best(point, measure.access())?;
            phase.bytes as f64 / phase.operations.max(1) as f64
        }
        _ => f64::from(run.ppn),
    };
    let limit = best(point, measure.access())?.limit.resource.clone();
    let steady = best(point, measure.access())?.middle_gbps;
    Some(Step {
        x,
        label: run.label.clone(),
        value: estimate.mean,
        half_width: estimate.half_width,
        alternative: check.alternative.and_then(|measure| Some(values(measure)?.mean)),
        steady_gbps: steady.map(|rate| rate * f64::from(case.part)),
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

/// Checks that the expected limit occurs at all steps.
fn compare_limits(check: &Check, steps: &[Step]) -> Outcome {
    let expect = check.expect.as_deref().unwrap_or_default();
    let others: Vec<String> = steps
        .iter()
        .filter(|step| step.limit != expect)
        .map(|step| format!("{} at {}", step.limit, step.label))
        .collect();
    let met = others.is_empty() && !steps.is_empty();
    let verdict = if met { words(true) } else { format!("MISSED: {}", others.join(", ")) };
    Outcome { simulated: None, met, accepted: format!("{expect} is the limit"), verdict }
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

/// Checks that the value at a step, or at the last one, is a multiple of the first one's, within a
/// percentage.
fn compare_gain(check: &Check, steps: &[Step], measured: Option<f64>, percent: f64) -> Outcome {
    let compared = match &check.at {
        Some(label) => steps.iter().find(|step| step.label == *label),
        None => steps.last(),
    };
    let gain = |step: &Step| Some(step.value / steps.first().filter(|s| s.value > 0.0)?.value);
    let simulated = compared.and_then(gain);
    let error = error_percent(measured, simulated).unwrap_or(f64::INFINITY);
    let met = error.abs() <= percent;
    Outcome { simulated, met, accepted: format!("within {percent}%"), verdict: words(met) }
}

/// Checks that all values are within a percentage of the measured one.
fn compare_values(steps: &[Step], measured: Option<f64>, percent: f64) -> Outcome {
    let values = steps.iter().map(|step| step.value);
    let simulated = measured.and_then(|m| worst(values, m));
    let error = error_percent(measured, simulated).unwrap_or(f64::INFINITY);
    let met = error.abs() <= percent;
    Outcome { simulated, met, accepted: format!("within {percent}%"), verdict: words(met) }
}

/// Checks that all values are between the percentiles of repeated measurements.
fn compare_with_band(steps: &[Step], measured: Option<f64>, [low, high]: [f64; 2]) -> Outcome {
    let values = steps.iter().map(|step| step.value);
    let simulated = measured.and_then(|m| worst(values, m));
    let met = simulated.is_some_and(|s| (low..=high).contains(&s));
    Outcome { simulated, met, accepted: format!("within {low} to {high}"), verdict: words(met) }
}

/// Compares the points of a case with one measurement; `provenance` is that of the machine file's
/// numbers.
pub fn compare(
    case: &Case,
    check: &Check,
    published: &Published,
    provenance: &[Provenance],
    points: &[(Run, Vec<IorPoint>)],
) -> Row {
    let steps: Vec<Step> =
        points.iter().filter_map(|(run, points)| step(case, check, run, points)).collect();
    let measured = published.number();
    let tolerance = check.tolerance.unwrap_or(0.0);
    let by_value = || match published.band() {
        Some(band) => compare_with_band(&steps, measured, band),
        None => compare_values(&steps, measured, tolerance),
    };
    let outcome = match check.measure {
        Measure::Limit => compare_limits(check, &steps),
        Measure::WriteSaturation | Measure::ReadSaturation => {
            compare_saturation(&steps, measured, tolerance)
        }
        Measure::WriteGain | Measure::ReadGain => compare_gain(check, &steps, measured, tolerance),
        Measure::WriteRate
        | Measure::ReadRate
        | Measure::WriteRatePerNode
        | Measure::AcknowledgedWriteRatePerNode
        | Measure::WriteIops
        | Measure::ReadIops => by_value(),
    };
    let (status, status_reasons) = status(check.basis(), published, provenance);
    let compared_step = steps.iter().find(|step| Some(step.value) == outcome.simulated);
    let limit = compared_step.or(steps.last()).map(|step| step.limit.clone()).unwrap_or_default();
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
        interval: compared_step.and_then(|step| step.half_width),
        unit: published.unit.clone(),
        compared: compared(check),
        alternative,
        error_percent: error_percent(measured, outcome.simulated),
        band: published.band(),
        status: status.name().to_string(),
        status_reasons,
        decided_by: check.decided_by.clone(),
        steady_gbps: compared_step.or(steps.last()).and_then(|step| step.steady_gbps),
        limit,
        tolerance: outcome.accepted,
        met: outcome.met,
        verdict: outcome.verdict,
        misses: None,
        warnings: warnings(case, check, points),
        axis: case.axis().to_string(),
        steps,
        ior: case.ior.clone(),
        command: String::new(),
        scaling: case.scaling.clone(),
        source: published.source.clone(),
    }
}

impl Row {
    /// The row, as altered if numbers of the machine file were replaced.
    pub fn with_settings(self, settings: &[String]) -> Row {
        if settings.is_empty() {
            return self;
        }
        Row {
            status: Status::Altered.name().to_string(),
            status_reasons: settings.to_vec(),
            ..self
        }
    }
}

/// The warning about a row of a steady rate whose processes have too few transfers for one.
const FEW_TRANSFERS: &str = "the processes have few transfers: the rate of the middle of the bytes is compared, which \
                             `forebay sim ior` does not call steady";

/// The warnings about a phase, from those of the phase itself. A steady rate leaves opens, ramp-up and tail out.
fn warnings_of(metric: Metric, steady: Option<f64>, of_phase: &[String]) -> Vec<String> {
    match metric {
        Metric::SteadyRate if steady.is_none() => vec![FEW_TRANSFERS.to_string()],
        Metric::SteadyRate => Vec::new(),
        Metric::IorBandwidth | Metric::SlowestRank => of_phase.to_vec(),
    }
}

/// The warnings about the compared phases, with the step of a sweep.
fn warnings(case: &Case, check: &Check, points: &[(Run, Vec<IorPoint>)]) -> Vec<String> {
    let of_run = |(run, replicates): &(Run, Vec<IorPoint>)| {
        let phase = replicates.first().and_then(|point| best(point, check.measure.access()));
        let warnings = phase
            .map(|phase| warnings_of(check.metric, phase.steady_gbps, &phase.warnings))
            .unwrap_or_default();
        let at = if points.len() > 1 {
            format!("{} {}: ", run.label, case.axis())
        } else {
            String::new()
        };
        warnings.into_iter().map(move |warning| format!("{at}{warning}")).collect::<Vec<_>>()
    };
    points.iter().flat_map(of_run).collect()
}

/// Description of the compared quantity, with the definition of a rate.
pub fn compared(check: &Check) -> String {
    let quantity = check.measure.words();
    match check.measure {
        Measure::WriteRate
        | Measure::ReadRate
        | Measure::WriteRatePerNode
        | Measure::WriteSaturation
        | Measure::ReadSaturation
        | Measure::WriteGain
        | Measure::ReadGain => format!("{quantity}: {}", check.metric.words()),
        Measure::AcknowledgedWriteRatePerNode
        | Measure::WriteIops
        | Measure::ReadIops
        | Measure::Limit => quantity.to_string(),
    }
}

/// The verdict as text.
pub(super) fn words(met: bool) -> String {
    if met { "met" } else { "MISSED" }.to_string()
}

/// 100 × (simulated − measured) / measured.
pub(super) fn error_percent(measured: Option<f64>, simulated: Option<f64>) -> Option<f64> {
    let (measured, simulated) = (measured?, simulated?);
    Some(100.0 * (simulated - measured) / measured)
}

#[cfg(test)]
mod tests;
