//! Names and parameters of the patterns.

use std::fmt;
use std::str::FromStr;

/// Who sends to whom. Nodes are those of one job, by their index in its list; groups are those
/// groups of the machine that hold nodes of the job, in ascending order and as a ring (for a job on
/// all groups: the machine's groups, the first following the last). No node sends to itself.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "pattern")]
pub enum TrafficPattern {
    /// `uniform`: each message to a random other node.
    Uniform,
    /// `nearest-group`: from group g to a random node of the groups g + 1 and g − 1.
    NearestGroup,
    /// `adversarial`: from group g to a random node of group g + 1. With minimal routing all
    /// traffic of a group needs the links between two groups. Also read as `group+1`.
    Adversarial,
    /// `all-to-all`: node i to i + 1, i + 2, …, i − 1 in turn (mod n), and again from i + 1.
    AllToAll,
    /// `halo`: the nodes are a periodic grid of three dimensions, as near a cube as the number of
    /// nodes allows (x varies fastest; a prime number makes a ring); each message goes to one of
    /// the six neighbours in turn: x + 1, x − 1, y + 1, y − 1, z + 1, z − 1. Dimensions of one node
    /// have no neighbours.
    ///
    /// `halo:x=8,y=4,z=4` gives the dimensions; their product must be the number of nodes.
    Halo {
        /// Dimensions, if given.
        grid: Option<[u32; 3]>,
    },
    /// `hot-spot`: a share of the messages to a few hot nodes, the others as in `uniform`.
    ///
    /// `hot-spot:nodes=4,share=0.2`; without parameters one node and a share of 0.1. Hot nodes
    /// are at equal distances in the job's list, beginning with the first. What a hot node would
    /// send to itself goes to another hot node if there is one, else to a random node.
    HotSpot {
        /// Number of hot nodes.
        nodes: u32,
        /// Share of the messages that go to them, above 0 and at most 1.
        share: f64,
    },
    /// `permutation`: each node always to the same other one, and no two to the same: one random
    /// cycle through all nodes.
    Permutation,
}

const NAMES: &str =
    "uniform, nearest-group, adversarial, all-to-all, halo, hot-spot and permutation";

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
    /// The pattern as it is parsed, with all its parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            TrafficPattern::Halo {
                grid: Some([x, y, z]),
            } => write!(f, ":x={x},y={y},z={z}"),
            TrafficPattern::HotSpot { nodes, share } => write!(f, ":nodes={nodes},share={share}"),
            _ => Ok(()),
        }
    }
}

/// What is wrong with a pattern or with traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficError {
    /// No pattern of that name.
    UnknownPattern {
        /// The name as given.
        name: String,
    },
    /// A parameter that cannot be.
    BadParameter {
        /// The pattern with its parameters as given.
        pattern: String,
        /// What is wrong and what would be right.
        what: String,
    },
    /// A pattern that does not fit the job's nodes.
    DoesNotFit {
        /// The pattern.
        pattern: String,
        /// What is wrong and what would be right.
        what: String,
    },
    /// Numbers that cannot be.
    BadSpec {
        /// What is wrong and what would be right.
        what: String,
    },
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrafficError::UnknownPattern { name } => {
                write!(f, "no traffic pattern `{name}`; there are {NAMES}")
            }
            TrafficError::BadParameter { pattern, what } => {
                write!(f, "traffic pattern `{pattern}`: {what}")
            }
            TrafficError::DoesNotFit { pattern, what } => {
                write!(
                    f,
                    "traffic pattern `{pattern}` does not fit the job: {what}"
                )
            }
            TrafficError::BadSpec { what } => write!(f, "traffic: {what}"),
        }
    }
}

impl std::error::Error for TrafficError {}

impl FromStr for TrafficPattern {
    type Err = TrafficError;

    /// Reads `name` or `name:key=value,key=value`.
    fn from_str(text: &str) -> Result<TrafficPattern, TrafficError> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (text, None),
        };
        let bad = |what: String| TrafficError::BadParameter {
            pattern: text.to_string(),
            what,
        };
        let mut pairs = Vec::new();
        for pair in parameters.into_iter().flat_map(|p| p.split(',')) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| bad(format!("`{pair}` is no parameter; write key=value")))?;
            if pairs.iter().any(|(k, _)| *k == key) {
                return Err(bad(format!("`{key}` is given twice")));
            }
            pairs.push((key, value));
        }
        match name {
            "uniform" => none(TrafficPattern::Uniform, &pairs, &bad),
            "nearest-group" => none(TrafficPattern::NearestGroup, &pairs, &bad),
            "adversarial" | "group+1" => none(TrafficPattern::Adversarial, &pairs, &bad),
            "all-to-all" => none(TrafficPattern::AllToAll, &pairs, &bad),
            "permutation" => none(TrafficPattern::Permutation, &pairs, &bad),
            "halo" => halo(&pairs, &bad),
            "hot-spot" => hot_spot(&pairs, &bad),
            _ => Err(TrafficError::UnknownPattern {
                name: name.to_string(),
            }),
        }
    }
}

type Bad<'a> = &'a dyn Fn(String) -> TrafficError;

fn none(
    pattern: TrafficPattern,
    pairs: &[(&str, &str)],
    bad: Bad<'_>,
) -> Result<TrafficPattern, TrafficError> {
    match pairs.first() {
        None => Ok(pattern),
        Some((key, _)) => Err(bad(format!("it has no parameter `{key}`, nor any other"))),
    }
}

fn positive(key: &str, value: &str, bad: Bad<'_>) -> Result<u32, TrafficError> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(bad(format!(
            "`{key}` is a whole number from 1, not `{value}`"
        ))),
    }
}

fn halo(pairs: &[(&str, &str)], bad: Bad<'_>) -> Result<TrafficPattern, TrafficError> {
    let mut grid = [None; 3];
    for (key, value) in pairs {
        let Some(axis) = ["x", "y", "z"].iter().position(|k| k == key) else {
            return Err(bad(format!("it has no parameter `{key}`, but x, y and z")));
        };
        grid[axis] = Some(positive(key, value, bad)?);
    }
    match grid {
        [None, None, None] => Ok(TrafficPattern::Halo { grid: None }),
        [Some(x), Some(y), Some(z)] => Ok(TrafficPattern::Halo {
            grid: Some([x, y, z]),
        }),
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
                            "`share` is a number above 0 and at most 1, not `{value}`"
                        )));
                    }
                }
            }
            _ => {
                return Err(bad(format!(
                    "it has no parameter `{key}`, but nodes and share"
                )));
            }
        }
    }
    Ok(TrafficPattern::HotSpot { nodes, share })
}
