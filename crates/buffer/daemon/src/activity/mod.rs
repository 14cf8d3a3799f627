//! The state of a pool and the counters of its hosts: collected by the controller, shown by
//! `forebay top`, and exported to Prometheus.

mod exposition;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

pub use exposition::exposition;
pub use forebay_metrics::Exporter;
pub use status::{HostActivity, RefusedHost, StageTotals, Status};

/// Time in which a driver reports its counters.
const ACTIVITY_TIMEOUT: Duration = Duration::from_secs(1);

/// A source of status, for any thread. The error is the reason for which there is none.
pub type StatusSource = Arc<dyn Fn() -> Result<Status, String> + Send + Sync>;

/// A source of the counters of one host's process, which it sends through the channel that `ask`
/// passes to it. `busy` is the reason if it does not do so within a second.
pub(crate) fn counters_of(
    ask: impl Fn(SyncSender<HostActivity>) -> bool + Send + Sync + 'static,
    busy: &'static str,
) -> StatusSource {
    Arc::new(move || {
        let (answer, activity) = sync_channel(1);
        let activity = match ask(answer) {
            true => activity.recv_timeout(ACTIVITY_TIMEOUT).map_err(|_| busy)?,
            false => return Err(busy.to_owned()),
        };
        Ok(Status { activity: vec![activity], ..Status::default() })
    })
}

/// Serves a source's status in Prometheus' text format over HTTP at `/metrics`, until the exporter
/// is dropped. If the source fails the response is status 503 with the reason.
pub fn serve_metrics(address: SocketAddr, source: StatusSource) -> Result<Exporter, String> {
    let document = move || source().map(|status| exposition(&status));
    Exporter::start(address, document)
        .map_err(|error| format!("cannot serve metrics at {address}: {error}"))
}
