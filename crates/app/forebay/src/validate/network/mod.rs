//! Comparisons of the packet network with theory and peer simulators: `validation/network/`, embedded.

mod compare;

pub use compare::{Point, Row, compare};

use forebay_console::Failure;
use forebay_machine_file::Setting;
use forebay_machine_file::machine::Machine;
use serde::Deserialize;

const CASES: &str = include_str!("../../../../../../validation/network/cases.toml");
const MACHINES: [(&str, &str); 2] = [
    ("booksim2-72.toml", include_str!("../../../../../../validation/network/booksim2-72.toml")),
    ("codes-72.toml", include_str!("../../../../../../validation/network/codes-72.toml")),
];
const CURVES: [(&str, &str); 2] = [
    ("booksim2-72.csv", include_str!("../../../../../../validation/network/booksim2-72.csv")),
    ("codes-72.csv", include_str!("../../../../../../validation/network/codes-72.csv")),
];

/// The definition of a curve's accepted load.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Accepted {
    /// In the steady state.
    #[default]
    Window,
    /// All bytes / time of the last arrival.
    WholeRun,
}

/// Tolerances of a comparison with a curve, percent.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tolerance {
    /// Latency at the lowest load.
    pub zero_load_latency: f64,
    /// Latency at each load up to 80% of the peer's saturation.
    pub latency: f64,
    /// The greatest accepted load.
    pub saturation: f64,
    /// The accepted load at the greatest offered one.
    pub overload: f64,
}

/// A quantity that theory gives.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Mean latency, ns.
    Latency,
    /// Accepted load.
    Accepted,
}

/// A value from theory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expectation {
    /// Its quantity.
    pub quantity: Quantity,
    /// Offered load.
    pub load: f64,
    /// Its value.
    pub value: f64,
    /// Percent.
    pub tolerance: f64,
    /// Its derivation.
    pub derivation: String,
}

/// One pattern with one routing algorithm on one machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NetworkCase {
    /// Its name.
    pub id: String,
    /// Its machine file.
    pub machine: String,
    /// Numbers that differ from the file.
    #[serde(default)]
    pub settings: Vec<String>,
    /// Traffic pattern.
    pub pattern: String,
    /// Routing algorithm.
    pub routing: String,
    /// Message size.
    pub message: String,
    /// Times of the messages; random without an entry.
    pub injection: Option<String>,
    /// Time in which the messages are generated.
    pub span: Option<String>,
    /// Messages of each node, in place of `span`.
    pub messages: Option<u64>,
    /// Offered loads of a case without a curve.
    #[serde(default)]
    pub loads: Vec<f64>,
    /// File with the peer's curve.
    pub curve: Option<String>,
    /// Unit of the curve's latencies.
    pub latency_unit: Option<String>,
    /// Definition of the accepted load.
    #[serde(default)]
    pub accepted: Accepted,
    /// Whether it is part of the quick set.
    #[serde(default)]
    pub quick: bool,
    /// Remaining differences from the peer.
    #[serde(default)]
    pub differences: String,
    /// Choices made when results were known.
    #[serde(default)]
    pub settled_in_view: String,
    /// The known reason of rows that miss.
    #[serde(default)]
    pub misses: String,
    /// Tolerances of the comparison with the curve.
    pub tolerance: Option<Tolerance>,
    /// Values from theory.
    #[serde(default)]
    pub expect: Vec<Expectation>,
}

/// A point of a peer's curve.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    routing: String,
    pattern: String,
    /// Offered load.
    pub offered: f64,
    /// Accepted load.
    pub accepted: f64,
    /// Mean latency in the case's unit, if the load is accepted.
    pub latency: Option<f64>,
}

impl NetworkCase {
    /// The machine.
    pub fn load_machine(&self) -> Result<Machine, Failure> {
        let text = embedded(&MACHINES, &self.machine)?;
        let mut settings = Vec::new();
        for setting in &self.settings {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(failure(format!("{}: {setting:?} is not key=value", self.id)));
            };
            settings.push(Setting { key: key.to_string(), value: value.to_string() });
        }
        Machine::parse_with(&self.machine, text, &settings).map_err(|e| failure(e.to_string()))
    }

    /// The peer's curve, in order of load; empty for a case of theory.
    pub fn load_curve(&self) -> Result<Vec<CurvePoint>, Failure> {
        let Some(name) = &self.curve else { return Ok(Vec::new()) };
        let mut points = Vec::new();
        for record in csv::Reader::from_reader(embedded(&CURVES, name)?.as_bytes()).deserialize() {
            let point: CurvePoint = record.map_err(|e| failure(format!("{name}: {e}")))?;
            if point.routing == self.routing && point.pattern == self.pattern {
                points.push(point);
            }
        }
        points.sort_by(|a, b| a.offered.total_cmp(&b.offered));
        if points.is_empty() {
            return Err(failure(format!("{name} has no rows for {}", self.id)));
        }
        Ok(points)
    }

    /// The offered loads to simulate, given the curve.
    pub fn offered_loads(&self, curve: &[CurvePoint]) -> Vec<f64> {
        if curve.is_empty() {
            self.loads.clone()
        } else {
            curve.iter().map(|p| p.offered).collect()
        }
    }
}

fn embedded(files: &[(&str, &'static str)], name: &str) -> Result<&'static str, Failure> {
    files
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| failure(format!("there is no file {name}")))
}

fn failure(problem: String) -> Failure {
    Failure::Failed(format!("validation/network: {problem}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    case: Vec<NetworkCase>,
}

/// The cases with these ids, only the quick ones, or all.
pub fn chosen(ids: &[String], quick: bool) -> Result<Vec<NetworkCase>, Failure> {
    let mut cases =
        toml::from_str::<Document>(CASES).map_err(|e| failure(format!("cases.toml: {e}")))?.case;
    if let Some(unknown) = ids.iter().find(|id| cases.iter().all(|c| c.id != **id)) {
        let known: Vec<&str> = cases.iter().map(|c| c.id.as_str()).collect();
        return Err(Failure::Input(format!(
            "there is no case {unknown:?} of the network; there are {}",
            known.join(", ")
        )));
    }
    cases.retain(|c| (ids.is_empty() || ids.contains(&c.id)) && (!quick || c.quick));
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_machine_file::machine::Routing;
    use forebay_units::{Bytes, Time};
    use forebay_workload::traffic::TrafficPattern;

    #[test]
    fn every_case_has_its_machine_curve_and_tolerances() {
        let cases = chosen(&[], false).unwrap();
        for case in &cases {
            case.load_machine().unwrap();
            let curve = case.load_curve().unwrap();
            assert!(!case.offered_loads(&curve).is_empty(), "{}", case.id);
            assert_eq!(curve.is_empty(), !case.expect.is_empty(), "{}", case.id);
            assert_eq!(curve.is_empty(), case.tolerance.is_none(), "{}", case.id);
            assert_eq!(curve.is_empty(), case.latency_unit.is_none(), "{}", case.id);
            assert_eq!(case.span.is_some(), case.messages.is_none(), "{}", case.id);
            assert!(Routing::NAMES.iter().any(|(name, _)| *name == case.routing), "{}", case.id);
            case.pattern.parse::<TrafficPattern>().unwrap();
            case.message.parse::<Bytes>().unwrap();
            for time in case.span.iter().chain(&case.latency_unit) {
                time.parse::<Time>().unwrap();
            }
            for expected in &case.expect {
                assert!(case.loads.contains(&expected.load), "{}", case.id);
            }
        }
        assert!(cases.iter().any(|c| c.quick) && cases.iter().any(|c| !c.quick));
    }

    #[test]
    fn unknown_case_is_refused_with_the_known_ones() {
        let error = chosen(&["moon".to_string()], false).unwrap_err().to_string();
        assert!(error.contains("theory-uniform-minimal"), "{error}");
    }
}
