//! Synthetic traffic: who sends to whom, how much and when.
//!
//! A [`TrafficSpec`] is what the user asks for. [`Pattern::resolve`] fits its pattern to the nodes
//! of a job; the [`Destinations`] it gives answer for each message in constant time and without
//! allocation. [`TrafficSpec::arrivals`] gives the times between messages.

mod destinations;
mod pattern;

pub use destinations::Destinations;
pub use pattern::{TrafficError, TrafficPattern};

use crate::random::{exponential, unit_interval};
use forebay_units::{Bytes, Rate, Time};

/// Picoseconds in a second.
const PS: f64 = 1e12;

/// The longest time in which a node's messages are made, in seconds. Simulated time ends after 213
/// days; a single gap may be some forty times the mean.
const LONGEST: f64 = 1e5;

/// The largest message: more would be a file, not a message.
const LARGEST_MESSAGE: u64 = 1 << 30;

/// How a node's messages follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// As a Poisson process: exponentially distributed times between them.
    #[default]
    Poisson,
    /// At equal distances, each node beginning at a random time within the first.
    Fixed,
}

/// Synthetic traffic as asked for.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TrafficSpec {
    /// Who sends to whom.
    pub pattern: TrafficPattern,
    /// Size of a message.
    pub message: Bytes,
    /// Share of the node link's rate that each node offers: above 0, at most 1.
    pub load: f64,
    /// Messages that each node sends.
    pub messages: u64,
    /// How they follow each other.
    pub arrival: Arrival,
}

impl TrafficSpec {
    /// Traffic with Poisson arrivals, checked.
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
        let spec = TrafficSpec {
            pattern,
            message,
            load,
            messages,
            arrival: Arrival::Poisson,
        };
        spec.validate()?;
        Ok(spec)
    }

    /// Checks the numbers, as [`TrafficSpec::new`] does.
    ///
    /// # Errors
    /// As [`TrafficSpec::new`].
    pub fn validate(&self) -> Result<(), TrafficError> {
        let bad = |what: String| Err(TrafficError::BadSpec { what });
        if self.message.0 == 0 {
            return bad("a message has at least one byte".to_string());
        }
        if self.message.0 > LARGEST_MESSAGE {
            return bad(format!(
                "a message has at most 1 GiB, not {} bytes",
                self.message.0
            ));
        }
        if !(self.load > 0.0 && self.load <= 1.0) {
            return bad(format!(
                "the load is the share of the node link's rate that each node offers, above 0 and \
                 at most 1, not {}",
                self.load
            ));
        }
        if self.messages == 0 {
            return bad("each node sends at least one message".to_string());
        }
        Ok(())
    }

    /// The times between one node's messages, on node links of this rate.
    ///
    /// # Errors
    /// [`TrafficError::BadSpec`] as in [`TrafficSpec::new`], or if the rate is 0, or so low that
    /// the messages take more than 100,000 seconds.
    pub fn arrivals(&self, node_link: Rate) -> Result<Arrivals, TrafficError> {
        self.validate()?;
        let mean = self.message.0 as f64 * PS / (self.load * node_link.0 as f64);
        let seconds = mean * self.messages as f64 / PS;
        if seconds > LONGEST {
            return Err(TrafficError::BadSpec {
                what: format!(
                    "{} messages of a node at a load of {:?} take {seconds:.3e} s of simulated \
                     time on a node link of {} bytes a second; at most {LONGEST} s are simulated",
                    self.messages, self.load, node_link.0
                ),
            });
        }
        Ok(Arrivals {
            mean,
            arrival: self.arrival,
        })
    }
}

/// Times between the messages of one node. `Copy`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Picoseconds.
    mean: f64,
    arrival: Arrival,
}

impl Arrivals {
    /// The mean time between messages.
    pub fn mean(&self) -> Time {
        picoseconds(self.mean)
    }

    /// Time from the start to a node's first message; `random` decides.
    pub fn first_arrival(&self, random: u64) -> Time {
        match self.arrival {
            Arrival::Poisson => self.gap(random),
            Arrival::Fixed => picoseconds(self.mean * unit_interval(random)),
        }
    }

    /// Time from one message's being ready to the next's; `random` decides.
    #[inline]
    pub fn gap(&self, random: u64) -> Time {
        match self.arrival {
            Arrival::Poisson => picoseconds(self.mean * exponential(random)),
            Arrival::Fixed => picoseconds(self.mean),
        }
    }
}

/// To the nearest picosecond.
#[inline]
fn picoseconds(time: f64) -> Time {
    Time((time + 0.5) as u64)
}
