//! Watching for locks that are granted later.
//!
//! One connection of a session, on a thread of its own, waits until a daemon grants a lock that was
//! refused at first. The connection also notices at once when the daemon restarts, so that locks are
//! reclaimed before other clients can take them.

use super::Sessions;
use crate::session::Session;
use crate::system::Connection;
use forebay_protocol::message::{LOCK_WATCH_SLOT, LockRequest};
use forebay_protocol::{Call, Errno, NodeIndex};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval of attempts to reach a daemon that does not reply.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(50);

impl Sessions {
    /// The session with `node`, whose locks are watched from now on.
    pub fn session_for_locks(self: &Arc<Sessions>, node: NodeIndex) -> Result<&Session, Errno> {
        let session = self.session(node)?;
        session.start_lock_watch(|| {
            let sessions = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name("forebay-locks".into());
            let watch = thread.spawn(move || watch_locks(&sessions, node));
            watch.map(|_| ()).map_err(|_| Errno::ENOLCK)
        })?;
        Ok(session)
    }
}

/// Waits for locks at `node` as long as the sessions exist.
fn watch_locks(sessions: &Weak<Sessions>, node: NodeIndex) {
    let mut seq = 0;
    // Granted tickets that the daemon does not know to be received.
    let mut known = Vec::new();
    while let Some(all) = sessions.upgrade() {
        seq += 1;
        let connected = connect(&all, node, seq);
        drop(all);
        if let Some((mut connection, epoch)) = connected {
            while let Some(tickets) = await_locks(&mut connection, &mut seq, &mut known) {
                let Some(all) = sessions.upgrade() else {
                    return;
                };
                if let Ok(session) = all.session(node) {
                    for ticket in &tickets {
                        session.lock_granted(*ticket, epoch);
                    }
                }
                known = tickets;
            }
        }
        std::thread::sleep(RECONNECT_INTERVAL);
    }
}

fn connect(sessions: &Sessions, node: NodeIndex, seq: u64) -> Option<(Connection, u64)> {
    let session = sessions.session(node).ok()?;
    let connection = session.connect(LOCK_WATCH_SLOT, seq, false).ok()?;
    let epoch = session.epoch();
    // A daemon that restarted does not know the pending locks.
    session.request_pending_locks();
    Some((connection, epoch))
}

/// Waits until the daemon grants locks, and returns their tickets.
fn await_locks(
    connection: &mut Connection,
    seq: &mut u64,
    known: &mut Vec<u64>,
) -> Option<Vec<u64>> {
    *seq += 1;
    let call = Call::new(*seq, LockRequest::Await { known: std::mem::take(known) });
    connection.call(&call, &[], &mut []).ok()?.reply.try_into().ok()
}
