//! Sensitivity of a quantity to the numbers of a machine: elasticities, one number at a time by
//! central differences, and screening by Morris ("Factorial sampling plans for preliminary
//! computational experiments", Technometrics 33, 1991) with the mean of the absolute effects, mu*, of
//! Campolongo, Cariboni and Saltelli (Environmental Modelling & Software 22, 2007).
//!
//! Machines are compared in logarithms: an elasticity of 0.5 says that a number 10% larger makes the
//! quantity about 5% larger. Each number has a low and a high value: four fifths and five fourths of
//! the file's; of sizes, which have to divide each other, half and twice.

use forebay_machine_file::Setting;
use forebay_machine_file::machine::Machine;
use forebay_random::{RandomStream, below, stream_label};
use forebay_units::{Bytes, Rate, Time};

/// Keys of numbers that describe the cabinets of a machine. Neighbouring values of most of them are
/// impossible, so that they are varied only where a row names them.
const STRUCTURE: [&str; 8] = [
    "placement.",
    "network.groups",
    "network.chassis_per_group",
    "network.routers_per_chassis",
    "network.node_ports_per_router",
    "network.cable_sockets_per_group",
    "network.cables_per_group_pair",
    "network.routers_per_cable",
];

/// A value with its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Count(u64),
    Bytes(u64),
    Rate(u64),
    Time(u64),
}

/// An assumed number of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its dotted key.
    pub key: String,
    value: Value,
}

/// A value of a parameter in an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Four fifths; of sizes, which have to divide each other, half.
    Low,
    /// As in the machine file.
    Base,
    /// Five fourths; of sizes twice.
    High,
}

/// A level for each parameter.
pub type Experiment = Vec<Level>;

impl Parameter {
    /// The numbers of a machine that are assumed, or that `named` contains, and are not 0. Choices
    /// such as an algorithm are no numbers.
    pub fn of_machine(machine: &Machine, named: &[String]) -> Vec<Parameter> {
        let is_structure = |key: &str| STRUCTURE.iter().any(|prefix| key.starts_with(prefix));
        let numbers = machine.provenance.iter().filter(|number| {
            let assumed = number.source_id.is_none() && !is_structure(&number.key);
            assumed || named.contains(&number.key)
        });
        let parameter = |key: &str, text: &str| {
            let value = parse(text).filter(|value| value.number() > 0)?;
            Some(Parameter { key: key.to_string(), value })
        };
        numbers.filter_map(|number| parameter(&number.key, &number.value)).collect()
    }

    /// The number at a level, in base units: bytes, bytes per second, picoseconds.
    pub fn number(&self, level: Level) -> u64 {
        let base = self.value.number();
        let (less, more) = match self.value {
            Value::Bytes(_) => (base / 2, base.saturating_mul(2)),
            Value::Count(_) | Value::Rate(_) | Value::Time(_) => {
                (base - base.div_ceil(5), base.saturating_add(base / 4))
            }
        };
        match level {
            Level::Base => base,
            Level::Low => less.clamp(1, base.saturating_sub(1).max(1)),
            Level::High => more.max(base.saturating_add(1)),
        }
    }

    /// The setting that gives the parameter the value of a level.
    fn setting(&self, level: Level) -> Setting {
        let number = self.number(level);
        let value = match self.value {
            Value::Count(_) => number.to_string(),
            Value::Bytes(_) => format!("{number} B"),
            Value::Rate(_) => format!("{number} B/s"),
            Value::Time(_) => format!("{number} ps"),
        };
        Setting { key: self.key.clone(), value }
    }

    /// Logarithm of the ratio of the values at two levels.
    fn log_ratio(&self, from: Level, to: Level) -> f64 {
        (self.number(to) as f64 / self.number(from) as f64).ln()
    }
}

impl Value {
    fn number(self) -> u64 {
        match self {
            Value::Count(n) | Value::Bytes(n) | Value::Rate(n) | Value::Time(n) => n,
        }
    }
}

/// The value of a number as written in a machine file; `None` for choices such as an algorithm.
fn parse(text: &str) -> Option<Value> {
    let count = text.replace('_', "").parse().ok().map(Value::Count);
    count
        .or_else(|| text.parse::<Rate>().ok().map(|rate| Value::Rate(rate.0)))
        .or_else(|| text.parse::<Bytes>().ok().map(|bytes| Value::Bytes(bytes.0)))
        .or_else(|| text.parse::<Time>().ok().map(|time| Value::Time(time.0)))
}

/// The settings of an experiment.
pub fn settings(parameters: &[Parameter], experiment: &[Level]) -> Vec<Setting> {
    let changed = parameters.iter().zip(experiment).filter(|(_, level)| **level != Level::Base);
    changed.map(|(parameter, level)| parameter.setting(*level)).collect()
}

/// The experiments of a study, in the order in which [`sensitivities`] expects their results: the
/// base, each parameter low and high, and `trajectories` walks that change each parameter once, in
/// random order.
pub fn experiments(parameters: usize, trajectories: u32, seed: u64) -> Vec<Experiment> {
    let base = vec![Level::Base; parameters];
    let mut all = vec![base.clone()];
    for parameter in 0..parameters {
        for level in [Level::Low, Level::High] {
            let mut one = base.clone();
            one[parameter] = level;
            all.push(one);
        }
    }
    for trajectory in 0..u64::from(trajectories) {
        let random = RandomStream::of_unit(seed, stream_label("morris"), trajectory);
        let levels = (0..parameters).map(|i| random.at(i as u64) & 1 == 0);
        let mut point: Experiment =
            levels.map(|low| if low { Level::Low } else { Level::High }).collect();
        all.push(point.clone());
        for parameter in order(parameters, random) {
            point[parameter] = opposite(point[parameter]);
            all.push(point.clone());
        }
    }
    all
}

/// A random order of the parameters (Fisher and Yates).
fn order(parameters: usize, random: RandomStream) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parameters).collect();
    for i in (1..parameters).rev() {
        let draw = random.at((parameters + i) as u64);
        order.swap(i, below(draw, i as u64 + 1) as usize);
    }
    order
}

fn opposite(level: Level) -> Level {
    match level {
        Level::Low => Level::High,
        Level::Base => Level::Base,
        Level::High => Level::Low,
    }
}

/// The sensitivity of a quantity to one parameter.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Sensitivity {
    /// Dotted key of the parameter.
    pub parameter: String,
    /// Low value of the parameter, in base units: bytes, bytes per second, picoseconds.
    pub low: u64,
    /// The machine's value.
    pub base: u64,
    /// High value.
    pub high: u64,
    /// Elasticity between the low and the high value, all others as in the machine file. If the
    /// machine is invalid with one of the two, between the other and the machine's value; `None`
    /// if it is with both.
    pub elasticity: Option<f64>,
    /// Whether the elasticity is a central difference.
    pub central: bool,
    /// Morris' mu*: mean of the absolute elementary effects, as elasticities.
    pub mu_star: Option<f64>,
    /// Morris' sigma: their standard deviation. Large against mu*, the effect depends on the other
    /// parameters.
    pub sigma: Option<f64>,
}

/// The sensitivities from the results of [`experiments`]; `None` where an experiment is impossible.
pub fn sensitivities(
    parameters: &[Parameter],
    experiments: &[Experiment],
    results: &[Option<f64>],
) -> Vec<Sensitivity> {
    let count = parameters.len();
    let log = |i: usize| results.get(i).copied().flatten().filter(|v| *v > 0.0).map(f64::ln);
    let slope = |p: usize, from: (Level, Option<f64>), to: (Level, Option<f64>)| {
        Some(difference_quotient(parameters[p].log_ratio(from.0, to.0), from.1?, to.1?))
    };
    // The walks follow the base and the pairs.
    let first_walk = (1 + 2 * count).min(experiments.len());
    let logs: Vec<Option<f64>> = (first_walk..experiments.len()).map(log).collect();
    let effects = elementary_effects(count, &experiments[first_walk..], &logs, |p, from, to| {
        parameters[p].log_ratio(from, to)
    });
    let of = |p: usize| {
        let (low, base, high) =
            ((Level::Low, log(1 + 2 * p)), (Level::Base, log(0)), (Level::High, log(2 + 2 * p)));
        let central = slope(p, low, high);
        let one_sided = || slope(p, base, high).or_else(|| slope(p, low, base));
        let (mu_star, sigma) = screening(&effects[p]);
        Sensitivity {
            parameter: parameters[p].key.clone(),
            low: parameters[p].number(Level::Low),
            base: parameters[p].number(Level::Base),
            high: parameters[p].number(Level::High),
            elasticity: central.or_else(one_sided),
            central: central.is_some(),
            mu_star,
            sigma,
        }
    };
    (0..count).map(of).collect()
}

/// (to - from) / step; 0 if there is no step.
fn difference_quotient(step: f64, from: f64, to: f64) -> f64 {
    if step == 0.0 { 0.0 } else { (to - from) / step }
}

/// The elementary effects of each parameter: of the points of walks, each of which has `count` + 1
/// points, and their results. `step` is the distance of two levels of a parameter.
fn elementary_effects(
    count: usize,
    walks: &[Experiment],
    results: &[Option<f64>],
    step: impl Fn(usize, Level, Level) -> f64,
) -> Vec<Vec<f64>> {
    let mut effects: Vec<Vec<f64>> = vec![Vec::new(); count];
    for start in (0..walks.len()).step_by(count + 1) {
        for i in start..(start + count).min(walks.len() - 1) {
            let (from, to) = (&walks[i], &walks[i + 1]);
            let changed = (0..count).find(|&p| from[p] != to[p]);
            if let (Some(p), Some(before), Some(after)) = (changed, results[i], results[i + 1]) {
                effects[p].push(difference_quotient(step(p, from[p], to[p]), before, after));
            }
        }
    }
    effects
}

/// mu* and sigma of the elementary effects of a parameter.
fn screening(effects: &[f64]) -> (Option<f64>, Option<f64>) {
    let n = effects.len() as f64;
    let mean = effects.iter().sum::<f64>() / n;
    let absolute = effects.iter().map(|e| e.abs()).sum::<f64>() / n;
    let squares: f64 = effects.iter().map(|e| (e - mean) * (e - mean)).sum();
    let sigma = || (squares / (n - 1.0)).sqrt();
    ((!effects.is_empty()).then_some(absolute), (effects.len() > 1).then(sigma))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Vec<Parameter> {
        [("a", Value::Rate(1_000_000)), ("b", Value::Time(5_000)), ("c", Value::Bytes(4096))]
            .map(|(key, value)| Parameter { key: key.to_string(), value })
            .to_vec()
    }

    /// 0 for low and 1 for high: the unit cube of Morris' paper.
    fn unit(level: Level) -> f64 {
        match level {
            Level::Low => 0.0,
            Level::Base => 0.5,
            Level::High => 1.0,
        }
    }

    /// mu* and sigma of each parameter of a function on the unit cube.
    fn screened(count: usize, walks: u32, f: impl Fn(&[f64]) -> f64) -> Vec<(f64, f64)> {
        let all = experiments(count, walks, 1);
        let walks = &all[1 + 2 * count..];
        let results: Vec<Option<f64>> = walks
            .iter()
            .map(|e| Some(f(&e.iter().map(|l| unit(*l)).collect::<Vec<_>>())))
            .collect();
        let effects = elementary_effects(count, walks, &results, |_, a, b| unit(b) - unit(a));
        let of = |e: &Vec<f64>| {
            let (mu_star, sigma) = screening(e);
            (mu_star.unwrap(), sigma.unwrap())
        };
        effects.iter().map(of).collect()
    }

    #[test]
    fn linear_function_has_its_slopes_as_mu_star_and_no_sigma() {
        let found = screened(3, 10, |x| 7.0 + 3.0 * x[0] - 2.0 * x[1]);
        for ((mu_star, sigma), slope) in found.into_iter().zip([3.0, 2.0, 0.0]) {
            assert!((mu_star - slope).abs() < 1e-12 && sigma < 1e-12, "{mu_star} {sigma}");
        }
    }

    /// f = a · b: the effect of a is b, 0 or 1; of n effects of which k are 1, mu* is k/n and sigma²
    /// is k (n - k) / (n (n - 1)).
    #[test]
    fn product_has_sigma_of_its_zeros_and_ones() {
        let n = 12.0;
        for (mu_star, sigma) in screened(2, 12, |x| x[0] * x[1]) {
            let k: f64 = (mu_star * n).round();
            assert!((mu_star - k / n).abs() < 1e-12 && k > 0.0 && k < n, "{mu_star}");
            assert!((sigma * sigma - k * (n - k) / (n * (n - 1.0))).abs() < 1e-12, "{sigma}");
        }
    }

    #[test]
    fn walk_changes_each_parameter_once_and_depends_on_the_seed_only() {
        let all = experiments(5, 3, 7);
        assert_eq!(all, experiments(5, 3, 7));
        assert_ne!(all, experiments(5, 3, 8));
        for walk in all[11..].chunks(6) {
            let mut changed: Vec<usize> = walk
                .windows(2)
                .flat_map(|w| (0..5).filter(|&p| w[0][p] != w[1][p]).collect::<Vec<_>>())
                .collect();
            changed.sort_unstable();
            assert_eq!(changed, [0, 1, 2, 3, 4]);
        }
    }

    /// f = a² / √b, without c: elasticities 2, -0.5 and 0, whatever the other parameters are.
    #[test]
    fn elasticities_of_a_power_law_are_its_exponents() {
        let parameters = parameters();
        let experiments = experiments(3, 4, 1);
        assert_eq!(experiments.len(), 1 + 6 + 4 * 4);
        let value = |e: &Experiment| {
            let [a, b] = [0, 1].map(|p: usize| parameters[p].number(e[p]) as f64);
            Some(a * a / b.sqrt())
        };
        let results: Vec<Option<f64>> = experiments.iter().map(value).collect();
        let found = sensitivities(&parameters, &experiments, &results);
        for (found, exponent) in found.iter().zip([2.0, -0.5, 0.0_f64]) {
            assert!(found.central && (found.elasticity.unwrap() - exponent).abs() < 1e-9);
            assert!((found.mu_star.unwrap() - exponent.abs()).abs() < 1e-9, "{found:?}");
            assert!(found.sigma.unwrap() < 1e-9, "{found:?}");
        }
        assert_eq!((found[0].low, found[0].base, found[0].high), (800_000, 1_000_000, 1_250_000));
        assert_eq!((found[2].low, found[2].high), (2048, 8192));
    }

    /// The high value of b is impossible: f = 1 / b between low and base has elasticity -1.
    #[test]
    fn impossible_neighbour_leaves_a_one_sided_difference() {
        let parameters = parameters();
        let experiments = experiments(3, 0, 1);
        let value = |e: &Experiment| match e[1] {
            Level::High => None,
            level => Some(1.0 / parameters[1].number(level) as f64),
        };
        let results: Vec<Option<f64>> = experiments.iter().map(value).collect();
        let found = sensitivities(&parameters, &experiments, &results);
        assert!(!found[1].central && (found[1].elasticity.unwrap() + 1.0).abs() < 1e-9);
        assert!(found[0].central && found[0].elasticity == Some(0.0));
        assert_eq!((found[0].mu_star, found[0].sigma), (None, None));
    }

    #[test]
    fn impossible_experiments_leave_a_gap_and_no_wrong_number() {
        let parameters = parameters();
        let experiments = experiments(3, 1, 1);
        let results = vec![None; experiments.len()];
        let found = sensitivities(&parameters, &experiments, &results);
        assert!(found.iter().all(|s| s.elasticity.is_none() && s.mu_star.is_none()));
    }

    #[test]
    fn settings_of_toys_assumed_numbers_are_accepted_one_by_one() {
        let machine = Machine::load("toy").unwrap();
        let named = ["network.cables_per_group_pair".to_string()];
        let parameters = Parameter::of_machine(&machine, &named);
        let threads = parameters.iter().find(|p| p.key == "burst_buffer.threads").unwrap();
        let base = machine.burst_buffer.unwrap().threads;
        assert_eq!(threads.number(Level::High), u64::from(base) * 5 / 4);
        assert!(parameters.iter().any(|p| p.key == named[0]));
        assert!(!parameters.iter().any(|p| p.key == "network.groups"));
        let accepted = parameters.iter().filter(|p| {
            Machine::load_with("toy", &[p.setting(Level::Low)]).is_ok()
                && Machine::load_with("toy", &[p.setting(Level::High)]).is_ok()
        });
        // A few have bounds, such as the number of candidates.
        assert!(accepted.count() * 10 >= parameters.len() * 8);
    }
}
