//! Parameters of synthetic traffic.

use super::pattern::{TrafficError, TrafficPattern};
use forebay_random::{exponential, unit_interval};
use forebay_units::{Bytes, Rate, Time};

/// Picoseconds in a second.
const PS: f64 = 1e12;

/// The longest time in which a node's messages are generated, in seconds. Simulated time ends after
/// 213 days; a single gap may be about forty times the mean.
const MAX_DURATION_S: f64 = 1e5;

/// The largest message.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// The process by which a node's messages are generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// A Poisson process: exponentially distributed times between messages.
    #[default]
    Poisson,
    /// Constant times between messages; each node starts at a random time within the first.
    Fixed,
}

/// Synthetic traffic as requested.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TrafficSpec {
    /// Destinations of messages.
    pub pattern: TrafficPattern,
    /// Size of a message.
    pub message: Bytes,
    /// Offered load of each node as a share of the node link's rate: above 0, at most 1.
    pub load: f64,
    /// Messages that each node sends.
    pub messages: u64,
    /// The process that generates them.
    pub arrival: Arrival,
}

impl TrafficSpec {
    /// Valid traffic with Poisson arrivals.
    ///
    /// # Errors
    /// [`TrafficError::BadSpec`] if the message is empty or above 1 GiB, the load not above 0 and
    /// at most 1, or there are no messages.
    pub fn new(
        pattern: TrafficPattern,
        message: Bytes,
        load: f64,
        messages: u64,
    ) -> Result<TrafficSpec, TrafficError> {
        let spec = TrafficSpec { pattern, message, load, messages, arrival: Arrival::Poisson };
        spec.validate()?;
        Ok(spec)
    }

    /// Checks the values, as [`TrafficSpec::new`] does.
    ///
    /// # Errors
    /// As [`TrafficSpec::new`].
    pub fn validate(&self) -> Result<(), TrafficError> {
        let bad = |what: String| Err(TrafficError::BadSpec { what });
        if self.message.0 == 0 {
            return bad("a message needs at least one byte".to_string());
        }
        if self.message.0 > MAX_MESSAGE_BYTES {
            return bad(format!("a message has at most 1 GiB, not {} bytes", self.message.0));
        }
        if !(self.load > 0.0 && self.load <= 1.0) {
            return bad(format!(
                "the load is a share of the node link's rate, above 0 and at most 1, not {}",
                self.load
            ));
        }
        if self.messages == 0 {
            return bad("each node sends at least one message".to_string());
        }
        Ok(())
    }

    /// The times between one node's messages on node links of this rate.
    ///
    /// # Errors
    /// [`TrafficError::BadSpec`] as in [`TrafficSpec::new`], or if the rate is 0, or so low that
    /// the messages take more than 100,000 seconds.
    pub fn arrivals(&self, node_link: Rate) -> Result<Arrivals, TrafficError> {
        self.validate()?;
        let mean = self.message.0 as f64 * PS / (self.load * node_link.0 as f64);
        let seconds = mean * self.messages as f64 / PS;
        if seconds > MAX_DURATION_S {
            return Err(TrafficError::BadSpec {
                what: format!(
                    "{} messages of a node at a load of {:?} take {seconds:.3e} s of simulated \
                     time on a node link of {} bytes per second; the limit is {MAX_DURATION_S} s",
                    self.messages, self.load, node_link.0
                ),
            });
        }
        Ok(Arrivals { mean, arrival: self.arrival })
    }
}

/// Times between the messages of one node. `Copy`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Mean time, ps.
    mean: f64,
    arrival: Arrival,
}

impl Arrivals {
    /// The mean time between messages.
    pub fn mean(&self) -> Time {
        picoseconds(self.mean)
    }

    /// Time from the start to a node's first message, from the random number `random`.
    pub fn first_arrival(&self, random: u64) -> Time {
        match self.arrival {
            Arrival::Poisson => self.gap(random),
            Arrival::Fixed => picoseconds(self.mean * unit_interval(random)),
        }
    }

    /// Time from one message to the next, from the random number `random`.
    #[inline]
    pub fn gap(&self, random: u64) -> Time {
        match self.arrival {
            Arrival::Poisson => picoseconds(self.mean * exponential(random)),
            Arrival::Fixed => picoseconds(self.mean),
        }
    }
}

/// Rounds to the nearest picosecond.
#[inline]
fn picoseconds(time: f64) -> Time {
    Time((time + 0.5) as u64)
}
