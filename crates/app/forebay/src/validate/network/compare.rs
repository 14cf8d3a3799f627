//! The rows of a comparison: our simulation against theory or a peer's curve.

use super::{CurvePoint, Expectation, NetworkCase, Quantity, Tolerance};
use serde::Serialize;

/// Latencies are compared up to this part of the peer's saturation: beyond, they depend on the length
/// of the run.
const COMPARED: f64 = 0.8;

/// Our simulation at one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Offered load.
    pub offered: f64,
    /// Accepted load.
    pub accepted: f64,
    /// Mean latency in ns, unless saturated.
    pub latency_ns: Option<f64>,
}

/// One compared quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its case.
    pub case: String,
    /// The compared quantity.
    pub quantity: String,
    /// The load, where there is one.
    pub load: Option<f64>,
    /// The value of theory or of the peer: ns, or share of the node link's rate.
    pub peer: f64,
    /// Ours.
    pub ours: Option<f64>,
    /// The difference, percent of the peer's.
    pub difference_percent: Option<f64>,
    /// Tolerance, percent.
    pub tolerance_percent: f64,
    /// Whether it holds.
    pub met: bool,
    /// Choices made when results were known.
    pub settled_in_view: String,
    /// The derivation of a value from theory; the differences from a peer, and why a row misses.
    pub remarks: String,
}

/// The rows of a case. `ns` is the unit of the curve's latencies in ns.
pub fn compare(case: &NetworkCase, curve: &[CurvePoint], ns: f64, ours: &[Point]) -> Vec<Row> {
    let mut rows: Vec<Row> = case.expect.iter().map(|e| with_theory(case, e, ours)).collect();
    if let Some(tolerance) = &case.tolerance {
        rows.extend(with_curve(case, tolerance, curve, ns, ours));
    }
    rows
}

fn with_theory(case: &NetworkCase, expected: &Expectation, ours: &[Point]) -> Row {
    let point = ours.iter().find(|p| p.offered == expected.load);
    let (quantity, value) = match expected.quantity {
        Quantity::Latency => ("latency, ns", point.and_then(|p| p.latency_ns)),
        Quantity::Accepted => ("accepted load", point.map(|p| p.accepted)),
    };
    let mut row =
        row(case, quantity, Some(expected.load), expected.value, value, expected.tolerance);
    row.remarks.clone_from(&expected.derivation);
    row
}

fn with_curve(
    case: &NetworkCase,
    tolerance: &Tolerance,
    curve: &[CurvePoint],
    ns: f64,
    ours: &[Point],
) -> Vec<Row> {
    let latency_of = |load: f64| ours.iter().find(|p| p.offered == load)?.latency_ns;
    let mut rows = Vec::new();
    if let Some((load, latency)) = curve.first().and_then(|p| Some((p.offered, p.latency? * ns))) {
        let value = latency_of(load);
        let name = "zero-load latency, ns";
        rows.push(row(case, name, Some(load), latency, value, tolerance.zero_load_latency));
    }
    let saturation = curve.iter().map(|p| p.accepted).fold(0.0, f64::max);
    let greatest = ours.iter().map(|p| p.accepted).fold(0.0, f64::max);
    // Of the loads whose latencies are compared, that with the greatest difference.
    let worst = curve
        .iter()
        .skip(1)
        .filter(|p| p.offered <= COMPARED * saturation)
        .filter_map(|p| {
            let value = latency_of(p.offered);
            Some(row(
                case,
                "latency, ns",
                Some(p.offered),
                p.latency? * ns,
                value,
                tolerance.latency,
            ))
        })
        .max_by(|a, b| distance(a).total_cmp(&distance(b)));
    rows.extend(worst);
    // A curve whose last load was accepted ends below saturation, unless that is the full load.
    if curve.last().is_some_and(|p| p.latency.is_none() || p.offered >= 1.0) {
        let name = "saturation";
        rows.push(row(case, name, None, saturation, Some(greatest), tolerance.saturation));
    }
    let last = (curve.last(), ours.last());
    if let (Some(peer), Some(point)) = last {
        let (load, value) = (Some(peer.offered), Some(point.accepted));
        rows.push(row(case, "accepted load", load, peer.accepted, value, tolerance.overload));
    }
    rows
}

/// The difference without its sign; infinite without a value.
fn distance(row: &Row) -> f64 {
    row.difference_percent.map_or(f64::INFINITY, f64::abs)
}

fn row(
    case: &NetworkCase,
    quantity: &str,
    load: Option<f64>,
    peer: f64,
    ours: Option<f64>,
    tolerance: f64,
) -> Row {
    let difference = ours.map(|value| 100.0 * (value / peer - 1.0));
    let met = difference.is_some_and(|d| d.abs() <= tolerance);
    let remarks = if met || case.misses.is_empty() { &case.differences } else { &case.misses };
    Row {
        case: case.id.clone(),
        quantity: quantity.to_string(),
        load,
        peer,
        ours,
        difference_percent: difference,
        tolerance_percent: tolerance,
        met,
        settled_in_view: case.settled_in_view.clone(),
        remarks: remarks.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::network::chosen;

    /// A curve that saturates at 0.5, and ours with 5% more latency, saturated at 0.4, falling to 0.3.
    #[test]
    fn rows_have_the_differences_calculated_by_hand() {
        let case = chosen(&["booksim2-uniform-minimal".to_string()], false).unwrap().remove(0);
        let peer = |offered: f64, accepted, latency| CurvePoint {
            routing: String::new(),
            pattern: String::new(),
            offered,
            accepted,
            latency,
        };
        let curve = [
            peer(0.1, 0.1, Some(100.0)),
            peer(0.2, 0.2, Some(110.0)),
            peer(0.45, 0.45, Some(200.0)),
            peer(0.9, 0.5, None),
        ];
        let ours = [(0.1, 0.1, Some(1_050.0)), (0.2, 0.2, Some(1_430.0)), (0.45, 0.4, None)]
            .into_iter()
            .chain([(0.9, 0.3, None)])
            .map(|(offered, accepted, latency_ns)| Point { offered, accepted, latency_ns })
            .collect::<Vec<_>>();
        let rows = compare(&case, &curve, 10.0, &ours);
        let percent: Vec<f64> =
            rows.iter().map(|r| r.difference_percent.unwrap().round()).collect();
        // At 0.45, above 80% of the saturation, latencies are not compared.
        assert_eq!(percent, [5.0, 30.0, -20.0, -40.0]);
        assert_eq!(rows.iter().map(|r| r.met).collect::<Vec<_>>(), [false; 4]);
        assert_eq!(rows[1].load, Some(0.2));
        let unsaturated = compare(&case, &curve[..3], 10.0, &ours[..3]);
        assert!(unsaturated.iter().all(|row| row.quantity != "saturation"));
        let same = [Point { offered: 0.1, accepted: 0.1, latency_ns: Some(1_020.0) }];
        assert!(compare(&case, &curve[..1], 10.0, &same).iter().all(|r| r.met));
    }

    #[test]
    fn saturated_run_misses_a_latency() {
        let case = chosen(&["theory-uniform-minimal".to_string()], false).unwrap().remove(0);
        let ours = [Point { offered: 0.02, accepted: 0.01, latency_ns: None }];
        let rows = compare(&case, &[], 1.0, &ours);
        assert_eq!((rows[0].ours, rows[0].met), (None, false));
        assert!(rows[0].remarks.contains("local links"));
    }
}
