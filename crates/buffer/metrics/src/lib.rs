//! Counters and latency histograms of the buffer, and their export to Prometheus.
//!
//! [`Counter`] and [`Latency`] are atomics that hot paths update without locks or allocations;
//! [`LatencySnapshot`] is a histogram's state at one moment. [`Exposition`] writes the Prometheus
//! text format, and [`Exporter`] serves it over HTTP.
#![warn(missing_docs)]

mod counter;
mod exporter;
mod exposition;
mod latency;
mod process;

pub use counter::Counter;
pub use exporter::Exporter;
pub use exposition::{Exposition, MetricKind};
pub use latency::{Latency, LatencySnapshot};
