//! Waiting for events: locks that are granted later, and leases that are recalled.
//!
//! One connection of a session, on a thread of its own, waits until a daemon reports events. The
//! connection also notices at once when the daemon restarts, so that locks are reclaimed before other
//! clients can take them.

use super::Sessions;
use crate::session::Session;
use crate::system::Connection;
use forebay_protocol::message::{CacheRecall, EVENT_SLOT, LockRequest};
use forebay_protocol::{Call, Errno, LeaseId, NodeIndex};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval of attempts to reach a daemon that does not reply.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// Events that the daemon does not know to be processed.
#[derive(Default)]
struct Processed {
    /// Tickets of granted locks.
    granted: Vec<u64>,
    /// Recalled leases that are not used any more.
    returned: Vec<LeaseId>,
    /// The recall of the lease on names and attributes, which are not cached any more.
    dropped_cache: Option<LeaseId>,
}

/// Events that a daemon reports: tickets of granted locks, recalled leases on files, and the recall of the
/// lease on names and attributes.
type Events = (Vec<u64>, Vec<LeaseId>, Option<LeaseId>);

impl Sessions {
    /// The session with `node`, whose events are processed from now on.
    pub fn watched_session(self: &Arc<Sessions>, node: NodeIndex) -> Result<&Session, Errno> {
        let session = self.session(node)?;
        session.start_event_watch(|| {
            let sessions = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name("forebay-events".into());
            let watch = thread.spawn(move || watch_events(&sessions, node));
            watch.map(|_| ()).map_err(|_| Errno::ENOLCK)
        })?;
        Ok(session)
    }
}

/// Processes the events of `node` as long as the sessions exist.
fn watch_events(sessions: &Weak<Sessions>, node: NodeIndex) {
    let mut seq = 0;
    let mut processed = Processed::default();
    while let Some(all) = sessions.upgrade() {
        seq += 1;
        let connected = connect(&all, node, seq);
        drop(all);
        if let Some((mut connection, epoch)) = connected {
            loop {
                let Some(obeys) = sessions.upgrade().map(|all| all.obeys_cache_recalls()) else {
                    return;
                };
                let awaited = await_events(&mut connection, &mut seq, &mut processed, obeys);
                let Some(all) = sessions.upgrade() else {
                    return;
                };
                let Some((granted, recalled, recalled_cache)) = awaited else {
                    break;
                };
                if let Ok(session) = all.session(node) {
                    session.return_leases(&recalled);
                    session.return_write_leases(&recalled);
                    for ticket in &granted {
                        session.lock_granted(*ticket, epoch);
                    }
                }
                if recalled_cache.is_some() {
                    all.drop_cache();
                }
                processed =
                    Processed { granted, returned: recalled, dropped_cache: recalled_cache };
            }
        }
        std::thread::sleep(RECONNECT_INTERVAL);
    }
}

fn connect(sessions: &Sessions, node: NodeIndex, seq: u64) -> Option<(Connection, u64)> {
    let session = sessions.session(node).ok()?;
    let connection = session.connect(EVENT_SLOT, seq, false).ok()?;
    // Events may be far between. A daemon that dies closes the connection.
    connection.set_timeout(None).ok()?;
    let epoch = session.epoch();
    // A daemon that restarted does not know the pending locks.
    session.request_pending_locks();
    Some((connection, epoch))
}

/// Waits until the daemon reports events. `obeys_cache_recalls`: this client drops what it caches
/// when the daemon recalls the lease on names and attributes.
fn await_events(
    connection: &mut Connection,
    seq: &mut u64,
    processed: &mut Processed,
    obeys_cache_recalls: bool,
) -> Option<Events> {
    *seq += 1;
    let Processed { granted: known, returned, dropped_cache } = std::mem::take(processed);
    let cache = match dropped_cache {
        _ if !obeys_cache_recalls => CacheRecall::Ignored,
        Some(id) => CacheRecall::Dropped(id),
        None => CacheRecall::Obeyed,
    };
    let call = Call::new(*seq, LockRequest::AwaitEvents { known, returned, cache });
    connection.call(&call, &[], &mut []).ok()?.reply.try_into().ok()
}
