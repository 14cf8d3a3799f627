//! Names and parameters of traffic patterns.

use std::fmt;
use std::str::FromStr;

/// A pattern of destinations. Nodes are numbered by their index in the job's list; groups are the
/// machine's groups that have nodes of the job, in ascending order and as a ring (the first follows
/// the last). No node sends to itself.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "pattern")]
pub enum TrafficPattern {
    /// `uniform`: each message to a random other node.
    Uniform,
    /// `nearest-group`: from group g to a random node of the groups g + 1 and g − 1.
    NearestGroup,
    /// `adversarial`: from group g to a random node of group g + 1. With minimal routing all
    /// traffic of a group needs the links between two groups. Also accepted as `group+1`.
    Adversarial,
    /// `all-to-all`: node i to i + 1, i + 2, …, i − 1 in turn (mod n), and again from i + 1.
    AllToAll,
    /// `halo`: the nodes form a periodic grid of three dimensions, as close to a cube as the number
    /// of nodes allows (x varies fastest; a prime number makes a ring); each message goes to one of
    /// the six neighbours in turn: x + 1, x − 1, y + 1, y − 1, z + 1, z − 1. Dimensions of one node
    /// have no neighbours.
    ///
    /// `halo:x=8,y=4,z=4` gives the dimensions; their product must be the number of nodes.
    Halo {
        /// The dimensions, if given.
        grid: Option<[u32; 3]>,
    },
    /// `hot-spot`: a share of the messages to a few hot nodes, the others as in `uniform`.
    ///
    /// `hot-spot:nodes=4,share=0.2`; without parameters one node and a share of 0.1. Hot nodes
    /// are equally spaced in the job's list, beginning with the first. A message that a hot node
    /// would send to itself goes to another hot node if there is one, else to a random node.
    HotSpot {
        /// Number of hot nodes.
        nodes: u32,
        /// Share of the messages that go to them, above 0 and at most 1.
        share: f64,
    },
    /// `permutation`: each node always to the same other node, no two nodes to the same: one random
    /// cycle through all nodes.
    Permutation,
}

const NAMES: &str = "uniform, nearest-group, adversarial, all-to-all, halo, hot-spot, permutation";

impl TrafficPattern {
    /// The name without parameters.
    pub fn name(&self) -> &'static str {
        match self {
            TrafficPattern::Uniform => "uniform",
            TrafficPattern::NearestGroup => "nearest-group",
            TrafficPattern::Adversarial => "adversarial",
            TrafficPattern::AllToAll => "all-to-all",
            TrafficPattern::Halo { .. } => "halo",
            TrafficPattern::HotSpot { .. } => "hot-spot",
            TrafficPattern::Permutation => "permutation",
        }
    }
}

impl fmt::Display for TrafficPattern {
    /// The pattern with all its parameters, in the form in which it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            TrafficPattern::Halo { grid: Some([x, y, z]) } => write!(f, ":x={x},y={y},z={z}"),
            TrafficPattern::HotSpot { nodes, share } => write!(f, ":nodes={nodes},share={share}"),
            TrafficPattern::Uniform
            | TrafficPattern::NearestGroup
            | TrafficPattern::Adversarial
            | TrafficPattern::AllToAll
            | TrafficPattern::Halo { grid: None }
            | TrafficPattern::Permutation => Ok(()),
        }
    }
}

/// An invalid pattern or invalid traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficError {
    /// An unknown pattern.
    UnknownPattern {
        /// The given name.
        name: String,
    },
    /// An invalid parameter.
    BadParameter {
        /// The pattern with its parameters, verbatim.
        pattern: String,
        /// The problem and its remedy.
        what: String,
    },
    /// A pattern that does not fit the job's nodes.
    DoesNotFit {
        /// The pattern.
        pattern: String,
        /// The problem and its remedy.
        what: String,
    },
    /// Values out of range.
    BadSpec {
        /// The problem and its remedy.
        what: String,
    },
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrafficError::UnknownPattern { name } => {
                write!(f, "unknown traffic pattern `{name}`; use one of {NAMES}")
            }
            TrafficError::BadParameter { pattern, what } => {
                write!(f, "traffic pattern `{pattern}`: {what}")
            }
            TrafficError::DoesNotFit { pattern, what } => {
                write!(f, "traffic pattern `{pattern}` does not fit the job: {what}")
            }
            TrafficError::BadSpec { what } => write!(f, "traffic: {what}"),
        }
    }
}

impl std::error::Error for TrafficError {}

impl FromStr for TrafficPattern {
    type Err = TrafficError;

    /// Parses `name` or `name:key=value,key=value`.
    fn from_str(text: &str) -> Result<TrafficPattern, TrafficError> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (text, None),
        };
        let bad = |what: String| TrafficError::BadParameter { pattern: text.to_string(), what };
        let mut pairs = Vec::new();
        for pair in parameters.into_iter().flat_map(|p| p.split(',')) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| bad(format!("`{pair}` is not a parameter; write key=value")))?;
            if pairs.iter().any(|(k, _)| *k == key) {
                return Err(bad(format!("`{key}` is given twice")));
            }
            pairs.push((key, value));
        }
        match name {
            "uniform" => without_parameters(TrafficPattern::Uniform, &pairs, &bad),
            "nearest-group" => without_parameters(TrafficPattern::NearestGroup, &pairs, &bad),
            "adversarial" | "group+1" => {
                without_parameters(TrafficPattern::Adversarial, &pairs, &bad)
            }
            "all-to-all" => without_parameters(TrafficPattern::AllToAll, &pairs, &bad),
            "permutation" => without_parameters(TrafficPattern::Permutation, &pairs, &bad),
            "halo" => halo(&pairs, &bad),
            "hot-spot" => hot_spot(&pairs, &bad),
            _ => Err(TrafficError::UnknownPattern { name: name.to_string() }),
        }
    }
}

type Bad<'a> = &'a dyn Fn(String) -> TrafficError;

fn without_parameters(
    pattern: TrafficPattern,
    pairs: &[(&str, &str)],
    bad: Bad<'_>,
) -> Result<TrafficPattern, TrafficError> {
    match pairs.first() {
        None => Ok(pattern),
        Some((key, _)) => Err(bad(format!("it takes no parameter `{key}` nor any other"))),
    }
}

fn positive(key: &str, value: &str, bad: Bad<'_>) -> Result<u32, TrafficError> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(bad(format!("`{key}` must be a whole number of at least 1, not `{value}`"))),
    }
}

fn halo(pairs: &[(&str, &str)], bad: Bad<'_>) -> Result<TrafficPattern, TrafficError> {
    let mut grid = [None; 3];
    for (key, value) in pairs {
        let Some(axis) = ["x", "y", "z"].iter().position(|k| k == key) else {
            return Err(bad(format!("it takes no parameter `{key}`, only x, y and z")));
        };
        grid[axis] = Some(positive(key, value, bad)?);
    }
    match grid {
        [None, None, None] => Ok(TrafficPattern::Halo { grid: None }),
        [Some(x), Some(y), Some(z)] => Ok(TrafficPattern::Halo { grid: Some([x, y, z]) }),
        _ => Err(bad("give all of x, y and z, or none".to_string())),
    }
}

fn hot_spot(pairs: &[(&str, &str)], bad: Bad<'_>) -> Result<TrafficPattern, TrafficError> {
    let (mut nodes, mut share) = (1, 0.1);
    for (key, value) in pairs {
        match *key {
            "nodes" => nodes = positive(key, value, bad)?,
            "share" => {
                share = match value.parse() {
                    Ok(share) if share > 0.0 && share <= 1.0 => share,
                    _ => {
                        return Err(bad(format!(
                            "`share` must be a number above 0 and at most 1, not `{value}`"
                        )));
                    }
                }
            }
            _ => {
                return Err(bad(format!("it takes no parameter `{key}`, only nodes and share")));
            }
        }
    }
    Ok(TrafficPattern::HotSpot { nodes, share })
}
