//! Synthetic traffic: destinations, sizes and times of messages.
//!
//! A [`TrafficSpec`] is the user's request. [`TrafficPattern::resolve`] fits its pattern to the nodes
//! of a job; the resulting [`Destinations`] give each message's destination in constant time and
//! without allocation. [`TrafficSpec::arrivals`] gives the times between messages.

mod destinations;
mod pattern;
mod spec;

pub use destinations::Destinations;
pub use pattern::{TrafficError, TrafficPattern};
pub use spec::{Arrivals, Injection, LEAST_RATE_LIMIT, TrafficSpec};
