//! A score of the rates of IOR and mdtest, by the formula of IO500: the geometric mean of the bandwidths
//! in GiB/s times that of the rates in thousands of operations per second, and the square root of the
//! product. It has no `find`, runs for seconds, and on one process.

use crate::Rates;
use crate::contestants::Contestant;
use crate::programs::PROGRAMS;
use crate::report::{self, Line, Target, median};

/// Cases of the score: program, case, and its unit in the score.
const CASES: [(&str, &str, f64); 11] = [
    ("ior easy", "write", 1.0 / 1024.0),
    ("ior easy", "read", 1.0 / 1024.0),
    ("ior hard", "write", 1.0 / 1024.0),
    ("ior hard", "read", 1.0 / 1024.0),
    ("mdtest easy", "create", 1e-3),
    ("mdtest easy", "stat", 1e-3),
    ("mdtest easy", "remove", 1e-3),
    ("mdtest hard", "create", 1e-3),
    ("mdtest hard", "stat", 1e-3),
    ("mdtest hard", "read", 1e-3),
    ("mdtest hard", "remove", 1e-3),
];
/// Number of the cases that are bandwidths.
const BANDWIDTHS: usize = 4;

fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// The score of a round, if all its cases were measured.
fn score(rates: &Rates, contestant: Contestant, round: usize) -> Option<f64> {
    let value = |(program, case, unit): &(&str, &str, f64)| {
        let number = PROGRAMS.iter().position(|other| other.name == *program)?;
        let of_case = rates.iter().find(|((n, c), _)| (*n, *c) == (number, *case))?.1;
        Some(of_case.get(&contestant)?.get(round)?.value * unit)
    };
    let values: Vec<f64> = CASES.iter().map(value).collect::<Option<_>>()?;
    let (bandwidths, rates) = values.split_at(BANDWIDTHS);
    Some((geometric_mean(bandwidths) * geometric_mean(rates)).sqrt())
}

/// Prints the scores, and adds them to `lines`.
pub fn add_score(rates: &Rates, all: &[Contestant], rounds: usize, lines: &mut Vec<Line>) {
    for contestant in all {
        let of = |who| -> Option<Vec<f64>> { (0..rounds).map(|n| score(rates, who, n)).collect() };
        let Some(own) = of(*contestant) else { continue };
        let (other, target) = contestant.compared_with();
        let ratio = other.and_then(|other| {
            let pairs = own.iter().zip(of(other)?).map(|(own, other)| own / other).collect();
            Some((median(pairs), other.name()))
        });
        let line = Line {
            case: "score of ior and mdtest".to_owned(),
            who: contestant.name().to_owned(),
            measured: median(own),
            unit: "",
            target: if ratio.is_some() { target } else { Target::None },
            ratio,
        };
        report::print_line(&line);
        lines.push(line);
    }
}
