//! Parameters of synthetic traffic.

use super::pattern::{TrafficError, TrafficPattern};
use forebay_random::exponential;
use forebay_units::{Bytes, Rate, Time};
use std::fmt;
use std::str::FromStr;

/// Picoseconds in a second.
const PS: f64 = 1e12;

/// The longest time in which a node's messages are generated, in seconds. Simulated time ends after
/// 213 days; a single gap may be about forty times the mean.
const MAX_DURATION_S: f64 = 1e5;

/// The largest message.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// The least limit of a node's rate: simulated time is limited.
pub const LEAST_RATE_LIMIT: Rate = Rate(1_000_000);

/// The times at which nodes send their messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Injection {
    /// `random`: each node at random times of its own, a Poisson process.
    #[default]
    Random,
    /// `periodic`: all nodes at the same times, at equal intervals; first after one interval.
    Periodic,
}

impl Injection {
    /// All choices and their names.
    pub const NAMES: [(&'static str, Injection); 2] =
        [("random", Injection::Random), ("periodic", Injection::Periodic)];
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Injection::NAMES.iter().find(|(_, injection)| injection == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for Injection {
    type Err = TrafficError;

    fn from_str(text: &str) -> Result<Injection, TrafficError> {
        let found = Injection::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, injection)| *injection).ok_or_else(|| {
            TrafficError(format!("unknown injection `{text}`; use random or periodic"))
        })
    }
}

/// Synthetic traffic as requested.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficSpec {
    /// Destinations of messages.
    pub pattern: TrafficPattern,
    /// Size of a message.
    pub message: Bytes,
    /// Offered load of each node as a share of the node link's rate: above 0, at most 1.
    pub load: f64,
    /// Messages that each node sends.
    pub messages: u64,
    /// Times at which it sends them.
    pub injection: Injection,
    /// Greatest rate at which the interfaces of a node send them, as a limit of injection for the quality of
    /// service of other jobs; `None`: that of its links.
    pub rate_limit: Option<Rate>,
}

impl TrafficSpec {
    /// Valid traffic.
    ///
    /// # Errors
    /// If the message is empty or above 1 GiB, the load not above 0 and
    /// at most 1, or there are no messages.
    pub fn new(
        pattern: TrafficPattern,
        message: Bytes,
        load: f64,
        messages: u64,
    ) -> Result<TrafficSpec, TrafficError> {
        let injection = Injection::default();
        let spec = TrafficSpec { pattern, message, load, messages, injection, rate_limit: None };
        spec.validate()?;
        Ok(spec)
    }

    /// The same traffic with messages at other times.
    pub fn with_injection(self, injection: Injection) -> TrafficSpec {
        TrafficSpec { injection, ..self }
    }

    /// The same traffic with a limit of each node's rate.
    ///
    /// # Errors
    /// If the limit is below [`LEAST_RATE_LIMIT`].
    pub fn with_rate_limit(self, rate_limit: Option<Rate>) -> Result<TrafficSpec, TrafficError> {
        let spec = TrafficSpec { rate_limit, ..self };
        spec.validate()?;
        Ok(spec)
    }

    fn validate(&self) -> Result<(), TrafficError> {
        let problem = if self.message.0 == 0 {
            "a message needs at least one byte".to_string()
        } else if self.message.0 > MAX_MESSAGE_BYTES {
            format!("a message has at most 1 GiB, not {} bytes", self.message.0)
        } else if !(self.load > 0.0 && self.load <= 1.0) {
            let load = self.load;
            format!(
                "the load is a share of the node link's rate, above 0 and at most 1, not {load}"
            )
        } else if self.messages == 0 {
            "each node sends at least one message".to_string()
        } else if self.rate_limit.is_some_and(|limit| limit < LEAST_RATE_LIMIT) {
            format!("a rate limit is at least {LEAST_RATE_LIMIT}")
        } else {
            return Ok(());
        };
        Err(TrafficError(format!("traffic: {problem}")))
    }

    /// The times between one node's messages on node links of this rate.
    ///
    /// # Errors
    /// As in [`TrafficSpec::new`], or if the rate is 0, or so low that
    /// the messages take more than 100,000 seconds.
    pub fn arrivals(&self, node_link: Rate) -> Result<Arrivals, TrafficError> {
        self.validate()?;
        let mean = self.message.0 as f64 * PS / (self.load * node_link.0 as f64);
        let limited =
            self.rate_limit.map_or(0.0, |limit| self.message.0 as f64 * PS / limit.0 as f64);
        let seconds = mean.max(limited) * self.messages as f64 / PS;
        if seconds > MAX_DURATION_S {
            return Err(TrafficError(format!(
                "traffic: {} messages of a node at a load of {:?} take {seconds:.3e} s of simulated \
                 time on a node link of {} bytes per second; the limit is {MAX_DURATION_S} s",
                self.messages, self.load, node_link.0
            )));
        }
        Ok(Arrivals { mean, injection: self.injection })
    }
}

/// Times between the messages of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Mean time, ps.
    mean: f64,
    injection: Injection,
}

impl Arrivals {
    /// The mean time between messages.
    pub fn mean(&self) -> Time {
        picoseconds(self.mean)
    }

    /// The mean time between messages, seconds, not rounded.
    pub fn mean_seconds(&self) -> f64 {
        self.mean / PS
    }

    /// Time from the start to the first message, or from one message to the next, from the random
    /// number `random`, which periodic messages do not need.
    #[inline]
    pub fn gap(&self, random: u64) -> Time {
        picoseconds(match self.injection {
            Injection::Random => self.mean * exponential(random),
            Injection::Periodic => self.mean,
        })
    }
}

/// Rounds to the nearest picosecond.
#[inline]
fn picoseconds(time: f64) -> Time {
    Time((time + 0.5) as u64)
}
