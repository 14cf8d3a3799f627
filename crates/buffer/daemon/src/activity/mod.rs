//! The state of a pool and the counters of its hosts: collected by the controller, shown by
//! `forebay top`, and exported to Prometheus.

mod exposition;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;

pub use exposition::exposition;
pub use forebay_metrics::Exporter;
pub use status::{HostActivity, StageTotals, Status};

/// A source of status, for any thread. The error is the reason for which there is none.
pub type StatusSource = Arc<dyn Fn() -> Result<Status, String> + Send + Sync>;

/// Serves a source's status in Prometheus' text format over HTTP at `/metrics`, until the exporter
/// is dropped. If the source fails the response is status 503 with the reason.
pub fn serve_metrics(address: SocketAddr, source: StatusSource) -> Result<Exporter, String> {
    let document = move || source().map(|status| exposition(&status));
    Exporter::start(address, document)
        .map_err(|error| format!("cannot serve metrics at {address}: {error}"))
}
