//! Names and parameters of traffic patterns.

use std::fmt;
use std::str::FromStr;

/// A pattern of destinations. Nodes are numbered by their index in the job's list; groups are the
/// machine's groups that have nodes of the job, in ascending order and as a ring (the first follows
/// the last). No node sends to itself.
#[derive(Clone, Copy, Debug, PartialEq)]
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

/// An invalid pattern or invalid traffic: the problem and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TrafficError(pub(super) String);

impl FromStr for TrafficPattern {
    type Err = TrafficError;

    /// Parses `name` or `name:key=value,key=value`.
    fn from_str(text: &str) -> Result<TrafficPattern, TrafficError> {
        let mut parts = text.splitn(2, ':');
        let (name, parameters) = (parts.next().unwrap_or_default(), parts.next());
        let bad = |problem: String| TrafficError(format!("traffic pattern `{text}`: {problem}"));
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
        let pattern = match name {
            "uniform" => TrafficPattern::Uniform,
            "nearest-group" => TrafficPattern::NearestGroup,
            "adversarial" | "group+1" => TrafficPattern::Adversarial,
            "all-to-all" => TrafficPattern::AllToAll,
            "permutation" => TrafficPattern::Permutation,
            "halo" => return halo(&pairs, &bad),
            "hot-spot" => return hot_spot(&pairs, &bad),
            _ => {
                return Err(TrafficError(format!(
                    "unknown traffic pattern `{name}`; use one of {NAMES}"
                )));
            }
        };
        match pairs.first() {
            None => Ok(pattern),
            Some((key, _)) => Err(bad(format!("it takes no parameter `{key}` nor any other"))),
        }
    }
}

type Bad<'a> = &'a dyn Fn(String) -> TrafficError;

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
                let parsed = value.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
                share = parsed.ok_or_else(|| {
                    bad(format!("`share` must be a number above 0 and at most 1, not `{value}`"))
                })?;
            }
            _ => return Err(bad(format!("it takes no parameter `{key}`, only nodes and share"))),
        }
    }
    Ok(TrafficPattern::HotSpot { nodes, share })
}
