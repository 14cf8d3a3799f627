//! What the buffer counts while it works, and how that is shown to Prometheus.
//!
//! [`Counter`] and [`Latency`] are atomics that hot paths advance without a lock or an allocation;
//! [`LatencySnapshot`] is what a histogram held at one moment. [`Exposition`] writes Prometheus'
//! text format, [`Responder`] serves it over HTTP.
#![warn(missing_docs)]

mod counter;
mod exporter;
mod exposition;
mod latency;

pub use counter::Counter;
pub use exporter::Exporter;
pub use exposition::{Exposition, MetricKind};
pub use latency::{Latency, LatencySnapshot};
